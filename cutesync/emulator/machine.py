"""A launch in flight: blocks, warps, and the fragments of warps that run in step.

A *fragment* is the lanes of one warp that are at one place. A divergent branch splits a fragment, meeting at a place joins two. It runs
(``RUN``), waits for other lanes of its warp at a convergent instruction (``CONVERGE``), is blocked until somebody wakes it (``BLOCKED``),
or has polled memory in vain and sleeps until that memory changes (``POLL``). The scheduler (``schedule.py``) says who runs next.
"""

from __future__ import annotations

import numpy as np

from .clocks import ACTORS, WarpClock
from .emitter import STOP
from .memory import RANK_SHIFT, SHARED_START, Memory, Region
from .report import EmulationError, Report, actor, lane_list
from .sanitizer import _ACTOR_AT, _BLOCK_AT, _READ_ROWS, Sanitizer

RUN, CONVERGE, BLOCKED, POLL = "runs", "waits for lanes of its warp", "is blocked", "polls"
_U32, _I64 = np.dtype(np.uint32), np.dtype(np.int64)
_LANES = np.arange(32)
_FULL = (1 << 32) - 1
cnz = np.count_nonzero
_SILENT_LIMIT = 2_000_000        # segments without any visible effect: somebody loops for ever
_POLL_ROUNDS = 64


def bits_of(mask: np.ndarray) -> int:
    return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")


def mask_of(bits: int) -> np.ndarray:
    return np.unpackbits(np.frombuffer((bits & _FULL).to_bytes(4, "little"), np.uint8), bitorder="little").astype(bool)


class Fragment:
    """Lanes of one warp at one segment. ``lanes`` is None for all 32, else their indices."""

    def __init__(self, warp: "Warp", pc: int, bits: int):
        self.warp, self.pc, self.state = warp, pc, RUN
        self.waits: str | None = None
        self.site = 0                    # the instruction it is blocked at
        self.waits_on = None
        self.poll: tuple | None = None
        self.sleep_on = None
        self.lagging = False
        self.priority = 0.0
        self.set_lanes(bits)

    def set_lanes(self, bits: int) -> None:
        self.bits = bits
        self.mask = mask_of(bits)
        self.count = bits.bit_count()
        self.lanes = None if bits == _FULL else np.flatnonzero(self.mask)
        program = self.warp.machine.program
        self.code = program.full if bits == _FULL else program.part

    # --- called by generated code -----------------------------------------------------------------------------------

    @staticmethod
    def pick(mask: np.ndarray):
        """A lane vector as operations take it: None for all 32."""
        return None if cnz(mask) == 32 else mask.nonzero()[0]

    def split(self, taken: np.ndarray, target: int, otherwise: int) -> int:
        """Diverge: the taken lanes become a fragment of their own at ``target``; this one goes on at ``otherwise``."""
        bits = bits_of(taken)
        other = Fragment(self.warp, target, bits)
        other.priority = self.priority
        self.set_lanes(self.bits & ~bits)
        self.warp.add(other)
        return otherwise

    def exit(self) -> int:
        self.warp.leave(self)
        return STOP

    def converged(self, members: int) -> bool:
        """True if every live lane of ``members`` is in this fragment; else it waits here until they are."""
        if members & self.warp.live & ~self.bits == 0:
            return True
        self.state = CONVERGE
        self.waits_on = members
        return False

    def polled(self, region, values) -> None:
        """Note a strong load. The second in a row with nothing changed means a spin: sleep until that region changes."""
        self.note_poll(region, region.version, values.tobytes())

    def note_poll(self, source, version: int, value) -> None:
        seen = (source, version, value, self.pc)
        if self.poll == seen:
            self.sleep_on = source
        self.poll = seen

    def block_on(self, why: str, thing, pc: int, site: int) -> int:
        """Stop running until woken; go on at ``pc`` then."""
        self.state, self.waits, self.waits_on, self.pc, self.site = BLOCKED, why, thing, pc, site
        if self.warp.machine.trace is not None:
            self.warp.machine.trace.waits_now(self)
        return STOP

    def where(self):
        """The instruction this fragment is at."""
        program = self.warp.machine.program
        if self.state == BLOCKED and self.site:
            return program.sites[self.site - 1]
        pc = self.poll[3] if self.state == POLL and self.poll else self.pc
        start = program.segments[min(pc, len(program.segments) - 1)][0]
        return program.function.code[start]


class Warp:
    def __init__(self, block: "Block", index: int, threads: int):
        machine = block.machine
        self.block, self.index, self.machine = block, index, machine
        self.R = list(machine.program.initial)
        self.live = (1 << threads) - 1
        self.all = self.live
        self.special: dict[str, np.ndarray] = {}
        self.clock = WarpClock(block.number, index, block.warp_count)
        actors = np.arange(32, dtype=_I64) + index * ACTORS
        self.key_base = (actors << np.int64(_ACTOR_AT)) + np.int64((block.number + 1) << _BLOCK_AT)
        self.read_row = (index + block.number * 3) % _READ_ROWS if machine.blocks_share else index % _READ_ROWS
        self.heard: dict = {}
        self.fenced: dict = {}
        self.groups: dict = {}
        self.budgets: list = []              # setmaxnreg so far: (site, registers)
        self.local: Region | None = None
        self.fragments = [Fragment(self, 0, self.live)]
        self.priority = 0.0

    # --- lanes ------------------------------------------------------------------------------------------------------

    def add(self, fragment: Fragment) -> None:
        self.fragments.append(fragment)
        self.machine.schedule.ready(fragment)

    def leave(self, fragment: Fragment) -> None:
        """The fragment's lanes exit."""
        self.fragments.remove(fragment)
        self.live &= ~fragment.bits
        self.machine.progress()
        for other in self.fragments:
            self.machine.resume(other, CONVERGE)
        self.block.lanes_left(self, fragment)

    def merge(self, fragment: Fragment) -> None:
        """Join the fragment with those of its warp that are at the same place."""
        for other in list(self.fragments):
            if other is not fragment and other.pc == fragment.pc and other.state in (RUN, CONVERGE) and fragment.state in (RUN, CONVERGE):
                if (other.lagging or fragment.lagging) and CONVERGE not in (other.state, fragment.state):
                    continue
                self.fragments.remove(other)
                self.machine.schedule.gone(other)
                fragment.set_lanes(fragment.bits | other.bits)
                fragment.lagging = False
                if fragment.state is CONVERGE:
                    self.machine.resume(fragment, CONVERGE)

    def learn(self, lanes, clock) -> None:
        everyone = lanes is None or len(lanes) == self.live.bit_count()
        self.clock.acquire(lanes, clock, everyone)

    # --- values -----------------------------------------------------------------------------------------------------

    def sreg(self, name: str) -> np.ndarray:
        value = self.special.get(name)
        if value is None:
            value = self.special[name] = self.make_special(name)
        return value

    def make_special(self, name: str) -> np.ndarray:
        block, machine = self.block, self.machine
        thread = self.index * 32 + _LANES
        x, y, _ = machine.block
        tid = (thread % x, thread // x % y, thread // (x * y))
        base, _, axis = name.partition("_") if name[-2:] not in ("_x", "_y", "_z", "_w") else (name[:-2], "", name[-1])
        axis = "xyzw".find(axis) if axis else -1
        triples = {"tid": tid, "ntid": machine.block, "ctaid": block.coordinates, "nctaid": machine.grid,
                   "cluster_ctaid": block.in_cluster, "cluster_nctaid": machine.cluster,
                   "clusterid": tuple(c // s for c, s in zip(block.coordinates, machine.cluster)),
                   "nclusterid": tuple(g // c for g, c in zip(machine.grid, machine.cluster))}
        if base in triples and axis >= 0:
            value = triples[base][axis] if axis < 3 else 0
        else:
            scalars = {"laneid": _LANES, "warpid": self.index, "nwarpid": block.warp_count, "smid": block.number % 132, "nsmid": 132, "gridid": 0,
                       "cluster_ctarank": block.rank, "cluster_nctarank": machine.cluster_size, "is_explicit_cluster": int(machine.cluster_size > 1),
                       "lanemask_eq": 1 << _LANES, "lanemask_lt": (1 << _LANES) - 1, "lanemask_le": (2 << _LANES) - 1,
                       "lanemask_gt": ~((2 << _LANES) - 1), "lanemask_ge": ~((1 << _LANES) - 1),
                       "dynamic_smem_size": machine.dynamic_bytes, "total_smem_size": machine.shared_bytes}
            if name not in scalars:
                raise EmulationError(Report("unsupported", f"the special register %{name} is not known", machine.program.function.name))
            value = scalars[name]
        return np.ascontiguousarray(np.broadcast_to(np.asarray(value, _I64), 32)).astype(_U32)

    def local_stride(self) -> int:
        return self.machine.local_bytes

    def local_region(self) -> Region:
        if self.local is None:
            size = max(self.machine.local_bytes, 16) * 32
            self.local = Region("local memory", 0, np.full(size, 0xCD, np.uint8), initialised=True)
        return self.local


class Block:
    def __init__(self, machine: "Machine", number: int):
        self.machine, self.number = machine, number
        x, y, _ = machine.grid
        self.coordinates = (number % x, number // x % y, number // (x * y))
        c = machine.cluster
        self.in_cluster = tuple(a % b for a, b in zip(self.coordinates, c))
        self.rank = self.in_cluster[0] + c[0] * (self.in_cluster[1] + c[1] * self.in_cluster[2])
        threads = machine.block[0] * machine.block[1] * machine.block[2]
        self.warp_count = -(-threads // 32)
        self.threads = threads
        self.peers: list[Block] = [self]
        self.shared = Region.shared(f"shared memory of block {self.coordinates}", machine.shared_bytes)
        self.named: dict = {}
        self.mbarriers: dict = {}
        self.gatherings: dict = {}           # warpgroup -> warps that have come to a wgmma
        self.cluster_barrier = None
        self.warps = [Warp(self, i, min(32, threads - 32 * i)) for i in range(self.warp_count)]
        self.live_warps = self.warp_count

    def shared_at(self, address: int) -> tuple[Region | None, int]:
        """The region and offset of a shared address, of this block or of a peer in the cluster."""
        block, offset = self.block_at(address)
        return (block.shared if block else None), offset - SHARED_START

    def block_at(self, address: int) -> tuple["Block | None", int]:
        rank, offset = address >> RANK_SHIFT, address & ((1 << RANK_SHIFT) - 1)
        if rank == 0:
            return self, offset
        return (self.peers[rank - 1] if rank <= len(self.peers) else None), offset

    def lanes_left(self, warp: Warp, fragment: Fragment) -> None:
        if not warp.live:
            self.live_warps -= 1
        for barrier in self.named.values():
            barrier.lanes_left(self)
        if self.peers[0].cluster_barrier is not None:
            self.peers[0].cluster_barrier.lanes_left()
        if self.live_warps == 0:
            self.machine.block_done(self)


class Machine:
    """Runs one launch to its end. ``schedule`` decides the order, ``sanitizer`` may be None."""

    def __init__(self, program, grid, block, cluster, shared_bytes: int, dynamic_bytes: int, parameters: Region, memory: Memory, schedule, *,
                 sanitize: bool, trace=None, name: str | None = None):
        self.program, self.grid, self.block, self.cluster = program, grid, block, cluster
        self.cluster_size = cluster[0] * cluster[1] * cluster[2]
        self.shared_bytes, self.dynamic_bytes = shared_bytes, dynamic_bytes
        self.parameters, self.memory, self.schedule, self.trace = parameters, memory, schedule, trace
        self.name = name or program.function.name
        self.local_bytes = program.local_bytes
        self.blocks_share = True
        self.resident: dict[int, Block] = {}
        self.finished_blocks = 0
        self.pending: list = []            # asynchronous operations under way
        self.now = 1_000_000               # virtual nanoseconds
        self.silent = 0
        self.steps = 0
        self.effects = 0                   # stores, arrivals and the like, to tell waiting from a deadlock
        self.effects_at_stall = 0
        self.poll_rounds = 0
        self.sleepers: list[Fragment] = []
        self.sanitizer = Sanitizer(self) if sanitize else None
        program.bind_launch(self)

    # --- progress ---------------------------------------------------------------------------------------------------

    def progress(self) -> None:
        """Something happened that others can see."""
        self.silent = 0

    def clock(self, name: str, bits: int) -> np.ndarray:
        self.now += 7
        value = self.now >> 32 if name.endswith("hi") else self.now
        return np.full(32, value & ((1 << bits) - 1), np.dtype(f"u{bits // 8}"))

    def resume(self, fragment: Fragment, state: str) -> None:
        if fragment.state == state:
            if self.trace is not None:
                self.trace.goes_on(fragment)
            fragment.state, fragment.waits, fragment.waits_on = RUN, None, None
            self.schedule.ready(fragment)

    def wake(self, source) -> None:
        """Wake those who sleep on a region, barrier or group."""
        watchers, source.watchers = source.watchers, []
        for fragment in watchers:
            self.resume(fragment, POLL)
            self.resume(fragment, BLOCKED)
        self.silent = 0

    # --- the loop ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Admit blocks, run fragments, complete asynchronous work, until all is done. Raises EmulationError."""
        schedule = self.schedule
        schedule.start(self)
        with np.errstate(all="ignore"):
            while True:
                fragment = schedule.next()
                if fragment is None:
                    if not self.stalled():
                        break
                    continue
                if self.trace is None:
                    self.run_fragment(fragment, schedule.quantum())
                else:
                    start, instr = self.steps, fragment.where()
                    self.run_fragment(fragment, schedule.quantum())
                    self.trace.ran(fragment, start, instr)
        self.check_finished()

    def run_fragment(self, f: Fragment, quantum: int) -> None:
        warp = f.warp
        for _ in range(quantum):
            self.steps += 1
            pc = f.code[f.pc](f)
            if pc < 0:
                if f.state is CONVERGE:
                    self.schedule.gone(f)
                    warp.merge(f)
                elif f.state is not RUN:
                    self.schedule.gone(f)
                else:
                    self.schedule.gone(f)      # it has exited
                return
            f.pc = pc
            if len(warp.fragments) > 1:
                warp.merge(f)
            if f.sleep_on is not None:
                self.sleep(f)
                return
        self.silent += quantum
        if self.silent > _SILENT_LIMIT:
            self.fail("livelock", f"{actor(warp, np.flatnonzero(f.mask))} has run {self.silent} steps in which nothing visible changed", warp,
                      np.flatnonzero(f.mask), None, [f"it is at {f.where().where()}"])

    def sleep(self, f: Fragment) -> None:
        source, f.sleep_on = f.sleep_on, None
        f.state, f.waits_on = POLL, source
        if self.trace is not None:
            self.trace.waits_now(f)
        source.watchers.append(f)
        self.sleepers.append(f)
        self.schedule.gone(f)

    def stalled(self) -> bool:
        """Nobody can run: complete asynchronous work, let pollers look once more, or it is a deadlock. False: the launch is over."""
        if self.pending:
            self.schedule.complete_something()
            return True
        if not self.resident and self.schedule.admitted_all():
            return False
        if self.effects != self.effects_at_stall:
            self.effects_at_stall, self.poll_rounds = self.effects, 0
        sleepers = [f for f in self.sleepers if f.state is POLL]
        self.sleepers = []
        if sleepers and self.poll_rounds < _POLL_ROUNDS:
            self.poll_rounds += 1
            self.now += 1000 << min(self.poll_rounds, 40)
            for f in sleepers:
                self.resume(f, POLL)
            return True
        self.deadlock()
        return False

    def deadlock(self) -> None:
        """Report who waits for what."""
        lines = []
        for block in self.resident.values():
            for warp in block.warps:
                for f in warp.fragments:
                    lines.append(f"{actor(warp, np.flatnonzero(f.mask))} {self.waiting(f)}")
                    lines.append(f"  at {f.where().where()}")
        waited = {id(f.waits_on): f.waits_on for b in self.resident.values() for w in b.warps for f in w.fragments}
        lines += [line for thing in waited.values() if hasattr(thing, "history_lines") for line in thing.history_lines()]
        only_lanes = all(f.state is CONVERGE for b in self.resident.values() for w in b.warps for f in w.fragments)
        if only_lanes:
            self.fail("convergence", "lanes of one warp wait for each other at different instructions", None, (), None, lines)
        self.fail("deadlock", "every thread left waits for something that cannot happen any more", None, (), None, lines)

    def waiting(self, f: Fragment) -> str:
        if f.state is CONVERGE:
            missing = np.flatnonzero(mask_of(f.waits_on & f.warp.live & ~f.bits))
            return f"waits at an instruction that needs all of its warp; {lane_list(missing)} are elsewhere"
        if f.state is POLL:
            return f.waits or f"polls {getattr(f.waits_on, 'name', 'memory')}, which nobody changes any more"
        return f.waits or str(f.state)

    # --- blocks -----------------------------------------------------------------------------------------------------

    def admit(self, numbers: list[int]) -> None:
        """Make the blocks of one cluster resident."""
        blocks = [Block(self, number) for number in numbers]
        for block in blocks:
            block.peers = sorted(blocks, key=lambda b: b.rank)
            self.resident[block.number] = block
            for warp in block.warps:
                for fragment in warp.fragments:
                    self.schedule.ready(fragment)

    def block_coordinates(self, number: int) -> tuple[int, int, int]:
        x, y, _ = self.grid
        return (number % x, number // x % y, number // (x * y))

    def block_done(self, block: Block) -> None:
        """All warps of a block have exited; a cluster leaves when all its blocks have."""
        if any(peer.live_warps for peer in block.peers):
            return
        for peer in block.peers:
            self.finish_block(peer)
            del self.resident[peer.number]
            self.finished_blocks += 1
        self.schedule.room()

    def finish_block(self, block: Block) -> None:
        """What must hold when all of a block's threads have exited."""
        for first in range(0, block.warp_count - block.warp_count % 4, 4):
            group = block.warps[first:first + 4]
            if any(warp.budgets != group[0].budgets for warp in group):
                site, registers = max((w.budgets for w in group), key=len)[-1]
                missing = [w.index for w in group if (site, registers) not in w.budgets]
                self.fail("convergence", f"setmaxnreg {registers} needs all four warps of its warpgroup; warps {missing} did not run it",
                          group[0], range(32), site)
        for barrier in block.named.values():
            if barrier.arrived:
                self.fail("barrier", f"{barrier.name} ends with {barrier.arrived} of {barrier.expected} threads arrived", None, (), barrier.first_site)
        for operation in self.pending:
            if operation.uses_shared_of(block):
                self.fail("barrier", f"block {block.coordinates} has exited with an asynchronous operation under way in its shared memory",
                          operation.warp, [operation.lane], operation.site)

    def check_finished(self) -> None:
        while self.pending:
            self.schedule.complete_something()

    # --- failure ----------------------------------------------------------------------------------------------------

    def fail(self, kind: str, title: str, warp, lanes, site, lines=()) -> None:
        head = []
        if warp is not None:
            head.append(actor(warp, lanes))
        if site:
            head.append(f"  at {self.program.sites[site - 1].where()}")
        raise EmulationError(Report(kind, title, self.name, head + list(lines), self.schedule.describe()))
