"""Scans with names of their own: torch's ``cummax cummin``, pandas' ``ffill``, and linear recurrences.

``named_monoids`` has the device code.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from ...arguments import exact, flag
from ...dtypes import FLOAT32, INT64, DType
from ...errors import ArgumentTypeError, ArgumentValueError, explain
from ...ops import Operator
from ...runtime import arrays
from ...runtime.call import Family, Views, front_end
from ...runtime.view import View
from ...types import A, Array, Scalar, Stream
from ..count import split
from ..named import Named
from ..states import start_of
from .plan import plan
from .spec import IN_MEMORY, ScanSpec, along, counted, start_rows


def cummax(
    x: A, axis: int | None = -1, *, out: Array = None, n: int | Array = None, stream: Stream = None
) -> tuple[A, A]:
    """Return ``(values, indices)``: the largest element so far along ``axis``, and its index there (int64), as in
    torch. The index is that of the last of equal elements. NaN counts as the largest: from the first on, values are NaN
    and indices those of the last NaN.

    ``out`` is a pair of arrays. Other arguments and the errors are those of ``scan``."""
    number, count = split(n)
    return _pair(_key("cummax", axis, number), x, out, stream, _given(count))


def cummin(
    x: A, axis: int | None = -1, *, out: Array = None, n: int | Array = None, stream: Stream = None
) -> tuple[A, A]:
    """Return ``(values, indices)``: the smallest element so far along ``axis``, and its index there (int64), as in
    torch; NaN counts as the smallest. The rest is as in ``cummax``."""
    number, count = split(n)
    return _pair(_key("cummin", axis, number), x, out, stream, _given(count))


def ffill(
    x: A,
    axis: int | None = -1,
    *,
    reverse: bool = False,
    out: Array = None,
    n: int | Array = None,
    stream: Stream = None,
) -> A:
    """Return ``x`` with every NaN replaced by the last element before it along ``axis`` that is not NaN, as pandas does
    (``bfill`` with ``reverse``: by the next). NaN with no such element stays. Arguments and errors are those of
    ``scan``."""
    number, count = split(n)
    return _one(_key("ffill", axis, number, reverse), x, out, stream, _given(count))


def linear_recurrence(
    a: A,
    b: A,
    axis: int | None = -1,
    *,
    reverse: bool = False,
    init: Scalar | Array = None,
    out: Array = None,
    n: int | Array = None,
    stream: Stream = None,
) -> A:
    """Return h, where ``h[i] = a[i] * h[i-1] + b[i]`` along ``axis``, as in exponential averages and state space
    models.

    Parameters
    ----------
    a, b : arrays of one shape. Both have one type, or are of two types of floats: then the result has the wider one,
        float32 for float16 and bfloat16. 16-bit floats compute in float32.
    reverse : whether ``h[i] = a[i] * h[i+1] + b[i]``, from the end.
    init : what h is before the first element (in reverse: after the last): a number, or an array of the result's type
        beside ``a`` with a shape that broadcasts to that of ``a`` without the axis; default: 0.
    out : array that is written and returned: ``a`` itself, or it overlaps neither ``a`` nor ``b``.

    Other arguments and the errors are those of ``scan``. The pairs (a, b) are maps, which combine associatively
    (Blelloch 1990): the product of a run of ``a`` must not overflow.
    """
    number, count = split(n)
    first = None
    if not (init is None or isinstance(init, (bool, int, float, np.generic))):
        first, init = init, IN_MEMORY
        arrays.adapter(first, "init")  # raises for what is no array
    key = _key("linear_recurrence", axis, number, reverse, init)
    others = (b,) if first is None and count is None else (b, first) if count is None else (b, first, count)
    return _two(key, a, out, stream, others)


def _given(count: Any) -> tuple:
    """Return the inputs after the first."""
    return () if count is None else (count,)


# The arguments of a call except the arrays.
Arguments = namedtuple("Arguments", "name axis n reverse init exact")


def _key(name: str, axis: Any, n: int | None, reverse: Any = False, init: Any = None) -> tuple:
    if type(reverse) is not bool:  # 1 and True are equal as keys
        reverse = flag(reverse, "reverse")
    return name, axis, n, reverse, init, exact(axis, init)


def _parse(arguments: tuple, views: Views, out: View | None) -> ScanSpec:
    """Check the arguments against the arrays, and return the Spec of the call."""
    given, x, more = Arguments(*arguments), views[0], views[1:-1]
    inputs, first = (views[:2], more[1]) if given.name == "linear_recurrence" else (views[:1], None)
    what = along(given.axis, x.shape)
    values: tuple[DType, ...] = (x.dtype.accumulator,)
    results: tuple[DType, ...] = (x.dtype,)
    if given.name == "linear_recurrence":
        result = _common(x, more[0])
        values, results = (result.accumulator,) * 2, (result,)
    elif given.name != "ffill":
        values, results = (*values, INT64), (*results, INT64)
    sources = tuple(view.dtype for view in inputs)
    operation = Named(Operator(given.name), sources, values, results, backward=given.reverse)
    rows = None if first is None else start_rows(first, what, results[0], "a")
    init = given.init if rows is None else 0
    start = None if init is None else start_of((1, init), "init", operation)
    count = counted(given.n, views[-1])
    return ScanSpec(operation, False, given.reverse, start, start_rows=rows, **what, **count)


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


_one = front_end(Family("named scan", ("x", "n"), _parse, plan, strided=True))
_pair = front_end(Family("named scan of two results", ("x", "n"), _parse, plan, outputs=2, strided=True))
_two = front_end(Family("named scan of two arrays", ("a", "b", "init", "n"), _parse, plan, strided=True, required=2))
