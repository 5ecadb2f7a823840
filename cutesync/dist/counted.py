"""Exchanges of states of which some ranks may have none: each sends how many elements its state is of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..dtypes import INT64, DType
from ..kernels.named import Named
from ..kernels.reduce.spec import Reduction
from ..kernels.reduce.strided_plan import DIVIDE
from ..kernels.states import Argument, States
from ..ops import Operator


@dataclass(frozen=True)
class Counted:
    """``operation``, with states that also have the number of elements that they are of; the last run-time argument is
    that of the own one, in memory. With ``divides`` the operation's argument is what the sum of these numbers is
    reduced by, before results are divided by it. ``initial``: the first operand counts; otherwise it is the state of no
    elements."""

    operation: Reduction | States
    initial: bool

    @property
    def divides(self) -> bool:
        return isinstance(self.operation, Named) and self.operation.name in DIVIDE

    @property
    def sources(self) -> tuple[DType, ...]:
        return self.operation.sources

    @property
    def results(self) -> tuple[DType, ...]:
        return self.operation.results

    @property
    def registers(self) -> tuple[str, ...]:
        """Those of the first operand."""
        return self.operation.registers

    @property
    def args(self) -> tuple[Argument, ...]:
        return (*self.operation.args, Argument(INT64, True))

    @property
    def slot_words(self) -> int:
        return self.operation.slot_words + 2

    @property
    def key(self) -> tuple:
        """Identifies the machine code in caches."""
        return ("counted", self.initial, *self.operation.key)

    def monoid(self) -> Any:
        from .counted_kernel import CountedMonoid

        return CountedMonoid(self)


@dataclass(frozen=True)
class Present(Counted):
    """The same for segments: how many elements a state is of is the difference of two offsets, which are inputs behind
    the values of the state."""

    @property
    def sources(self) -> tuple[DType, ...]:
        return (*self.operation.sources, INT64, INT64)

    @property
    def args(self) -> tuple[Argument, ...]:
        return self.operation.args

    @property
    def key(self) -> tuple:
        """Identifies the machine code in caches."""
        return ("counted", "segments", self.initial, *self.operation.key)

    def monoid(self) -> Any:
        from .counted_kernel import PresentMonoid

        return PresentMonoid(self)


def with_nothing(operation: Reduction | States, state: tuple | None) -> Reduction | States:
    """Return the operation with a state for parts of which no elements count: its identity, or else ``state`` (0 if
    that is None), which no operator sees."""
    if operation.identity() is not None:
        return operation
    op = Operator(operation.op.name, operation.op.fn, state or (0,) * len(operation.values))  # type: ignore[union-attr]
    if isinstance(operation, States):
        return replace(operation, op=op)
    types = (operation.source,), (operation.accumulate,), (operation.result,)
    return States(op, *types, transform=operation.transform, unpacked=True)
