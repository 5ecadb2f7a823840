"""The NumPy meaning of top-k and of counts; see ``reference``."""

from __future__ import annotations

import math

import numpy as np


def topk(x, k, axis=-1, *, largest=True, n=None):
    """Return the results of ``cs.topk``: values and indices."""
    rows = np.moveaxis(np.asarray(x), axis, -1)
    count = rows.shape[-1] if n is None else min(max(int(n), 0), rows.shape[-1])
    values = rows.astype(np.float64) if rows.dtype.kind not in "biu" else rows
    ranks = np.unique(values.reshape(-1), return_inverse=True)[1].reshape(rows.shape)[..., :count]  # NaN is the largest
    order = np.argsort(-ranks if largest else ranks, axis=-1, kind="stable")[..., :k]
    values = np.zeros((*rows.shape[:-1], k), rows.dtype)
    indices = np.full((*rows.shape[:-1], k), -1, np.int64)
    values[..., :count] = np.take_along_axis(rows, order, -1)
    indices[..., :count] = order
    return tuple(np.ascontiguousarray(np.moveaxis(y, -1, axis)) for y in (values, indices))


def bincount(x, weights=None, minlength=0, *, length=None):
    """Return the result of ``cs.bincount``; sums of weights are exact, and rounded once."""
    x = np.asarray(x).astype(np.int64) if np.asarray(x).dtype != np.uint64 else np.asarray(x)
    if length is None:
        length = max(minlength, int(x.max()) + 1 if x.size else 0)
    inside = (x >= 0) & (x < length)
    found = x[inside].astype(np.int64)
    if weights is None:
        return np.bincount(found, minlength=length).astype(np.int64)
    return _sums(found, np.asarray(weights)[inside], length)


def histogram(x, bins=10, range=None, density=False, weights=None):
    """Return the results of ``cs.histogram``: counts, sums of weights or densities, and edges."""
    x = np.asarray(x)
    if x.dtype.kind not in "iuf":  # bool and bfloat16
        x = x.astype(np.uint8 if x.dtype.kind == "b" else np.float32)
    edges = np.histogram_bin_edges(x, bins, range).astype(np.float64)
    values = x.reshape(-1).astype(np.float64)
    inside = (values >= edges[0]) & (values <= edges[-1])
    found = np.minimum(np.searchsorted(edges, values[inside], "right") - 1, len(edges) - 2)
    if weights is None:
        result = np.bincount(found, minlength=len(edges) - 1).astype(np.int64)
    else:
        result = _sums(found, np.asarray(weights).reshape(-1)[inside], len(edges) - 1)
    with np.errstate(all="ignore"):
        if density:
            return result / np.diff(edges) / result.sum(), edges
        return result if weights is None else _like(result, np.asarray(weights).dtype), edges


def _like(sums: np.ndarray, kind: np.dtype) -> np.ndarray:
    """Convert sums to the type of their weights: floats of 16 bits by way of float32, integers saturate."""
    if kind.kind not in "iu":
        return (sums.astype(np.float32) if kind.itemsize == 2 else sums).astype(kind)
    return np.asarray([min(max(int(v), np.iinfo(kind).min), np.iinfo(kind).max) for v in sums], kind)


def _sums(bins: np.ndarray, weights: np.ndarray, length: int) -> np.ndarray:
    """Return the sum of the weights of each bin."""
    weights = weights.astype(np.float64)
    with np.errstate(all="ignore"):
        special = np.bincount(bins, np.where(np.isfinite(weights), 0.0, weights), length)
    finite = [math.fsum(weights[(bins == i) & np.isfinite(weights)]) for i in np.arange(length)]
    return np.where(special == 0, finite, special)
