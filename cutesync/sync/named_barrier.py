"""Named barriers: the 16 hardware barriers of a block, for groups of warps that must meet or take turns.

    sync    arrive and wait until as many threads as ``threads`` have arrived
    arrive  arrive and go on: the other side of a hand-over

Barrier 0 is ``cute.arch.sync_threads()``. The rest are numbered by an ``IntEnum`` of the kernel, so that two uses
cannot take the same number by accident.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import cutlass.cute as cute

from ..errors import ArgumentTypeError, ArgumentValueError, explain
from ..warp import LANES

MOST_THREADS = 1024


@dataclass(frozen=True)
class NamedBarrier:
    """The barrier ``id`` (an IntEnum member, 1 to 15) of ``threads`` threads: those that ``arrive`` and those that
    ``sync`` together.

    >>> class Turn(IntEnum):
    ...     FIRST = 1
    ...     SECOND = 2
    >>> NamedBarrier(Turn.FIRST, 256).sync()

    Whole warps call. Every phase must have exactly ``threads`` arrivals; the number may be used again once all have
    left. With ``count`` there are so many barriers, whose ids follow each other: one for each group of threads.
    """

    id: IntEnum
    threads: int
    count: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.id, IntEnum):
            raise ArgumentTypeError(
                explain(
                    "id of a named barrier",
                    repr(self.id),
                    "a member of an IntEnum",
                    "list the kernel's barriers in one IntEnum, from 1",
                )
            )
        kind = type(self.id)
        if len(kind.__members__) != len(kind):
            twice = sorted({name for name, member in kind.__members__.items() if name != member.name})
            raise ArgumentValueError(
                explain(
                    f"ids {kind.__name__}", f"{', '.join(twice)} with a number that is taken", "one number a barrier"
                )
            )
        beyond = set(range(self.id, self.id + self.count)) - set(map(int, kind))
        if beyond or self.count < 1:
            came = f"{self.count} barriers from {self.id!r} on"
            raise ArgumentValueError(explain("count", came, f"1 or more, all of them members of {kind.__name__}"))
        if not 1 <= self.id <= 15:
            raise ArgumentValueError(
                explain(f"id {self.id!r}", int(self.id), "1 to 15", "a block has 16 barriers, and 0 is sync_threads")
            )
        if self.threads % LANES or not LANES <= self.threads <= MOST_THREADS:
            came = f"{self.threads} = {self.threads // LANES} * {LANES} + {self.threads % LANES} threads"
            raise ArgumentValueError(
                explain(f"named barrier {self.id.name}", came, f"a multiple of {LANES} from {LANES} to {MOST_THREADS}")
            )

    def sync(self, group: Any = 0) -> None:
        """Arrive at the barrier of ``group``, and wait for the phase to be complete."""
        cute.arch.barrier(barrier_id=int(self.id) + group, number_of_threads=self.threads)

    def arrive(self, group: Any = 0) -> None:
        """Arrive and go on. What this thread wrote before is seen by those that ``sync``."""
        cute.arch.barrier_arrive(barrier_id=int(self.id) + group, number_of_threads=self.threads)
