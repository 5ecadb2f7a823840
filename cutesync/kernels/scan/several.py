"""Scans with states of several values, of several inputs, or with maps and run-time arguments: parsing."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...arguments import exact
from ...identity import identify
from ...ops import operator
from ...runtime.call import Family, Views
from ...runtime.view import View
from ..count import split
from ..several import Inputs, call_of, inputs_of, operation_of, with_first
from .plan import plan
from .spec import ScanSpec, along, counted, start_value


class Options(NamedTuple):
    """The plain arguments of ``scan``."""

    axis: Any
    exclusive: bool
    reverse: bool
    init: Any
    dtype: Any
    identity: Any
    out_dtype: Any


class Arguments(NamedTuple):
    """What identifies a call, except the arrays."""

    op: Any
    callables: tuple
    inputs: Inputs
    options: Options
    n: int | None
    exact: tuple


def scan_states(x: Any, op: Any, callables: tuple, args: tuple, options: Options, out: Any, stream: Any, n: Any) -> Any:
    """Make a call of ``scan``; ``callables`` are transform and finish."""
    inputs, arrays = inputs_of(x, args, options.dtype, callables[1], options.out_dtype)
    inputs, arrays, init = with_first(inputs, arrays, options.init)
    options = options._replace(init=init)
    number, count = split(n)
    if count is not None:
        inputs, arrays = inputs._replace(counted=True), (*arrays, count)
    callables = tuple(identify(fn, what) for fn, what in zip(callables, ("transform", "finish")))
    key = Arguments(
        identify(op), callables, inputs, options, number, exact(options.axis, options.init, options.identity)
    )
    return call_of(_FAMILY, inputs, key, arrays, out, stream)


def _parse(arguments: tuple, views: Views, out: View | None) -> ScanSpec:
    """Check the arguments against the arrays, and return the Spec of the call."""
    given = Arguments(*arguments)
    options = given.options
    op = operator(given.op, options.identity)
    operation = operation_of(given.inputs, op, views, options.dtype, given.callables, options.out_dtype)
    return ScanSpec(
        operation=operation,
        exclusive=options.exclusive,
        reverse=options.reverse,
        start=start_value(options.init, options.exclusive, options.identity, operation),
        args=given.inputs.numbers,
        **along(options.axis, views[0].shape),
        **counted(given.n, views[-1] if given.inputs.counted else None),
    )


_FAMILY = Family("scan of states", (), _parse, plan, strided=True)
