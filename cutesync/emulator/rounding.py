"""Whether two schedules differ only in how sums of floats were rounded: atomic and asynchronous additions come in any
order, and kernels of others leave it at that.
"""

from __future__ import annotations

import numpy as np

from .rewind import Rewind

# by type, the difference that rounding may make, of the largest magnitude in the array
_ALLOWED = {"f64": 1e-12, "f32": 1e-5, "f16": 1e-2, "bf16": 8e-2}


def summed(operator: str, kind: str) -> str:
    """The type of floats that an operation adds to those in memory; empty if it does something else."""
    kind = kind.removesuffix("x2")
    return kind if operator == "add" and kind in _ALLOWED else ""


def only(rewind: Rewind) -> bool:
    """Whether all that differs from the first schedule are close floats in arrays to which floats were added."""
    for region, places in rewind.written():
        first = rewind.first.get(region, rewind.before[region][0])
        if (region.data[places] != first[places]).any() and region.result:
            if not region.sums or not _close(region.sums, first, region.data):
                return False
    return True


def _close(kind: str, *both: np.ndarray) -> bool:
    a, b = (_values(kind, data) for data in both)
    finite = np.abs(a[np.isfinite(a)])
    return np.allclose(a, b, rtol=0, atol=_ALLOWED[kind] * finite.max(initial=0.0), equal_nan=True)


def _values(kind: str, data: np.ndarray) -> np.ndarray:
    if kind == "bf16":
        return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return data.view({"f64": np.float64, "f32": np.float32, "f16": np.float16}[kind]).astype(np.float64)
