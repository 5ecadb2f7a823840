"""The scheduling policies: which fragment runs next. Each is legal by the PTX model; together they look for the order
that breaks a kernel.

Every decision comes from one ``random.Random(seed)``, so policy and seed replay a run exactly.
"""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np

from ..errors import ArgumentValueError, explain

POLICIES = {
    "round_robin": "warps in turn, copies land after a while",
    "random": "any warp for a random while, copies land at random in pieces and out of order",
    "priorities": "random fixed priorities that change at a few random moments",
    "starve_one": "one warp, block or lane runs only when no other can; now and then another one",
    "lagging_lane": "single lanes fall behind their warp and meet it only where they must",
    "copies_late": "asynchronous work lands only when nothing else can run",
    "copies_early": "asynchronous work lands at once",
    "reversed_blocks": "blocks are admitted from the last to the first",
    "one_block": "one block (or cluster) is resident at a time",
}
_RESIDENT = 16
_POISONED = 4093  # bytes: a prime, so that no array repeats in step with it
_MAX_SHUFFLED = 1 << 16  # clusters: a larger grid is shuffled in windows of this size while it runs


def poison(seed: str) -> np.ndarray:
    """Bytes that unwritten shared memory holds, repeated."""
    return np.frombuffer(random.Random(f"poison {seed}").randbytes(_POISONED), np.uint8)


class Schedule:
    """One policy with one seed, for one launch."""

    _unwritten = np.zeros(0, np.uint8)

    def __init__(self, policy: str = "random", seed: int = 0, resident: int = _RESIDENT):
        if policy not in POLICIES:
            raise ArgumentValueError(explain("policy", repr(policy), "one of " + ", ".join(POLICIES)))
        self.policy, self.seed = policy, seed
        self.random = random.Random(f"{policy}/{seed}")
        self.bits, self.chance = self.random.getrandbits, self.random.random
        self.poison = poison(f"{policy}/{seed}")  # what unwritten shared memory holds
        self.resident = resident
        self.limit = 1 if policy == "one_block" else resident
        self.queue: list = []  # fragments that can run
        self.clusters_left = 0  # not admitted yet
        self.order = iter(())
        self.machine: Any = None
        self.choose = getattr(self, "_" + policy, self._any)
        self.turn = 0
        self.steps_to_change = 0
        self.victim = None
        self.lags = False  # some lane has been left behind
        self.copy_chance = {"random": 0.25, "copies_early": 1.0, "copies_late": 0.0, "round_robin": 0.1}.get(
            policy, 0.1 + 0.3 * self.random.random()
        )

    def unwritten(self, size: int) -> np.ndarray:
        """``size`` bytes of unwritten shared memory."""
        if len(self._unwritten) != size:
            self._unwritten = np.resize(self.poison, size)
        return self._unwritten.copy()

    def describe(self) -> str:
        return f"policy={self.policy!r}, seed={self.seed}"

    # --- blocks -------------------------------------------------------------------------------------------------------

    def start(self, machine) -> None:
        self.machine = machine
        self.clusters_left = math.prod(g // c for g, c in zip(machine.grid, machine.cluster))
        self.order = self.in_order(range(self.clusters_left))
        self.admit()

    def in_order(self, numbers: range):
        """The numbers of the clusters in the order in which they are admitted."""
        if self.policy == "reversed_blocks":
            return iter(numbers[::-1])
        if self.policy in ("round_robin", "one_block"):
            return iter(numbers)
        window = min(self.random.choice((1, 4, len(numbers))), _MAX_SHUFFLED)
        windows = (numbers[i : i + window] for i in range(0, len(numbers), window))
        shuffled = (c for some in windows for c in self.random.sample(some, len(some)))
        return shuffled if len(numbers) > _MAX_SHUFFLED else iter(list(shuffled))

    @staticmethod
    def blocks_of(machine, cluster: int) -> list[int]:
        """The numbers of a cluster's blocks."""
        (gx, gy, _), (cx, cy, cz) = machine.grid, machine.cluster
        across, down = gx // cx, gy // cy
        x, y, z = cluster % across * cx, cluster // across % down * cy, cluster // (across * down) * cz
        return [x + dx + gx * (y + dy + gy * (z + dz)) for dz in range(cz) for dy in range(cy) for dx in range(cx)]

    def admit(self) -> None:
        """Admit blocks up to the limit."""
        size = self.machine.cluster_size
        while self.clusters_left and (not self.machine.resident or len(self.machine.resident) + size <= self.limit):
            self.clusters_left -= 1
            self.machine.admit(self.blocks_of(self.machine, next(self.order)))

    # --- fragments ----------------------------------------------------------------------------------------------------

    def ready(self, fragment) -> None:
        if self.policy == "priorities" and not fragment.warp.priority:
            fragment.warp.priority = self.random.random()
        self.queue.append(fragment)

    def not_ready(self, fragment) -> None:
        if fragment in self.queue:
            self.queue.remove(fragment)

    def next(self):
        """The fragment to run, or None if none can."""
        if not self.queue:
            return None
        if self.machine.pending and self.copy_chance and self.chance() < self.copy_chance:
            self.complete_something()
        queue = self.queue
        if self.lags and self.chance() < 0.95:
            queue = [f for f in queue if not f.lagging] or queue
        if len(queue) == 1 and self.policy != "lagging_lane":
            return queue[0]
        fragment = self.choose(queue)
        if len(fragment.warp.fragments) > 1 and self.chance() < 0.9:
            return self.earliest(fragment.warp) or fragment
        return fragment

    @staticmethod
    def earliest(warp):
        """The fragment of a warp that is furthest behind: run first, it can merge with the others."""
        candidates = [f for f in warp.fragments if f.state == "runs" and not f.lagging]
        return min(candidates, key=lambda f: f.pc) if candidates else None

    def quantum(self) -> int:
        """How many segments to run before the next decision; those of a stretch count."""
        if self.policy == "round_robin":
            return 4
        return 1 if self.chance() < 0.3 else 1 + self.below(23)

    def below(self, count: int) -> int:
        """``random.randrange(count)``, without its checks of what it is given."""
        size = count.bit_length()
        number = self.bits(size)
        while number >= count:
            number = self.bits(size)
        return number

    def _any(self, queue):
        return queue[self.below(len(queue))]

    def _round_robin(self, queue):
        self.turn += 1
        return queue[self.turn % len(queue)]

    def _priorities(self, queue):
        self.steps_to_change -= 1
        if self.steps_to_change <= 0:
            self.steps_to_change = self.random.randrange(20, 400)
            self._any(queue).warp.priority = self.random.random()
        return max(queue, key=lambda f: f.warp.priority)

    def _starve_one(self, queue):
        self.steps_to_change -= 1
        if self.steps_to_change <= 0:
            self.steps_to_change = self.random.randrange(20, 600)
            warp = self._any(queue).warp
            self.victim = warp if self.random.random() < 0.5 else warp.block
        others = [f for f in queue if self.victim not in (f, f.warp, f.warp.block)]
        return self._any(others or queue)

    def _lagging_lane(self, queue):
        fragment = self._any(queue)
        if fragment.count > 1 and self.random.random() < (0.1 if len(queue) > 1 else 0.4):
            self._lag(fragment)
            return fragment
        keen = [f for f in queue if not f.lagging]
        return self._any(keen) if keen else fragment

    def woken(self, fragment) -> None:
        """What a fragment has polled has changed. Some lanes may see it long after the others do."""
        if self.policy != "round_robin" and fragment.count > 1 and self.random.random() < 0.3:
            self._lag(fragment)

    def _lag(self, fragment):
        """Let one lane fall behind its warp; returns its own fragment."""
        lane = 1 << self.random.choice([i for i in range(32) if fragment.bits >> i & 1])
        other = type(fragment)(fragment.warp, fragment.pc, lane)
        other.lagging = self.lags = True
        fragment.set_lanes(fragment.bits & ~lane)
        fragment.warp.add(other)
        return other

    def tears(self) -> bool:
        """Whether other threads may run in the middle of a strong vector store."""
        return self.policy != "round_robin" and self.random.random() < 0.3

    # --- asynchronous work --------------------------------------------------------------------------------------------

    def started(self, operation) -> None:
        """An asynchronous operation has just been started."""
        if self.policy == "copies_early":
            while operation.pieces:
                operation.step(0)

    def complete_something(self) -> None:
        """One piece of one operation under way, at random."""
        pending = self.machine.pending
        operation = pending[self.below(len(pending))]
        operation.step(self.below(len(operation.pieces)))
