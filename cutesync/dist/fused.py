"""Reductions of all parts to one result, in one launch a device: the thread that would store the result of a part
sends its state to the other devices, waits for theirs, and stores the result of all."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..dtypes import INT64, DType
from ..kernels.reduce.plan import launch, problem_of
from ..kernels.reduce.policy import of_rows
from ..kernels.reduce.problem import Choice
from ..kernels.reduce.spec import ReduceSpec, Reduction
from ..kernels.states import Argument, States
from ..runtime.launch import Run
from .exchange import Side, launch_each
from .memory import GATHER, GATHER_SLOTS, Call, SymmetricMemory
from .recorder import observed

if TYPE_CHECKING:
    from .sharded import Sharded
    from .work import Work


@dataclass(frozen=True)
class Fused:
    """What such a kernel computes. ``first`` reduces the part to the values of a state; ``last`` makes the state that
    is sent of these values, combines those of the ranks, and makes the results. The run-time arguments are those of
    both, then the numbers of ``memory.Call`` and the addresses of the memory of all ranks."""

    first: Any
    last: Any
    ranks: int

    @property
    def sources(self) -> tuple[DType, ...]:
        return self.first.sources

    @property
    def results(self) -> tuple[DType, ...]:
        return self.last.results

    @property
    def registers(self) -> tuple[str, ...]:
        return self.first.registers

    @property
    def args(self) -> tuple[Argument, ...]:
        return (*self.first.args, *self.last.args, *(Argument(INT64, False),) * (len(Call._fields) + self.ranks))

    @property
    def key(self) -> tuple:
        """Identifies the machine code in caches."""
        return ("fused", self.ranks, *self.first.key, *self.last.key)

    def monoid(self) -> Any:
        from .fused_monoid import FusedMonoid

        return FusedMonoid(self)


class FusedReduce:
    """The launches of a reduction, whose parts have the Spec ``spec``. ``sides`` are those of the exchange of
    ``last``. A device that takes no states has a result that means nothing."""

    def __init__(
        self, spec: ReduceSpec, last: Reduction | States, xs: tuple[Sharded, ...], sides: Sequence[Side]
    ) -> None:
        self.group, self.sides, self.args = xs[0].group, sides, spec.args
        self.fused: Any = Fused(spec.reduction, last, self.group.size)
        self.lengths = [view.size for view in xs[0].views]
        self.choices = [_choice(spec.reduction, xs, rank) for rank in range(self.group.size)]
        self._launches: dict[SymmetricMemory, tuple[Run, ...]] = {}

    def launch_all(self, xs: tuple[Sharded, ...], targets: Sequence[int], work: Work, more: object = None) -> None:
        """Launch on all devices. ``targets`` are the addresses of the results: all of the first device, then all of
        the next. There are no other inputs (``more``)."""
        runs = self._launches.get(work.memory)
        if runs is None:  # all are made, and their kernels loaded, before one runs
            ranks = range(self.group.size)
            runs = self._launches[work.memory] = tuple(self._launch(work.memory, rank) for rank in ranks)
        if len(xs) == 1 and len(targets) == len(runs):
            addresses: list[tuple[int, ...]] = list(zip(xs[0].pointers, targets))
        else:
            count = len(targets) // len(runs)
            pointers = enumerate(zip(*[x.pointers for x in xs]))
            addresses = [(*given, *targets[rank * count : (rank + 1) * count]) for rank, given in pointers]
        launch_each(runs, addresses, work)

    def _launch(self, memory: SymmetricMemory, rank: int) -> Run:
        base = memory.bases[rank]
        signature = zlib.crc32(repr(self.fused.key).encode()) & 0x7FFFFFFF
        side = self.sides[rank]
        call = Call(rank=rank, count=1, capacity=memory.capacity, take=side.take, own=1, signature=signature)
        args = (*self.args, *side.args, *call, *memory.bases)
        own = {"counters": base + GATHER, "scratch": base + memory.gather_slots}
        extents, ordinal = (1, self.lengths[rank], 1), self.group.ordinals[rank]
        return observed(launch(self.choices[rank], self.fused, extents, None, ordinal, 0, args, own).run)


def _choice(first: Reduction | States, xs: tuple[Sharded, ...], rank: int) -> Choice:
    views = tuple(x.views[rank] for x in xs)
    choice = of_rows(problem_of(first, (1, views[0].size, 1), views, ()))
    assert choice.splits * first.slot_words <= GATHER_SLOTS
    return choice
