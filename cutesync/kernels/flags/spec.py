"""What flags and differences compute: the spec of a call, and of its kernel."""

from __future__ import annotations

from dataclasses import dataclass

from ...dtypes import DType, register
from ...ops import Operator
from ...runtime.call import Spec
from ..states import Argument

FORMS = {
    "heads": "flag_heads",
    "tails": "flag_tails",
    "both": "flag_heads_and_tails",
    "left": "adjacent_difference",
    "right": "adjacent_difference",
}


@dataclass(frozen=True)
class Marking:
    """What a kernel computes: a form, an operator, the element types, and whether the caller gives a neighbour for
    either end of a row.

    The forms "heads", "tails" and "both" compute flags of type ``result``, or with ``bits`` 32 flags per word; "left"
    and "right" compute differences with the neighbour on that side. ``args`` follow the operands of a callable.
    """

    form: str
    op: Operator
    source: DType
    result: DType
    bits: bool = False
    predecessor: bool = False
    successor: bool = False
    args: tuple[Argument, ...] = ()

    @property
    def name(self) -> str:
        """The name of the public function."""
        return FORMS[self.form]

    @property
    def is_flag(self) -> bool:
        return self.form in ("heads", "tails", "both")

    @property
    def compares_bytes(self) -> bool:
        """Whether four keys can be compared at once: "ne" or "eq" of types of one byte, and flags of one byte, or
        bits."""
        named = self.is_flag and self.op.fn is None and self.op.name in ("ne", "eq")
        return named and self.source.size == 1 and (self.bits or self.result.size == 1)

    @property
    def compares_halves(self) -> bool:
        """Whether two keys of two bytes can be compared at once: "ne" or "eq" inside of rows, and flags of one byte, or
        bits."""
        named = self.is_flag and self.op.fn is None and self.op.name in ("ne", "eq")
        alone = not (self.predecessor or self.successor)
        return named and alone and self.source.size == 2 and (self.bits or self.result.size == 1)

    @property
    def subtracts_bytes(self) -> bool:
        """Whether four differences can be computed at once: of integers of one byte, by an operator in ``words``."""
        named = not self.is_flag and self.op.fn is None and self.op.name in ("sub", "add", "and", "or", "xor")
        return named and self.source.size == 1 and self.source.kind in "iu"

    @property
    def looks(self) -> tuple[bool, bool]:
        """Whether items are compared with the item before them, and with the item behind them."""
        return self.form in ("heads", "both", "left"), self.form in ("tails", "both", "right")

    @property
    def outputs(self) -> int:
        return 2 if self.form == "both" else 1

    @property
    def key(self) -> tuple:
        """Identifies the machine code in caches."""
        args = tuple((a.dtype.name, a.in_memory) for a in self.args)
        types = self.source.name, self.result.name
        return (self.form, self.op.key, *types, self.bits, self.predecessor, self.successor, args)

    @property
    def register(self) -> str:
        """The name of the DSL type of the register that holds a predecessor or a successor."""
        return register(self.source, wide=False)


@dataclass(frozen=True)
class FlagSpec(Spec):
    """A call: ``axis`` (from 0 on) is flagged. ``predecessor`` and ``successor`` are numbers of the elements' type, or
    None. Rows are cut into tiles of ``tile`` items, unless it is None. If ``counted``, only the first items along the
    axis count: ``n`` of them, or as many as an array on the device says."""

    marking: Marking
    shape: tuple[int, ...]
    axis: int
    predecessor: int | float | None = None
    successor: int | float | None = None
    tile: int | None = None
    counted: bool = False
    n: int | None = None

    @property
    def result(self) -> tuple[tuple[int, ...], DType]:
        length = self.shape[self.axis]
        extent = -(-length // 32) if self.marking.bits else length
        return (*self.shape[: self.axis], extent, *self.shape[self.axis + 1 :]), self.marking.result
