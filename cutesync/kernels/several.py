"""Calls with several inputs, several outputs and run-time arguments: what ``reduce`` and ``scan`` share of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..arguments import exact
from ..errors import ArgumentTypeError, ArgumentValueError, explain
from ..ops import Operator
from ..runtime.call import Family, Views, front_end
from .states import Argument, States, parse_states


class Inputs(NamedTuple):
    """The inputs of a call. ``arrays`` of ``x``; ``packed``: they came as a tuple. ``numbers`` has the run-time
    arguments that are numbers, and None for each that is an array. ``outputs`` results, in a tuple if ``tuple_out``.
    ``counted``: the last array says how many elements count."""

    arrays: int
    packed: bool
    numbers: tuple
    exact: tuple
    outputs: int
    tuple_out: bool
    counted: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arrays, for messages."""
        xs = tuple(f"x[{i}]" for i in range(self.arrays)) if self.packed else ("x",)
        args = (f"args[{i}]" for i, number in enumerate(self.numbers) if number is None)
        return (*xs, *args, *(("n",) if self.counted else ()))


def inputs_of(x: Any, args: Any, dtype: Any, finish: Any, out_dtype: Any) -> tuple[Inputs, tuple]:
    """Return the inputs, and all arrays of the call: those of ``x``, then the run-time arguments in memory."""
    packed = type(x) is tuple
    xs = x if packed else (x,)
    if not xs:
        raise ArgumentValueError(explain("x", "an empty tuple", "at least one array"))
    if type(args) is not tuple:
        raise ArgumentTypeError(
            explain("args", f"a {type(args).__name__}", "a tuple of numbers and arrays of one element")
        )
    args = tuple(value[()] if isinstance(value, np.ndarray) and value.shape == () else value for value in args)
    numbers = tuple(value if isinstance(value, (bool, int, float, np.generic)) else None for value in args)
    several = type(dtype) is tuple
    if finish is None:
        outputs, tuple_out = (len(dtype) if several else len(xs)), packed or several
    else:
        tuple_out = type(out_dtype) is tuple
        outputs = len(out_dtype) if tuple_out else 1
    found = Inputs(len(xs), packed, numbers, exact(*numbers), outputs, tuple_out)
    return found, (*xs, *(value for value, number in zip(args, numbers) if number is None))


def call_of(family: Family, inputs: Inputs, arguments: tuple, arrays: tuple, out: Any, stream: Any) -> Any:
    """Make a call of ``family`` through the front end for its number of arrays."""
    call = _front_end(family, inputs.names, inputs.outputs)
    alone = inputs.tuple_out and inputs.outputs == 1
    if alone and out is not None:
        if not isinstance(out, (tuple, list)) or len(out) != 1:
            raise ArgumentTypeError(explain("out", f"a {type(out).__name__}", "a tuple of 1 array"))
        out = out[0]
    found = call(arguments, arrays[0], out, stream, arrays[1:])
    return (found,) if alone else found


@functools.lru_cache(maxsize=256)
def _front_end(family: Family, names: tuple[str, ...], outputs: int) -> Callable:
    return front_end(family._replace(inputs=names, outputs=outputs))


def operation_of(inputs: Inputs, op: Operator, views: Views, dtype: Any, callables: tuple, out_dtype: Any) -> States:
    """Return the States of a call, after checking its arrays."""
    first, xs = views[0], views[: inputs.arrays]
    for x, name in zip(xs[1:], inputs.names[1:]):
        if x.shape != first.shape:
            raise ArgumentValueError(
                explain(name, f"shape {x.shape}", f"shape {first.shape}, that of {inputs.names[0]}")
            )
    memory = iter(zip(views[inputs.arrays :], inputs.names[inputs.arrays :]))
    sources = tuple(x.dtype for x in xs)
    args = []
    for number in inputs.numbers:
        if number is not None:
            args.append(number)
            continue
        view, name = next(memory)
        if view.size != 1:
            raise ArgumentValueError(explain(name, f"shape {view.shape}", "an array of one element"))
        args.append(Argument(view.dtype, True))
    return parse_states(op, sources, not inputs.packed, dtype, callables, out_dtype, tuple(args))
