"""States of several values for tests: operators, data, and what reductions and scans of them give in NumPy."""

from __future__ import annotations

from typing import Any, NamedTuple

import cutlass
import numpy as np


class Case(NamedTuple):
    """``op`` is traced, ``numpy`` is its meaning on arrays; ``identity`` has a number for each value."""

    op: Any
    numpy: Any
    types: tuple[str, ...]
    identity: tuple


def product(p, q):
    """The product of two matrices of 2 x 2 integers, which does not commute."""
    a, b, c, d = p
    e, f, g, h = q
    return a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h


def affine(p, q):
    """One map v -> av + b after another."""
    return p[0] * q[0], p[1] * q[0] + q[1]


def anew(p, q):
    """Sums that start anew at flags."""
    return p[0] | q[0], cutlass.select_(q[0] != 0, q[1], p[1] + q[1])


def anew_bool(p, q):
    return p[0] | q[0], cutlass.select_(q[0], q[1], p[1] + q[1])


def anew_numpy(p, q):
    return p[0] | q[0], np.where(q[0] != 0, q[1], p[1] + q[1])


CASES = {
    "matrices": Case(product, product, ("int32",) * 4, (1, 0, 0, 1)),
    "maps": Case(affine, affine, ("int64", "int16"), (1, 0)),
    "segments": Case(anew, anew_numpy, ("uint8", "float32"), (0, 0.0)),
    "bool segments": Case(anew_bool, anew_numpy, ("bool", "float64"), (False, 0.0)),
}


def data(case: Case, shape: tuple[int, ...], seed: int) -> tuple[np.ndarray, ...]:
    """Small whole numbers, so that sums of floats are exact; few flags."""
    rng = np.random.default_rng(seed)
    flags = lambda t: (rng.random(shape) < 0.05).astype(t)  # noqa: E731
    return tuple(flags(t) if t in ("bool", "uint8") else rng.integers(-3, 4, shape).astype(t) for t in case.types)


def combine(case: Case, a, b) -> tuple[np.ndarray, ...]:
    with np.errstate(all="ignore"):
        return tuple(np.asarray(v).astype(t) for v, t in zip(case.numpy(a, b), case.types))


def scanned(case: Case, xs, axis: int, *, exclusive=False, reverse=False, init=None) -> list[np.ndarray]:
    """The scan in NumPy; an exclusive one begins with ``init``."""
    xs = [np.moveaxis(x, axis, 0) for x in xs]
    order = range(len(xs[0]) - 1, -1, -1) if reverse else range(len(xs[0]))
    state = None if init is None else tuple(np.full(x.shape[1:], v, x.dtype) for x, v in zip(xs, init))
    out = [np.empty_like(x) for x in xs]
    for i in order:
        element = tuple(x[i] for x in xs)
        pair = (element, state) if reverse else (state, element)
        following = element if state is None else combine(case, *pair)
        for result, value in zip(out, state if exclusive else following):
            result[i] = value
        state = following
    return [np.moveaxis(result, 0, axis) for result in out]


def reduced(case: Case, xs, axes: tuple[int, ...], init=None) -> list[np.ndarray]:
    """The reduction in NumPy, pairs of neighbours first."""
    kept = [a for a in range(xs[0].ndim) if a not in axes]
    state = [np.transpose(x, [*kept, *axes]).reshape([x.shape[a] for a in kept] + [-1]) for x in xs]
    while state[0].shape[-1] > 1:
        even = state[0].shape[-1] // 2 * 2
        pairs = combine(case, [v[..., 0:even:2] for v in state], [v[..., 1:even:2] for v in state])
        state = [np.concatenate([pair, v[..., even:]], -1) for pair, v in zip(pairs, state)]
    last = tuple(v[..., 0] for v in state)
    if init is not None:
        last = combine(case, tuple(np.full(v.shape, i, v.dtype) for v, i in zip(last, init)), last)
    return list(last)
