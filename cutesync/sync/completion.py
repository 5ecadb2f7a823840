"""A barrier with a completion function: the last to arrive runs it, once a phase, before anybody leaves.

    arrive: one atomic on a shared word counts the phase down
        not the last --------------------------------------+
        the last --> completion() --> arrives at the mbarrier --> wait returns, in all of them

The mbarrier itself expects one arrival, that of the last. The atomic releases what each thread wrote before; the last
acquires all of it by one more load, and its arrival makes that, and what the completion function wrote, seen by
everyone who waited.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64
from cutlass.memory import SmemAllocator

from ..errors import ArgumentTypeError, ArgumentValueError, explain
from .barrier import MOST_ARRIVALS, Barrier
from .wait import block_thread

_FIELD = 20  # the word: arrivals still to come, arrivals a phase, and above them the number of the phase
_MASK = (1 << _FIELD) - 1


@dataclass(frozen=True)
class CompletionBarrier:
    """``CompletionBarrier.make(count, completion)``: one thread a phase runs the traced function ``completion()``.

    Tokens, drops and waits are those of ``Barrier``; arrivals are one at a time. 16 bytes of shared memory.
    """

    word: cute.Pointer
    barrier: Barrier
    completion: Callable[[], None]

    @staticmethod
    def make(count, completion: Callable[[], None], *, name: str = "barrier") -> CompletionBarrier:
        """As ``Barrier.make``: in all threads, at the top, and a block barrier before first use."""
        if not callable(completion):
            raise ArgumentTypeError(explain("completion", repr(completion), "a traced function of no arguments"))
        if isinstance(count, int) and not 1 <= count <= MOST_ARRIVALS:
            raise ArgumentValueError(
                explain(f"count of barrier {name!r}", count, f"1 to 2**20 - 1 = {MOST_ARRIVALS} arrivals a phase")
            )
        word = SmemAllocator().allocate_array(Int64, 1)
        _initialise(word, Int64(count))
        return CompletionBarrier(word, Barrier.make(1, name=name), completion)

    def arrive(self):
        """Arrive, and complete the phase if this is the last arrival; the token (the phase's parity)."""
        return _arrive(self.word, self.barrier, self.completion, Int64(-1))

    def arrive_and_drop(self):
        """Arrive now and never again: from the next phase on, one arrival less is expected. The token."""
        return _arrive(self.word, self.barrier, self.completion, Int64(-1) - Int64(1 << _FIELD))

    def wait(self, token) -> None:
        """Wait until the token's phase is over and its completion function has run."""
        self.barrier.wait_parity(token)

    def arrive_and_wait(self) -> None:
        """``wait(arrive())``."""
        self.wait(self.arrive())


@cute.jit
def _initialise(word: cute.Pointer, count: Int64):
    if block_thread() == 0:
        cute.make_tensor(word, cute.make_layout(1))[0] = (count << _FIELD) | count


@cute.jit
def _arrive(word: cute.Pointer, barrier: cutlass.Constexpr, completion: cutlass.Constexpr, change: Int64):
    before = Int64(cute.arch.atomic_add(word, change, sem="release", scope="cta"))
    if ((before + change) & _MASK) == 0:
        settled = Int64(cute.arch.load(word, Int64, sem="acquire", scope="cta"))
        completion()
        # No other thread touches the word before the mbarrier's phase ends: start the next count, and count the phase.
        cute.arch.atomic_add(
            word, ((settled >> _FIELD) & _MASK) + (Int64(1) << (2 * _FIELD)), sem="relaxed", scope="cta"
        )
        barrier.arrive()
    return Int32(before >> (2 * _FIELD)) & 1
