"""Asynchronous barriers: mbarriers of shared memory with tokens, explicit parity, early exit and byte counts.

A barrier counts down the arrivals it expects, and the bytes that copies still have to bring. When both are at zero its
phase is over: the count starts anew, and whoever waits goes on. What a thread wrote before it arrived is seen by those
who waited.

    threads    arrive ----+                    +---> wait returns, in all of them
    threads    arrive ----+--> phase is over --+
    a copy     bytes  ----+                    +---> the next phase counts from the start

The methods are called by single threads: 32 lanes that arrive are 32 arrivals, except in ``arrive_once`` and
``arrive_warp``. The meaning is that of PTX's ``mbarrier``, and so of ``cuda::barrier``; a barrier with a completion
function is in completion.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64
from cutlass.experimental import primitives
from cutlass.experimental.primitives import MemScope
from cutlass.memory import SmemAllocator

from ..errors import ArgumentValueError, explain
from ..warp import LANES
from .wait import await_phase, block_thread, of_barrier, until

MOST_ARRIVALS = (1 << 20) - 1  # PTX: the pending count has 20 bits
MOST_BYTES = (1 << 20) - 1  # and so has the count of bytes
_SCOPES = {"block": MemScope.CTA, "cluster": MemScope.CLUSTER}


@dataclass(frozen=True)
class Barriers:
    """Several barriers side by side, 8 bytes of shared memory each; make them with ``Barriers.make``. ``barriers[i]``
    is a ``Barrier``, and ``i`` may be dynamic."""

    start: cute.Pointer
    scope: str
    name: str

    @staticmethod
    def make(number: int, count, *, scope: str = "block", name: str = "barrier") -> Barriers:
        """``number`` barriers that each expect ``count`` arrivals a phase (an int or an Int32).

        Call at the top of a kernel, in all its threads: thread 0 initialises them. Before first use every thread must
        pass one ``cute.arch.sync_threads()`` (one for all barriers of the kernel), with ``scope="cluster"`` a cluster
        barrier. ``name`` is what the reports of a debug build call them.
        """
        if number < 1:
            raise ArgumentValueError(explain(f"number of barriers {name!r}", number, "at least 1"))
        if isinstance(count, int) and not 1 <= count <= MOST_ARRIVALS:
            raise ArgumentValueError(
                explain(f"count of barrier {name!r}", count, f"1 to 2**20 - 1 = {MOST_ARRIVALS} arrivals a phase")
            )
        if scope not in _SCOPES:
            raise ArgumentValueError(
                explain(f"scope of barrier {name!r}", repr(scope), " or ".join(map(repr, _SCOPES)))
            )
        start = SmemAllocator().allocate_array(Int64, number)
        _initialise(start, number, Int32(count))
        return Barriers(start, scope, name)

    def __getitem__(self, i) -> Barrier:
        return Barrier(self.start + i, self.scope, self.name, i)

    def await_phase(self, i, parity) -> None:
        """``self[i].wait_parity(parity)`` at block scope, by the DSL's wait loop, which takes fewer instructions."""
        await_phase(self.start, i, parity, self.name)


@cute.jit
def _initialise(start: cute.Pointer, number: cutlass.Constexpr, count: Int32):
    if block_thread() == 0:
        for i in cutlass.range_constexpr(number):
            cute.arch.mbarrier_init(start + i, count)
        cute.arch.mbarrier_init_fence()  # copies and the other blocks of a cluster see it, too


@dataclass(frozen=True)
class Barrier:
    """One barrier: ``Barrier.make(count)``, or one of ``Barriers``.

    What arrives returns a token that names the running phase. ``wait(token)`` may be called while that phase runs or is
    the last that ended. ``wait_parity(p)`` returns once the running phase is not one of parity ``p``, that is, once the
    last phase of parity ``p`` is over: count phases from 0 and wait for ``phase & 1``. (On a new barrier parity 1
    counts as over.)
    """

    pointer: cute.Pointer
    scope: str = "block"
    name: str = "barrier"
    stage: object = 0

    @staticmethod
    def make(count, *, scope: str = "block", name: str = "barrier") -> Barrier:
        """A barrier of its own; see ``Barriers.make`` for the arguments and for what must come before first use."""
        return Barriers.make(1, count, scope=scope, name=name)[0]

    @property
    def _scope(self) -> MemScope:
        return _SCOPES[self.scope]

    # Arriving

    def arrive(self, count=1):
        """``count`` arrivals by this thread; the token."""
        return primitives.mbarrier_arrive(self.pointer, count=count, scope=self._scope)

    def arrive_warp(self):
        """32 arrivals in one update: all lanes of the warp call, and each gets the token."""
        return _arrive_warp(self.pointer, self._scope)

    def arrive_once(self) -> None:
        """One arrival for the whole warp, after what its lanes have done: all lanes of the warp call."""
        _arrive_once(self)

    def arrive_and_drop(self):
        """Arrive now and never again: from the next phase on, one arrival less is expected. The token."""
        return primitives.mbarrier_arrive_drop(self.pointer, scope=self._scope)

    def arrive_and_wait(self) -> None:
        """``wait(arrive())``."""
        self.wait(self.arrive())

    def arrive_remote(self, block) -> None:
        """Arrive at the same barrier of block ``block`` (its rank in the cluster), at cluster scope; no token."""
        primitives.mbarrier_arrive(cute.arch.map_dsmem_ptr(self.pointer, block), scope=MemScope.CLUSTER)

    # Bytes

    def expect_tx(self, size) -> None:
        """The running phase also waits for ``size`` bytes. Copies that signal this barrier bring them."""
        primitives.mbarrier_expect_tx(self.pointer, size, scope=self._scope)

    def arrive_tx(self, count, size):
        """Expect ``size`` bytes, then arrive ``count`` times; the token."""
        if isinstance(count, int) and count == 1:
            return primitives.mbarrier_arrive_expect_tx(self.pointer, size, scope=self._scope)
        self.expect_tx(size)
        return self.arrive(count)

    def complete_tx(self, size) -> None:
        """Bring ``size`` bytes without a copy. It publishes nothing: arrive for that."""
        primitives.mbarrier_complete_tx(self.pointer, size, scope=self._scope)

    # Waiting

    def _look(self, how: str, phase):
        scope = self._scope.value
        return cute.arch.inline_ptx(
            f"mbarrier.{how}.acquire.{scope}.shared::cta.b64 {{$w0}}, [{{$r0}}], {{$r1}};",
            write_only_types=[Boolean],
            read_only_args=[self.pointer, phase],
        )

    def test_wait(self, token):
        """Whether the token's phase is over (Boolean), now."""
        return self._look("test_wait", token)

    def try_wait(self, token):
        """Whether the token's phase is over. The thread may sleep a little first. False may also mean: not yet
        known."""
        return self._look("try_wait", token)

    def wait(self, token) -> None:
        """Wait until the token's phase is over, and see what was written before its arrivals."""
        until(lambda: self.try_wait(token), of_barrier(self.name), self.stage, Int32(token & 0xFFFFFFFF))

    def try_wait_parity(self, parity):
        """``try_wait`` for the phase of a parity (Int32, 0 or 1)."""
        return self._look("try_wait.parity", Int32(parity))

    def wait_parity(self, parity) -> None:
        """Wait until the last phase of ``parity`` (Int32, 0 or 1) is over."""
        until(lambda: self.try_wait_parity(parity), of_barrier(self.name), self.stage, parity)

    def invalidate(self) -> None:
        """Give the 8 bytes back. One thread calls, after a barrier that everybody who used it has passed."""
        primitives.mbarrier_inval(self.pointer)


@cute.jit
def _arrive_once(barrier: cutlass.Constexpr):
    cute.arch.sync_warp()  # lane 0 speaks for all: what they did comes first
    if cute.arch.lane_idx() == 0:
        barrier.arrive()


@cute.jit
def _arrive_warp(pointer: cute.Pointer, scope: cutlass.Constexpr):
    token = Int64(0)
    cute.arch.sync_warp()  # what the other lanes wrote comes before the one arrival
    if cute.arch.lane_idx() == 0:
        token = primitives.mbarrier_arrive(pointer, count=LANES, scope=scope)
    low = cute.arch.shuffle_sync(Int32(token & 0xFFFFFFFF), 0)
    high = cute.arch.shuffle_sync(Int32(token >> 32), 0)
    return (Int64(high) << 32) | (Int64(low) & 0xFFFFFFFF)
