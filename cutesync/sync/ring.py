"""A ring of buffers between a producer and consumers: N stages of shared memory, each with a full and an empty barrier.

    producer   acquire(k): wait until stage k % N is empty    fill it    publish(k) / load(k)
                     ^                                                        |
                     | empty[k % N]                                           | full[k % N]
                     |                                                        v
    consumers  release(k)    use it    <------------------    wait(k): wait until fill k is there

Fills are numbered 0, 1, 2, ... (Int32, below 2**31); both sides count them, and stage and parity follow from the
number. Nothing has to be flipped: fill k is the phase k // N of its stage, so the consumers wait for parity (k // N) &
1 of full, and the producer for the parity before that of empty (on a new barrier the phase before the first counts as
over).

Where N is no power of two that costs divisions. A *cursor* (stage, parity) instead of k costs one compare a stage:
``start_consumer()`` or ``start_producer()`` makes one, ``next(cursor)`` moves it on. The parity is that of the phase
that the side waits for.

Arithmetic of one phase: full expects one arrival of each producer warp ("threads"), one of each producer thread
("cp_async"), or one thread and the bytes it announced ("copies": bulk or tensor copies). empty expects one arrival of
each consumer warp.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Uint32
from cutlass.experimental import primitives

from ..errors import ArgumentValueError, explain
from ..warp import LANES
from .barrier import MOST_BYTES, Barriers

PRODUCERS = ("threads", "cp_async", "copies")
Cursor: Any = namedtuple("Cursor", "stage parity")  # where one side of a ring stands; see also ``tiles.Visit``


@dataclass(frozen=True)
class Ring:
    """Make it with ``Ring.make`` at the top of the kernel. It holds barriers; the buffers are the kernel's own shared
    memory, with a mode of ``stages``, indexed by ``stage(k)``."""

    full: Barriers
    empty: Barriers
    stages: int
    producer: str

    @staticmethod
    def make(stages: int, *, consumers: int, producer: str = "copies", producers: int = 1, name: str = "ring") -> Ring:
        """``stages`` stages filled by ``producers`` warps in the way of ``producer``, emptied by ``consumers`` warps.

        In all threads; one ``cute.arch.sync_threads()`` must follow before first use. 16 bytes of shared memory a
        stage.
        """
        if stages < 1:
            raise ArgumentValueError(explain(f"stages of {name!r}", stages, "at least 1"))
        if producer not in PRODUCERS:
            raise ArgumentValueError(
                explain(f"producer of {name!r}", repr(producer), " or ".join(map(repr, PRODUCERS)))
            )
        if consumers < 1 or producers < 1 or (producer == "copies" and producers > 1):
            came = f"{producers} producer and {consumers} consumer warps"
            raise ArgumentValueError(
                explain(f"warps of {name!r}", came, "1 or more of each", "copies are issued by one warp")
            )
        arrivals = {"threads": producers, "cp_async": producers * LANES, "copies": 1}[producer]
        full = Barriers.make(stages, arrivals, name=f"full of {name}")
        return Ring(full, Barriers.make(stages, consumers, name=f"empty of {name}"), stages, producer)

    # Where one side stands: ``k`` is the number of a fill, or a cursor

    def start_consumer(self, stage=0) -> Cursor:
        """The cursor of a consumer whose first fill is number ``stage`` < ``stages``."""
        return Cursor(Int32(stage), Int32(0))

    def start_producer(self) -> Cursor:
        """The cursor of the producer."""
        return Cursor(Int32(0), Int32(1))

    def next(self, cursor, step: int = 1) -> Cursor:
        """The cursor ``step`` <= ``stages`` fills further on."""
        return _next(cursor.stage, cursor.parity, step, self.stages)

    def stage(self, k: Any):
        """The stage that fill ``k`` lies in."""
        return k.stage if hasattr(k, "parity") else Int32(Uint32(k) % self.stages)

    def _parity(self, k):
        return Int32(Uint32(k) // self.stages) & 1

    # Producer warps: all lanes call

    def acquire(self, k) -> None:
        """Wait until the consumers have released what fill ``k`` is about to overwrite."""
        self.acquire_alone(k)
        if self.producer == "copies":
            # one lane goes on to start the copies: a lane still waiting could be lapped by two phases
            cute.arch.sync_warp()

    def acquire_alone(self, k: Any) -> None:
        """As ``acquire``, in a producer of one thread."""
        if hasattr(k, "parity"):
            self.empty.await_phase(k.stage, k.parity)
        else:
            self.empty[self.stage(k)].wait_parity(self._parity(k) ^ 1)

    def publish(self, k, *, to_async: bool = False) -> None:
        """Hand fill ``k`` over ("threads", "cp_async"). ``to_async``: copies or tensor cores read it."""
        if self.producer == "copies":
            raise ArgumentValueError(
                explain(
                    "publish()",
                    "a ring filled by copies",
                    "producer='threads' or 'cp_async'",
                    "copies publish themselves: load() or expect()",
                )
            )
        if to_async:
            cute.arch.fence_proxy("async.shared", space="cta")  # PTX: generic writes before reads by the async proxy
        if self.producer == "cp_async":
            # once this thread's copies have landed
            cute.arch.cp_async_mbarrier_arrive_noinc(self.full[self.stage(k)].pointer)
        else:
            self.full[self.stage(k)].arrive_once()

    def load(self, k, target, source, size) -> None:
        """Fill ``k`` by one bulk copy of ``size`` bytes from ``source`` (global memory) to ``target`` (its stage), all
        multiples of 16."""
        _load(self, k, target, source, Int32(size))

    def load_alone(self, k, copies) -> None:
        """As ``load``, by one thread, with several bulk copies ``(target, source, size)``, or none."""
        _copy(self, k, copies)

    def expect(self, k, size) -> None:
        """One lane: fill ``k`` is complete once copies that signal ``signal(k)`` have brought ``size`` bytes in all."""
        if isinstance(size, int) and not 0 <= size <= MOST_BYTES:
            raise ArgumentValueError(explain("bytes of a fill", size, f"0 to 2**20 - 1 = {MOST_BYTES}"))
        self.full[self.stage(k)].arrive_tx(1, size)

    def signal(self, k):
        """The mbarrier that copies of fill ``k`` signal: ``cute.copy(..., tma_bar_ptr=ring.signal(k))``."""
        return self.full[self.stage(k)].pointer

    # Consumer warps: all lanes call

    def wait(self, k: Any) -> None:
        """Wait until fill ``k`` is there."""
        if hasattr(k, "parity"):
            self.full.await_phase(k.stage, k.parity)
        else:
            self.full[self.stage(k)].wait_parity(self._parity(k))

    def release(self, k) -> None:
        """This warp is done with fill ``k``: its lanes have read it, and so have copies and tensor cores that read it
        for them."""
        if self.producer == "copies":
            cute.arch.fence_proxy("async.shared", space="cta")  # PTX: generic reads before the next copy into it
        self.empty[self.stage(k)].arrive_once()


@cute.jit
def _next(stage: Int32, parity: Int32, step: cutlass.Constexpr, stages: cutlass.Constexpr):
    stage += step
    if stage >= stages:
        stage -= stages
        parity ^= 1
    return Cursor(stage, parity)


@cute.jit
def _load(ring: cutlass.Constexpr, k, target: cute.Pointer, source: cute.Pointer, size: Int32):
    if cute.arch.lane_idx() == 0:
        _copy(ring, k, [(target, source, size)])


def _copy(ring: Ring, k, copies) -> None:
    ring.expect(k, sum((size for _, _, size in copies[1:]), start=Int32(copies[0][2]) if copies else Int32(0)))
    for target, source, size in copies:
        copy_bulk(target, source, ring.signal(k), Int32(size))


@cute.jit
def copy_bulk(target: cute.Pointer, source: cute.Pointer, barrier, size: Int32):
    """Copy ``size`` bytes from global memory to shared memory, and signal an mbarrier."""
    if size > 0:
        primitives.cp_async_bulk_shared_cluster_global(target, source, barrier, size)
