"""Blocks and their warps: registers, special registers, shared and local memory, and vector clocks."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from . import route
from .async_copy import Groups
from .clocks import ACTORS, Clock, WarpClock
from .fragment import CONVERGE, RUN, Fragment
from .limits import RESERVED_SHARED
from .memory import POISON, RANK_SHIFT, SHARED_START, Region
from .report import EmulationError, Report
from .shadow import ACTOR_AT, BLOCK_AT, GLOBAL_ROWS, READ_ROWS
from .tensor_registers import TensorRegisters

if TYPE_CHECKING:
    from .barriers import ClusterBarrier
    from .machine import Machine

_U32, _I64 = np.dtype(np.uint32), np.dtype(np.int64)
_LANES = np.arange(32)
_WAITS = 8  # that a warp remembers, for reports
MAX_BLOCKS = (1 << 63 - BLOCK_AT) - 2  # that keys in shadow memory can tell apart
RESERVED_BYTES, SHARED_UNIT = 288, 128  # of what CUDA keeps, what kernels can use; units that memory comes in (H100)
_OF_BLOCK = ("ctaid", "cluster", "smid")  # special registers that differ between blocks have names that start so


_AXES = {"x": 0, "y": 1, "z": 2, "w": 3}


def _threads(warp: Any) -> tuple[np.ndarray, ...]:
    """``%tid`` of a warp's lanes."""
    thread, (x, y, _) = warp.index * 32 + _LANES, warp.machine.block
    return thread % x, thread // x % y, thread // (x * y)


@lru_cache(maxsize=4096)
def _keys(first: int) -> tuple[np.ndarray, np.ndarray]:
    """Block and actor of each lane of a warp, whose first lane has ``first``; and their place in keys of shadow
    memory."""
    actors = np.arange(first, first + 32, dtype=_I64)
    return actors, actors << np.int64(ACTOR_AT)


@lru_cache(maxsize=1 << 13)
def keys_at(first: int, number: int) -> np.ndarray:
    """The keys of one access by all lanes: ``number`` has its time, scope and instruction."""
    return _keys(first)[1] + np.array(number)


_TRIPLES: dict[str, Callable[[Any], tuple]] = {
    "tid": _threads,
    "ntid": lambda warp: warp.machine.block,
    "ctaid": lambda warp: warp.block.coordinates,
    "nctaid": lambda warp: warp.machine.grid,
    "cluster_ctaid": lambda warp: warp.block.in_cluster,
    "cluster_nctaid": lambda warp: warp.machine.cluster,
    "clusterid": lambda warp: tuple(c // s for c, s in zip(warp.block.coordinates, warp.machine.cluster)),
    "nclusterid": lambda warp: tuple(g // c for g, c in zip(warp.machine.grid, warp.machine.cluster)),
}


class Warp:
    def __init__(self, block: Block, index: int, threads: int):
        machine = block.machine
        self.block, self.index, self.machine = block, index, machine
        self.R = list(machine.program.initial)
        self.live = (1 << threads) - 1
        self.identity = 0, index, block.ordinal, (index, block.ordinal)  # for values that do not depend on all of it
        self.clock = WarpClock(block.number, index, block.warp_count, machine.start_of_time)
        self.first_actor = (block.number + 1 << BLOCK_AT - ACTOR_AT) + index * ACTORS
        self.actor_keys, self.key_base = _keys(self.first_actor)
        row = index + block.number * 3
        self.read_rows = row % READ_ROWS, row % GLOBAL_ROWS  # for its reads of shared and of global memory
        self.fence_acquires: dict[int, Clock] = {}  # by lane: read by relaxed loads, known after the next fence
        self.sequential: dict[int, Clock] = {}  # the same, known after the next fence.sc
        self.fence_releases: dict[int, tuple[Clock, int]] = {}  # by lane: clock and scope of its last fence
        self.groups: defaultdict[tuple[str, int], Groups] = defaultdict(Groups)  # by kind and lane
        self.located: dict = {}  # by register and size of access: its value, and the region and rows there
        self.stores: dict = {}  # the last copy to global memory of each instruction, which lanes share
        self.tiles: dict = {}  # accumulators that are not in registers, by their slots
        self.route = route.empty()
        self.waited: deque[tuple[Any, int, np.ndarray]] = deque(maxlen=_WAITS)  # the last waits: mbarrier, phase, lanes
        self.budgets: list = []  # setmaxnreg so far: (site, registers)
        self.fragments = [Fragment(self, 0, self.live)]
        self.priority = 0.0

    # --- lanes --------------------------------------------------------------------------------------------------------

    def add(self, fragment: Fragment) -> None:
        self.fragments.append(fragment)
        self.machine.schedule.ready(fragment)

    def exit(self, fragment: Fragment) -> None:
        """The fragment's lanes exit."""
        self.fragments.remove(fragment)
        self.live &= ~fragment.bits
        self.machine.threads_ended()
        for other in self.fragments:
            self.machine.resume(other, CONVERGE)
        self.block.threads_exited(self)

    def merge(self, fragment: Fragment) -> None:
        """Join the fragment with those of its warp that are at the same place."""
        for other in [f for f in self.fragments if f.pc == fragment.pc and f is not fragment]:
            states = (other.state, fragment.state)
            if set(states) <= {RUN, CONVERGE} and not ((other.lagging or fragment.lagging) and CONVERGE not in states):
                self.fragments.remove(other)
                self.machine.schedule.not_ready(other)
                fragment.set_lanes(fragment.bits | other.bits)
                fragment.lagging = False
                if fragment.state is CONVERGE:
                    self.machine.resume(fragment, CONVERGE)

    def learn(self, lanes, clock) -> None:
        self.clock.acquire(lanes, clock, lanes is None or len(lanes) == self.live.bit_count())

    def fence_proxy(self, lanes, spaces: tuple[int, ...]) -> None:
        self.clock.fence_proxy(lanes, lanes is None or len(lanes) == self.live.bit_count(), spaces)

    # --- values -------------------------------------------------------------------------------------------------------

    def sreg(self, name: str) -> np.ndarray:
        """A special register, kept for the launch if it is the same in all blocks, else for the block."""
        held, index = (self.block.special, 0) if name.startswith(_OF_BLOCK) else (self.machine.special, self.index)
        value = held.get((name, index))
        if value is None:
            value = held[name, index] = self.make_special(name)
        return value

    def make_special(self, name: str) -> np.ndarray:
        block, machine = self.block, self.machine
        base, _, axis = name.rpartition("_")
        if axis in _AXES and base in _TRIPLES:
            value = (*_TRIPLES[base](self), 0)[_AXES[axis]]
            return np.ascontiguousarray(np.broadcast_to(np.asarray(value, _I64), 32)).astype(_U32)
        values: dict[str, Any] = {
            "laneid": _LANES,
            "warpid": self.index,
            "nwarpid": block.warp_count,
            "smid": block.number % 132,
            "nsmid": 132,
            "gridid": 0,
            "cluster_ctarank": block.rank,
            "cluster_nctarank": machine.cluster_size,
            "is_explicit_cluster": int(machine.cluster_size > 1),
            "lanemask_eq": 1 << _LANES,
            "lanemask_lt": (1 << _LANES) - 1,
            "lanemask_le": (2 << _LANES) - 1,
            "lanemask_gt": ~((2 << _LANES) - 1),
            "lanemask_ge": ~((1 << _LANES) - 1),
            "dynamic_smem_size": machine.dynamic_bytes,
            "total_smem_size": -(-machine.shared_bytes // SHARED_UNIT) * SHARED_UNIT,
            "aggr_smem_size": machine.shared_bytes + RESERVED_SHARED,
            "reserved_smem_offset_begin": block.reserved,
            "reserved_smem_offset_end": block.reserved + RESERVED_BYTES,
            "reserved_smem_offset_cap": RESERVED_SHARED,
            "reserved_smem_offset_0": block.reserved,
            "reserved_smem_offset_1": block.reserved,
            "envreg1": machine.workspace >> 32,
            "envreg2": machine.workspace & 0xFFFFFFFF,
        }
        if name not in values:
            raise EmulationError(
                Report("unsupported", f"the special register %{name} is not known", machine.program.function.name)
            )
        return np.ascontiguousarray(np.broadcast_to(np.asarray(values[name], _I64), 32)).astype(_U32)

    @cached_property
    def tensor_registers(self) -> TensorRegisters:
        return TensorRegisters(self)

    @cached_property
    def local_region(self) -> Region:
        size = max(self.machine.local_bytes, 16) * 32
        return Region("local memory", 0, np.full(size, POISON, np.uint8), initialised=True)


class Block:
    """A resident block. ``number`` identifies it in clocks and shadow memory."""

    def __init__(self, machine: Machine, coordinates: tuple[int, int, int], number: int):
        self.machine, self.coordinates, self.number = machine, coordinates, number
        c = machine.cluster
        x, y, _ = machine.grid
        self.ordinal = coordinates[0] + x * (coordinates[1] + y * coordinates[2])  # in the grid
        self.in_cluster = tuple(a % b for a, b in zip(self.coordinates, c))
        self.rank = self.in_cluster[0] + c[0] * (self.in_cluster[1] + c[1] * self.in_cluster[2])
        threads = machine.block[0] * machine.block[1] * machine.block[2]
        self.warp_count = -(-threads // 32)
        self.peers: list[Block] = [self]
        self.shared = self._shared_memory()
        self.special: dict[tuple[str, int], np.ndarray] = {}
        self.named: dict = {}
        self.mbarriers: dict = {}
        self.inits: Counter = Counter()  # mbarriers initialised, by line of source
        self.gatherings: dict = {}  # warpgroup -> warps that have reached a wgmma
        self.cluster_barrier: ClusterBarrier | None = None
        self.warps = [Warp(self, i, min(32, threads - 32 * i)) for i in range(self.warp_count)]
        self.live_warps = self.warp_count

    def _shared_memory(self) -> Region:
        """The block's memory. What CUDA keeps for itself, zeros, lies behind it where a kernel asks for it (a GPU has
        it in front)."""
        machine = self.machine
        own = -(-machine.shared_bytes // 16) * 16 if machine.program.uses_reserved else machine.shared_bytes
        size = own + RESERVED_BYTES * machine.program.uses_reserved
        made = Region.shared(f"shared memory of block {self.coordinates}", size, machine.schedule)
        made.data[own:size], made.valid[own:size] = 0, 1
        self.reserved = SHARED_START + own
        return made

    def shared_at(self, address: int) -> tuple[Region | None, int]:
        """The region and offset of a shared address, of this block or of a peer in the cluster."""
        block, offset = self.block_at(address)
        return (block.shared if block else None), offset - SHARED_START

    def block_at(self, address: int) -> tuple[Block | None, int]:
        rank, offset = address >> RANK_SHIFT, address & ((1 << RANK_SHIFT) - 1)
        if rank == 0:
            return self, offset
        return (self.peers[rank - 1] if rank <= len(self.peers) else None), offset

    def threads_exited(self, warp: Warp) -> None:
        if not warp.live:
            self.live_warps -= 1
        for barrier in self.named.values():
            barrier.threads_exited(self)
        if self.peers[0].cluster_barrier is not None:
            self.peers[0].cluster_barrier.check()
        if self.live_warps == 0:
            self.machine.block_done(self)
