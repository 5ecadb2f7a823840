"""A launch in flight: admits blocks, runs fragments in the order of ``schedule``, lands asynchronous work, and reports
deadlocks.
"""

from __future__ import annotations

from itertools import groupby
from math import prod
from typing import Any, NoReturn

import numpy as np

from ..errors import CutesyncError
from . import route, stuck
from .async_copy import Operation
from .block import MAX_BLOCKS, Block, Warp
from .clocks import ACTORS
from .codegen import Program
from .driver import Launch
from .fragment import BLOCKED, CONVERGE, POLL, RUN, Fragment
from .gate import MALFORMED
from .memory import SHARED_START, Memory, Region
from .report import EmulationError, Report, actor
from .sanitizer import Sanitizer
from .schedule import Schedule
from .settings import Settings
from .tensor_registers import KIND as PRODUCTS
from .trace import Trace
from .watchdog import Watchdog

_MAX_LINES = 1000  # of a report
_POLL_ROUNDS = 64


class Machine:
    """Runs one launch to its end, in the order that ``schedule`` decides. ``how`` says whether it is checked."""

    device: int | None = None  # among devices that run at the same time (see ``several``)

    def __init__(self, launch: Launch, memory: Memory, schedule: Schedule, how: Settings, trace: Trace | None = None):
        self.begin(launch.program.function.name, memory, schedule, how, trace)
        self.load(launch)

    def load(self, launch: Launch) -> None:
        """Take what the launch states, and bind its kernel to this machine."""
        self.program = program = launch.program
        self.grid, self.block, self.cluster = launch.grid, launch.block, launch.cluster
        self.cluster_size = prod(launch.cluster)
        self.clustered = launch.clustered or self.cluster_size > 1 or bool(program.function.cluster)
        self.programmatic = launch.programmatic
        self.workspace = launch.workspace
        self.dynamic_bytes = launch.shared_bytes
        self.shared_bytes = launch.shared_bytes + program.static_shared
        self.parameters = Region.of_parameters(launch.parameters)
        self.local_bytes = program.local_bytes
        self.special: dict[tuple[str, int], np.ndarray] = {}
        self.start_of_time = np.zeros(-(-prod(launch.block) // 32) * ACTORS, np.int64)
        self.sanitizer: Any = self.make_sanitizer() if self.how.sanitize else None
        program.bind_launch(self)

    def make_sanitizer(self) -> Sanitizer:
        return Sanitizer(self)

    def begin(self, name: str, memory: Memory, schedule: Schedule, how: Settings, trace: Trace | None) -> None:
        """Nothing has run yet."""
        self.name, self.memory, self.schedule, self.how, self.trace = name, memory, schedule, how, trace
        self.resident: dict[int, Block] = {}
        self.pending: list[Operation] = []  # asynchronous operations under way
        self.now = 1_000_000  # virtual nanoseconds
        self.steps = self.look_at = 0
        self.effects = 0  # stores, arrivals and the like, to tell waiting from a deadlock
        self.effects_at_stall = 0
        self.exits = 0  # how often threads have exited
        self.watchdog = Watchdog(self, how.step_limit())
        self.quiet = False  # no effects for long: then plain loads that find nothing new count as polls, too
        self.poll_rounds = 0
        self.map_fences: dict[int, list] = {}  # by address of a tensor map: its acquire fences
        self.printed: dict[Warp, str] = {}  # the last output of each warp
        self.notes: dict[tuple, Report] = {}  # of this run, by kind and instructions

    def fragments(self) -> list[Fragment]:
        """All fragments of resident blocks."""
        return [f for block in self.resident.values() for warp in block.warps for f in warp.fragments]

    # --- progress -----------------------------------------------------------------------------------------------------

    def threads_ended(self) -> None:
        self.exits += 1
        self.effects += 1

    def clock(self, name: str, bits: int) -> np.ndarray:
        self.now += 7
        value = self.now >> 32 if name.endswith("hi") else self.now
        return np.full(32, value & ((1 << bits) - 1), np.dtype(f"u{bits // 8}"))

    def resume(self, fragment: Fragment, state: str) -> None:
        if fragment.state == state:
            if self.trace is not None:
                self.trace.resumed(fragment)
            fragment.state, fragment.waits, fragment.waits_on = RUN, None, None
            self.schedule.ready(fragment)

    def wake(self, source, low: int = 0, high: int = 1 << 62) -> None:
        """Wake the fragments that sleep on a barrier or operation, or on these bytes of a region."""
        watchers, source.watchers = source.watchers, []
        for fragment in watchers:
            watched = fragment.watched
            if fragment.state is POLL and watched is not None and not (low < watched[1] and watched[0] < high):
                if fragment.waits_on is source:
                    source.watchers.append(fragment)
                continue
            if fragment.state is POLL:
                self.resume(fragment, POLL)
                self.schedule.woken(fragment)
            elif fragment.waits_on is source:  # it may have stopped polling, and block on something else by now
                self.resume(fragment, BLOCKED)

    # --- the loop -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Admit blocks, run fragments, complete asynchronous work, until all is done. Raises EmulationError."""
        schedule, fragment = self.schedule, None
        try:
            with np.errstate(all="ignore"):
                schedule.start(self)
                while True:
                    fragment = schedule.next()
                    if fragment is None:
                        if not self.stalled():
                            break
                        continue
                    if self.trace is None:
                        fragment.warp.machine.run_fragment(fragment, schedule.quantum())
                    else:
                        start, instr = self.steps, fragment.where()
                        self.run_fragment(fragment, schedule.quantum())
                        self.trace.ran(fragment, start, instr)
                    if self.steps >= self.look_at:
                        self.look_at = self.watchdog.look(fragment)
                while self.pending:
                    schedule.complete_something()
        except CutesyncError:
            raise
        except MALFORMED as fault:
            f, what = fragment, f"the emulator cannot carry this out ({type(fault).__name__}: {fault})"
            place = []
            if f is not None:
                at = f.where()
                place = [f"{actor(f.warp, np.flatnonzero(f.mask), at.loc)} is at {at.where()}"]
            self.fail("unsupported", what, None, (), None, place)

    def run_fragment(self, f: Fragment, quantum: int) -> None:
        warp = f.warp
        while quantum > 0:
            self.steps += 1
            quantum -= f.lengths[f.pc]
            pc = f.code[f.pc](f)
            if pc < 0:
                self.schedule.not_ready(f)
                if f.state is CONVERGE:
                    warp.merge(f)
                return
            f.pc = pc
            if len(warp.fragments) > 1:
                warp.merge(f)
            if f.sleep_on is not None:
                self.sleep(f)
                return

    def sleep(self, f: Fragment) -> None:
        source, f.sleep_on = f.sleep_on, None
        f.state, f.waits_on = POLL, source
        if self.trace is not None:
            self.trace.blocked(f)
        source.watchers.append(f)
        self.schedule.not_ready(f)

    def stalled(self) -> bool:
        """No fragment can run: complete asynchronous work, or let pollers look once more, or report a deadlock.

        Returns False if the launch is over.
        """
        if self.pending:
            self.schedule.complete_something()
            return True
        if not self.resident and not self.schedule.clusters_left:
            return False
        if self.effects != self.effects_at_stall:
            self.effects_at_stall, self.poll_rounds = self.effects, 0
        sleepers = [f for f in self.fragments() if f.state is POLL]
        if sleepers and self.poll_rounds < _POLL_ROUNDS:
            self.poll_rounds += 1
            self.now += 1000 << min(self.poll_rounds, 40)
            for f in sleepers:
                self.resume(f, POLL)
            return True
        stuck.report(self)
        return False

    # --- blocks -------------------------------------------------------------------------------------------------------

    def admit(self, numbers: list[int]) -> None:
        """Make the blocks of one cluster resident."""
        blocks = []
        for number in numbers:
            block = Block(self, self.block_coordinates(number), self.number_in_clocks(number))
            self.resident[block.number] = block
            blocks.append(block)
        for block in blocks:
            block.peers = sorted(blocks, key=lambda b: b.rank)
            for warp in block.warps:
                for fragment in warp.fragments:
                    self.schedule.ready(fragment)

    def number_in_clocks(self, number: int) -> int:
        """A block's number in clocks: its own, or in a grid of more than ``MAX_BLOCKS`` the next that is free."""
        candidates = (n % MAX_BLOCKS for n in range(number, number + MAX_BLOCKS))
        return next(n for n in candidates if n not in self.resident)

    def program_of(self, block: int) -> Program:
        """The kernel that the block of this number in clocks runs."""
        return self.program

    def name_of(self, block: int) -> str:
        return f"block {self.block_coordinates(block)}"

    def block_coordinates(self, number: int) -> tuple[int, int, int]:
        x, y, _ = self.grid
        return (number % x, number // x % y, number // (x * y))

    def block_done(self, block: Block) -> None:
        """All warps of a block have exited; its cluster ends when all its blocks have."""
        for operation in self.pending:
            self.check_copy(block, operation, operation.source == block.number)
        if any(peer.live_warps for peer in block.peers):
            return
        for peer in block.peers:
            self.finish_block(peer)
            del self.resident[peer.number]
        self.schedule.admit()

    def finish_block(self, block: Block) -> None:
        """What must hold when all of a block's threads have exited."""
        for first in range(0, block.warp_count - block.warp_count % 4, 4):
            group = block.warps[first : first + 4]
            self.finish_products(group)
            self.finish_budgets(group)
        for barrier in block.named.values():
            if barrier.arrived:  # PTX does not forbid it; the next block starts with fresh barriers
                title = f"{barrier.name} ends with {barrier.arrived} of {barrier.expected} threads arrived"
                self.note("note", "barrier", title, (None, (), barrier.first_site))
        for operation in self.pending:
            self.check_copy(block, operation, block.number in operation.blocks)

    def check_copy(self, block: Block, operation: Operation, uses: bool) -> None:
        """An operation under way when a block has exited; ``uses`` its shared memory until its reads are over."""
        if uses and not operation.reads_done and self.sanitizer is not None:
            who = f"block {block.coordinates}"
            operation.found(
                "barrier", f"{who} has exited with an asynchronous operation under way in its shared memory"
            )

    def finish_budgets(self, warpgroup: list[Warp]) -> None:
        """All four warps of a warpgroup must run the same ``setmaxnreg``.

        It is a warning if some of them only ask for the registers that the warpgroup has already.
        """
        if all(warp.budgets == warpgroup[0].budgets for warp in warpgroup):
            return
        longest = max((warp.budgets for warp in warpgroup), key=len)
        partial = [b for b in longest if any(b not in warp.budgets for warp in warpgroup)]
        site, registers = (partial or longest)[-1]
        missing = [w.index for w in warpgroup if (site, registers) not in w.budgets]
        title = f"setmaxnreg {registers} needs all four warps of its warpgroup; warps {missing} did not run it"
        changes = {tuple(n for n, _ in groupby(count for _, count in warp.budgets)) for warp in warpgroup}
        if len(changes) > 1:
            return self.found("convergence", title, warpgroup[0], range(32), site)
        self.note(
            "warning", "convergence", f"{title}; the others ask for what they have", (warpgroup[0], range(32), site)
        )

    def finish_products(self, warpgroup: list[Warp]) -> None:
        """A ``wgmma`` is over once one warp of its warpgroup has waited for it."""
        pending = [{product.event: product.site for product in warp.groups[PRODUCTS, 0]} for warp in warpgroup]
        left = set.intersection(*map(set, pending)) if self.sanitizer is not None else ()
        for event in sorted(left):
            warp = warpgroup[0]
            title = f"block {warp.block.coordinates} has exited with a wgmma under way: no wgmma.wait_group covers it"
            self.found("barrier", title, warp, range(32), pending[0][event])

    # --- failure ------------------------------------------------------------------------------------------------------

    earlier: tuple[int, int] | None = None  # of a race: block and warp of the first access

    def fail(self, kind: str, title: str, warp, lanes, site, lines=(), other: Any = None) -> NoReturn:
        """Raise the report. ``other`` is the second instruction, perhaps of another kernel, if there is one."""
        unwritten = [note for note in self.notes.values() if note.kind == "uninitialised"]
        if unwritten:
            place = unwritten[0].places[0]
            lines = [*lines, f"before that, this launch has read shared memory that nobody has written, at {place}"]
        if self.trace is not None:
            self.trace.failed(kind, title, warp, site, self.earlier)
        raise EmulationError(self.report("error", kind, title, (warp, lanes, site), lines, other))

    def found(self, kind: str, title: str, warp, lanes, site, lines=(), other: Any = None) -> None:
        """``fail`` for what a run can go on after: if the user allows its kind, it is kept, as notes are."""
        if kind not in self.how.allow:
            self.fail(kind, title, warp, lanes, site, lines, other)
        self.note("error", kind, title, (warp, lanes, site), lines, other)

    def note(self, severity: str, kind: str, title: str, at: tuple, lines=(), other: Any = None) -> None:
        """Keep a warning or a note, and go on. Those of the same instructions are one. ``at``: warp, lanes and site."""
        key = severity, kind, at[2], None if other is None else other.where()
        known = self.notes.get(key)
        if known is None:
            self.notes[key] = self.report(severity, kind, title, at, lines, other)
        else:
            known.count += 1

    def unwritten(self, region: Region, title: str, warp, lanes, site: int) -> None:
        """A read of memory that nobody has written."""
        lax = not self.how.initcheck and region.base <= SHARED_START
        if not lax:
            return self.found("uninitialised", title, warp, lanes, site)
        self.note("note", "uninitialised", title, (warp, lanes, site))

    def report(self, severity: str, kind: str, title: str, at: tuple, lines=(), other: Any = None) -> Report:
        (warp, lanes, site), head = at, []
        if warp is not None:
            head.append(actor(warp, lanes, self.program.sites[site - 1].loc if site else None))
        if site:
            head.append(f"  at {self.program.sites[site - 1].where()}")
        if warp is not None and severity != "note":
            head += route.before(warp, site)
        body = head + list(lines)
        if len(body) > _MAX_LINES:
            body = [*body[:_MAX_LINES], f"... and {len(body) - _MAX_LINES} more lines"]
        places = tuple(i.where() for i in (self.program.sites[site - 1] if site else None, other) if i is not None)
        return Report(kind, title, self.name, body, self.schedule.describe(), severity, places)
