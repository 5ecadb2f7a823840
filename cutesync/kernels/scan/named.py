"""Scans with names of their own: torch's ``cummax cummin``, pandas' ``ffill``, and linear recurrences.

``named_monoids`` has the device code.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from ...arguments import exact, flag
from ...dtypes import FLOAT32, INT64, DType
from ...errors import ArgumentTypeError, ArgumentValueError, explain
from ...ops import Operator
from ...runtime.call import Family, Views, front_end
from ...runtime.view import View
from ...types import A, Array, Scalar, Stream
from ..named import Named
from ..states import start_of
from .plan import plan
from .spec import ScanSpec, along


def cummax(x: A, axis: int | None = -1, *, out: Array = None, stream: Stream = None) -> tuple[A, A]:
    """Return ``(values, indices)``: the largest element so far along ``axis``, and its index there (int64), as in
    torch. The index is that of the last of equal elements. NaN counts as the largest: from the first on, values are NaN
    and indices those of the last NaN.

    ``out`` is a pair of arrays. Other arguments and the errors are those of ``scan``."""
    return _pair(_key("cummax", axis), x, out, stream)


def cummin(x: A, axis: int | None = -1, *, out: Array = None, stream: Stream = None) -> tuple[A, A]:
    """Return ``(values, indices)``: the smallest element so far along ``axis``, and its index there (int64), as in
    torch; NaN counts as the smallest. The rest is as in ``cummax``."""
    return _pair(_key("cummin", axis), x, out, stream)


def ffill(x: A, axis: int | None = -1, *, reverse: bool = False, out: Array = None, stream: Stream = None) -> A:
    """Return ``x`` with every NaN replaced by the last element before it along ``axis`` that is not NaN, as pandas does
    (``bfill`` with ``reverse``: by the next). NaN with no such element stays. Arguments and errors are those of
    ``scan``."""
    return _one(_key("ffill", axis, reverse), x, out, stream)


def linear_recurrence(
    a: A,
    b: A,
    axis: int | None = -1,
    *,
    reverse: bool = False,
    init: Scalar | None = None,
    out: Array = None,
    stream: Stream = None,
) -> A:
    """Return h, where ``h[i] = a[i] * h[i-1] + b[i]`` along ``axis``, as in exponential averages and state space
    models.

    Parameters
    ----------
    a, b : arrays of one shape. Both have one type, or are of two types of floats: then the result has the wider one,
        float32 for float16 and bfloat16. 16-bit floats compute in float32.
    reverse : whether ``h[i] = a[i] * h[i+1] + b[i]``, from the end.
    init : the number that h has before the first element (in reverse: after the last); default: 0.
    out : array that is written and returned: ``a`` itself, or it overlaps neither ``a`` nor ``b``.

    Other arguments and the errors are those of ``scan``. The pairs (a, b) are maps, which combine associatively
    (Blelloch 1990): the product of a run of ``a`` must not overflow.
    """
    key = _key("linear_recurrence", axis, reverse, init)
    return _two(key, a, out, stream, (b,))


# The arguments of a call except the arrays.
Arguments = namedtuple("Arguments", "name axis reverse init exact")


def _key(name: str, axis: Any, reverse: Any = False, init: Any = None) -> tuple:
    if type(reverse) is not bool:  # 1 and True are equal as keys
        reverse = flag(reverse, "reverse")
    return name, axis, reverse, init, exact(axis, init)


def _parse(arguments: tuple, views: Views, out: View | None) -> ScanSpec:
    """Check the arguments against the arrays, and return the Spec of the call."""
    given, x = Arguments(*arguments), views[0]
    what = along(given.axis, x.shape)
    values: tuple[DType, ...] = (x.dtype.accumulator,)
    results: tuple[DType, ...] = (x.dtype,)
    if given.name == "linear_recurrence":
        result = _common(x, views[1])
        values, results = (result.accumulator,) * 2, (result,)
    elif given.name != "ffill":
        values, results = (*values, INT64), (*results, INT64)
    sources = tuple(view.dtype for view in views)
    operation = Named(Operator(given.name), sources, values, results, backward=given.reverse)
    start = None if given.init is None else start_of((1, given.init), "init", operation)
    return ScanSpec(operation, False, given.reverse, start, **what)


def _common(a: View, b: View) -> DType:
    """Return the type of a linear recurrence."""
    if a.shape != b.shape:
        raise ArgumentValueError(explain("b", f"shape {b.shape}", f"shape {a.shape}, that of a"))
    if a.dtype.kind == "b" or (a.dtype is not b.dtype and a.dtype.kind + b.dtype.kind != "ff"):
        raise ArgumentTypeError(
            explain("b", f"{b.dtype} beside a of {a.dtype}", "one type of numbers, or two of floats")
        )
    if a.dtype is b.dtype:
        return a.dtype
    return FLOAT32 if a.dtype.size == b.dtype.size else max(a.dtype, b.dtype, key=lambda dtype: dtype.size)


_one = front_end(Family("named scan", ("x",), _parse, plan, strided=True))
_pair = front_end(Family("named scan of two results", ("x",), _parse, plan, outputs=2, strided=True))
_two = front_end(Family("named scan of two arrays", ("a", "b"), _parse, plan, strided=True))
