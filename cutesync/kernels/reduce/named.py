"""Reductions with names of their own: NumPy's ``mean var std count_nonzero``, SciPy's ``logsumexp``, torch's
``var_mean``, and ``minmax``.

Each reads its input once. Types and empty axes are those of NumPy: integers and bool give float64, floats their own
type, and 16-bit floats compute in float32. ``named_monoids`` has the device code.
"""

from __future__ import annotations

import math
from collections import namedtuple
from typing import Any

from ...arguments import exact, flag
from ...dtypes import BY_NAME, INT64, DType, as_float, dtype as parse_dtype, number, sum_dtype
from ...errors import ArgumentTypeError, ArgumentValueError, explain
from ...ops import Operator
from ...runtime.call import Family, Views, front_end
from ...runtime.view import View
from ...types import Array, Axis, DTypeLike, Scalar, Stream
from ..named import Named
from ..states import Argument
from .counts import check_count, count_of
from .plan import plan
from .spec import ReduceSpec, axes_of

FLOAT64 = BY_NAME["float64"]
PAIRS = ("var_mean", "minmax")  # those of two results


def mean(
    x: Array,
    axis: Axis = None,
    *,
    dtype: DTypeLike = None,
    keepdims: bool = False,
    n: Any = None,
    out: Array = None,
    stream: Stream = None,
) -> Array:
    """Return the arithmetic mean along ``axis``; NaN for an empty axis. ``dtype``, a type of floats, is that of the
    computation and of the result. Without it, the sum of integers of up to 32 bits is exact. Other arguments and the
    errors are those of ``reduce``."""
    return _make(_key("mean", axis, keepdims, dtype), x, n, out, stream)


def var(
    x: Array,
    axis: Axis = None,
    *,
    dtype: DTypeLike = None,
    ddof: Scalar = 0,
    keepdims: bool = False,
    n: Any = None,
    out: Array = None,
    stream: Stream = None,
) -> Array:
    """Return the variance along ``axis``: the sum of squared differences from the mean, over the number of elements
    less ``ddof``. It is NaN for an empty axis, or where an element is NaN or infinite.

    ``dtype``, a type of floats, is that of the computation and of the result. Other arguments and the errors are those
    of ``reduce``. The method is that of Chan, Golub and LeVeque (1979), in one pass: runs of elements become (count,
    mean, sum of squared differences), which are combined pairwise. So the mean may be large beside the deviation."""
    return _make(_key("var", axis, keepdims, dtype, ddof), x, n, out, stream)


def std(
    x: Array,
    axis: Axis = None,
    *,
    dtype: DTypeLike = None,
    ddof: Scalar = 0,
    keepdims: bool = False,
    n: Any = None,
    out: Array = None,
    stream: Stream = None,
) -> Array:
    """Return the standard deviation along ``axis``, the square root of ``var``; arguments are those of ``var``."""
    return _make(_key("std", axis, keepdims, dtype, ddof), x, n, out, stream)


def var_mean(
    x: Array,
    axis: Axis = None,
    *,
    dtype: DTypeLike = None,
    ddof: Scalar = 0,
    keepdims: bool = False,
    n: Any = None,
    out: Array = None,
    stream: Stream = None,
) -> tuple[Array, Array]:
    """Return ``(var(x), mean(x))`` along ``axis`` in one pass, as ``torch.var_mean`` does. Both are of floats, and NaN
    for an empty axis, or where an element is NaN or infinite. ``out`` is a pair of arrays. Other arguments, errors and
    the method are those of ``var``."""
    return _make(_key("var_mean", axis, keepdims, dtype, ddof), x, n, out, stream)


def logsumexp(
    x: Array, axis: Axis = None, *, keepdims: bool = False, n: Any = None, out: Array = None, stream: Stream = None
) -> Array:
    """Return log(sum(exp(x))) along ``axis`` without overflow; -inf for an empty axis. Arguments and errors are those
    of ``reduce``. The method is the online softmax of Milakov and Gimelshein (2018): a state is the maximum, and the
    sum of exp(x - maximum)."""
    return _make(_key("logsumexp", axis, keepdims), x, n, out, stream)


def count_nonzero(
    x: Array, axis: Axis = None, *, keepdims: bool = False, n: Any = None, out: Array = None, stream: Stream = None
) -> Array:
    """Return how many elements along ``axis`` are not zero (int64); NaN is not zero. Arguments and errors are those of
    ``reduce``."""
    return _make(_key("count_nonzero", axis, keepdims), x, n, out, stream)


def minmax(
    x: Array, axis: Axis = None, *, keepdims: bool = False, n: Any = None, out: Array = None, stream: Stream = None
) -> tuple[Array, Array]:
    """Return ``(min(x), max(x))`` along ``axis`` in one pass; NaN if there is one. An empty axis is an
    ArgumentValueError. ``out`` is a pair of arrays. Arguments are those of ``reduce``."""
    return _make(_key("minmax", axis, keepdims), x, n, out, stream)


# The arguments of a call except the arrays.
Arguments = namedtuple("Arguments", "name axis keepdims dtype ddof exact n", defaults=[None])


def _key(name: str, axis: Any, keepdims: Any, dtype: Any = None, ddof: Any = 0) -> tuple:
    if type(keepdims) is not bool:  # 1 and True are equal as keys
        keepdims = flag(keepdims, "keepdims", numbers=True)
    return name, axis, keepdims, dtype, ddof, exact(axis, ddof)


def _make(key: tuple, x: Any, n: Any, out: Any, stream: Any) -> Any:
    """Make a call, ``n`` being its number of elements."""
    count, arrays = count_of(n)
    given = key if n is None else (*key, count)
    one, pair = _COUNTED if arrays else _CALLS
    return (pair if key[0] in PAIRS else one)(given, x, out, stream, arrays)


def _parse(arguments: tuple, views: Views, out: View | None) -> ReduceSpec:
    """Check the arguments against ``x``, and return the Spec of the call."""
    given, x = Arguments(*arguments), views[0]
    axes = axes_of(given.axis, len(x.shape))
    check_count(given.n, views[1] if len(views) > 1 else None, x.shape, axes)
    count = math.prod(x.shape[axis] for axis in axes)
    operation, args = _OPERATIONS[given.name](given, x.dtype, count)
    if given.n is not None and args:  # the kernel subtracts it from the number of elements
        args = (float(given.ddof),)
    return ReduceSpec(operation, x.shape, axes, given.keepdims, None, args=args, n=given.n)


def _float_type(source: DType, wanted: Any) -> DType:
    """Return the type of a result that is a float: by default float64 for integers, else that of the elements."""
    found = parse_dtype(wanted) if wanted is not None else source if source.kind == "f" else FLOAT64
    if found.kind != "f":
        raise ArgumentTypeError(explain("dtype", str(found), "a type of floats"))
    return found


def _mean(given: Arguments, source: DType, count: int) -> tuple[Named, tuple]:
    result = _float_type(source, given.dtype)
    whole = given.dtype is None and source.kind != "f" and source.size < 8
    total = sum_dtype(source) if whole else result.accumulator
    operation = Named(Operator("mean", None, (0,)), (source,), (total,), (result,), args=_divisor(result))
    return operation, (float(count),)


def _moments(given: Arguments, source: DType, count: int) -> tuple[Named, tuple]:
    result = _float_type(source, given.dtype)
    ddof = as_float(number(given.ddof, "ddof"), "ddof")
    if not math.isfinite(ddof):
        raise ArgumentValueError(explain("ddof", str(ddof), "a finite number"))
    op = Operator(given.name, None, (0.0, math.nan, math.nan, math.nan))
    values, results = (result.accumulator,) * 4, (result,) * (2 if given.name in PAIRS else 1)
    return Named(op, (source,), values, results, args=_divisor(result)), (max(count - ddof, 0.0),)


def _divisor(result: DType) -> tuple[Argument]:
    """Return the run-time arguments of a kernel that divides by one."""
    return (Argument(result.accumulator, False),)


def _logsumexp(given: Arguments, source: DType, count: int) -> tuple[Named, tuple]:
    result = _float_type(source, None)
    op = Operator("logsumexp", None, (-math.inf, 0.0))
    return Named(op, (source,), (result.accumulator,) * 2, (result,)), ()


def _count(given: Arguments, source: DType, count: int) -> tuple[Named, tuple]:
    return Named(Operator("count_nonzero", None, (0,)), (source,), (INT64,), (INT64,)), ()


def _minmax(given: Arguments, source: DType, count: int) -> tuple[Named, tuple]:
    return Named(Operator("minmax"), (source,), (source.accumulator,) * 2, (source,) * 2), ()


_OPERATIONS: dict[str, Any] = {
    "mean": _mean,
    "var": _moments,
    "std": _moments,
    "var_mean": _moments,
    "logsumexp": _logsumexp,
    "count_nonzero": _count,
    "minmax": _minmax,
}


def _front_ends(name: str, inputs: tuple[str, ...]) -> tuple[Any, Any]:
    """Return the front ends for one result and for two."""
    one = Family(name, inputs, _parse, plan, strided=True)
    return front_end(one), front_end(one._replace(name=f"{name} of two results", outputs=2))


_CALLS = _front_ends("named reduction", ("x",))
_COUNTED = _front_ends("counted named reduction", ("x", "n"))
