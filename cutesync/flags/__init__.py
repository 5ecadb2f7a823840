"""Where an ordered array changes: head flags, tail flags, and differences between neighbours, of whole arrays in one pass.

A head differs from the item before it, a tail from the item behind it; what "differs" means is the operator's. The meaning is that of
``cub::BlockDiscontinuity``, along the whole last axis instead of a block's tile.
"""

from __future__ import annotations

import math
from typing import Any, Callable, NamedTuple

import numpy as np

from ..dtypes import BOOL, BY_NAME, DType
from ..dtypes import dtype as parse_dtype
from ..errors import ArgumentTypeError, ArgumentValueError, DeviceError, explain
from ..ops import COMPARISONS, DIFFERENCES, neighbour_operator
from ..runtime import arrays, device_array
from ..runtime.arrays import View
from ..runtime.launch import Launch
from .config import Problem, alignment, check_tile, choose
from .plan import Marking, make_launch

_plans: dict[tuple, Plan] = {}
_adapters = arrays.ADAPTERS
_MOST_PLANS = 4096


def flag_heads(x, op="ne", *, predecessor=None, dtype="uint8", tile=None, out=None, stream=None):
    """Flag the items of ``x`` that differ from the item before them, along the last axis.

    Parameters
    ----------
    x : array of at least one axis, C-contiguous; NumPy (copied to the device and the result back), torch, CuPy, DeviceArray, or
        anything with DLPack or ``__cuda_array_interface__``. bool, int8..int64, uint8..uint64, float16, bfloat16, float32, float64.
        Each row (the last axis) starts fresh.
    op : "ne", "eq", "lt", "le", "gt", "ge", or a callable that the DSL can trace: ``op(a, b)`` or ``op(a, b, index)``, true where there
        is a discontinuity between a and the b behind it; ``index`` (Int64) is the place of b in its row. 16-bit floats reach a callable
        as float32. It is called once for each pair of neighbours. Comparisons are IEEE's: a NaN differs from everything, -0.0 from
        nothing that 0.0 does not differ from.
    predecessor : a scalar that each row's first item is compared with, as ``op(predecessor, first, 0)``. None: the first item is a
        head, and the operator is not called for it.
    dtype : type of the flags, which are 0 or 1: any integer type, "bool", or "bits" for 32 flags to a uint32, the first in the lowest
        bit; a row of n has ceil(n / 32) words, and what is left of the last one is 0.
    tile : cut each row into tiles of so many items (1 to 2**30), each of which starts fresh and counts its own index: what a block of
        ``cub::BlockDiscontinuity`` with a tile of that size does.
    out : where to write; right shape and dtype, not overlapping ``x``. Returned. Default: a new array of the library of ``x``.
    stream : None (the current stream of the library of ``x``), an int, or an object with ``__cuda_stream__``.

    Returns
    -------
    array of the library of ``x`` and of its shape ("bits": the last axis shorter).

    Raises
    ------
    ArgumentTypeError, ArgumentValueError, DeviceError, OperatorError, CaptureError, WorkspaceError, NoGpuError.
    """
    return _call(_arguments("heads", op, predecessor, None, dtype, tile), x, out, None, stream)


def flag_tails(x, op="ne", *, successor=None, dtype="uint8", tile=None, out=None, stream=None):
    """Flag the items of ``x`` that differ from the item behind them, along the last axis.

    As ``flag_heads``, with ``successor`` as the scalar that each row's last item is compared with, as ``op(last, successor, n)``. None:
    the last item is a tail, and the operator is not called for it.
    """
    return _call(_arguments("tails", op, None, successor, dtype, tile), x, out, None, stream)


def flag_heads_and_tails(x, op="ne", *, predecessor=None, successor=None, dtype="uint8", tile=None, out=None, stream=None):
    """``(heads, tails)``: both kinds of flags in one pass over ``x``. ``out`` is a pair of arrays."""
    heads, tails = _pair(out)
    return _call(_arguments("both", op, predecessor, successor, dtype, tile), x, heads, tails, stream)


def adjacent_difference(x, op="sub", *, reverse=False, out=None, stream=None):
    """``op(item, item before it)`` along the last axis; each row's first item stays as it is. With ``reverse`` the neighbour is the
    item behind, and each row's last item stays.

    Parameters
    ----------
    x, out, stream : as for ``flag_heads``; the result has the type and the shape of ``x``.
    op : "sub", "add", "mul", "min", "max", "and", "or", "xor", or a callable of two values. Integers wrap; 16-bit floats are computed in
        float32 and rounded once. "sub" refuses bool.
    reverse : whether the neighbour is the item behind.
    """
    return _call(("right" if reverse else "left", op, None, None), x, out, None, stream)


def _arguments(form: str, op, predecessor, successor, dtype, tile) -> tuple:
    if predecessor is None and successor is None and tile is None:
        return (form, op, dtype, None)
    return (form, op, dtype, tile, predecessor, successor, repr((predecessor, successor, tile)))  # as keys 1, 1.0 and True are one


def _pair(out) -> tuple:
    if out is None:
        return None, None
    if not (isinstance(out, (tuple, list)) and len(out) == 2 and out[0] is not None and out[1] is not None):
        raise ArgumentTypeError(explain("out", f"a {type(out).__name__}", "a pair of arrays, (heads, tails)"))
    return tuple(out)


def _call(arguments: tuple, x, out, other, stream):
    """Find or make the plan of a call and run it. ``other`` is the second output of ``flag_heads_and_tails``."""
    kind = type(x)
    adapter = _adapters.get(kind) or arrays.adapter(x)
    if adapter is arrays.NUMPY:
        return _call_numpy(arguments, x, out, other, stream)
    pointer, signature = adapter.identify(x)
    two, other_pointer = arguments[0] == "both", 0
    if out is None:
        key = (arguments, signature, pointer & 15)
    else:
        out_pointer, out_signature = (adapter if type(out) is kind else arrays.adapter(out, "out")).identify(out)
        key = (arguments, signature, pointer & 15, out_signature, out_pointer & 15)
        if two:
            other_pointer, other_signature = (adapter if type(other) is kind else arrays.adapter(other, "out")).identify(other)
            key += (other_signature, other_pointer & 15)
    try:
        run, ordinal, x_bytes, out_bytes, out_shape, out_dtype = _plans[key]
    except (KeyError, TypeError):
        run, ordinal, x_bytes, out_bytes, out_shape, out_dtype = _plan(key, x, out, other, stream)
    raw = adapter.stream(ordinal) if stream is None else arrays.stream_handle(stream)
    if out is None:
        out = adapter.empty(out_shape, out_dtype, ordinal, raw)
        out_pointer, _ = adapter.identify(out)
        if two:
            other = adapter.empty(out_shape, out_dtype, ordinal, raw)
            other_pointer, _ = adapter.identify(other)
    else:
        if -x_bytes < pointer - out_pointer < out_bytes or (two and -x_bytes < pointer - other_pointer < out_bytes):
            raise ArgumentValueError(explain("out", "memory that overlaps x", "memory of its own"))
        if two and -out_bytes < out_pointer - other_pointer < out_bytes:
            raise ArgumentValueError(explain("out", "heads and tails that overlap", "memory of its own for each"))
    run(pointer, out_pointer, raw, other_pointer)
    return (out, other) if two else out


def _call_numpy(arguments: tuple, x: np.ndarray, out, other, stream):
    """NumPy in, NumPy out, by way of the device."""
    view = arrays.adapter(x).view(x)
    outs = [array for array in (out, other) if array is not None]
    for array in outs:
        if not isinstance(array, np.ndarray):
            raise DeviceError(explain("out", f"a {type(array).__name__} for a NumPy x", "a NumPy array"))
        _check_out(arrays.adapter(array).view(array), *_result(_parse(arguments, view)[0], view))
        if np.may_share_memory(x, array):
            raise ArgumentValueError(explain("out", "memory that overlaps x", "memory of its own"))
    if len(outs) == 2 and np.may_share_memory(*outs):
        raise ArgumentValueError(explain("out", "heads and tails that overlap", "memory of its own for each"))
    raw = 0 if stream is None else arrays.stream_handle(stream)
    found = _call(arguments, device_array.from_numpy(x, view.dtype, stream=raw), None, None, raw)
    results = [np.asarray(array) for array in (found if isinstance(found, tuple) else (found,))]
    for array, result in zip(outs, results):
        array[...] = result
    results = outs or results
    return tuple(results) if isinstance(found, tuple) else results[0]


class Plan(NamedTuple):
    """Everything a call with a known signature needs. ``run(x, out, stream, other)`` takes addresses; sizes are of one output."""

    run: Callable[[int, int, int, int], None]
    ordinal: int
    x_bytes: int
    out_bytes: int
    out_shape: tuple[int, ...]
    out_dtype: DType


def _nothing(x: int, out: int, stream: int, other: int) -> None:
    """The launch of an empty result."""
    del x, out, stream, other


def _plan(key: tuple, x, out, other, stream) -> Plan:
    """Check the arguments, build the plan and keep it."""
    view = arrays.checked(x, "x")
    marking, ends, tile = _parse(key[0], view)
    shape, element = _result(marking, view)
    flag_aligned = 16
    for array in (out, other):
        if array is not None:
            out_view = arrays.checked(array, "out", writable=True)
            arrays.same_device(view, out_view, "out")
            _check_out(out_view, shape, element)
            flag_aligned = min(flag_aligned, alignment(out_view.ptr))
    raw = arrays.adapter(x).stream(view.device) if stream is None else arrays.stream_handle(stream)
    run = _launch(marking, ends, tile, view, flag_aligned, raw).run if view.size else _nothing
    plan = Plan(run, view.device, view.nbytes, math.prod(shape) * element.size, shape, element)
    if len(_plans) >= _MOST_PLANS:
        _plans.clear()
    try:
        _plans[key] = plan
    except TypeError:  # an argument that cannot be hashed, such as a NumPy scalar array: the plan serves once
        pass
    return plan


def _launch(marking: Marking, ends: tuple, tile: int | None, view: View, flag_aligned: int, stream: int) -> Launch:
    length, flag = view.shape[-1], 0 if marking.bits else marking.result.size
    problem = Problem(view.size // length, length, tile or length, view.dtype.size, flag, alignment(view.ptr), flag_aligned)
    return make_launch(choose(problem), marking, ends, view.device, stream)


def prepared(name: str, view: View, options: dict) -> Launch:
    """The launch of a public call on an array like ``view`` with aligned outputs: what ahead-of-time compilation needs."""
    form = {"flag_heads": "heads", "flag_tails": "tails", "flag_heads_and_tails": "both"}.get(name)
    if form is None:
        arguments = ("right" if options.get("reverse") else "left", options.get("op", "sub"), None, None)
    else:
        ends = (options.get("predecessor"), options.get("successor"))
        arguments = _arguments(form, options.get("op", "ne"), *ends, options.get("dtype", "uint8"), options.get("tile"))
    return _launch(*_parse(arguments, view), view, 16, 0)


def _parse(arguments: tuple, view: View) -> tuple[Marking, tuple, int | None]:
    """The call's arguments, checked against what ``x`` is: what to compute, the scalars at the ends, and the tile."""
    form, op, wanted, tile, *ends = arguments[:6]
    if not view.shape:
        raise ArgumentValueError(explain("x", "an array of no axes", "at least one axis", "give x.reshape(1)"))
    if form in ("left", "right"):
        parsed = neighbour_operator(op, DIFFERENCES)
        if parsed.fn is None and parsed.name == "sub" and view.dtype is BOOL:
            raise ArgumentTypeError(explain("op='sub'", "dtype bool", "a number type", "use op='xor' for bool"))
        parsed.check(view.dtype)
        return Marking(form, parsed, view.dtype, view.dtype), (None, None), None
    if tile is not None:
        if not isinstance(tile, (int, np.integer)) or isinstance(tile, bool):
            raise ArgumentTypeError(explain("tile", repr(tile), "None or an int"))
        check_tile(tile)
    predecessor, successor = ends or (None, None)
    scalars = _scalar("predecessor", predecessor, view.dtype), _scalar("successor", successor, view.dtype)
    parsed, result = neighbour_operator(op, COMPARISONS), _flag_dtype(wanted)
    bits = isinstance(wanted, str) and wanted == "bits"
    return Marking(form, parsed, view.dtype, result, bits, predecessor is not None, successor is not None), scalars, None if tile is None else int(tile)


def _flag_dtype(wanted) -> DType:
    if isinstance(wanted, str) and wanted == "bits":
        return BY_NAME["uint32"]
    found = parse_dtype(wanted)
    if found.kind == "f":
        raise ArgumentTypeError(explain("dtype", f"{found}", "an integer type, 'bool' or 'bits'"))
    return found


def _scalar(name: str, value: Any, element: DType):
    """A predecessor or successor as a Python number of the element type."""
    if value is None:
        return None
    if not isinstance(value, (bool, int, float, np.generic)) or (element.kind != "f" and isinstance(value, (float, np.floating))):
        raise ArgumentTypeError(explain(name, repr(value), f"a scalar of {element}"))
    if element.kind in "iu":
        info = np.iinfo(element.numpy)
        if not info.min <= int(value) <= info.max:
            raise ArgumentValueError(explain(name, repr(value), f"a value of {element}, {info.min} to {info.max}"))
    return float(value) if element.kind == "f" else int(bool(value)) if element.kind == "b" else int(value)


def _result(marking: Marking, view: View) -> tuple[tuple[int, ...], DType]:
    """Shape and type of one output."""
    *rows, length = view.shape
    return (*rows, -(-length // 32) if marking.bits else length), marking.result


def _check_out(out: View, shape: tuple[int, ...], element: DType) -> None:
    if out.dtype is not element:
        raise ArgumentTypeError(explain("out", f"dtype {out.dtype}", f"dtype {element}"))
    if out.shape != shape:
        raise ArgumentValueError(explain("out", f"shape {out.shape}", f"shape {shape}"))
    if not out.writable:
        raise ArgumentValueError(explain("out", "a read-only array", "a writable one"))
