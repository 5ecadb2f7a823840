"""The NumPy meaning of reductions, scans, flags, products, top-k and counts, which tests and measurements compare with.
Slow, short and literal.

Sums and products of floats are computed in float64 and rounded once; everything else is NumPy's own reduction in the
result's type. Where NumPy leaves a conversion undefined (a float beyond an integer's range), these functions define it:
see ``_cast``.
"""

from __future__ import annotations

import functools
import itertools
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from .dtypes import BOOL, FLOAT8, dtype, element_type, sum_dtype
from .ops import UFUNCS, on_arrays, operator, required_parameters
from .reference_flags import (  # noqa: F401 (part of this module's names)
    adjacent_difference,
    flag_heads,
    flag_heads_and_tails,
    flag_tails,
)
from .reference_order import bincount, histogram, topk  # noqa: F401


def reduce(x, op="add", *, axis=None, keepdims=False, init=None, dtype=None, transform=None, identity=None):
    """Return the result of ``cs.reduce``, as a NumPy array or scalar."""
    x = np.asarray(x)
    parsed = operator(op, identity)
    logical = parsed.fn is None and parsed.name in ("any", "all")
    source = _dtype(x)
    result = BOOL if logical else source if dtype is None else _parse(dtype)
    accumulate = source.accumulator if logical else result.accumulator
    values = _cast(x, accumulate)
    if transform is not None:
        values = _cast(np.asarray(on_arrays(transform, values)), accumulate)
    axes = tuple(range(x.ndim)) if axis is None else axis
    with np.errstate(all="ignore"):
        reduced = _reduce_named(values, parsed, accumulate, axes, keepdims, init)
        return reduced.astype(result.numpy)[()]


def _reduce_named(values, parsed, accumulate, axes, keepdims, init):
    if parsed.fn is not None:
        return _reduce_callable(values, parsed, axes, keepdims, init)
    if parsed.name in ("add", "mul") and accumulate.kind == "f":
        values = values.astype(np.float64)
    name = {"add": "any", "mul": "all"}.get(parsed.name, parsed.name) if accumulate.kind == "b" else parsed.name
    ufunc = UFUNCS[name]
    options = {} if init is None else {"initial": init}
    element = {} if name in ("any", "all", "min", "max") else {"dtype": values.dtype}
    if name in ("any", "all"):
        values, options = values != 0, {} if init is None else {"initial": bool(init)}
    return np.asarray(ufunc.reduce(values, axis=axes, keepdims=keepdims, **element, **options))


def _reduce_callable(values, parsed, axes, keepdims, init):
    axes = tuple(sorted(a % values.ndim for a in ((axes,) if isinstance(axes, (int, np.integer)) else axes)))
    kept = [a for a in range(values.ndim) if a not in axes]
    rows = np.transpose(values, [*kept, *axes]).reshape([values.shape[a] for a in kept] + [-1])
    if rows.shape[-1] == 0:
        out = np.full(rows.shape[:-1], parsed.identity_value if init is None else init, values.dtype)
    else:
        columns = [rows[..., i] for i in range(rows.shape[-1])]
        if init is not None:
            columns.insert(0, np.full(rows.shape[:-1], init, values.dtype))
        out = functools.reduce(lambda a, b: _cast(np.asarray(parsed.numpy(a, b)), _dtype(values)), columns)
    if keepdims:
        out = np.reshape(out, [1 if a in axes else n for a, n in enumerate(values.shape)])
    return np.asarray(out)


def scan(x, op="add", *, axis=-1, exclusive=False, reverse=False, init=None, dtype=None, identity=None):
    """Return the result of ``cs.scan``, as a NumPy array."""
    x = np.asarray(x)
    parsed = operator(op, identity)
    result = _dtype(x) if dtype is None else _parse(dtype)
    accumulate = result.accumulator
    values = _cast(x, accumulate)
    values = values.reshape(-1) if axis is None else np.moveaxis(values, axis, -1)
    if accumulate.kind == "f" and parsed.fn is None and parsed.name in ("add", "mul"):
        values = values.astype(np.float64)
    if exclusive and init is None:
        init = parsed.identity(accumulate)
    if reverse:
        values = values[..., ::-1]
    first = () if init is None else (np.full(values.shape[:-1], init, values.dtype),)
    columns = [*first, *np.moveaxis(values, -1, 0)]
    with np.errstate(all="ignore"):
        running = list(
            itertools.accumulate(
                columns, lambda a, b: _cast(_in_order(parsed, accumulate, a, b, reverse), _dtype(values))
            )
        )
    running = running[: values.shape[-1]] if exclusive else running[len(first) :]
    scanned = np.stack(running, -1) if running else values
    scanned = scanned[..., ::-1] if reverse else scanned
    with np.errstate(all="ignore"):
        return (scanned if axis is None else np.moveaxis(scanned, -1, axis)).astype(result.numpy)


def _in_order(parsed, accumulate, earlier, later, reverse: bool):
    """Apply ``op`` to two values in index order. On bool, add and max are or; mul and min are and."""
    a, b = (later, earlier) if reverse else (earlier, later)
    if parsed.fn is None and accumulate.kind == "b":
        return {"add": np.logical_or, "max": np.logical_or, "or": np.logical_or, "xor": np.logical_xor}.get(
            parsed.name, np.logical_and
        )(a, b)
    return np.asarray(parsed.numpy(a, b))


def cumsum(x, axis=None, *, dtype=None):
    return scan(x, "add", axis=axis, dtype=dtype or sum_dtype(_dtype(np.asarray(x))))


def cumprod(x, axis=None, *, dtype=None):
    return scan(x, "mul", axis=axis, dtype=dtype or sum_dtype(_dtype(np.asarray(x))))


def matmul(
    a,
    b,
    c=None,
    *,
    alpha=1.0,
    beta=None,
    bias=None,
    activation=None,
    out_dtype=None,
    scale_a=None,
    scale_b=None,
    precision=None,
    pre_activation=False,
    amax=False,
):
    """Return the result of ``cs.matmul``, or its results, computed in float64 and rounded once. Types of 8 bits and
    int32 saturate; NaN stays in float8 and is 0 in integers."""
    a, b = np.asarray(a), np.asarray(b)
    source = element_type(a.dtype, "a")
    usual = "int32" if source.kind in "iu" else "bfloat16" if source.name in FLOAT8 else source
    left, right = (_tfloat32(x) if precision == "tf32" else x for x in (a, b))
    value = np.asarray(
        alpha * _factor(scale_a) * _factor(scale_b) * np.matmul(left.astype(np.float64), right.astype(np.float64))
    )
    gate = []
    if callable(activation) and required_parameters(activation) == 2:
        gate = [np.broadcast_to(np.asarray(c).astype(np.float64), value.shape)]
    beta = (0.0 if c is None or gate else 1.0) if beta is None else beta
    if beta:
        value = value + beta * np.asarray(c).astype(np.float64)
    if bias is not None:
        value = value + np.asarray(bias).astype(np.float64)
    before = value
    if activation is not None:
        value = np.asarray((ACTIVATIONS[activation] if isinstance(activation, str) else activation)(value, *gate))
    types = out_dtype if isinstance(out_dtype, (tuple, list)) else (out_dtype, None)
    result = element_type(usual if types[0] is None else types[0], "out_dtype")
    results = [_rounded(value, result)]
    if pre_activation:
        results.append(_rounded(before, result if types[1] is None else element_type(types[1], "out_dtype")))
    if amax:
        results.append(np.float32(np.max(np.abs(value), initial=0)))
    return tuple(results) if len(results) > 1 else results[0]


def _rounded(value, result):
    """Round to a type of ``matmul``'s results."""
    if result.kind in "iu":
        value = _cast(np.rint(value), result)
    elif result.name in FLOAT8:
        value = np.clip(value, -_LARGEST[result.name], _LARGEST[result.name])
    with np.errstate(over="ignore"):
        return np.asarray(value).astype(result.numpy)[()]


def _tfloat32(x: np.ndarray) -> np.ndarray:
    """Round to 11 bits of significand, ties away from zero; numbers beyond the largest one become infinite."""
    x = np.ascontiguousarray(x)
    rounded = ((x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(x), rounded, x)


def _factor(scale):
    """Return a scale in float64: a number, or one for each row or column."""
    scale = np.asarray(1.0 if scale is None else scale).astype(np.float64)
    return scale.reshape(()) if scale.size == 1 else scale


def _cast(values: np.ndarray, target) -> np.ndarray:
    """Convert as ``astype`` does. A float beyond an integer's range becomes the nearer end of the range, and NaN
    becomes 0."""
    if _dtype(values).kind != "f" or target.kind not in "iu":
        return values.astype(target.numpy)
    whole, limits = np.trunc(values.astype(np.float64)), np.iinfo(target.numpy)
    below, above = whole < limits.min, whole >= 2.0 ** int(limits.max).bit_length()
    inside = np.where(below | above | np.isnan(whole), 0.0, whole).astype(target.numpy)
    return np.where(below, limits.min, np.where(above, limits.max, inside)).astype(target.numpy)


_LARGEST = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "relu": lambda v: np.maximum(v, 0),
    "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
    "silu": lambda v: v / (1 + np.exp(-v)),
    "tanh": np.tanh,
    "gelu": lambda v: v / 2 * (1 + np.vectorize(math.erf, otypes=[np.float64])(v / math.sqrt(2))),
    "gelu_tanh": lambda v: v / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))),
}


def argmin(x, axis=None, *, keepdims=False):
    return _place(np.argmin, x, axis, keepdims)


def argmax(x, axis=None, *, keepdims=False):
    return _place(np.argmax, x, axis, keepdims)


def _place(function, x, axis, keepdims):
    """Return the index in the axes that are reduced, flattened."""
    x = np.asarray(x)
    if isinstance(axis, tuple):
        axes = sorted(range(x.ndim)[i] for i in axis)
        kept = [i for i in range(x.ndim) if i not in axes]
        flat = x.transpose(*kept, *axes).reshape(*(x.shape[i] for i in kept), -1)
        found = function(flat, axis=-1)
        return np.asarray(np.expand_dims(found, axes) if keepdims else found).astype(np.int64)[()]
    return np.asarray(function(x, axis=axis, keepdims=keepdims)).astype(np.int64)[()]


def sum(x, axis=None, *, dtype=None, keepdims=False):
    return reduce(x, "add", axis=axis, keepdims=keepdims, dtype=dtype or sum_dtype(_dtype(np.asarray(x))))


def prod(x, axis=None, *, dtype=None, keepdims=False):
    return reduce(x, "mul", axis=axis, keepdims=keepdims, dtype=dtype or sum_dtype(_dtype(np.asarray(x))))


def min(x, axis=None, *, keepdims=False):
    return reduce(x, "min", axis=axis, keepdims=keepdims)


def max(x, axis=None, *, keepdims=False):
    return reduce(x, "max", axis=axis, keepdims=keepdims)


def any(x, axis=None, *, keepdims=False):
    return reduce(x, "any", axis=axis, keepdims=keepdims)


def all(x, axis=None, *, keepdims=False):
    return reduce(x, "all", axis=axis, keepdims=keepdims)


def mean(x, axis=None, *, dtype=None, keepdims=False):
    return _in_floats(np.mean, x, dtype, axis=axis, keepdims=keepdims)


def var(x, axis=None, *, dtype=None, ddof=0, keepdims=False):
    return _in_floats(np.var, x, dtype, axis=axis, ddof=ddof, keepdims=keepdims)


def std(x, axis=None, *, dtype=None, ddof=0, keepdims=False):
    return _in_floats(np.std, x, dtype, axis=axis, ddof=ddof, keepdims=keepdims)


def var_mean(x, axis=None, *, dtype=None, ddof=0, keepdims=False):
    """The mean is NaN where an element is infinite."""
    found = var(x, axis, dtype=dtype, ddof=ddof, keepdims=keepdims)
    whole = np.isfinite(np.asarray(x).astype(np.float64)).all(axis=axis, keepdims=keepdims)
    center = np.where(whole, mean(x, axis, dtype=dtype, keepdims=keepdims), np.nan)
    return found, center.astype(np.asarray(found).dtype)[()]


def logsumexp(x, axis=None, *, keepdims=False):
    return _in_floats(np.logaddexp.reduce, x, None, axis=axis, keepdims=keepdims)


def _in_floats(function, x, wanted, **options):
    """Apply a function of NumPy in float64, and round once."""
    x = np.asarray(x)
    usual = "float64" if _dtype(x).kind != "f" else _dtype(x)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an empty axis
        found = function(x.astype(np.float64), **options)
        return np.asarray(found).astype(_parse(usual if wanted is None else wanted).numpy)[()]


def count_nonzero(x, axis=None, *, keepdims=False):
    return np.asarray(np.count_nonzero(np.asarray(x), axis=axis, keepdims=keepdims)).astype(np.int64)[()]


def minmax(x, axis=None, *, keepdims=False):
    return min(x, axis, keepdims=keepdims), max(x, axis, keepdims=keepdims)


def cummax(x, axis=-1):
    return _extremum(np.greater_equal, x, axis)


def cummin(x, axis=-1):
    return _extremum(np.less_equal, x, axis)


def _extremum(better, x, axis):
    """Return values and indices: the last of equal elements, and the last NaN if there is one."""
    x = _along(x, axis)
    indices = np.zeros(x.shape, np.int64)
    for i in range(1, x.shape[-1]):
        best = np.take_along_axis(x, indices[..., i - 1 : i], -1)[..., 0]
        indices[..., i] = np.where(better(x[..., i], best) | (x[..., i] != x[..., i]), i, indices[..., i - 1])
    return _back(np.take_along_axis(x, indices, -1), axis), _back(indices, axis)


def ffill(x, axis=-1, *, reverse=False):
    columns = list(np.moveaxis(_along(x, axis, reverse), -1, 0))
    found = itertools.accumulate(columns, lambda a, b: np.where(b == b, b, a))
    return _back(np.stack(list(found), -1) if columns else _along(x, axis), axis, reverse)


def linear_recurrence(a, b, axis=-1, *, reverse=False, init=None):
    a, b = np.asarray(a), np.asarray(b)
    one = a.dtype if a.dtype == b.dtype else _parse("float32") if a.itemsize == b.itemsize else None
    result = _parse(one or (a if a.itemsize > b.itemsize else b).dtype)
    a, b = (_along(x, axis, reverse).astype(np.float64 if result.kind == "f" else result.numpy) for x in (a, b))
    h, found = np.asarray(0 if init is None else init).astype(b.dtype), np.empty_like(b)
    with np.errstate(all="ignore"):
        for i in range(b.shape[-1]):
            found[..., i] = h = a[..., i] * h + b[..., i]
        return _back(found, axis, reverse).astype(result.numpy)


def _along(x, axis, reverse=False):
    """Return the array with the axis of a scan last, in scan order."""
    x = np.asarray(x)
    x = x.reshape(-1) if axis is None else np.moveaxis(x, axis, -1)
    return x[..., ::-1] if reverse else x


def _back(x, axis, reverse=False):
    x = x[..., ::-1] if reverse else x
    return x if axis is None else np.moveaxis(x, -1, axis)


def _dtype(x: np.ndarray):
    return _parse(x.dtype)


_parse = dtype
