"""Launches of several devices that run at the same time, in one machine.

Each device runs its launches one after the other, as a stream does; launches of different devices are unordered. All
memory is in one address space, so kernels reach that of other devices by its addresses (peer memory).

The sanitizer tells scopes GPU and SYS apart here: a release or an acquire at GPU scope synchronizes only threads of one
device, and two strong accesses of threads of different devices race unless both are at SYS scope. A launch knows what
the launches before it on its own device have done and learnt, from its start or, if it is programmatic, from
``griddepcontrol.wait`` on. Of the other devices it knows only what synchronization tells it.

``Several`` is a set of launches in place of one; ``Ensemble`` runs it, with a ``Member`` for each launch under way.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from .block import MAX_BLOCKS, Block
from .clocks import ACTORS, Clock
from .driver import Launch
from .fragment import POLL, Fragment
from .machine import Machine
from .memory import Memory
from .report import where
from .sanitizer import Sanitizer
from .schedule import Schedule
from .settings import Settings
from .shadow import CLUSTER, CTA, GPU, SCOPE_MASK, SCOPE_SHIFT, SYS, Order

_OVER = np.int64((1 << 62) - 1)  # later than every event


class Several:
    """Launches by device, in the order in which each device runs them. ``patience``: they may wait for other processes,
    for so many seconds."""

    def __init__(self, launches: Sequence[tuple[int, Launch]], patience: float = 0.0) -> None:
        self.patience = patience
        self.launches = tuple(launches)
        self.program = self.launches[0][1].program  # its name is that of the whole in reports
        self.programmatic = all(launch.programmatic for _, launch in self.launches)


class Ensemble(Machine):
    """Runs a set of launches to their ends. It holds the progress that its members share."""

    def __init__(self, several: Several, memory: Memory, schedule: Schedule, how: Settings) -> None:
        self.policy = StreamSchedule(schedule)
        self.begin(several.program.function.name, memory, self.policy, how, None)
        self.streams: dict[int, deque[Launch]] = {}
        for device, launch in several.launches:
            self.streams.setdefault(device, deque()).append(launch)
        self.current: dict[int, Member] = {}
        self.before: dict[int, Clock] = {device: Clock() for device in self.streams}
        self.owners: dict[int, tuple[Member, tuple[int, int, int]]] = {}  # of a block's number in clocks: and where
        self.next_number = 0
        self.until = time.monotonic() + several.patience

    def advance(self) -> None:
        """Start the next launch of each device that has ended one."""
        for device, stream in self.streams.items():
            member = self.current.get(device)
            if member is not None and member.over():
                self.before[device] = member.ended
                del self.current[device]
            if device not in self.current and stream:
                self.current[device] = Member(self, device, stream.popleft())

    def stalled(self) -> bool:
        """While other processes may write what threads wait for, these look again and again."""
        waiting = [f for f in self.fragments() if f.state is POLL]
        if not waiting or self.pending or time.monotonic() >= self.until:
            return super().stalled()
        time.sleep(0.002)
        for f in waiting:
            self.resume(f, POLL)
        return True

    def under_way(self) -> list[Member]:
        return [member for member in self.current.values() if not member.over()]

    def numbers(self, size: int) -> int:
        """The first of ``size`` numbers for the blocks of a cluster: a multiple of ``size``, none of them in use."""
        while True:
            first = -(-self.next_number // size) * size
            self.next_number = first + size if first + size <= MAX_BLOCKS else 0
            if self.next_number and not any(number in self.resident for number in range(first, first + size)):
                return first


def _shared(name: str) -> Any:
    """An attribute that a member shares with its ensemble."""
    return property(
        lambda self: getattr(self.ensemble, name), lambda self, value: setattr(self.ensemble, name, value), None
    )


class Member(Machine):
    """One launch under way on one device."""

    device: int

    def __init__(self, ensemble: Ensemble, device: int, launch: Launch) -> None:
        self.ensemble, self.device = ensemble, device
        self.name, self.memory, self.how, self.trace = launch.program.function.name, ensemble.memory, ensemble.how, None
        self.ended = Clock()  # what its blocks that have ended did and knew
        self.left = prod(g // c for g, c in zip(launch.grid, launch.cluster))  # clusters that are not admitted yet
        self.blocks = 0  # resident ones
        self.limit = prod(launch.grid) if launch.cooperative else ensemble.policy.limit
        self.fresh = 0  # the number in clocks of the next block
        self.load(launch)
        self.order = ensemble.policy.order_of(self)

    def over(self) -> bool:
        return not self.left and not self.blocks

    def make_sanitizer(self) -> Sanitizer:
        return SystemSanitizer(self)

    def number_in_clocks(self, number: int) -> int:
        self.fresh += 1
        self.ensemble.owners[self.fresh - 1] = self, self.block_coordinates(number)
        return self.fresh - 1

    def admit(self, numbers: list[int]) -> None:
        first = self.fresh = self.ensemble.numbers(self.cluster_size)
        super().admit(numbers)
        self.blocks += len(numbers)
        for block in () if self.programmatic else range(first, self.fresh):
            for warp in self.resident[block].warps:
                warp.clock.common.join(self.ensemble.before[self.device])

    def finish_block(self, block: Block) -> None:
        super().finish_block(block)
        for warp in block.warps:
            for clock, _ in warp.clock.groups(None):
                self.ended.join(clock)
        over = Clock({block.number: np.full(block.warp_count * ACTORS, _OVER)})
        for space in range(len(over.proxied)):
            over.fence_proxy(space)
        self.ended.join(over)
        self.blocks -= 1
        if self.over():
            self.land()

    def land(self) -> None:
        """Complete the copies under way: a launch ends after them."""
        for operation in [o for o in self.pending if o.machine is self]:
            while not operation.done:
                operation.step(self.schedule.random.randrange(len(operation.pieces)))

    def program_of(self, block: int) -> Any:
        return self.ensemble.owners[block][0].program

    def name_of(self, block: int) -> str:
        owner, coordinates = self.ensemble.owners[block]
        return f"{where(owner.device)}block {coordinates}"


for _name in (
    *("schedule", "resident", "pending", "now", "steps", "look_at", "effects", "effects_at_stall", "exits"),
    *("watchdog", "quiet", "poll_rounds", "map_fences", "printed", "notes"),
):
    setattr(Member, _name, _shared(_name))


class StreamSchedule(Schedule):
    """A policy for several devices: each has its own blocks in flight, up to the limit."""

    def __init__(self, like: Schedule) -> None:
        super().__init__(like.policy, like.seed)
        self.limit, self.poison = like.limit, like.poison

    def start(self, machine: Any) -> None:
        self.machine = machine
        self.admit()

    def order_of(self, member: Member) -> Any:
        return self.in_order(range(member.left))

    def admit(self) -> None:
        ensemble = self.machine
        ensemble.advance()
        for member in ensemble.under_way():
            size = member.cluster_size
            while member.left and (not member.blocks or member.blocks + size <= member.limit):
                member.left -= 1
                member.admit(self.blocks_of(member, next(member.order)))
        self.clusters_left = sum(member.left for member in ensemble.current.values())

    def _starve_one(self, queue: list) -> Any:
        """Now and then all of one device, so that it is a launch or two behind the others."""
        if self.steps_to_change <= 1 and self.random.random() < 0.4:
            self.steps_to_change = self.random.randrange(200, 4000)
            self.victim = self._any(queue).warp.machine.device
        if isinstance(self.victim, int):
            self.steps_to_change -= 1
            return self._any([f for f in queue if f.warp.machine.device != self.victim] or queue)
        return super()._starve_one(queue)


class SystemSanitizer(Sanitizer):
    """The rules of one launch among those of other devices."""

    machine: Member

    def __init__(self, machine: Member) -> None:
        super().__init__(machine)
        self.device = machine.device
        self.far: dict[tuple[Any, int], Clock] = {}  # by warp and lane: read at SYS scope, known after such a fence

    def wait_for_preceding(self, f: Fragment, lanes: Any) -> None:
        super().wait_for_preceding(f, lanes)
        if self.programmatic:
            f.warp.learn(lanes, self.machine.ensemble.before[self.device])

    def _morally_strong(self, keys: np.ndarray, blocks: np.ndarray, block: int, scope: int) -> np.ndarray:
        least = np.minimum((keys >> SCOPE_SHIFT) & SCOPE_MASK, scope)
        owners, size = self.machine.ensemble.owners, self.machine.cluster_size
        numbers, places = np.unique(blocks, return_inverse=True)
        near = np.array([n in owners and owners[n][0].device == self.device for n in numbers.tolist()])
        return (
            (least == SYS)
            | ((least == GPU) & near[places].reshape(blocks.shape))
            | ((least == CTA) & (blocks == block))
            | ((least == CLUSTER) & (blocks // size == block // size))
        )

    def hear(self, f: Fragment, lane: int, order: Order, source: tuple[int, int], clock: Clock) -> None:
        kind, device = source
        if kind < GPU or device == self.device:
            super().hear(f, lane, order, source, clock)
        elif kind == SYS and order.scope == SYS:
            if order.acquires:
                f.warp.learn(np.array([lane]), clock)
            else:
                self.far.setdefault((f.warp, lane), Clock()).join(clock)

    def fence(self, f: Fragment, lanes: Any, scope: int, sequential: bool = False) -> None:
        for lane in range(32) if lanes is None else lanes.tolist():
            clock = self.far.pop((f.warp, lane), None) if scope == SYS else None
            if clock is not None:
                f.warp.learn(np.array([lane]), clock)
        super().fence(f, lanes, scope, sequential)
