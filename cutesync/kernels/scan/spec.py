"""The spec of a scan: what a call computes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...dtypes import DType
from ...ops import Operator
from ...runtime.call import Spec


@dataclass(frozen=True)
class ScanSpec(Spec):
    """A call of ``scan``. ``start`` comes before the first element: a number of the type of the operation, or None;
    with ``start_in_memory`` it is an input.

    ``extents`` are (rows, length, inner): there are rows * inner scans of ``length`` elements. ``shape`` is that of the
    result.
    """

    op: Operator
    source: DType
    accumulate: DType
    output: DType
    exclusive: bool
    reverse: bool
    start: int | float | None = None
    start_in_memory: bool = False
    shape: tuple[int, ...] = ()
    extents: tuple[int, int, int] = (1, 1, 1)
    algorithm: str = "auto"

    @property
    def result(self) -> tuple[tuple[int, ...], DType]:
        return self.shape, self.output

    @property
    def start_kind(self) -> str | None:
        return "memory" if self.start_in_memory else None if self.start is None else "value"

    @property
    def key(self) -> tuple:
        """Identifies the machine code in caches."""
        types = self.source.name, self.accumulate.name, self.output.name
        return (*types, self.exclusive, self.reverse, self.start_kind, self.op.key)

    @property
    def register(self) -> str:
        """The name of the DSL type of the register that holds a value."""
        return self.op.register(self.accumulate)

    @property
    def words(self) -> int:
        """32-bit words of a state."""
        return 2 if self.register.endswith("64") else 1

    def between(self, source: DType) -> ScanSpec:
        """Return the same operation on elements of type ``source``, with results of the accumulator's type: an upper
        tier of a tiered scan."""
        kind = self.accumulate
        return replace(self, source=source, output=kind, exclusive=False, start=None, start_in_memory=False)
