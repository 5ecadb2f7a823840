"""Calls of front ends for the parts of sharded arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from .sharded import Sharded

if TYPE_CHECKING:
    from .group import Group


class Key:
    """Stands for the arguments of the calls of one plan: equal only to itself, so a look-up compares one address."""

    __slots__ = ("given",)

    def __init__(self, *given: Any) -> None:
        self.given = given


class Results(NamedTuple):
    """How the results of a call are sharded: along ``axis``, with parts of these lengths."""

    axis: int | None
    lengths: tuple[int, ...] = ()

    def of(self, group: Group, found: list, outs: tuple[Sharded, ...] | None) -> Any:
        """Return the results: ``outs``, or made of the outputs of each device, one or a tuple of them."""
        if outs is not None:
            return outs
        if isinstance(found[0], tuple):
            return tuple([Sharded.of_results(group, parts, self.axis) for parts in zip(*found)])
        return Sharded.of_results(group, found, self.axis)


def part_of(outs: tuple[Sharded, ...] | None, rank: int) -> Any:
    """Return what the front end of one part takes as ``out``."""
    if outs is None:
        return None
    return outs[0].parts[rank] if len(outs) == 1 else tuple([y.parts[rank] for y in outs])


class Apart:
    """The plan of a call that each device makes for its own part."""

    in_place = True  # as far as the front end allows it

    def __init__(self, call: Callable, arguments: tuple, results: Results) -> None:
        self.call, self.arguments, self.results = call, arguments, results

    def run(
        self, xs: tuple[Sharded, ...], streams: tuple[int, ...], explicit: bool, outs: tuple[Sharded, ...] | None = None
    ) -> Any:
        group, found = xs[0].group, []
        with group.together() as work:
            for rank, stream in enumerate(streams):
                x, *others = (None if y is None else y.parts[rank] for y in xs)
                work.at(rank)
                raw = stream if explicit else None
                found.append(self.call(self.arguments, x, part_of(outs, rank), raw, tuple(others)))
        return self.results.of(group, found, outs)
