"""Calls with several inputs, several outputs and run-time arguments: what ``reduce`` and ``scan`` share of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..errors import ArgumentTypeError, ArgumentValueError, explain
from ..ops import Operator
from ..runtime.call import Family, Views, front_end
from ..runtime.view import View
from . import args as args_of
from .states import Argument, States, parse_states


class Inputs(NamedTuple):
    """The inputs of a call. ``arrays`` of ``x``; ``packed``: they came as a tuple. ``alike`` has a number of the same
    type for each run-time argument that is a number, and None for each that is an array. ``outputs`` results, in a
    tuple if ``tuple_out``. ``firsts`` are the values of the first state that are in memory: their arrays come
    after those. ``counted``: the array behind them says how many elements count. ``more`` are the names of arrays that
    a family adds at the end, ``x`` the one that the argument of the inputs has."""

    arrays: int
    packed: bool
    alike: tuple
    exact: tuple
    outputs: int
    tuple_out: bool
    firsts: tuple[int, ...] = ()
    counted: bool = False
    more: tuple[str, ...] = ()
    x: str = "x"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arrays, for messages."""
        xs = tuple(f"{self.x}[{i}]" for i in range(self.arrays)) if self.packed else (self.x,)
        args = (f"args[{i}]" for i, number in enumerate(self.alike) if number is None)
        return (*xs, *args, *(f"init[{i}]" for i in self.firsts), *(("n",) if self.counted else ()), *self.more)

    @property
    def numbers(self) -> tuple:
        """The run-time arguments that are part of a plan: None for each, as calls give them all."""
        return (None,) * (len(self.alike) + len(self.firsts))

    @property
    def places(self) -> tuple[int, ...]:
        """Where, among all inputs and run-time arguments, numbers stand."""
        return tuple(self.arrays + i for i, number in enumerate(self.alike) if number is not None)


def inputs_of(x: Any, args: Any, dtype: Any, finish: Any, out_dtype: Any, name: str = "x") -> tuple[Inputs, tuple]:
    """Return the inputs, and all arrays of the call: those of ``x``, an argument called ``name``, then the run-time
    arguments in memory. Those that are numbers are kept for the call."""
    packed = type(x) is tuple
    xs = x if packed else (x,)
    if not xs:
        raise ArgumentValueError(explain(name, "an empty tuple", "at least one array"))
    for types, what in ((dtype, "dtype"), (out_dtype, "out_dtype")):
        if type(types) is tuple and not types:
            raise ArgumentValueError(explain(what, "no types", "at least one"))
    kinds, memory = args_of.split(args)
    several = type(dtype) is tuple
    if finish is None:
        outputs, tuple_out = (len(dtype) if several else len(xs)), packed or several
    else:
        tuple_out = type(out_dtype) is tuple
        outputs = len(out_dtype) if tuple_out else 1
    found = _inputs(len(xs), packed, kinds, outputs, tuple_out, name)
    return found, (*xs, *memory)


def with_first(inputs: Inputs, arrays: tuple, init: Any) -> tuple[Inputs, tuple, Any]:
    """Return the inputs and arrays of a call together with those of ``init``, and ``init`` with 0 for each array. Where
    states are plain numbers, ``init`` may be an array itself."""
    if init is None or isinstance(init, list):  # a list is refused where numbers are read
        return inputs, arrays, init
    packed = isinstance(init, tuple)
    values = [args_of.element(value) for value in (init if packed else (init,))]
    firsts = tuple(i for i, value in enumerate(values) if not isinstance(value, (bool, int, float, np.generic)))
    if not firsts:
        return inputs, arrays, tuple(values) if packed else values[0]
    arrays += tuple(values[i] for i in firsts)
    numbers = tuple(0 if i in firsts else value for i, value in enumerate(values))
    return inputs._replace(firsts=firsts), arrays, numbers if packed else numbers[0]


@functools.lru_cache(maxsize=1024)
def _inputs(arrays: int, packed: bool, kinds: tuple, outputs: int, tuple_out: bool, name: str) -> Inputs:
    return Inputs(arrays, packed, *args_of.alike(kinds), outputs, tuple_out, x=name)


def call_of(family: Family, inputs: Inputs, arguments: tuple, arrays: tuple, out: Any, stream: Any) -> Any:
    """Make a call of ``family`` through the front end for its number of arrays."""
    call = _front_end(family, inputs)
    alone = inputs.tuple_out and inputs.outputs == 1
    if alone and out is not None:
        if not isinstance(out, (tuple, list)) or len(out) != 1:
            raise ArgumentTypeError(explain("out", f"a {type(out).__name__}", "a tuple of 1 array"))
        out = out[0]
    found = call(arguments, arrays[0], out, stream, arrays[1:])
    return (found,) if alone else found


@functools.lru_cache(maxsize=256)
def _front_end(family: Family, inputs: Inputs) -> Callable:
    plan, names = family.plan, inputs.names
    if inputs.places:
        plan = args_of.plan_with_numbers(plan, inputs.places, _arguments_of)
    return front_end(family._replace(inputs=names, required=len(names), outputs=inputs.outputs, plan=plan))


def _arguments_of(spec: Any) -> tuple[Argument, ...]:
    """Return the run-time arguments of a call, and the values of its first state that are in memory."""
    operation = spec.operation if hasattr(spec, "operation") else spec.reduction
    return operation.args


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
    args = args_of.read(inputs.alike, memory)
    operation = parse_states(op, sources, not inputs.packed, dtype, callables, out_dtype, args)
    return operation if not inputs.firsts else _with_firsts(operation, inputs.firsts, memory)


def _with_firsts(operation: States, firsts: tuple[int, ...], memory: Iterable[tuple[View, str]]) -> States:
    """Return States whose first state has values in memory; ``memory`` has their arrays and names."""
    found = []
    for place, (view, name) in zip(firsts, memory):
        if place >= len(operation.values):
            break  # too many values are refused where the numbers are read
        value = operation.values[place]
        if view.size != 1:
            raise ArgumentValueError(explain(name, f"shape {view.shape}", "an array of one element"))
        if view.dtype is not value and view.dtype.accumulator is not value:
            raise ArgumentTypeError(explain(name, f"an array of {view.dtype}", f"one of {value}"))
        found.append(Argument(view.dtype, True))
    return replace(operation, args=(*operation.args, *found), firsts=firsts)
