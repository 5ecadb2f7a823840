"""Scans (prefix sums and their like) along any axis, with any associative operator, in one launch.

``scan`` is the general call; ``cumsum cumprod`` are NumPy's names with NumPy's promotion. Operands keep their order, so
the operator need not be commutative, and the result is bitwise the same in every run and on every GPU.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ...arguments import choice, exact, flag
from ...dtypes import PROMOTED, DType, result_dtype, scalar
from ...errors import ArgumentTypeError, ArgumentValueError, DeviceError, explain, shown
from ...identity import identify
from ...ops import Operator, operator
from ...runtime import arrays
from ...runtime.call import Family, Views, front_end
from ...runtime.view import View
from ...types import A, Array, DTypeLike, Scalar, Stream
from ...types import Operator as OperatorLike
from .plan import plan
from .spec import ScanSpec

NAMES = ("add", "mul", "min", "max", "and", "or", "xor")


def scan(
    x: A,
    op: OperatorLike = "add",
    *,
    axis: int | None = -1,
    exclusive: bool = False,
    reverse: bool = False,
    init: Scalar | Array = None,
    dtype: DTypeLike = None,
    identity: Scalar | None = None,
    out: Array = None,
    algorithm: str = "auto",
    stream: Stream = None,
) -> A:
    """``out[i]`` is the fold of ``x[0] ... x[i]`` along ``axis`` with an associative operator.

    Parameters
    ----------
    x : array of any shape, C-contiguous; NumPy (copied to the device and the result back), torch, CuPy, DeviceArray, or
        anything with DLPack or ``__cuda_array_interface__``. bool, int8..int64, uint8..uint64, float16, bfloat16,
        float32, float64.
    op : "add", "mul", "min", "max", "and", "or", "xor", or a callable of two scalars that the DSL can trace. ``op(a,
        b)`` gets ``a`` from lower indexes, in both directions. NaN propagates through min and max, as in NumPy.
    axis : an int, negative counts from the end; None scans the flattened array.
    exclusive : leave ``x[i]`` itself out: the first result is ``init``, or else the operator's identity.
    reverse : fold ``x[i] ... x[n-1]``; the first result, in scan order, is the last element's.
    init : a scalar, or an array of one element of the result's type on the device of ``x``, folded in before the first
        element (in reverse: after the last). An array is read when the kernel runs and must not overlap ``out``.
    dtype : the type of the operation and the result; default that of ``x``. 16-bit floats accumulate in float32 and are
        rounded once.
    identity : the first result of an exclusive scan when ``op`` is a callable and there is no ``init``.
    out : where to write; right shape and dtype; ``x`` itself or memory of its own. Returned. Default: a new array of
        the library of ``x``.
    algorithm : "auto", or a slower rung kept for comparison: "tiered", along the last axis (tiered.py): one launch
        folds tiles, others scan their totals, a last one scans the tiles. It reads ``x`` twice, 12 bytes an element of
        4 where one pass moves 8, in 3 or 5 launches.
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
    others: tuple = ()
    if init is not None and not isinstance(init, (bool, int, float, np.generic)):
        others, init = (_device_scalar(init, x),), IN_MEMORY
    given: tuple = ()
    if type(axis) is not int or axis != -1 or init is not None or identity is not None:
        given = exact(axis, init, identity)
    return _call((op, axis, exclusive, reverse, init, dtype, identity, algorithm, given), x, out, stream, *others)


def cumsum(x: A, axis: int | None = None, *, dtype: DTypeLike = None, out: Array = None, stream: Stream = None) -> A:
    """Running sum. Without ``dtype`` bool and integers widen to 64 bits and floats keep their type, as in NumPy."""
    return scan(x, "add", axis=axis, dtype=PROMOTED if dtype is None else dtype, out=out, stream=stream)


def cumprod(x: A, axis: int | None = None, *, dtype: DTypeLike = None, out: Array = None, stream: Stream = None) -> A:
    """Running product. Without ``dtype`` bool and integers widen to 64 bits and floats keep their type, as in NumPy."""
    return scan(x, "mul", axis=axis, dtype=PROMOTED if dtype is None else dtype, out=out, stream=stream)


IN_MEMORY = "in memory"  # an ``init`` that is an input


def _device_scalar(init: Any, x: Any) -> Any:
    """``init``, which is an array on a device beside an ``x`` there."""
    on_host = arrays.adapter(x) is arrays.NUMPY
    if arrays.adapter(init, "init") is arrays.NUMPY:
        allowed = "a scalar, or an array of one element on the device of x"
        error = ArgumentTypeError if on_host else DeviceError
        raise error(explain("init", "a NumPy array", allowed, "give init.item()"))
    if on_host:
        raise DeviceError(explain("init", "an array on a device, for a NumPy x", "a scalar"))
    return init


class Arguments(NamedTuple):
    """What ``scan`` was given, arrays aside, in the order in which it is passed on."""

    op: Any
    axis: Any
    exclusive: bool
    reverse: bool
    init: Any
    dtype: Any
    identity: Any
    algorithm: Any
    exact: tuple


def _parse(arguments: tuple, views: Views, out: View | None) -> ScanSpec:
    """The call, checked against what the arrays are."""
    del out
    given, (x, first) = Arguments(*arguments), views
    extents = _extents(given.axis, x.shape)
    op = operator(given.op, given.identity)
    if op.fn is None and op.name not in NAMES:
        raise ArgumentValueError(
            explain("op", repr(op), "one of " + ", ".join(NAMES) + ", or a callable of two values")
        )
    result = result_dtype(x.dtype, given.dtype)
    op.check(result)
    accumulate = result.accumulator
    if given.identity is not None:
        scalar(given.identity, accumulate, "identity")
    start = _start(given, op, accumulate)
    if first is not None:
        _check_first(first, result)
    choice(given.algorithm, "algorithm", ("auto", "tiered"))
    if given.algorithm == "tiered" and extents[2] != 1:
        came = f"'tiered' along an axis of elements that lie {extents[2]} apart"
        raise ArgumentValueError(explain("algorithm", came, "the last axis, or axis=None", "use algorithm='auto'"))
    return ScanSpec(
        op=op,
        source=x.dtype,
        accumulate=accumulate,
        output=result,
        exclusive=given.exclusive,
        reverse=given.reverse,
        start=start,
        start_in_memory=first is not None,
        shape=(x.size,) if given.axis is None else x.shape,
        extents=extents,
        algorithm=given.algorithm,
    )


def _start(given: Arguments, op: Operator, accumulate: DType) -> Any:
    """What comes before the first element: a number; None for nothing, or for what is in memory."""
    if given.init is IN_MEMORY:
        return None
    if given.init is not None:
        return scalar(given.init, accumulate, "init")
    if not given.exclusive:
        return None
    identity = op.identity(accumulate)
    if identity is None:
        came = f"True for {op.name!r}, which has no identity"
        raise ArgumentValueError(explain("exclusive", came, "a first result", "give init= or identity="))
    return scalar(identity, accumulate, "identity")


def _check_first(first: View, result: DType) -> None:
    if first.size != 1:
        raise ArgumentValueError(explain("init", f"an array of shape {first.shape}", "one element"))
    if first.dtype is not result:
        raise ArgumentTypeError(explain("init", f"an array of {first.dtype}", f"one of {result}, the result's type"))


def _extents(axis: Any, shape: tuple[int, ...]) -> tuple[int, int, int]:
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


_call = front_end(Family("scan", ("x", "init"), _parse, plan))
