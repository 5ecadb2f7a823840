"""The NumPy meaning of every public operation: what tests, perf and docs judge by. Slow, short and literal.

Sums and products of floats are computed in float64 and rounded once; everything else is NumPy's own reduction in the result's type.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from .dtypes import BOOL, dtype, element_type, sum_dtype
from .ops import operator


def reduce(x, op="add", *, axis=None, keepdims=False, init=None, dtype=None, transform=None, identity=None):
    """What ``cs.reduce`` returns, as a NumPy array or scalar."""
    x = np.asarray(x)
    parsed = operator(op, identity)
    logical = parsed.fn is None and parsed.name in ("any", "all")
    source = _dtype(x)
    result = BOOL if logical else source if dtype is None else _parse(dtype)
    accumulate = source.accumulator if logical else result.accumulator
    values = x.astype(accumulate.numpy)
    if transform is not None:
        values = _each(transform, values).astype(accumulate.numpy)
    axes = tuple(range(x.ndim)) if axis is None else axis
    with np.errstate(all="ignore"):
        folded = _fold(values, parsed, accumulate, axes, keepdims, init)
        return folded.astype(result.numpy)[()]


def _fold(values, parsed, accumulate, axes, keepdims, init):
    if parsed.fn is not None:
        return _fold_callable(values, parsed, axes, keepdims, init)
    if parsed.name in ("add", "mul") and accumulate.kind == "f":
        values = values.astype(np.float64)
    name = {"add": "any", "mul": "all"}.get(parsed.name, parsed.name) if accumulate.kind == "b" else parsed.name
    ufunc = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
             "xor": np.bitwise_xor, "any": np.logical_or, "all": np.logical_and}[name]  # fmt: skip
    options = {} if init is None else {"initial": init}
    element = {} if name in ("any", "all", "min", "max") else {"dtype": values.dtype}
    if name in ("any", "all"):
        values, options = values != 0, {} if init is None else {"initial": bool(init)}
    return np.asarray(ufunc.reduce(values, axis=axes, keepdims=keepdims, **element, **options))


def _fold_callable(values, parsed, axes, keepdims, init):
    axes = tuple(sorted(a % values.ndim for a in ((axes,) if isinstance(axes, (int, np.integer)) else axes)))
    kept = [a for a in range(values.ndim) if a not in axes]
    rows = np.transpose(values, [*kept, *axes]).reshape([values.shape[a] for a in kept] + [-1])
    if rows.shape[-1] == 0:
        out = np.full(rows.shape[:-1], parsed.identity_value if init is None else init, values.dtype)
    else:
        columns = [rows[..., i] for i in range(rows.shape[-1])]
        if init is not None:
            columns.insert(0, np.full(rows.shape[:-1], init, values.dtype))
        out = functools.reduce(lambda a, b: np.asarray(parsed.numpy(a, b)).astype(values.dtype), columns)
    if keepdims:
        out = np.reshape(out, [1 if a in axes else n for a, n in enumerate(values.shape)])
    return np.asarray(out)


def _each(transform, values):
    return np.asarray(transform(values))


def matmul(a, b, c=None, *, alpha=1.0, beta=0.0, bias=None, activation=None, out_dtype=None):
    """What ``cs.matmul`` returns, computed in float64 and rounded once."""
    a, b = np.asarray(a), np.asarray(b)
    value = np.asarray(alpha * np.matmul(a.astype(np.float64), b.astype(np.float64)))
    if beta:
        value = value + beta * np.asarray(c).astype(np.float64)
    if bias is not None:
        value = value + np.asarray(bias).astype(np.float64)
    if activation is not None:
        value = (ACTIVATIONS[activation] if isinstance(activation, str) else activation)(value)
    with np.errstate(over="ignore"):
        return np.asarray(value).astype((element_type(a.dtype) if out_dtype is None else _parse(out_dtype)).numpy)[()]


ACTIVATIONS = {
    "relu": lambda v: np.maximum(v, 0), "sigmoid": lambda v: 1 / (1 + np.exp(-v)), "silu": lambda v: v / (1 + np.exp(-v)), "tanh": np.tanh,
    "gelu": lambda v: v / 2 * (1 + np.vectorize(math.erf, otypes=[np.float64])(v / math.sqrt(2))),
    "gelu_tanh": lambda v: v / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))),
}  # fmt: skip


def argmin(x, axis=None, *, keepdims=False):
    return np.asarray(np.argmin(np.asarray(x), axis=axis, keepdims=keepdims)).astype(np.int64)[()]


def argmax(x, axis=None, *, keepdims=False):
    return np.asarray(np.argmax(np.asarray(x), axis=axis, keepdims=keepdims)).astype(np.int64)[()]


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


def _dtype(x: np.ndarray):
    return _parse(x.dtype)


_parse = dtype
