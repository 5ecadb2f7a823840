"""``n=`` of a call: how many elements of the reduced axis count, a number or an array on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arguments import whole
from ...dtypes import INT64
from ...errors import ArgumentTypeError, ArgumentValueError, explain, shown
from ...runtime.view import View
from .spec import IN_MEMORY


def count_of(n: Any) -> tuple[int | str | None, tuple]:
    """Return what identifies ``n`` in a call, and the array that has it, if one has."""
    if n is None:
        return None, ()
    if isinstance(n, np.ndarray) and n.shape == ():
        n = n[()]
    if isinstance(n, (bool, int, float, str, np.generic, np.ndarray, list, tuple)):
        return max(whole(n, "n"), 0), ()
    return IN_MEMORY, (n,)


def check_count(n: int | str | None, view: View | None, shape: tuple[int, ...], axes: frozenset[int]) -> None:
    """Raise unless one axis is reduced, and ``n`` in memory is a 0-d array of int64."""
    if n is None:
        return
    if len(axes) != 1:
        came = f"with {len(axes)} axes of shape {shape} reduced"
        raise ArgumentValueError(explain("n", came, "one reduced axis"))
    if view is not None and (view.dtype is not INT64 or view.shape != ()):
        came = f"{shown(view.dtype.name)} of shape {view.shape}"
        raise ArgumentTypeError(explain("n", came, "an int, or a 0-d array of int64 on the device"))
