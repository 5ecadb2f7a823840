"""Products of sharded matrices: each device multiplies what it has, after or before parts cross.

Rows of A, columns of B, or batches sharded alike: each device multiplies alone; the result is sharded as they are. With
both rows of A and columns of B, A is gathered on every device first, and the result has the columns of B. With rows of
A or columns of B beside the other sharded along K, that other one is gathered first. With K sharded in A, in B (the
other whole) or in both, each device multiplies its part of K, in float32; then each reads its rows of all sums and adds
them in the order of ranks. The result has parts of rows, of columns if A is a vector.
Large products are made in pieces (``overlap``).

Parts of K of different lengths in A and B: B is spread as A is. The order of operations follows from the lengths of the
parts, so the bits are the same in every run and on every device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..dtypes import FLOAT8
from ..errors import ArgumentValueError, explain
from ..kernels.matmul.call import INPUTS, Arguments, MatmulSpec
from . import overlap
from .parts import Results, part_of
from .sharded import Sharded
from .work import Work

_TERMS = INPUTS[2:]


class Way(NamedTuple):
    """How a product is made: which operand is gathered first (0 for A, 1 for B); the axis of the result that is sharded
    (counted from the end, 0 if every device has all of it), as which operand is; and whether each device multiplies a
    part of K."""

    gathered: int | None
    axis: int
    like: int = 0
    partial: bool = False


GATHER_ROWS = Way(0, -1, 1)


def plan_of(
    call: Callable, arguments: tuple, spec: MatmulSpec, given: tuple
) -> ProductPlan | PartialPlan | overlap.GatherPlan | overlap.RingPlan:
    """Return the plan of a call whose whole arrays have the Spec ``spec``. ``given`` has None for what is not given."""
    a, b, *terms = given
    way = _way(a, b)
    if Arguments(*arguments).amax:
        raise ArgumentValueError(explain("amax", "True, for a Sharded", "False", "cs.max of the magnitudes"))
    if not way.partial:
        _check_terms(terms, way.axis, (a, b)[way.like])
        axis = way.axis + len(spec.shape) if way.axis else None
        if way == GATHER_ROWS and not Arguments(*arguments).pre_activation and overlap.gathers_rows(a, b, terms):
            return overlap.GatherPlan(call, arguments, spec, (a, b))
        results = Results(axis, () if axis is None else (a, b)[way.like].lengths)
        return ProductPlan(call, arguments, way.gathered, results, given)
    _check_partial(Arguments(*arguments), spec, terms)
    if overlap.is_ring(a, b, spec):
        return overlap.RingPlan(arguments, spec, (a, b))
    return PartialPlan(call, arguments, spec, a)


def _way(a: Sharded, b: Sharded) -> Way:
    """Return how a product of operands sharded so is made."""
    of_a, of_b = _role(a, first=True), _role(b, first=False)
    rows = -1 if b.ndim == 1 else -2
    known = {
        ("whole", "whole"): Way(None, 0),
        ("free", "whole"): Way(None, rows),
        ("whole", "free"): Way(None, -1, 1),
        ("free", "free"): GATHER_ROWS,
        ("free", "k"): Way(1, rows),
        ("k", "free"): Way(0, -1, 1),
        ("k", "k"): Way(None, 0, partial=True),
        ("k", "whole"): Way(None, 0, partial=True),
        ("whole", "k"): Way(None, 0, partial=True),
    }
    found = known.get((of_a, of_b))
    if found is not None:
        return found
    axes = {x.axis - x.ndim for x, role in ((a, of_a), (b, of_b)) if role == "batch" and x.axis is not None}
    (axis,) = axes if len(axes) == 1 else (0,)
    for x, role in ((a, of_a), (b, of_b)):
        shared = role == "whole" and (x.ndim < -axis or x.shape[axis] == 1)
        alike = role == "batch" and (a.offsets == b.offsets or of_a != of_b)
        if not axis or not (shared or alike):
            came = f"{b!r} beside {a!r}"
            raise ArgumentValueError(explain("b", came, "batches sharded alike", "x.reshard(axis) spreads one anew"))
    return Way(None, axis, int(of_a == "whole"))


def _role(x: Sharded, first: bool) -> str:
    """Return what the sharded axis of an operand is: "k", "free" (rows of A, columns of B), "batch", or "whole"."""
    if x.axis is None:
        return "whole"
    if x.ndim == 1:
        return "k"
    return {x.ndim - 1: "k" if first else "free", x.ndim - 2: "free" if first else "k"}.get(x.axis, "batch")


def _check_terms(terms: list, axis: int, like: Sharded) -> None:
    """Raise unless each term is sharded as the result is, or has one element along its sharded axis and is whole."""
    for x, name in zip(terms, _TERMS):
        if x is None:
            continue
        spread = axis and x.ndim >= -axis and x.shape[axis] > 1
        right = x.axis is None if not spread else x.axis == x.ndim + axis and x.offsets == like.offsets
        if not right:
            allowed = (
                f"parts of lengths {like.lengths} along its axis {axis}" if spread else "the whole on every device"
            )
            raise ArgumentValueError(explain(name, repr(x), allowed, f"{name}.reshard(axis, lengths)"))


def _check_partial(given: Arguments, spec: MatmulSpec, terms: list) -> None:
    """Raise for what is not done where each device multiplies a part of K."""
    refused = [name for x, name in zip(terms, _TERMS) if x is not None]
    refused += [name for name in ("activation", "pre_activation") if getattr(given, name)]
    if refused:
        came, advice = "a value, with operands sharded along K", "reshard(None) of an operand gathers it first"
        raise ArgumentValueError(explain(refused[0], came, "None", advice))
    if spec.dtype.name in FLOAT8 or spec.dtype.size == 1:
        raise ArgumentValueError(
            explain("out_dtype", f"{spec.dtype}, with operands sharded along K", "16 bits or more")
        )


class ProductPlan:
    """Each device multiplies its parts, perhaps after one operand was gathered."""

    def __init__(self, call: Callable, arguments: tuple, gathered: int | None, results: Results, given: tuple) -> None:
        self.call, self.arguments, self.gathered, self.results = call, arguments, gathered, results
        self.given = [x is not None for x in given]

    def run(
        self, xs: tuple[Sharded, ...], streams: tuple[int, ...], explicit: bool, outs: tuple[Sharded, ...] | None = None
    ) -> Any:
        group, stream = xs[0].group, streams if explicit else None
        operands = list(xs)
        with Work(group, streams, explicit) as work:
            if self.gathered is not None:
                operands[self.gathered] = xs[self.gathered].reshard(None, stream=stream)
            found = _multiply(self, operands, work, outs)
        return self.results.of(group, found, outs)


def _multiply(plan: Any, xs: Sequence[Any], work: Work, outs: tuple[Sharded, ...] | None = None) -> list:
    """Return the product of each device; ``xs`` are Sharded, or have their parts in ``parts``."""
    found = []
    for rank, stream in enumerate(work.streams):
        work.at(rank)
        parts = iter([x.parts[rank] for x in xs])
        a, *others = (next(parts) if is_given else None for is_given in plan.given)
        raw = stream if work.explicit else None
        found.append(plan.call(plan.arguments, a, part_of(outs, rank), raw, tuple(others)))
    return found


class _Slices(NamedTuple):
    """Views of a whole array on every device."""

    parts: list


class PartialPlan:
    """Each device multiplies its part of K; the sums of all are added in the order of ranks."""

    def __init__(self, call: Callable, arguments: tuple, spec: MatmulSpec, a: Sharded) -> None:
        self.call, self.dtype = call, spec.dtype
        self.given = (True, True)
        sums = "int32" if spec.dtype.kind in "iu" else "float32"
        self.arguments = tuple(Arguments(*arguments)._replace(out_dtype=sums)[: len(arguments)])
        self.axis = max(len(spec.shape) - 2, 0) if a.ndim > 1 else len(spec.shape) - 1

    def run(self, xs: tuple[Sharded, ...], streams: tuple[int, ...], explicit: bool) -> Any:
        a: Any = xs[0]
        b: Any = xs[1]
        stream = streams if explicit else None
        group, of_b = a.group, max(b.ndim - 2, 0)
        with Work(group, streams, explicit) as work:
            if a.axis is None:
                a = _sliced(a, a.ndim - 1, b.offsets)
            elif b.axis is None:
                b = _sliced(b, of_b, a.offsets)
            elif a.offsets != b.offsets:
                b = b.reshard(of_b, a.lengths, stream=stream)
            sums = Sharded(group, _multiply(self, (a, b), work), None)
            if self.axis < 0:
                return group.all_reduce(sums, dtype=self.dtype.name, stream=stream)
            return group.reduce_scatter(sums, axis=self.axis, dtype=self.dtype.name, stream=stream)


def _sliced(x: Sharded, axis: int, offsets: tuple[int, ...]) -> Any:
    cuts = zip(offsets, offsets[1:])
    return _Slices([part[(*(slice(None),) * axis, slice(*cut))] for part, cut in zip(x.parts, cuts)])
