"""An operand that TMA refuses as it lies: how it is packed, or how the producer's threads load it."""

from __future__ import annotations

from dataclasses import dataclass

from .plan import Operand

MAX_DENSE_PITCH = 126  # bytes: 16 lines and what is aligned before and behind them fit into as many of 128


@dataclass(frozen=True)
class PackJob:
    """An operand as it lies, (items, rows, inner) with its strides in elements, and the elements that a row of the copy
    has, ``span``, a multiple of 128 bytes. With 3xTF32 ``side`` is "left" or "right", and the copy has three such rows
    side by side (see ``pack.three_terms``). ``grain`` is the largest power of two up to 8 that divides all addresses of
    lines of K, in bytes."""

    items: int
    rows: int
    inner: int
    strides: tuple[int, int, int]
    span: int
    side: str = ""
    grain: int = 1

    @property
    def form(self) -> str:
        """How the elements of ``inner`` lie: "rows", side by side; else "transposed" if those of other rows are nearer,
        "apart" if not."""
        if self.strides[2] == 1 or self.inner == 1:
            return "rows"
        return "transposed" if abs(self.strides[1]) < abs(self.strides[2]) and self.rows > 1 else "apart"

    @property
    def edges(self) -> tuple[int, int]:
        """Where the memory of all elements begins and ends, counted in elements from the first."""
        ways = [(extent - 1) * stride for extent, stride in zip((self.items, self.rows, self.inner), self.strides)]
        return sum(min(way, 0) for way in ways), sum(max(way, 0) for way in ways) + 1

    @property
    def elements(self) -> int:
        """Of the copy."""
        return self.items * self.rows * self.span * (3 if self.side else 1)

    def operand(self, size: int, rounded: bool = False) -> Operand:
        """The operand as the producer's threads load it, for elements of ``size`` bytes, which may have to be
        ``rounded``: no copy is made."""
        batch, row_step, k_step = self.strides
        if size == 2 and (row_step == 1 or self.rows == 1) and not (k_step == 1 and self.inner > 1):
            return Operand(False, k_step, self.items, batch, load="vectors", edges=self.edges)
        lines = k_step == 1 or self.inner == 1
        load = ({4: "words", 8: "pairs"}.get(0 if rounded else self.grain, "vectors")) if lines else "elements"
        if load == "vectors" and self.inner <= row_step <= MAX_DENSE_PITCH // size:
            load = "dense"
        k_step = 1 if lines else k_step
        return Operand(True, row_step, self.items, batch, load=load, k_step=k_step, edges=self.edges)
