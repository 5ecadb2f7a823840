"""Scans (prefix sums and their like) along any axis, with any associative operator, in one launch.

``scan`` is the general call; ``cumsum cumprod`` are NumPy's names with NumPy's promotion. Operands keep their order, so the
operator need not be commutative, and the result is bitwise the same in every run and on every GPU.
"""

from __future__ import annotations

import math

import numpy as np

from ...arguments import choice, flag, unshowable
from ...dtypes import PROMOTED, DType, dtype, scalar, sum_dtype
from ...errors import ArgumentTypeError, ArgumentValueError, DeviceError, explain, shown
from ...identity import identify
from ...ops import operator
from ...runtime import arrays
from ...runtime.arrays import View
from ...runtime.call import caller
from .plan import Meaning, TieredScan, make_launch
from .policy import Problem

_NAMES = ("add", "mul", "min", "max", "and", "or", "xor")


def scan(
    x,
    op="add",
    *,
    axis=-1,
    exclusive=False,
    reverse=False,
    init=None,
    dtype=None,
    identity=None,
    out=None,
    algorithm="auto",
    stream=None,
):
    """``out[i]`` is the fold of ``x[0] ... x[i]`` along ``axis`` with an associative operator.

    Parameters
    ----------
    x : array of any shape, C-contiguous; NumPy (copied to the device and the result back), torch, CuPy, DeviceArray, or anything with
        DLPack or ``__cuda_array_interface__``. bool, int8..int64, uint8..uint64, float16, bfloat16, float32, float64.
    op : "add", "mul", "min", "max", "and", "or", "xor", or a callable of two scalars that the DSL can trace. ``op(a, b)`` gets ``a``
        from lower indexes, in both directions. NaN propagates through min and max, as in NumPy.
    axis : an int, negative counts from the end; None scans the flattened array.
    exclusive : leave ``x[i]`` itself out: the first result is ``init``, or else the operator's identity.
    reverse : fold ``x[i] ... x[n-1]``; the first result, in scan order, is the last element's.
    init : a scalar, or an array of one element of the result's type on the device of ``x``, folded in before the first element (in
        reverse: after the last). An array is read when the kernel runs and must not overlap ``out``.
    dtype : the type of the operation and the result; default that of ``x``. 16-bit floats accumulate in float32 and are rounded once.
    identity : the first result of an exclusive scan when ``op`` is a callable and there is no ``init``.
    out : where to write; right shape and dtype; ``x`` itself or memory of its own. Returned. Default: a new array of the library of ``x``.
    algorithm : "auto", or a slower rung kept for comparison: "tiered", along the last axis (tiered.py): one launch folds tiles, others scan their
        totals, a last one scans the tiles. It reads ``x`` twice, 12 bytes an element of 4 where one pass moves 8, in 3 or 5 launches.
    stream : None (the current stream of the library of ``x``), an int, or an object with ``__cuda_stream__``.

    Returns
    -------
    array of the shape of ``x`` (1-D where ``axis`` is None), of the library of ``x``.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError, DeviceError, OperatorError, CaptureError, WorkspaceError, NoGpuError.

    The method is a single-pass scan with decoupled look-ahead (Merrill and Garland 2016; CUB's warp-specialised scan).
    """
    if type(exclusive) is not bool or type(reverse) is not bool:  # as keys 1 and True are one
        exclusive, reverse = flag(exclusive, "exclusive"), flag(reverse, "reverse")
    if type(op) is not str:
        op = identify(op)
    start, at = init, 0  # an array stays alive as init until the launch
    if init is not None and not isinstance(init, (bool, int, float, np.generic)):
        start, at = _device_scalar(init, x, out)
    arguments = (op, axis, exclusive, reverse, start, dtype, identity, algorithm)
    if type(axis) is not int or axis != -1 or init is not None or identity is not None:
        try:
            arguments += (
                repr(axis),
                repr(start),
                repr(identity),
            )  # as keys 1, 1.0 and True are one, and so are 0.0 and -0.0
        except Exception as error:
            raise unshowable(axis, start, identity) from error
    return _call(arguments, x, out, stream, at)


def cumsum(x, axis=None, *, dtype=None, out=None, stream=None):
    """Running sum. Without ``dtype`` bool and integers widen to 64 bits and floats keep their type, as in NumPy."""
    return scan(x, "add", axis=axis, dtype=PROMOTED if dtype is None else dtype, out=out, stream=stream)


def cumprod(x, axis=None, *, dtype=None, out=None, stream=None):
    """Running product. Without ``dtype`` bool and integers widen to 64 bits and floats keep their type, as in NumPy."""
    return scan(x, "mul", axis=axis, dtype=PROMOTED if dtype is None else dtype, out=out, stream=stream)


class _InMemory(tuple):
    """``(dtype,)`` of a first operand in device memory; its address is an argument of the launch."""


def _device_scalar(init, x, out) -> tuple[_InMemory, int]:
    adapter = arrays.adapter(init, "init")
    on_host = arrays.adapter(x) is arrays.NUMPY
    if adapter is arrays.NUMPY:
        error = ArgumentTypeError if on_host else DeviceError
        raise error(
            explain(
                "init", "a NumPy array", "a scalar, or an array of one element on the device of x", "give init.item()"
            )
        )
    view = arrays.checked(init, "init")
    if view.size != 1:
        raise ArgumentValueError(explain("init", f"an array of shape {view.shape}", "one element"))
    if on_host:
        raise DeviceError(explain("init", "an array on a device, for a NumPy x", "a scalar"))
    arrays.same_device(arrays.checked(x, "x"), view, "init")
    if out is not None:
        target = arrays.checked(out, "out", writable=True)
        if target.ptr <= view.ptr < target.ptr + target.nbytes:
            raise ArgumentValueError(explain("init", "an element of out", "memory of its own"))
    return _InMemory((view.dtype,)), view.ptr


def _result_of(arguments: tuple, view: View) -> tuple[tuple[int, ...], DType]:
    _, result = _meaning(arguments, view)
    _check_algorithm(arguments[7], _extents(arguments[1], view.shape)[2])
    return ((view.size,) if arguments[1] is None else view.shape), result


def _plan_of(arguments: tuple, view: View, out: View | None, stream: int):
    meaning, result = _meaning(arguments, view)
    in_place = result is view.dtype
    if view.size == 0:
        return _nothing, in_place
    rows, length, inner = _extents(arguments[1], view.shape)
    problem = Problem(
        rows, length, inner, view.dtype.size, result.size, view.ptr % 16, 0 if out is None else out.ptr % 16
    )
    make = TieredScan if arguments[7] == "tiered" else make_launch
    return make(meaning, problem, view.device, stream).run, in_place


_call = caller("scan", _result_of, _plan_of)


def _nothing(x: int, out: int, stream: int, at: int = 0) -> None:
    """The launch of an empty result."""


def _meaning(arguments: tuple, view: View) -> tuple[Meaning, DType]:
    """The call's arguments, checked against what ``x`` is."""
    op, axis, exclusive, reverse, init, wanted, identity = arguments[:7]
    _extents(axis, view.shape)
    parsed = operator(op, identity)
    if parsed.fn is None and parsed.name not in _NAMES:
        raise ArgumentValueError(
            explain("op", repr(op), "one of " + ", ".join(_NAMES) + ", or a callable of two values")
        )
    result = view.dtype if wanted is None else sum_dtype(view.dtype) if wanted is PROMOTED else dtype(wanted)
    parsed.check(result)
    accumulate = result.accumulator
    if identity is not None:
        scalar(identity, accumulate, "identity")
    in_memory = isinstance(init, _InMemory)
    if in_memory:
        (element,) = init
        if element is not result:
            raise ArgumentTypeError(explain("init", f"an array of {element}", f"one of {result}, the result's type"))
    elif init is not None:
        init = scalar(init, accumulate, "init")
    elif exclusive:
        init = parsed.identity(accumulate)
        if init is None:
            raise ArgumentValueError(
                explain(
                    "exclusive",
                    f"True for {parsed.name!r}, which has no identity",
                    "a first result",
                    "give init= or identity=",
                )
            )
        init = scalar(init, accumulate, "identity")
    return Meaning(
        parsed, view.dtype, accumulate, result, exclusive, reverse, None if in_memory else init, in_memory
    ), result


def _check_algorithm(algorithm, inner: int) -> None:
    choice(algorithm, "algorithm", ("auto", "tiered"))
    if algorithm == "tiered" and inner != 1:
        raise ArgumentValueError(
            explain(
                "algorithm",
                f"'tiered' along an axis of elements that lie {inner} apart",
                "the last axis, or axis=None",
                "use algorithm='auto'",
            )
        )


def _extents(axis, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(rows, length, inner) of a scan along ``axis``."""
    if axis is None:
        return 1, math.prod(shape), 1
    if not isinstance(axis, (int, np.integer)) or isinstance(axis, bool):
        raise ArgumentTypeError(explain("axis", shown(axis), "None or an int"))
    if not -len(shape) <= axis < len(shape):
        allowed = (
            f"{-len(shape)} to {len(shape) - 1} for an array of {len(shape)} dimensions"
            if shape
            else "None for an array of no dimensions"
        )
        raise ArgumentValueError(explain("axis", shown(axis), allowed))
    axis = int(axis) % len(shape)
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
