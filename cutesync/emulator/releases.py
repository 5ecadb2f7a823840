"""Release and acquire, for each location: a release leaves the releaser's clock there, an acquire in scope joins it.

Fences make pairs of relaxed accesses into releases and acquires. Those of ``fence.sc`` also order each other.
"""

from __future__ import annotations

import itertools

import numpy as np

from .block import Warp
from .clocks import SEQUENTIAL, Clock, each
from .fragment import Fragment
from .preceding import Preceding
from .shadow import CLUSTER, CTA, GPU, Access, Order, Shadow

_FENCED = -1  # in place of a scope: known after the next fence.sc


class Releases(Preceding):
    """What the threads of one launch learn of each other through memory."""

    device = 0  # among devices that run at the same time (see ``several``)

    def release(self, access: Access, f: Fragment, lanes, shadow: Shadow, rows: np.ndarray) -> None:
        """A store at these places. A read-modify-write continues the release sequence, any other store ends it."""
        warp = f.warp
        for lane, place in zip(each(lanes), (rows * access.size).tolist()):
            clock, scope = None, access.order.scope
            if scope and access.order.releases:
                clock = warp.clock.release(np.array([lane]))
            elif scope and lane in warp.fence_releases:
                clock, reach = warp.fence_releases[lane]
                scope = min(scope, reach)
            if not access.update or not scope:
                shadow.released.pop(place, None)
            if clock is not None:
                self.leave(shadow, place, self.group(warp, scope), clock)
            fenced = warp.clock.of(lane).proxied[SEQUENTIAL]
            if fenced and access.order.scope >= GPU:
                self.leave(shadow, place, (_FENCED, self.device), Clock(dict(fenced)))

    @staticmethod
    def leave(shadow: Shadow, place: int, group: tuple[int, int], clock: Clock) -> None:
        """Whoever of the group reads there hears of this clock."""
        here = shadow.released.setdefault(place, {})
        if group in here:
            clock = clock.copy()
            clock.join(here[group])
        here[group] = clock

    def acquire(self, access: Access, f: Fragment, lanes, shadow: Shadow, rows: np.ndarray) -> None:
        """A load at these places learns what was released there, now (acquire) or at its next fence."""
        if not shadow.released:
            return
        block, cluster = f.warp.block.number, f.warp.block.number // self.machine.cluster_size
        for lane, place in zip(each(lanes), (rows * access.size).tolist()):
            for (kind, number), clock in shadow.released.get(place, {}).items():
                if kind == _FENCED:
                    if number == self.device:
                        f.warp.sequential.setdefault(lane, Clock()).join(clock)
                    continue
                if (kind == CTA and number != block) or (kind == CLUSTER and number != cluster):
                    continue
                if access.order.scope == CTA and kind != CTA:
                    clock = clock.only({block})
                self.hear(f, lane, access.order, (kind, number), clock)

    def hear(self, f: Fragment, lane: int, order: Order, source: tuple[int, int], clock: Clock) -> None:
        """A lane has read what was released by ``source`` (scope, and block, cluster or device of that scope)."""
        if order.acquires:
            f.warp.learn(np.array([lane]), clock)
        else:
            f.warp.fence_acquires.setdefault(lane, Clock()).join(clock)

    def fence(self, f: Fragment, lanes, scope: int, sequential: bool = False) -> None:
        """``fence.acq_rel`` / ``fence.sc``: earlier relaxed loads now acquire, later relaxed stores release.

        ``sequential``: all ``fence.sc`` have one order (PTX: "Fence-SC order"), and each synchronizes with those behind
        it. Which is first is certain if a thread that has heard of the one wrote what a thread has read before the
        other; this and no other order counts here.
        """
        warp = f.warp
        heard = [warp.fence_acquires, warp.sequential] if sequential and scope >= GPU else [warp.fence_acquires]
        for lane, clocks in itertools.product(each(lanes), heard):
            acquired = clocks.pop(lane, None)
            if acquired is not None:
                warp.learn(np.array([lane]), acquired.only({warp.block.number}) if scope == CTA else acquired)
        if sequential and scope >= GPU:
            warp.fence_proxy(lanes, (SEQUENTIAL,))
        for lane in each(lanes):
            warp.fence_releases[lane] = (warp.clock.release(np.array([lane])), scope)
            warp.clock.time -= 1
        warp.clock.time += 1

    def group(self, warp: Warp, scope: int) -> tuple[int, int]:
        """A scope, and which of the blocks, clusters or devices is the warp's."""
        block = warp.block.number
        return scope, {CTA: block, CLUSTER: block // self.machine.cluster_size}.get(scope, self.device)
