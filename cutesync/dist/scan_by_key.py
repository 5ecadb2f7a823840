"""Scans by segments of sharded arrays: where segments begin is flagged, then one scan combines states that know whether
a segment has begun in them.

A state is a flag and the values of the caller's state. Of two states the second stands alone if a segment begins in it,
else the values are combined; that is associative if the caller's operator is. In reverse the first stands alone if a
segment ends in it. So flags and scans of sharded arrays do all that crosses seams.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import ArgumentValueError, explain
from ..kernels.flags import flag_heads, flag_tails
from ..kernels.scan import scan
from ..kernels.segments.spec import Heads, SegmentsSpec
from ..kernels.states import States
from .select import unlike
from .sharded import Sharded

NAMED: dict[str, Callable] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "min": np.minimum,
    "max": np.maximum,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}
OF_BOOL = {"add": "or", "mul": "and", "min": "and", "max": "or"}


class ScanByKeyPlan:
    """A call whose whole arrays have the Spec ``spec``; the last ``keys`` of its arrays say where segments begin."""

    def __init__(self, spec: SegmentsSpec) -> None:
        operation = spec.operation
        self.heads, self.reverse, self.keys = spec.heads, spec.reverse, max(len(spec.heads.sources), 1)
        self.differs = _differs(spec.heads)
        self.several = len(operation.results) > 1
        self.arguments: dict[str, Any] = {
            "op": combined(operation, spec.reverse),
            "transform": None if operation.transform is None else _lifted(operation),
            "finish": _finished(operation),
            "dtype": ("bool", *(value.name for value in operation.values)),
            "out_dtype": tuple(result.name for result in operation.results),
            "reverse": spec.reverse,
        }

    def run(self, xs: tuple[Sharded, ...], streams: tuple[int, ...], explicit: bool) -> Any:
        stream: Any = streams if explicit else None
        values, keys = xs[: -self.keys], xs[-self.keys :]
        with xs[0].group.together():
            (flags,) = keys if self.heads.kind == "mask" else (self.flagged(keys[0], stream),)
            found = scan((flags, *values), stream=stream, **self.arguments)
        return found if self.several else found[0]

    def flagged(self, keys: Sharded, stream: Any) -> Any:
        return (flag_tails if self.reverse else flag_heads)(keys, self.differs, dtype="bool", stream=stream)


def _differs(heads: Heads) -> Any:
    """Return the operator that flags the second of two keys."""
    equal = heads.fn
    if equal is not None:
        return lambda a, b: not equal(a, b)
    return unlike if heads.equal_nan and heads.sources[0].kind == "f" else "ne"


def combined(operation: States, reverse: bool) -> Callable:
    """Return the operator on states with a flag."""
    from cutlass import select_

    op, unpacked = _operator(operation), operation.unpacked

    def forward(a: tuple, b: tuple) -> tuple:
        both = op(a[1], b[1]) if unpacked else op(a[1:], b[1:])
        values = (both,) if unpacked else both
        return (a[0] | b[0], *(select_(b[0], own, value) for own, value in zip(b[1:], values)))

    def backward(a: tuple, b: tuple) -> tuple:
        both = op(a[1], b[1]) if unpacked else op(a[1:], b[1:])
        values = (both,) if unpacked else both
        return (a[0] | b[0], *(select_(a[0], own, value) for own, value in zip(a[1:], values)))

    return backward if reverse else forward


def _operator(operation: States) -> Callable:
    """Return the caller's operator as a function, of numbers if states are unpacked, else of tuples."""
    if operation.op.fn is not None:
        return operation.op.fn
    fns = tuple(
        NAMED[OF_BOOL.get(operation.name, operation.name) if t.kind == "b" else operation.name]
        for t in operation.values
    )
    if operation.unpacked:
        return fns[0]
    return lambda a, b: tuple(fn(x, y) for fn, x, y in zip(fns, a, b))


def _lifted(operation: States) -> Callable:
    """Return the transform of a flag and elements."""
    transform, unpacked = operation.transform, operation.unpacked
    assert transform is not None

    def lift(flag: Any, *elements: Any) -> tuple:
        made = transform(*elements)
        return (flag, made) if unpacked else (flag, *made)

    return lift


def _finished(operation: States) -> Callable:
    """Return what makes the results of a state with a flag."""
    finish, unpacked = operation.finish, operation.unpacked

    def results(state: tuple) -> tuple:
        own = state[1] if unpacked else state[1:]
        made = own if finish is None else finish(own)
        return made if isinstance(made, tuple) else (made,)

    return results


def plan_of(spec: SegmentsSpec, xs: tuple[Sharded, ...]) -> ScanByKeyPlan | None:
    """Return the plan of a call whose whole arrays have the Spec ``spec``; None for segments by offsets."""
    if spec.reduced or spec.heads.kind == "offsets":
        return None
    axis, mask = xs[0].axis, spec.heads.kind == "mask"
    refused = (
        (axis is None, "keys", "an array that is whole on every device"),
        (any(math.prod(x.shape[:axis]) > 1 or x.ndim > 1 for x in xs), "keys", "arrays of several axes"),
        (len(spec.heads.sources) > 1, "keys", "keys of several parts"),
        (mask and spec.reverse, "reverse", "True with heads="),
        (spec.exclusive, "exclusive", "True"),
        (spec.start is not None or bool(spec.operation.firsts), "init", "a value"),
        (spec.counted or spec.length != spec.whole, "n", "a number or an array"),
        (bool(spec.args), "args", "values"),
        (spec.operation.takes_index, "transform", "a callable that takes the index"),
        (spec.operation.op.fn is None and spec.operation.name not in NAMED, "op", repr(spec.operation.name)),
    )
    for wrong, name, came in refused:
        if wrong:
            raise ArgumentValueError(explain(name, f"{came}, for a Sharded", "one device", "np.asarray(x) copies it"))
    return ScanByKeyPlan(spec)
