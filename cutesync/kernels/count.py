"""``n=``: how many elements along an axis count. The host knows the number, or only the device does."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import INT64
from ..errors import ArgumentTypeError, explain, shown
from ..runtime import arrays
from ..runtime.view import View

_ALLOWED = "None, an int, or a 0-d array of int64 on the device"
_MOST = (1 << 63) - 1


def split(n: Any, on_host: bool = False) -> tuple[int | None, Any]:
    """Return ``(number, array)``, at least one of which is None: ``n=`` as a number of 0 or more, or as an array. With
    NumPy arrays (``on_host``), a 0-d one is a number."""
    if on_host and isinstance(n, np.ndarray) and n.shape == ():
        n = n[()]
    if n is None or hasattr(n, "__dlpack__") or hasattr(n, "__cuda_array_interface__"):
        if not isinstance(n, np.generic):
            return None, n
    if arrays.ADAPTERS.get(type(n)) is arrays.SHARDED:
        return None, n
    if isinstance(n, (bool, np.bool_)) or not isinstance(n, (int, np.integer)):
        raise ArgumentTypeError(explain("n", shown(n), _ALLOWED))
    return min(max(int(n), 0), _MOST), None


def check(view: View | None) -> None:
    """Raise unless the array is a 0-d one of int64, or None."""
    if view is not None and (view.shape or view.dtype is not INT64):
        raise ArgumentTypeError(explain("n", f"{view.dtype} of shape {view.shape}", _ALLOWED))
