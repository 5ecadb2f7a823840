"""The NumPy meaning of top-k; see ``reference``."""

from __future__ import annotations

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
