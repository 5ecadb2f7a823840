"""NumPy's functions for vectors of 32 lanes, whose cost is that of the call: without the dispatch to foreign types.

A 0-d array is a faster operand than a NumPy scalar, and a NumPy scalar than a Python number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_core: Any = getattr(np, "_core", None) or np.core  # type: ignore[attr-defined,unused-ignore]
count_nonzero = _core.multiarray.count_nonzero
copy_to = _core.multiarray.copyto


def select(mask: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``np.where`` of vectors of one type and shape."""
    out = b.copy()
    copy_to(out, a, where=mask)
    return out


_NAN = np.array(0x7FFFFFFF, np.uint32).view(np.float32)


def one_nan(value: np.ndarray) -> np.ndarray:
    """Single-precision numbers with the one NaN that arithmetic gives."""
    bad = np.isnan(value)
    return select(bad, np.broadcast_to(_NAN, value.shape), value) if count_nonzero(bad) else value
