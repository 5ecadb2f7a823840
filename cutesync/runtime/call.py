"""The front end of every family: from a public call to a plan, and from a plan to the call's result.

A call with a known signature costs one dictionary look-up. The key holds the arguments, the signatures of the arrays
and their alignment. It does not hold their addresses: ``Plan.run`` takes these on each call. NumPy arrays are copied to
the device, and from then on are treated as other arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..dtypes import DType
from ..errors import ArgumentTypeError, ArgumentValueError, DeviceError, explain
from . import arrays, device_array
from .device_array import DeviceArray
from .kernel import collecting
from .launch import Run
from .view import View

_MOST_PLANS = 4096
_plans: dict[tuple, Plan] = {}


class Spec:
    """Base class of what a call computes: its arguments, parsed once and checked against the arrays' shapes and
    types."""

    unread: tuple[int, ...] = ()
    """Indices of inputs that are given and checked, but never read: an output may overlap them."""

    @property
    def result(self) -> tuple[tuple[int, ...], DType]:
        """Shape and element type of each output."""
        raise NotImplementedError


Views = tuple[Any, ...]
"""The views of the arrays, in order; None for an array that is not given."""


class Plan(NamedTuple):
    """A prepared call of one signature. ``run`` takes the addresses of the inputs (0 for an input not given), then
    those of the outputs."""

    run: Run
    ordinal: int
    empty: Callable[..., Any]  # makes a result on a stream
    # For each input that is read: its index, and two numbers of bytes. An output overlaps the input if the input's
    # address minus the output's lies between them.
    reads: tuple[tuple[int, int, int], ...]
    size: int  # bytes that an output spans
    in_place: int | None  # index of the input that an output may be


class Family(NamedTuple):
    """A kind of call: its name, the names of its inputs (all but the first may be None), and the number of its outputs.

    ``parse(arguments, views, out)`` checks the arguments and returns the Spec; ``out`` is the view of a given output,
    or None. ``plan(spec, views, outs, stream)`` returns ``(run, in_place)``: the launches, and the index of the input
    that an output may be, or None. The view of an input not given is None; an output not given is a View at address 0.
    With ``strided``, arrays may have any strides. ``keep(arguments, ordinal, stream)`` returns whether later calls may
    use the plan.
    """

    name: str
    inputs: tuple[str, ...]
    parse: Callable[..., Spec]
    plan: Callable[..., tuple[Run, int | None]]
    outputs: int = 1
    strided: bool = False
    keep: Callable[..., bool] = lambda arguments, ordinal, stream: True


def front_end(family: Family) -> Callable:
    """Return ``call(arguments, x, out, stream, *others)`` of a family; ``others`` are all inputs after the first, or
    none of them.

    ``arguments`` is a tuple that is equal only for calls of the same meaning (see ``arguments.exact``). ``out`` is
    None, an array, or with several outputs a sequence of them. Returns the result, or a tuple of them.
    """
    adapters, own, host, name, single = arrays.ADAPTERS, arrays.OWN, arrays.NUMPY, family.name, family.outputs == 1
    beside, strided, rest = arrays.beside, family.strided, family.inputs[1:]

    def call(arguments: tuple, x: Any, out: Any, stream: Any, *others: Any) -> Any:
        kind = type(x)
        addresses: tuple[int, ...]
        key: tuple
        if kind is DeviceArray and type(out) is DeviceArray and not others:  # the fastest path: plain attributes
            adapter, pointer, target = own, x.ptr, out.ptr
            key = (name, arguments, x.signature, pointer & 15, out.signature, target & 15)
            addresses = pointer, target
        else:
            adapter = adapters.get(kind) or arrays.adapter(x, family.inputs[0])
            if adapter is host:
                return _call_numpy(family, call, arguments, (x, *others), out, stream)
            pointer, signature = adapter.identify_strided(x) if strided else adapter.identify(x)
            key, addresses = (name, arguments, signature, pointer & 15), (pointer,)
            for y, argument in zip(others, rest) if others else ():
                if y is None:
                    key, addresses = (*key, None), (*addresses, 0)
                else:
                    theirs = adapter if type(y) is kind else beside(y, argument)
                    pointer, signature = theirs.identify_strided(y) if strided else theirs.identify(y)
                    key, addresses = (*key, signature, pointer & 15), (*addresses, pointer)
            for y in () if out is None else (out,) if single else _pair(out):
                theirs = adapter if type(y) is kind else beside(y, "out")
                target, signature = theirs.identify_strided(y) if strided else theirs.identify(y)
                key, addresses = (*key, signature, target & 15), (*addresses, target)
        try:
            run, ordinal, empty, reads, size, in_place = _plans[key]
        except (KeyError, TypeError):
            run, ordinal, empty, reads, size, in_place = _make(family, key, (x, *others), out, stream)
        raw = adapter.stream(ordinal) if stream is None else arrays.stream_handle(stream)
        if out is not None:
            for i, before, behind in reads:
                if before < addresses[i] - target < behind and not (i == in_place and addresses[i] == target):
                    raise _overlap(family, i, in_place)
            if not single:
                _check_pair(family, addresses, reads, size)
                out = tuple(out)
        elif single:
            out = empty(raw, stream is not None)
            addresses = (*addresses, adapter.address(out))
        else:
            out = tuple(empty(raw, stream is not None) for _ in range(family.outputs))
            addresses = (*addresses, *map(adapter.address, out))
        run(addresses, raw)
        return out

    return call


def _pair(outs: Any) -> tuple:
    if not (isinstance(outs, (tuple, list)) and len(outs) == 2 and outs[0] is not None and outs[1] is not None):
        raise ArgumentTypeError(explain("out", f"a {type(outs).__name__}", "a pair of arrays"))
    return tuple(outs)


def _overlap(family: Family, i: int, in_place: int | None) -> ArgumentValueError:
    itself = "" if in_place is None else f"{family.inputs[in_place]} itself or "
    return ArgumentValueError(explain("out", f"memory that overlaps {family.inputs[i]}", f"{itself}memory of its own"))


def _check_pair(family: Family, addresses: tuple[int, ...], reads: tuple, size: int) -> None:
    """Raise if the first of two outputs overlaps an input or the second output."""
    first, second = addresses[-2:]
    for i, before, behind in reads:
        if before < addresses[i] - first < behind:
            raise _overlap(family, i, None)
    if -size < first - second < size:
        raise ArgumentValueError(explain("out", "two arrays that overlap", "memory of its own for each"))


def _make(family: Family, key: tuple, given: tuple, out: Any, stream: Any) -> Plan:
    """Check the arguments, make the plan and store it under ``key``."""
    arguments, strided, first = key[1], family.strided, given[0]
    views: Views = tuple(
        None if x is None else arrays.checked(x, argument, strided=strided) for x, argument in zip(given, family.inputs)
    )
    views += (None,) * (len(family.inputs) - len(views))
    view = views[0]
    targets = () if out is None else (out,) if family.outputs == 1 else _pair(out)
    outs = tuple(arrays.checked(y, "out", writable=True, strided=strided) for y in targets)
    for other, argument in (*zip(views[1:], family.inputs[1:]), *((y, "out") for y in outs)):
        if other is not None:
            arrays.same_device(view, other, argument)
    spec = family.parse(arguments, views, outs[0] if outs else None)
    shape, dtype = spec.result
    for y in outs:
        _check_out(y, shape, dtype)
    library = arrays.adapter(first)
    empty = library.allocator(shape, dtype, view.device)
    raw = library.stream(view.device) if stream is None else arrays.stream_handle(stream)
    outs = outs or (View(0, shape, dtype, view.device, True),) * family.outputs
    run, in_place = family.plan(spec, views, outs, raw)
    low, high = outs[0].span[0] - outs[0].ptr, outs[0].span[1] - outs[0].ptr
    read = [(i, x) for i, x in enumerate(views) if x is not None and x.size and i not in spec.unread]
    reads = tuple((i, low - (x.span[1] - x.ptr), high - (x.span[0] - x.ptr)) for i, x in read)
    made = Plan(run, view.device, empty, reads, high - low, in_place)
    if len(_plans) >= _MOST_PLANS:
        _plans.clear()
    if not collecting() and family.keep(arguments, view.device, raw):
        try:
            _plans[key] = made
        except TypeError:  # an unhashable argument, such as a 0-d NumPy array: the plan is used once
            pass
    return made


def _check_out(out: View, shape: tuple[int, ...], element: DType) -> None:
    """Raise unless ``out`` has the shape and the type of the result, and no two of its elements share memory."""
    if out.dtype is not element:
        raise ArgumentTypeError(explain("out", f"dtype {out.dtype}", f"dtype {element}"))
    if out.shape != shape:
        raise ArgumentValueError(explain("out", f"shape {out.shape}", f"shape {shape}"))
    _check_own_memory(out.shape, out.steps, 1)


def _check_own_memory(shape: tuple[int, ...], strides: tuple[int, ...], unit: int) -> None:
    if arrays.share_memory(shape, strides, unit):
        came = f"strides {strides}: elements share memory"
        raise ArgumentValueError(explain("out", came, "memory of its own for each element"))


def _call_numpy(family: Family, call: Callable, arguments: tuple, given: tuple, out: Any, stream: Any) -> Any:
    """Copy NumPy inputs to the device, make the call there, and copy the results back. Outputs that were given are
    written only after the call has succeeded."""
    raw = 0 if stream is None else arrays.stream_handle(stream)
    for x, argument in zip(given, family.inputs):
        if x is not None and not isinstance(x, np.ndarray):
            came = f"a {type(x).__name__} beside a NumPy {family.inputs[0]}"
            raise DeviceError(explain(argument, came, "a NumPy array"))
    outs = () if out is None else (out,) if family.outputs == 1 else _pair(out)
    targets = [_like(y, family, given) for y in outs]
    if len(outs) == 2 and np.may_share_memory(*outs):
        raise ArgumentValueError(explain("out", "two arrays that overlap", "memory of its own for each"))
    copies = [
        None if x is None else arrays.on_device(x, argument, raw, family.strided)
        for x, argument in zip(given, family.inputs)
    ]
    wanted = None if out is None else targets[0] if family.outputs == 1 else targets
    found = call(arguments, copies[0], wanted, raw, *copies[1:])
    results = [device_array.to_numpy(y, raw) for y in ((found,) if family.outputs == 1 else found)]
    for y, result in zip(outs, results):
        y[...] = result
    if family.outputs > 1:
        return outs or tuple(results)
    return out if outs else results[0][()]


def _like(out: Any, family: Family, given: tuple) -> DeviceArray:
    """Return device memory for a NumPy ``out``, after checking that ``out`` may be written."""
    if not isinstance(out, np.ndarray):
        allowed = "a NumPy array"
        raise DeviceError(explain("out", f"a {type(out).__name__} for a NumPy {family.inputs[0]}", allowed))
    view = arrays.adapter(out, "out").view(out)
    if not view.writable:
        raise ArgumentValueError(explain("out", "a read-only array", "a writable one"))
    for x, argument in zip(given, family.inputs):
        if x is not None and np.may_share_memory(x, out) and not _same_memory(x, out):
            allowed = f"{argument} itself or memory of its own"
            raise ArgumentValueError(explain("out", f"memory that overlaps {argument}", allowed))
    _check_own_memory(out.shape, out.strides, out.itemsize)
    return device_array.allocate(out.shape, view.dtype)


def _same_memory(x: np.ndarray, out: np.ndarray) -> bool:
    """Return whether both have the same elements at the same addresses, as ``x`` and ``x[:]`` have."""
    return x.ctypes.data == out.ctypes.data and (x.dtype, x.shape, x.strides) == (out.dtype, out.shape, out.strides)
