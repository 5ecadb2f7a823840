"""Top-k of sharded arrays: each device finds the best elements of its part; all of them are gathered on each device,
which finds the best of these.

The parts' elements are gathered in the order of ranks, so of equal elements the one with the lower index comes first,
as in the whole array. One more kernel turns places among these candidates into indices in the whole array.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

from ..dtypes import INT64
from ..errors import ArgumentValueError, explain
from ..kernels.topk import argtopk, topk
from ..kernels.topk.spec import TopKSpec
from ..runtime import arrays
from ..runtime.kernel import KernelSpec, Pointer, Scalar
from .parts import Apart, Results, part_of
from .recorder import launcher
from .sharded import Sharded

THREADS = 256


class TopKPlan:
    """A call along the sharded axis. ``lengths`` says how many elements of each part count, ``wanted`` how many of them
    are candidates."""

    results = Results(None)

    def __init__(self, spec: TopKSpec, x: Sharded) -> None:
        self.spec, self.offsets = spec, x.offsets
        self.lengths = [min(max(spec.length - at, 0), n) for at, n in zip(x.offsets, x.lengths)]
        self.wanted = [min(spec.k, n) for n in self.lengths]
        self.rows, self.inner = math.prod(x.shape[: spec.axis]), math.prod(x.shape[spec.axis + 1 :])

    def run(
        self, xs: tuple[Sharded, ...], streams: tuple[int, ...], explicit: bool, outs: tuple[Sharded, ...] | None = None
    ) -> Any:
        (x,), axis, largest = xs, self.spec.axis, self.spec.operation.largest
        group, stream = x.group, streams if explicit else None
        best, found = [], []
        with group.together() as work:
            for rank, raw in enumerate(streams):
                work.at(rank)
                k, n, of_part = self.wanted[rank], self.lengths[rank], raw if explicit else None
                best.append(topk(x.parts[rank], k, axis, largest=largest, n=n, stream=of_part))
            candidates, indices = (
                Sharded.of_results(group, parts, axis).reshard(None, stream=stream).parts for parts in zip(*best)
            )
            for rank, raw in enumerate(streams):
                work.at(rank)
                of_part, out = raw if explicit else None, part_of(outs, rank)
                last = topk if self.spec.operation.values else argtopk
                one = last(candidates[rank], self.spec.k, axis, largest=largest, out=out, stream=of_part)
                self.look_up(group.ordinals[rank], raw, one[1] if last is topk else one, indices[rank])
                found.append(one)
        return self.results.of(group, found, outs)

    def look_up(self, ordinal: int, stream: int, places: Any, indices: Any) -> None:
        """Turn places among the candidates, in place, into indices in the whole array."""
        count = self.rows * self.spec.k * self.inner
        if not count:
            return
        numbers = [count, self.spec.k, self.inner, sum(self.wanted), *itertools.accumulate(self.wanted, initial=0)]
        numbers = [*numbers[:-1], *self.offsets[:-1]]
        spec = kernel_spec(len(self.wanted))
        values = {p.name: number for p, number in zip(spec.parameters[2:], numbers)}
        run = launcher(spec, ordinal, -(-count // THREADS), values, ("places", "indices"), stream=stream)
        run(tuple(arrays.adapter(array).address(array) for array in (places, indices)), stream)


def kernel_spec(ranks: int) -> KernelSpec:
    """Return the kernel that looks indices up."""
    pointers = Pointer("places", INT64), Pointer("indices", INT64)
    of_parts = [f"{what}{r}" for what in ("first", "offset") for r in range(ranks)]
    names = ("count", "k", "inner", "candidates", *of_parts)
    numbers = tuple(Scalar(name, "Int64") for name in names)

    def make() -> Any:
        from .topk_kernel import LookUp

        return LookUp(ranks)

    return KernelSpec(("top_indices", ranks), (*pointers, numbers), make)


def plan_of(call: Callable, arguments: tuple, spec: TopKSpec, xs: tuple[Sharded, ...]) -> TopKPlan | Apart:
    """Return the plan of a call whose whole array has the Spec ``spec``; ``call`` is the front end for one part."""
    first = xs[0]
    if spec.operation.counted:
        raise ArgumentValueError(explain("n", "an array, for a Sharded", "a number"))
    if first.axis is None or first.axis != spec.axis:
        return Apart(call, arguments, Results(first.axis, first.lengths))
    return TopKPlan(spec, first)
