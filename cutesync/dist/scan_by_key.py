"""Scans by segments of sharded arrays: where segments begin is flagged, then one scan combines states that know whether
a segment has begun in them.

A state is a flag and the values of the caller's state. Of two states the second stands alone if a segment begins in it,
else the values are combined; that is associative if the caller's operator is. In reverse the first stands alone if a
segment ends in it. So flags and scans of sharded arrays do all that crosses seams. The first operand of segments
(``init``) is combined with the values last, when a result is made. Exclusive scans take one more pass, in which first
elements get that operand alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import ArgumentValueError, explain
from ..kernels import args as args_of
from ..kernels.flags import flag_heads, flag_tails
from ..kernels.reduce import reduce
from ..kernels.scan import scan
from ..kernels.segments.spec import Heads, SegmentsSpec
from ..kernels.states import States
from .inputs import Inputs
from .offsets import Marks
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
NOTHING = 2  # the flag of a state of no elements


class ScanByKeyPlan:
    """A call whose whole arrays have the Spec ``spec``. ``first`` is the number of run-time arguments that are values
    of the first operand; those of the caller follow."""

    def __init__(self, spec: SegmentsSpec, given: tuple, inputs: Inputs) -> None:
        operation = spec.operation
        self.spec, self.inputs, self.operation, self.heads = spec, inputs, operation, spec.heads
        self.count = len(operation.sources)
        self.flags = max(len(spec.heads.sources), 1)
        self.differs = _differs(spec.heads)
        self.several = len(operation.results) > 1
        self.marks = Marks(spec, given[0], given[-1]) if spec.heads.kind == "offsets" else None
        self.n = spec.length if spec.length != spec.whole else None
        first = 0 if spec.start is None else len(spec.start)
        values = tuple(value.name for value in operation.values)
        self.options: dict[str, Any] = {
            "op": combined(operation, spec.reverse, first),
            "transform": lifted(operation, self.flags, first),
            "dtype": ("int32", *values),
            "reverse": spec.reverse,
            "identity": (NOTHING, *(0,) * len(values)),
        }
        made: dict[str, Any] = {
            "finish": finished(operation, spec, first),
            "out_dtype": tuple(t.name for t in operation.results),
        }
        if spec.exclusive:
            self.options |= {"exclusive": True}
            self.last: dict[str, Any] = {
                "dtype": values,
                "transform": picked(operation, spec, self.flags, first),
            } | made
            self.last["finish"] = results_only(operation, first)
        else:
            self.options |= made

    def run(self, xs: tuple[Sharded, ...], streams: tuple[int, ...], explicit: bool) -> Any:
        stream: Any = streams if explicit else None
        args, data = self.arguments(xs), self.inputs.data(xs)
        n: Any = self.n if self.inputs.n is None else xs[self.inputs.n]
        if self.marks is not None:
            n = None  # it counts segments
        values = data[: self.count]
        with values[0].group.together() as work:
            flags = self.flagged(xs, data[self.count :], n, stream, (streams, work))
            found = scan((*flags, *values), n=n, args=args, stream=stream, **self.options)
            if self.spec.exclusive:
                found = reduce((*flags, *found), first_of, axis=(), args=args, stream=stream, **self.last)
        return found if self.several else found[0]

    def arguments(self, xs: tuple[Sharded, ...]) -> tuple:
        """Return the run-time arguments: the first operand's values, then those of the caller."""
        operation, numbers = self.operation, args_of.current()
        own = operation.args[: len(operation.args) - len(operation.firsts)]
        arrays = iter([xs[i] for i in (*self.inputs.args, *self.inputs.inits)])
        args = [next(arrays) if argument.in_memory else next(numbers) for argument in own]
        start: list = [np.dtype(t.name).type(value) for value, t in zip(self.spec.start or (), operation.values)]
        for place in operation.firsts:
            start[place] = next(arrays)
        return (*start, *args)

    def flagged(self, xs: tuple, keys: tuple, n: Any, stream: Any, where: tuple) -> tuple[Sharded, ...]:
        """Return where segments begin; in reverse, where they end."""
        if self.heads.kind == "keys":
            flag: Any = flag_tails if self.spec.reverse else flag_heads
            return tuple(
                flag(key, differs, dtype="bool", n=n, stream=stream) for key, differs in zip(keys, self.differs)
            )
        begins = keys[0] if self.marks is None else self.marks.make(xs, where[0], where[1], stream is not None)
        if self.spec.reverse:
            return (flag_tails(begins, second, dtype="bool", n=n, stream=stream),)
        return (begins,)


def second(a: Any, b: Any) -> Any:
    """Whether the second of two flags is set."""
    return b != 0


def first_of(a: Any, *rest: Any) -> Any:
    """The operator of a reduction along no axis, which never runs."""
    return a


def _differs(heads: Heads) -> list:
    """Return for each array of keys the operator that flags the second of two of them."""
    equal = heads.fn
    if equal is not None:
        return [lambda a, b: not equal(a, b)]
    return [unlike if heads.equal_nan and source.kind == "f" else "ne" for source in heads.sources]


def combined(operation: States, reverse: bool, first: int) -> Callable:
    """Return the operator on states with a flag. Of run-time arguments, ``first`` are not those of the caller."""
    from cutlass import select_

    op, unpacked = _operator(operation), operation.unpacked

    def both(a: tuple, b: tuple, args: tuple) -> tuple:
        made = op(a[1], b[1], *args[first:]) if unpacked else op(a[1:], b[1:], *args[first:])
        return (made,) if unpacked else made

    def forward(a: tuple, b: tuple, *args: Any) -> tuple:
        alone = (b[0] != 0) | (a[0] == NOTHING)
        values = both(a, b, args)
        return (select_(alone, b[0] | 1, a[0]), *(select_(alone, own, value) for own, value in zip(b[1:], values)))

    def backward(a: tuple, b: tuple, *args: Any) -> tuple:
        alone = (a[0] != 0) | (b[0] == NOTHING)
        values = both(a, b, args)
        return (select_(alone, a[0] | 1, b[0]), *(select_(alone, own, value) for own, value in zip(a[1:], values)))

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
        one = fns[0]
        return lambda a, b, *args: one(a, b)
    return lambda a, b, *args: tuple(fn(x, y) for fn, x, y in zip(fns, a, b))


def lifted(operation: States, flags: int, first: int) -> Callable:
    """Return the transform of flags and elements."""
    transform, unpacked, count = operation.transform, operation.unpacked, len(operation.sources)

    def lift(*given: Any) -> tuple:
        elements, args = given[flags : flags + count], given[flags + count + first :]
        any_flag = given[0] != 0
        for flag in given[1:flags]:
            any_flag = any_flag | (flag != 0)
        if transform is None:
            return (any_flag, *elements)
        made = transform(*elements, *args)
        return (any_flag, made) if unpacked else (any_flag, *made)

    return lift


def _started(operation: States, reverse: bool, first: int) -> Callable:
    """Return what puts the first operand before (in reverse: behind) the values of a state."""
    op, unpacked = _operator(operation), operation.unpacked

    def start(values: tuple, args: tuple) -> tuple:
        if not first:
            return values
        own, given = args[:first], args[first:]
        pair = (values, own) if reverse else (own, values)
        return (op(pair[0][0], pair[1][0], *given),) if unpacked else tuple(op(*pair, *given))

    return start


def finished(operation: States, spec: SegmentsSpec, first: int) -> Callable:
    """Return what makes the results of a state with a flag."""
    start, made = _started(operation, spec.reverse, first), results_only(operation, first)

    def results(state: tuple, *args: Any) -> tuple:
        return made(start(state[1:], args), *args)

    return results


def results_only(operation: States, first: int) -> Callable:
    """Return what makes the results of the values of a state."""
    finish, unpacked = operation.finish, operation.unpacked

    def results(values: tuple, *args: Any) -> tuple:
        own = values[0] if unpacked else tuple(values)
        made = own if finish is None else finish(own, *args[first:])
        return made if isinstance(made, tuple) else (made,)

    return results


def picked(operation: States, spec: SegmentsSpec, flags: int, first: int) -> Callable:
    """Return the values of an exclusive scan at one position, from its flags and the state of all before it: where a
    segment begins, the first operand alone."""
    from cutlass import select_

    start = _started(operation, spec.reverse, first)

    def pick(*given: Any) -> tuple:
        before, values, args = given[flags], given[flags + 1 : flags + 1 + first], given[flags + 1 + first :]
        begins = before == NOTHING
        for flag in given[:flags]:
            begins = begins | (flag != 0)
        return tuple(select_(begins, a, b) for a, b in zip(args[:first], start(values, args)))

    return pick


def plan_of(spec: SegmentsSpec, given: tuple, inputs: Inputs) -> ScanByKeyPlan | None:
    """Return the plan of a call whose whole arrays have the Spec ``spec``; None for reductions."""
    if spec.reduced:
        return None
    xs = inputs.data(given)
    axis, counted = xs[0].axis, spec.counted or spec.length != spec.whole
    refused = (
        (axis is None, "keys", "an array that is whole on every device"),
        (any(math.prod(x.shape[:axis]) > 1 or x.ndim > 1 for x in xs), "keys", "arrays of several axes"),
        (spec.heads.fn is not None and len(spec.heads.sources) > 1, "equal", "a callable of keys of several parts"),
        (spec.exclusive and counted and spec.heads.kind != "offsets", "exclusive", "True with n="),
        (spec.operation.takes_index, "transform", "a callable that takes the index"),
        (spec.operation.op.fn is None and spec.operation.name not in NAMED, "op", repr(spec.operation.name)),
    )
    for wrong, name, came in refused:
        if wrong:
            raise ArgumentValueError(explain(name, f"{came}, for a Sharded", "one device", "np.asarray(x) copies it"))
    return ScanByKeyPlan(spec, given, inputs)
