"""Reductions of whole arrays and along axes, with any associative operator, in one launch.

``reduce`` is the general call; ``argmin argmax sum prod min max any all`` are NumPy's names with NumPy's promotion.
Operands keep their order, so the operator need not be commutative, and the result is bitwise the same in every run and
on every GPU. The method is that of CUB (vector loads, warp shuffles, one partial per block), except that the block
which started last combines the partials, in place of a second kernel.
"""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Callable
from typing import Any

from ...arguments import choice, exact, flag
from ...dtypes import BOOL, INT64, PROMOTED, DType, dtype, result_dtype, scalar
from ...errors import ArgumentTypeError, ArgumentValueError, explain, shown
from ...identity import Identity, identify
from ...ops import operator
from ...runtime.call import Family, Views, front_end
from ...runtime.view import View
from ...types import Array, Axis, DTypeLike, Operator, Scalar, Stream
from ..states import NO_ARGS, takes_two
from .counts import check_count, count_of
from .plan import plan
from .several import Options, reduce_states
from .spec import ReduceSpec, Reduction, axes_of

_ARG = object()  # the algorithm of argmin and argmax, which is not a public value of ``algorithm``


def reduce(
    x: Array,
    op: Operator = "add",
    *,
    axis: Axis = None,
    keepdims: bool = False,
    init: Scalar | tuple | None = None,
    dtype: DTypeLike = None,
    transform: Callable[..., Any] | None = None,
    identity: Scalar | tuple | None = None,
    finish: Callable[..., Any] | None = None,
    out_dtype: DTypeLike = None,
    args: tuple = NO_ARGS,
    n: Any = None,
    out: Array = None,
    algorithm: str = "auto",
    stream: Stream = None,
) -> Array:
    """Reduce ``x`` along ``axis`` with an associative operator.

    Parameters
    ----------
    x : array of any strides, of NumPy (copied to the device, the result is copied back), torch, CuPy, DeviceArray,
        DLPack or ``__cuda_array_interface__``; bool, int8..int64, uint8..uint64, float16, bfloat16, float32, float64.
        Or a tuple of arrays of one shape (``kernels/README.md``).
    op : "add", "mul", "min", "max", "and", "or", "xor", "any", "all", or a callable of two scalars that the DSL can
        trace. In ``op(a, b)``, ``a`` comes from lower indexes than ``b``. NaN propagates through min and max.
    axis : None (all), an int, or a tuple of ints; negative counts from the end.
    keepdims : whether reduced axes are kept, with extent 1.
    init : a scalar that comes before the first element; for any and all, its truth value.
    dtype : the type of the operation and of the result; default: that of ``x`` (any, all: bool). 16-bit floats
        accumulate in float32 and are rounded once.
    transform : a callable of one value, traced as ``op`` is, that is applied to every element (in the accumulator's
        type) before the reduction.
    identity : the result for an empty axis when ``op`` is a callable.
    finish, out_dtype, args : see ``kernels/README.md``, "States".
    n : how many elements along the only reduced axis count: an int, or a 0-d int64 on the device (there, "Lengths").
    out : array of the result's shape and type, of any strides, that does not overlap ``x``; it is written and
        returned. Default: a new C-contiguous array of the library of ``x``.
    algorithm : "auto", or for comparison the slower "atomic" or "multi_launch" of a whole array.
    stream : None (the current one of the library of ``x``), a handle as an int, or an object with ``__cuda_stream__``.

    The result is an array of the library of ``x``, without the reduced axes; for NumPy a scalar if all are reduced.
    Errors are those of ``cutesync.errors``.
    """
    op = op if type(op) is str else identify(op)
    if transform is not None:
        transform = identify(transform, "transform")
    if type(keepdims) is not bool:  # 1 and True are equal as keys
        keepdims = flag(keepdims, "keepdims", numbers=True)
    states = finish is not None or out_dtype is not None or args is not NO_ARGS
    if states or type(x) is tuple or type(dtype) is tuple or (transform is not None and takes_two(transform)):
        options = Options(axis, keepdims, init, dtype, identity, out_dtype)
        return reduce_states(x, op, (transform, identify(finish, "finish")), args, options, out, stream, n)
    given: tuple = (op, axis, keepdims, init, dtype, transform, identity, algorithm)
    if axis is None and init is None and identity is None and n is None:
        return _call(given, x, out, stream)
    count, arrays = count_of(n)
    given = (*given, exact(axis, init, identity), count)
    return (_call_counted if arrays else _call)(given, x, out, stream, arrays)


def argmin(
    x: Array, axis: Axis = None, *, keepdims: bool = False, n: Any = None, out: Array = None, stream: Stream = None
) -> Array:
    """Return the index of the smallest element (int64): the lowest index on ties, and that of the first NaN if there is
    one.

    With ``axis`` None (the default), the index counts elements of the flattened array. An int reduces that axis; with a
    tuple, the index counts the elements of these axes, flattened in C order. The other arguments and the errors are
    those of ``reduce``. An empty axis is an ArgumentValueError."""
    return _arg("argmin", x, axis, keepdims, n, out, stream)


def argmax(
    x: Array, axis: Axis = None, *, keepdims: bool = False, n: Any = None, out: Array = None, stream: Stream = None
) -> Array:
    """Return the index of the largest element (int64): the lowest index on ties, and that of the first NaN if there is
    one. Arguments and errors are those of ``argmin``."""
    return _arg("argmax", x, axis, keepdims, n, out, stream)


def _arg(name: str, x: Any, axis: Any, keepdims: Any, n: Any, out: Any, stream: Any) -> Any:
    if type(keepdims) is not bool:
        keepdims = flag(keepdims, "keepdims", numbers=True)
    count, arrays = count_of(n)
    given = (name, axis, keepdims, None, None, None, None, _ARG, exact(axis), count)
    return (_call_counted if arrays else _call)(given, x, out, stream, arrays)


def sum(
    x: Array,
    axis: Axis = None,
    *,
    dtype: DTypeLike = None,
    keepdims: bool = False,
    n: Any = None,
    out: Array = None,
    stream: Stream = None,
) -> Array:
    """Return the sum along ``axis``; 0 for an empty axis. Without ``dtype``, bool and integers widen to 64 bits and
    floats keep their type, as in NumPy. Arguments and errors are those of ``reduce``."""
    wanted = PROMOTED if dtype is None else dtype
    return reduce(x, "add", axis=axis, keepdims=keepdims, dtype=wanted, n=n, out=out, stream=stream)


def prod(
    x: Array,
    axis: Axis = None,
    *,
    dtype: DTypeLike = None,
    keepdims: bool = False,
    n: Any = None,
    out: Array = None,
    stream: Stream = None,
) -> Array:
    """Return the product along ``axis``; 1 for an empty axis. Without ``dtype``, bool and integers widen to 64 bits and
    floats keep their type, as in NumPy. Arguments and errors are those of ``reduce``."""
    wanted = PROMOTED if dtype is None else dtype
    return reduce(x, "mul", axis=axis, keepdims=keepdims, dtype=wanted, n=n, out=out, stream=stream)


def min(
    x: Array, axis: Axis = None, *, keepdims: bool = False, n: Any = None, out: Array = None, stream: Stream = None
) -> Array:
    """Return the smallest element along ``axis``, in the type of ``x``; NaN if there is one. An empty axis is an
    ArgumentValueError. Arguments are those of ``reduce``."""
    return reduce(x, "min", axis=axis, keepdims=keepdims, n=n, out=out, stream=stream)


def max(
    x: Array, axis: Axis = None, *, keepdims: bool = False, n: Any = None, out: Array = None, stream: Stream = None
) -> Array:
    """Return the largest element along ``axis``, in the type of ``x``; NaN if there is one. An empty axis is an
    ArgumentValueError. Arguments are those of ``reduce``."""
    return reduce(x, "max", axis=axis, keepdims=keepdims, n=n, out=out, stream=stream)


def any(
    x: Array, axis: Axis = None, *, keepdims: bool = False, n: Any = None, out: Array = None, stream: Stream = None
) -> Array:
    """Return whether any element along ``axis`` is not zero (bool); False for an empty axis. Arguments are those of
    ``reduce``."""
    return reduce(x, "any", axis=axis, keepdims=keepdims, n=n, out=out, stream=stream)


def all(
    x: Array, axis: Axis = None, *, keepdims: bool = False, n: Any = None, out: Array = None, stream: Stream = None
) -> Array:
    """Return whether all elements along ``axis`` are not zero (bool); True for an empty axis. Arguments are those of
    ``reduce``."""
    return reduce(x, "all", axis=axis, keepdims=keepdims, n=n, out=out, stream=stream)


# The arguments of ``reduce`` except the arrays, in the order in which they are passed to the front end.
Arguments = namedtuple(
    "Arguments", "op axis keepdims init dtype transform identity algorithm exact n", defaults=[(), None]
)


def _parse(arguments: tuple, views: Views, out: View | None) -> ReduceSpec:
    """Check the arguments against ``x``, and return the Spec of the call."""
    given, x = Arguments(*arguments), views[0]
    axes = axes_of(given.axis, len(x.shape))
    check_count(given.n, views[1] if len(views) > 1 else None, x.shape, axes)
    if given.algorithm is _ARG:
        return ReduceSpec(_place(given.op, x.dtype), x.shape, axes, given.keepdims, None, n=given.n)
    usual = type(given.op) is str and given.identity is None and (given.dtype is None or given.dtype is PROMOTED)
    usual &= given.transform is None
    reduction = (_usual if usual else _reduction)(given.op, given.identity, given.dtype, x.dtype, given.transform)
    algorithm = _algorithm(given.algorithm, reduction, len(axes) == len(x.shape))
    init = None if given.init is None else (scalar(given.init, reduction.values[0], "init"),)
    return ReduceSpec(reduction, x.shape, axes, given.keepdims, init, algorithm, n=given.n)


@functools.cache
def _place(name: str, source: DType) -> Reduction:
    return Reduction(name, source, source, INT64)


def _reduction(op: Any, identity: Any, wanted: Any, source: DType, transform: Any) -> Reduction:
    parsed = operator(op, identity)
    if transform is not None:
        if type(transform) is not Identity:
            raise ArgumentTypeError(explain("transform", shown(transform), "a callable of one value"))
        transform = transform.fn
    if parsed.fn is None and parsed.name in ("any", "all"):
        if wanted is not None and dtype(wanted) is not BOOL:
            allowed = f"bool, the result of op={parsed.name!r}"
            raise ArgumentTypeError(explain("dtype", shown(wanted), allowed))
        return Reduction(parsed, source, source.accumulator, BOOL, transform)
    result = result_dtype(source, wanted)
    parsed.check(result)
    if identity is not None:
        scalar(identity, result.accumulator, "identity")
    return Reduction(parsed, source, result.accumulator, result, transform)


_usual = functools.cache(_reduction)  # of a named operator: what an object knows of itself is found once


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


_call = front_end(Family("reduce", ("x",), _parse, plan, strided=True))
_call_counted = front_end(Family("counted reduce", ("x", "n"), _parse, plan, strided=True))
