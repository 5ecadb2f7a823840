"""Named barriers of a block, the cluster barrier, and mbarriers: they block and wake threads, and carry clocks."""

from __future__ import annotations

from collections import deque
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from . import source
from .async_copy import Issue
from .clocks import ACTORS, Clock
from .report import actor
from .shadow import BLOCK_AT, SITE_MASK

CTA_SCOPE, CLUSTER_SCOPE = 1, 2
_COPIES = 64  # of which an mbarrier remembers the events
MARK = 0x6D62_6172_7269_6572  # what lies in the bytes of an mbarrier until something else is written there
_ARRIVE, _DROP = "{who} arrives ({}), {} to come", "{who} drops ({}), {} to come"
_LANDED = "{} bytes land, {} outstanding"


class NamedBarrier:
    """``bar`` / ``barrier.cta`` number ``number``: arrivals are counted in threads, whole warps at a time."""

    def __init__(self, machine, block, number: int):
        self.machine, self.block, self.number = machine, block, number
        self.expected = 0  # threads; set by the first arrival
        self.arrived = 0
        self.whole_block = False
        self.waiting: list = []  # (fragment, finish)
        self.votes: list = []
        self.clock = Clock()
        self.first_site = 0

    @property
    def name(self) -> str:
        loc = self.machine.program.sites[self.first_site - 1].loc if self.first_site else None
        label = source.named_at(loc.chain) if loc is not None else ""
        return f"named barrier {self.number}{label and f' ({label})'} of block {self.block.coordinates}"

    def arrive(self, f, count: int | None, site: int) -> None:
        """One arrival of a whole warp; ``count`` is None for the whole block."""
        machine = self.machine
        if count is not None and (count % 32 or count <= 0):
            f.fail("barrier", f"{self.name}: the count {count} is not a multiple of 32", site)
        wanted = self.block.live_warps * 32 if count is None else count
        if self.arrived and ((count is None) != self.whole_block or (count is not None and wanted != self.expected)):
            f.fail(
                "barrier",
                f"{self.name} is used with {wanted} threads while {self.arrived} of {self.expected} have arrived",
                site,
                [f"the first of them at {machine.program.sites[self.first_site - 1].where()}"],
            )
        if not self.arrived:
            self.first_site = site
        self.expected, self.whole_block = wanted, count is None
        self.arrived += 32
        machine.effects += 1
        if self.arrived > self.expected:
            f.fail("barrier", f"{self.name}: {self.arrived} threads arrived where {self.expected} were expected", site)
        if machine.sanitizer is not None:
            self.clock.join(f.warp.clock.release(f.lanes))

    def wait(self, f, pc: int, site: int, finish=None) -> int:
        """Block the fragment until the barrier completes; ``finish(votes)`` runs for it then."""
        self.waiting.append((f, finish))
        stop = f.block_on("waits at a named barrier", self, pc, site)
        self.check()
        return stop

    def check(self) -> None:
        if self.arrived and self.arrived >= self.expected:
            self.complete()

    def complete(self) -> None:
        waiting, votes, clock = self.waiting, self.votes, self.clock
        self.waiting, self.votes, self.clock, self.arrived = [], [], Clock(), 0
        for f, finish in waiting:
            if self.machine.sanitizer is not None:
                f.warp.clock.met(clock)
            if finish is not None:
                finish(f, votes)
            self.machine.resume(f, "is blocked")

    def threads_exited(self, block) -> None:
        """A barrier of the whole block now needs fewer threads."""
        if self.arrived and self.whole_block:
            self.expected = block.live_warps * 32
            self.check()


class ClusterBarrier:
    """``barrier.cluster``: every live thread of the cluster arrives, then may wait."""

    def __init__(self, machine, blocks):
        self.machine, self.blocks = machine, blocks
        self.phase = 0
        self.arrived: dict = {}  # warp -> lanes that have arrived in this phase, as bits
        self.clock = Clock()
        self.completed = Clock()
        self.watchers: list = []
        self.name = "the cluster barrier"
        self.passed: dict = {}  # warp -> for each lane the phase it has arrived at and not waited for, or -1

    def arrive(self, f, site: int, release: bool) -> None:
        phases = self.passed.setdefault(f.warp, np.full(32, -1))
        twice = f.mask & (phases >= 0)
        if twice.any():
            self.machine.fail(
                "barrier", "arrives at the cluster barrier twice without waiting", f.warp, np.flatnonzero(twice), site
            )
        phases[f.mask] = self.phase
        self.arrived[f.warp] = self.arrived.get(f.warp, 0) | f.bits
        self.machine.effects += 1
        if self.machine.sanitizer is not None:
            clock = f.warp.clock.release(f.lanes)
            self.clock.join(clock if release else clock.without_visibility())
        self.check()

    def check(self) -> None:
        """Complete the phase once every thread that has not exited has arrived."""
        if self.arrived and not any(
            warp.live & ~self.arrived.get(warp, 0) for block in self.blocks for warp in block.warps
        ):
            self.phase += 1
            self.arrived, self.completed, self.clock = {}, self.clock, Clock()
            self.machine.wake(self)

    def wait(self, f, index: int, pc: int, site: int, acquire: bool) -> int:
        """Continue at ``pc`` once the phase of the fragment's arrival is over; else sleep, then retry ``index``."""
        phases = self.passed.setdefault(f.warp, np.full(32, -1))
        absent = f.mask & (phases < 0)
        if absent.any():
            self.machine.fail(
                "barrier", "waits at the cluster barrier without having arrived", f.warp, np.flatnonzero(absent), site
            )
        if self.phase > phases[f.mask].max():
            phases[f.mask] = -1
            if acquire and self.machine.sanitizer is not None:
                f.warp.learn(f.lanes, self.completed)
            return pc
        self.watchers.append(f)
        arrived = sum(bits.bit_count() for bits in self.arrived.values())
        return f.block_on(
            f"waits at the cluster barrier, phase {self.phase}: {arrived} threads have arrived", self, index, site
        )


class Arrival(NamedTuple):
    """What one arrival made known, at which scope, from which block; ``landed``: of an asynchronous operation."""

    clock: Clock
    scope: int
    block: int
    landed: bool = False


class MBarrier:
    """One mbarrier: counts down arrivals and bytes, flips its phase when both are at zero."""

    def __init__(self, machine, block, offset: int, count: int, f, lane: int, site: int):
        self.machine, self.block, self.offset = machine, block, offset
        self.count = self.pending = count
        self.tx = 0
        self.flying = 0  # bytes of copies under way that will signal it
        self.copies: deque[tuple[tuple[int, int, int], int]] = deque(maxlen=_COPIES)  # events (block, actor, time)
        # of the copies that signal it, and in which phase
        self.expects: list[tuple[Any, Any, int, int]] = []  # of the running phase: warp, lanes, bytes, instruction
        self.phase = 0
        self.version = 0
        self.fenced = False
        self.known_to: set[tuple[int, int]] = set()  # warps that have been seen to know the initialisation
        self.watchers: list = []
        self.arrived: list[Arrival] = []  # in the running phase
        self.completed: list[Arrival] = []  # in the last phase that completed
        self.knows: dict = {}  # warp -> (its lanes, time): events after the completion of the last phase
        self.knew: dict = {}  # the same for the phase before that one
        self.history: list[tuple] = []
        self.note("initialised with {} by {who}", f.warp, [lane], site, count)
        self.init_event = (f.warp, lane, f.warp.clock.time)
        self.site = site
        loc = machine.program.sites[site - 1].loc
        self.place = block.inits[loc]  # among those that this line initialises
        block.inits[loc] += 1

    @cached_property
    def name(self) -> str:
        loc = self.machine.program.sites[self.site - 1].loc
        label = source.stage_of(loc.chain, self.place, self.block.inits[loc])
        where = f"shared byte {self.offset} of block {self.block.coordinates}"
        return f"mbarrier {label} ({where})" if label else f"mbarrier at {where}"

    def overwritten_by(self) -> list[str]:
        """Where its bytes have been overwritten, as far as that is known."""
        shadow = self.machine.sanitizer.shadow(self.block.shared)
        first, last = self.offset // shadow.granule, (self.offset + 7) // shadow.granule
        key, advice = (
            int(shadow.writes[first : last + 1].max()),
            "hint: its bytes belong to a variable or a copy as well",
        )
        if not key & int(SITE_MASK):
            return [advice]
        program = self.machine.program_of((key >> BLOCK_AT) - 1)
        return [f"  at {program.sites[(key & int(SITE_MASK)) - 1].where()}", advice]

    # --- arriving -----------------------------------------------------------------------------------------------------

    def arrive(self, f, lanes, count: int, site: int, scope: int, release: bool, *, drop: bool = False) -> int:
        """``count`` arrivals; gives the phase they belong to. ``complete_if_done`` must follow."""
        if count > self.pending:
            self.machine.fail(
                "barrier",
                f"{self.name}: {count} arrivals where {self.pending} of {self.count} are still expected in phase "
                f"{self.phase}",
                f.warp,
                lanes,
                site,
                self.history_lines(),
            )
        if drop:
            self.count -= count
        self.pending -= count
        self.note(_DROP if drop else _ARRIVE, f.warp, lanes, site, count, self.pending)
        if release and self.machine.sanitizer is not None:
            self.arrived.append(Arrival(f.warp.clock.release(np.asarray(lanes)), scope, f.warp.block.number))
        return self.phase

    def expect(self, f, lanes, size: int, site: int) -> None:
        self.tx += size
        self.expects.append((f.warp, lanes, size, site))
        self.note("{who} expects {} bytes", f.warp, lanes, site, size)
        self.check_tx(f.warp, lanes, site)

    def flies(self, size: int, operation: Any) -> None:
        """``size`` bytes of an asynchronous operation are on their way."""
        self.flying += size
        warp, (actor, time) = operation.warp, operation.write_event
        self.copies.append(((warp.block.number, warp.index * ACTORS + actor, time), self.phase))

    def land(self, size: int, clock: Clock | None, issue: Issue) -> None:
        """``complete_bytes`` for a copy that was counted in ``flying``."""
        self.flying -= size
        self.complete_bytes(size, clock, issue)

    def complete_bytes(self, size: int, clock: Clock | None, issue: Issue) -> None:
        """``size`` bytes of an asynchronous operation have landed; ``clock``: and with them the whole of it."""
        self.tx -= size
        last, *_, values = self.history[-1]
        if last is _LANDED:  # one more piece of a copy, or of several
            self.history.pop()
            size += values[0]
        self.note(_LANDED, None, (), 0, size, self.tx)
        if clock is not None:
            self.arrived.append(Arrival(clock, CLUSTER_SCOPE, issue.warp.block.number, landed=True))
        self.check_tx(issue.warp, [issue.lane], issue.site)
        self.complete_if_done()

    def check_tx(self, warp, lanes, site: int) -> None:
        if abs(self.tx) >= 1 << 20:
            self.machine.fail(
                "transaction",
                f"{self.name}: the transaction count {self.tx} is out of range",
                warp,
                lanes,
                site,
                self.history_lines(),
            )

    def complete_if_done(self) -> None:
        """Complete the phase if nothing is outstanding."""
        self.version += 1
        self.machine.effects += 1
        if self.pending == 0 and self.tx == 0:
            if self.flying and self.machine.sanitizer is not None:
                self.wrong_bytes(f"completes phase {self.phase} while {self.flying} bytes of its copies are under way")
            self.expects = []
            self.note("phase {} completes", None, (), 0, self.phase)
            self.phase += 1
            self.pending = self.count
            self.completed, self.arrived = self.arrived, []
            self.knew, self.knows = self.knows, {}
            if self.machine.trace is not None:
                self.machine.trace.phase(self)
            self.machine.wake(self)

    def wrong_bytes(self, what: str) -> None:
        """The transaction counts of the running phase do not agree with its copies."""
        counted = sum(size for _, _, size, _ in self.expects)
        warp, lanes, _, site = self.expects[-1] if self.expects else (None, (), 0, self.site)
        landed = counted - self.tx
        lines = [
            f"this phase expects {counted} bytes; {landed} have landed, {self.flying} are under way",
            "expect_tx must count the bytes of all copies that signal this phase, and each of them must be started",
        ]
        self.machine.fail("transaction", f"{self.name} {what}", warp, lanes, site, lines + self.history_lines())

    def blame_bytes(self) -> None:
        """Nothing can happen any more: if this barrier waits for bytes alone, its counts are wrong."""
        if self.pending == 0 and self.tx and not self.flying:
            more = f"{self.tx} bytes that no copy brings" if self.tx > 0 else f"nothing: {-self.tx} bytes too many came"
            self.wrong_bytes(f"waits in phase {self.phase} for {more}")

    # --- waiting ------------------------------------------------------------------------------------------------------

    def observe(self, f, lanes) -> None:
        """These lanes (an array) have waited for the last phase or arrived in the running one: they know it is over."""
        self.knows.setdefault((f.warp.block.number, f.warp.index), (lanes, f.warp.clock.time))

    def ambiguous(self, f, lanes, parity: int) -> bool:
        """Whether a wait for ``parity`` may mean a phase that is neither the running nor the last one.

        The running phase P has the parity of P - 2, the last phase P - 1 that of P - 3. A wait is clear if the thread
        knows a later phase than the older one to be over: P - 1 in the first case, P - 2 or P - 1 in the second.
        Knowing is happens-before: the thread, or one it has synchronized with since, has waited for that phase or
        arrived after it. Both are recorded for whole warps.
        """
        running = self.phase & 1 == parity
        if self.phase < (1 if running else 2):
            return False
        known = [self.knows] if running else [self.knows, self.knew]
        if any((f.warp.block.number, f.warp.index) in events for events in known):
            return False
        clocks = [clock for clock, _ in f.warp.clock.groups(lanes)]
        tables = [c.known for c in clocks] + [c.invisible.known for c in clocks if c.invisible]
        return not any(
            (table[block][who + warp * ACTORS] >= time).any()
            for events in known
            for (block, warp), (who, time) in events.items()
            for table in tables
            if block in table
        )

    def learn(self, f, lanes, scope: int) -> None:
        """A successful wait: what arrived in the completed phase is known, as far as the scopes reach."""
        if self.machine.sanitizer is None:
            return
        together = Clock()
        for arrival in self.completed:
            reaches = arrival.block == f.warp.block.number or (
                arrival.scope >= CLUSTER_SCOPE and scope >= CLUSTER_SCOPE
            )
            together.join(arrival.clock if reaches or arrival.landed else arrival.clock.without_visibility())
        f.warp.learn(lanes, together)

    # --- history ------------------------------------------------------------------------------------------------------

    def note(self, form: str, warp, lanes, site: int, *values: int) -> None:
        self.history.append((form, warp, lanes, site, values))
        if len(self.history) > 24:
            del self.history[1:5]

    def history_lines(self) -> list[str]:
        state = (
            f"{self.name}: phase {self.phase}, {self.pending} of {self.count} arrivals and {self.tx} bytes outstanding"
        )
        return [state, *("  " + self.told(*event) for event in self.history[-8:])]

    def told(self, form: str, warp, lanes, site: int, values: tuple[int, ...]) -> str:
        loc = self.machine.program.sites[site - 1].loc if site else None
        return form.format(*values, who="" if warp is None else actor(warp, lanes, loc)) + (f" at {loc}" if loc else "")
