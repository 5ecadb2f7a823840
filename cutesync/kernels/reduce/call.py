"""Reductions of whole arrays and along axes, with any associative operator, in one launch.

``reduce`` is the general call; ``argmin argmax sum prod min max any all`` are NumPy's names with NumPy's promotion.
Operands keep their order, so the operator need not be commutative, and the result is bitwise the same in every run and
on every GPU. The method is CUB's (vector loads, warp shuffles, one state a block) with the second kernel replaced by
the block that started last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...arguments import choice, exact, flag
from ...dtypes import BOOL, INT64, PROMOTED, DType, dtype, result_dtype, scalar
from ...errors import ArgumentTypeError, ArgumentValueError, explain, shown
from ...identity import Identity, identify
from ...ops import operator
from ...runtime.call import Family, Views, front_end
from ...runtime.view import View
from ...types import Array, Axis, DTypeLike, Operator, Scalar, Stream
from .plan import plan
from .spec import ReduceSpec, Reduction

_ARG = object()  # the algorithm of argmin and argmax, which nobody can ask for


def reduce(
    x: Array,
    op: Operator = "add",
    *,
    axis: Axis = None,
    keepdims: bool = False,
    init: Scalar | None = None,
    dtype: DTypeLike = None,
    transform: Callable[[Any], Any] | None = None,
    identity: Scalar | None = None,
    out: Array = None,
    algorithm: str = "auto",
    stream: Stream = None,
) -> Array:
    """Fold the elements of ``x`` along ``axis`` with an associative operator.

    Parameters
    ----------
    x : array of any shape, C-contiguous; NumPy (copied to the device and the result back), torch, CuPy, DeviceArray, or
        anything with DLPack or ``__cuda_array_interface__``. bool, int8..int64, uint8..uint64, float16, bfloat16,
        float32, float64.
    op : "add", "mul", "min", "max", "and", "or", "xor", "any", "all", or a callable of two scalars that the DSL can
        trace. ``op(a, b)`` gets ``a`` from lower indexes. NaN propagates through min and max, as in NumPy. A callable
        is known by its meaning (see ``cutesync.identity``): a changed capture is a new operator.
    axis : None (all), an int, or a tuple of ints; negative counts from the end.
    keepdims : keep reduced axes with extent 1.
    init : a scalar folded in before the first element; any, all: its truth value.
    dtype : the type of the operation and the result; default that of ``x`` (any, all: bool). 16-bit floats accumulate
        in float32.
    transform : a traced callable applied to every element (in the accumulator's type) before it is folded.
    identity : the result for an empty axis when ``op`` is a callable.
    out : where to write; right shape and dtype, not overlapping ``x``. Returned. Default: a new array of the library of
        ``x``.
    algorithm : "auto", or a slower rung kept for comparison: "atomic" (one atomic a block; not reproducible for floats)
        or "multi_launch" (one launch a level).
    stream : None (the current stream of the library of ``x``), an int, or an object with ``__cuda_stream__``.

    Returns
    -------
    array of the library of ``x`` with the reduced axes gone; a NumPy scalar where ``x`` is NumPy and everything is
    reduced.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError, DeviceError, OperatorError, CaptureError, WorkspaceError, NoGpuError.
    """
    if type(op) is not str:
        op = identify(op)
    if transform is not None:
        transform = identify(transform, "transform")
    if type(keepdims) is not bool:  # as keys 1 and True are one
        keepdims = flag(keepdims, "keepdims", numbers=True)
    given = () if axis is None and init is None and identity is None else exact(axis, init, identity)
    return _call((op, axis, keepdims, init, dtype, transform, identity, algorithm, given), x, out, stream)


def argmin(
    x: Array, axis: int | None = None, *, keepdims: bool = False, out: Array = None, stream: Stream = None
) -> Array:
    """Index of the smallest element (int64), the lowest one on ties; a NaN counts as smallest. ``axis`` is None or an
    int."""
    return _arg("argmin", x, axis, keepdims, out, stream)


def argmax(
    x: Array, axis: int | None = None, *, keepdims: bool = False, out: Array = None, stream: Stream = None
) -> Array:
    """Index of the largest element (int64), the lowest one on ties; a NaN counts as largest. ``axis`` is None or an
    int."""
    return _arg("argmax", x, axis, keepdims, out, stream)


def _arg(name: str, x: Any, axis: Any, keepdims: Any, out: Any, stream: Any) -> Any:
    if type(keepdims) is not bool:
        keepdims = flag(keepdims, "keepdims", numbers=True)
    return _call((name, axis, keepdims, None, None, None, None, _ARG, exact(axis)), x, out, stream)


def sum(
    x: Array,
    axis: Axis = None,
    *,
    dtype: DTypeLike = None,
    keepdims: bool = False,
    out: Array = None,
    stream: Stream = None,
) -> Array:
    """Sum. Without ``dtype`` bool and integers widen to 64 bits and floats keep their type, as in NumPy."""
    return reduce(
        x, "add", axis=axis, keepdims=keepdims, dtype=PROMOTED if dtype is None else dtype, out=out, stream=stream
    )


def prod(
    x: Array,
    axis: Axis = None,
    *,
    dtype: DTypeLike = None,
    keepdims: bool = False,
    out: Array = None,
    stream: Stream = None,
) -> Array:
    """Product. Without ``dtype`` bool and integers widen to 64 bits and floats keep their type, as in NumPy."""
    return reduce(
        x, "mul", axis=axis, keepdims=keepdims, dtype=PROMOTED if dtype is None else dtype, out=out, stream=stream
    )


def min(x: Array, axis: Axis = None, *, keepdims: bool = False, out: Array = None, stream: Stream = None) -> Array:
    """Smallest element; NaN if there is one."""
    return reduce(x, "min", axis=axis, keepdims=keepdims, out=out, stream=stream)


def max(x: Array, axis: Axis = None, *, keepdims: bool = False, out: Array = None, stream: Stream = None) -> Array:
    """Largest element; NaN if there is one."""
    return reduce(x, "max", axis=axis, keepdims=keepdims, out=out, stream=stream)


def any(x: Array, axis: Axis = None, *, keepdims: bool = False, out: Array = None, stream: Stream = None) -> Array:
    """Whether some element is not zero (bool)."""
    return reduce(x, "any", axis=axis, keepdims=keepdims, out=out, stream=stream)


def all(x: Array, axis: Axis = None, *, keepdims: bool = False, out: Array = None, stream: Stream = None) -> Array:
    """Whether every element is not zero (bool)."""
    return reduce(x, "all", axis=axis, keepdims=keepdims, out=out, stream=stream)


class Arguments(NamedTuple):
    """What ``reduce`` was given, arrays aside, in the order in which it is passed on."""

    op: Any
    axis: Any
    keepdims: bool
    init: Any
    dtype: Any
    transform: Any
    identity: Any
    algorithm: Any
    exact: tuple


def _parse(arguments: tuple, views: Views, out: View | None) -> ReduceSpec:
    """The call, checked against what ``x`` is."""
    del out
    given, x = Arguments(*arguments), views[0]
    axes = _axes(given.axis, len(x.shape))
    if given.algorithm is _ARG:
        if given.axis is not None and not isinstance(given.axis, (int, np.integer)):
            raise ArgumentTypeError(explain("axis", shown(given.axis), "None or an int"))
        reduction, algorithm = Reduction(given.op, x.dtype, x.dtype, INT64), "auto"
    else:
        reduction = _reduction(given, x.dtype)
        algorithm = _algorithm(given.algorithm, reduction, len(axes) == len(x.shape))
    init = None if given.init is None else scalar(given.init, reduction.value, "init")
    return ReduceSpec(reduction, x.shape, axes, given.keepdims, init, algorithm)


def _reduction(given: Arguments, source: DType) -> Reduction:
    parsed, transform = operator(given.op, given.identity), given.transform
    if transform is not None:
        if type(transform) is not Identity:
            raise ArgumentTypeError(explain("transform", shown(transform), "a callable of one value"))
        transform = transform.fn
    if parsed.fn is None and parsed.name in ("any", "all"):
        if given.dtype is not None and dtype(given.dtype) is not BOOL:
            allowed = f"bool, the result of op={parsed.name!r}"
            raise ArgumentTypeError(explain("dtype", shown(given.dtype), allowed))
        return Reduction(parsed, source, source.accumulator, BOOL, transform)
    result = result_dtype(source, given.dtype)
    parsed.check(result)
    if given.identity is not None:
        scalar(given.identity, result.accumulator, "identity")
    return Reduction(parsed, source, result.accumulator, result, transform)


def _algorithm(algorithm: Any, reduction: Reduction, whole: bool) -> str:
    choice(algorithm, "algorithm", ("auto", "atomic", "multi_launch"))
    if algorithm != "auto" and not whole:
        came = f"{algorithm!r} with some axes kept"
        raise ArgumentValueError(explain("algorithm", came, "axis=None", "use algorithm='auto'"))
    if algorithm == "atomic" and not reduction.has_atomic:
        allowed = "add, min, max, and, or, xor of 4- and 8-byte integers, or add of float32 and float64"
        came = f"{reduction.name} of {reduction.result}"
        raise ArgumentValueError(explain("algorithm='atomic'", came, allowed, "use algorithm='auto'"))
    return algorithm


def _axes(axis: Any, ndim: int) -> frozenset[int]:
    if axis is None:
        return frozenset(range(ndim))
    given = axis if isinstance(axis, tuple) else (axis,)
    found = []
    for entry in given:
        if not isinstance(entry, (int, np.integer)) or isinstance(entry, bool):
            raise ArgumentTypeError(explain("axis", shown(axis), "None, an int or a tuple of ints"))
        if not -ndim <= entry < ndim:
            raise ArgumentValueError(
                explain("axis", shown(axis), f"{-ndim} to {ndim - 1} for an array of {ndim} dimensions")
            )
        found.append(int(entry) % ndim)
    if len(set(found)) != len(found):
        raise ArgumentValueError(explain("axis", shown(axis), "each axis once"))
    return frozenset(found)


_call = front_end(Family("reduce", ("x",), _parse, plan))
