"""Reductions with states of several values, of several inputs, or with run-time arguments: parsing."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from ...arguments import exact
from ...ops import operator
from ...runtime.call import Family, Views
from ...runtime.view import View
from ..several import Inputs, call_of, inputs_of, operation_of
from ..states import start_of
from .counts import check_count, count_of
from .plan import plan
from .spec import IN_MEMORY, ReduceSpec, axes_of


class Counted(Inputs):
    """The inputs of a call with ``n`` in memory, which is the last array."""

    @property
    def names(self) -> tuple[str, ...]:
        return (*super().names, "n")


# The plain arguments of ``reduce``.
Options = namedtuple("Options", "axis keepdims init dtype identity out_dtype")

# What identifies a call, except the arrays.
Arguments = namedtuple("Arguments", "op callables inputs options exact n")


def reduce_states(
    x: Any, op: Any, callables: tuple, args: tuple, options: Any, out: Any, stream: Any, n: Any = None
) -> Any:
    """Make a call of ``reduce``; ``callables`` are the Identities of transform and finish, or None."""
    inputs, arrays = inputs_of(x, args, options.dtype, callables[1], options.out_dtype)
    count, counts = count_of(n)
    if counts:
        inputs = Counted(*inputs)
    key = Arguments(op, callables, inputs, options, exact(options.axis, options.init, options.identity), count)
    return call_of(_FAMILY, inputs, key, (*arrays, *counts), out, stream)


def _parse(arguments: tuple, views: Views, out: View | None) -> ReduceSpec:
    """Check the arguments against the arrays, and return the Spec of the call."""
    given = Arguments(*arguments)
    options, shape = given.options, views[0].shape
    op = operator(given.op, options.identity)
    operation = operation_of(given.inputs, op, views, options.dtype, given.callables, options.out_dtype)
    if options.identity is not None:
        start_of(options.identity, "identity", operation)
    init = None if options.init is None else start_of(options.init, "init", operation)
    axes = axes_of(options.axis, len(shape))
    check_count(given.n, views[-1] if given.n == IN_MEMORY else None, shape, axes)
    return ReduceSpec(operation, shape, axes, options.keepdims, init, args=given.inputs.numbers, n=given.n)


_FAMILY = Family("reduction of states", (), _parse, plan, strided=True)
