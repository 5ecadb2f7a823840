"""Calls of front ends for the parts of sharded arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .sharded import Sharded


class Key:
    """Stands for the arguments of the calls of one plan: equal only to itself, so a look-up compares one address."""

    __slots__ = ("given",)

    def __init__(self, *given: Any) -> None:
        self.given = given


class Apart:
    """The plan of a call that each device makes for its own part; the results are sharded along ``axis``."""

    def __init__(self, call: Callable, arguments: tuple, axis: int | None) -> None:
        self.call, self.arguments, self.axis = call, arguments, axis

    def run(self, xs: tuple[Sharded, ...], streams: tuple[int, ...], explicit: bool) -> Any:
        group, found = xs[0].group, []
        with group.together() as work:
            for rank, stream in enumerate(streams):
                x, *others = (y.parts[rank] for y in xs)
                work.at(rank)
                found.append(self.call(self.arguments, x, None, stream if explicit else None, tuple(others)))
        if isinstance(found[0], tuple):
            return tuple(Sharded.of_results(group, parts, self.axis) for parts in zip(*found))
        return Sharded.of_results(group, found, self.axis)
