"""The way from a public call to launches that every family shares: find the plan of a call like this one, or make it, and run it.

The second call with such arrays costs one dictionary look-up. A key holds the arguments, what the arrays are, and how they are aligned; the
addresses themselves are given to ``Plan.run`` each time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..dtypes import DType
from ..errors import ArgumentTypeError, ArgumentValueError, DeviceError, explain
from . import arrays, device_array
from .arrays import View
from .device_array import DeviceArray

_MOST_PLANS = 4096
_plans: dict[tuple, Plan] = {}


class Plan(NamedTuple):
    """Everything a call with a known signature needs. ``run(x, out, stream)`` takes addresses, and one of a third array behind."""

    run: Callable[..., None]
    ordinal: int
    x_bytes: int
    out_bytes: int
    empty: Callable[..., Any] | None  # makes a result on a stream; None where out is given
    in_place: bool = False  # out may be x itself


def caller(family: str, result_of: Callable, plan_of: Callable):
    """``call(arguments, x, out, stream, other=0)`` of a family; its name keeps its plans apart. ``other`` is a third address for ``run``.

    ``result_of(arguments, view)`` checks the arguments against what ``x`` is and returns the result's (shape, dtype);
    ``plan_of(arguments, view, out_view, stream)`` returns ``(run, in_place)``, ``out_view`` being None where ``out`` is not given.
    """
    adapters, own, host = arrays.ADAPTERS, arrays.OWN, arrays.NUMPY

    def call(arguments: tuple, x, out, stream, other: int = 0):
        kind = type(x)
        if (
            kind is DeviceArray and type(out) is DeviceArray
        ):  # the cheapest way through: plain attributes, the default stream
            pointer, out_pointer = x.ptr, out.ptr
            key = (family, arguments, x.signature, pointer & 15, out.signature, out_pointer & 15)
            adapter = own
        else:
            adapter = adapters.get(kind) or arrays.adapter(x)
            if adapter is host:
                return call_numpy(arguments, x, out, stream)
            pointer, signature = adapter.identify(x)
            if out is None:
                key = (family, arguments, signature, pointer & 15)
            else:
                out_pointer, out_signature = (adapter if type(out) is kind else arrays.beside(out, "out")).identify(out)
                key = (family, arguments, signature, pointer & 15, out_signature, out_pointer & 15)
        try:
            run, ordinal, x_bytes, out_bytes, empty, in_place = _plans[key]
        except (KeyError, TypeError):
            run, ordinal, x_bytes, out_bytes, empty, in_place = plan(key, x, out, stream)
        raw = adapter.stream(ordinal) if stream is None else arrays.stream_handle(stream)
        if out is None:
            out = empty(raw, stream is not None)
            out_pointer = adapter.address(out)
        elif -x_bytes < pointer - out_pointer < out_bytes and not (in_place and pointer == out_pointer):
            raise ArgumentValueError(
                explain(
                    "out",
                    "memory that overlaps x",
                    "x itself or memory of its own" if in_place else "memory of its own",
                )
            )
        if other:
            run(pointer, out_pointer, raw, other)
        else:
            run(pointer, out_pointer, raw)
        return out

    def plan(key: tuple, x, out, stream) -> Plan:
        return _make(
            key,
            x,
            () if out is None else (out,),
            stream,
            result_of,
            lambda arguments, view, outs, raw: plan_of(arguments, view, *(outs or (None,)), raw),
        )

    def call_numpy(arguments: tuple, x: np.ndarray, out, stream):
        """NumPy in, NumPy out, by way of the device."""
        view = arrays.adapter(x).view(x)
        if out is not None:
            _check_numpy_out(out, x, result_of(arguments, view))
        raw = 0 if stream is None else arrays.stream_handle(stream)
        result = device_array.to_numpy(
            call(arguments, device_array.from_numpy(x, view.dtype, stream=raw), None, raw), raw
        )
        if out is not None:
            out[...] = result
            return out
        return result[()]

    return call


def pair_caller(family: str, result_of: Callable, plan_of: Callable):
    """``call(arguments, x, outs, stream)`` of calls with two outputs of one shape and type; ``outs`` is None or a pair.

    As ``caller``, but ``plan_of`` gets the pair of views, or an empty tuple, and ``run`` the address of the second output behind the
    stream. Neither output may be ``x``.
    """

    def call(arguments: tuple, x, outs, stream):
        if outs is not None and not (
            isinstance(outs, (tuple, list)) and len(outs) == 2 and outs[0] is not None and outs[1] is not None
        ):
            raise ArgumentTypeError(explain("out", f"a {type(outs).__name__}", "a pair of arrays"))
        adapter = arrays.ADAPTERS.get(type(x)) or arrays.adapter(x)
        if adapter is arrays.NUMPY:
            return call_numpy(arguments, x, outs, stream)
        pointer, signature = adapter.identify(x)
        key = (family, arguments, signature, pointer & 15)
        if outs is not None:
            (first, first_signature), (second, second_signature) = (
                arrays.beside(out, "out").identify(out) for out in outs
            )
            key += (first_signature, first & 15, second_signature, second & 15)
        try:
            plan = _plans[key]
        except (KeyError, TypeError):
            plan = _make(key, x, outs or (), stream, result_of, plan_of)
        raw = adapter.stream(plan.ordinal) if stream is None else arrays.stream_handle(stream)
        if outs is None:
            outs = plan.empty(raw, stream is not None), plan.empty(raw, stream is not None)
            first, second = map(adapter.address, outs)
        elif any(-plan.x_bytes < pointer - out < plan.out_bytes for out in (first, second)):
            raise ArgumentValueError(explain("out", "memory that overlaps x", "memory of its own"))
        elif -plan.out_bytes < first - second < plan.out_bytes:
            raise ArgumentValueError(explain("out", "two arrays that overlap", "memory of its own for each"))
        plan.run(pointer, first, raw, second)
        return tuple(outs)

    def call_numpy(arguments: tuple, x: np.ndarray, outs, stream):
        view = arrays.adapter(x).view(x)
        for out in outs or ():
            _check_numpy_out(out, x, result_of(arguments, view))
        if outs is not None and np.may_share_memory(*outs):
            raise ArgumentValueError(explain("out", "two arrays that overlap", "memory of its own for each"))
        raw = 0 if stream is None else arrays.stream_handle(stream)
        results = [
            device_array.to_numpy(result, raw)
            for result in call(arguments, device_array.from_numpy(x, view.dtype, stream=raw), None, raw)
        ]
        for out, result in zip(outs or (), results):
            out[...] = result
        return tuple(outs or results)

    return call


def _make(key: tuple, x, outs: tuple, stream, result_of: Callable, plan_of: Callable) -> Plan:
    """Check the arguments, build the plan and keep it."""
    view = arrays.checked(x, "x")
    shape, dtype = result_of(key[1], view)
    out_views = []
    for out in outs:
        out_views.append(arrays.checked(out, "out", writable=True))
        arrays.same_device(view, out_views[-1], "out")
        check_out(out_views[-1], shape, dtype)
    raw = arrays.adapter(x).stream(view.device) if stream is None else arrays.stream_handle(stream)
    run, in_place = plan_of(key[1], view, tuple(out_views), raw)
    out_bytes = View(0, shape, dtype, view.device, True).nbytes if view.nbytes else 0  # an empty x overlaps nothing
    empty = None if outs else arrays.adapter(x).allocator(shape, dtype, view.device)
    made = Plan(run, view.device, view.nbytes, out_bytes, empty, in_place)
    if len(_plans) >= _MOST_PLANS:
        _plans.clear()
    try:
        _plans[key] = made
    except TypeError:  # an argument that cannot be hashed, such as a NumPy scalar array: the plan serves once
        pass
    return made


def _check_numpy_out(out, x: np.ndarray, result: tuple[tuple[int, ...], DType]) -> None:
    if not isinstance(out, np.ndarray):
        raise DeviceError(explain("out", f"a {type(out).__name__} for a NumPy x", "a NumPy array"))
    check_out(arrays.adapter(out, "out").view(out), *result)
    if np.may_share_memory(x, out) and not _same_memory(x, out):
        raise ArgumentValueError(explain("out", "memory that overlaps x", "x itself or memory of its own"))
    if arrays.share_memory(out.shape, out.strides, out.itemsize):
        raise ArgumentValueError(
            explain("out", f"strides {out.strides}: elements share memory", "memory of its own for each element")
        )


def _same_memory(x: np.ndarray, out: np.ndarray) -> bool:
    """Whether every element of one is that of the other: ``x`` and ``x[:]`` are."""
    return x.ctypes.data == out.ctypes.data and (x.dtype, x.shape, x.strides) == (out.dtype, out.shape, out.strides)


def check_out(out: View, shape: tuple[int, ...], element: DType) -> None:
    """Refuse an ``out`` that is not what the result needs."""
    if out.dtype is not element:
        raise ArgumentTypeError(explain("out", f"dtype {out.dtype}", f"dtype {element}"))
    if out.shape != shape:
        raise ArgumentValueError(explain("out", f"shape {out.shape}", f"shape {shape}"))
    if not out.writable:
        raise ArgumentValueError(explain("out", "a read-only array", "a writable one"))
