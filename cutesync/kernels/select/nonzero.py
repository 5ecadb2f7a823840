"""Where elements are not 0: their indices, flat or along each axis, in one pass and without waiting."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ArgumentValueError, explain
from ...runtime import arrays
from ...runtime.repeat import repeatable
from ...types import Array, Stream
from ..states import NO_ARGS
from .calls import Wanted, selected, wanted_by


@repeatable
def flatnonzero(
    x: Any, *, size: int | None = None, fill_value: int = 0, out: Array = None, n: Any = None, stream: Stream = None
) -> Any:
    """Return the indices (int64) of the elements of the flattened ``x`` that are not 0: an array for NumPy arrays,
    otherwise ``Selected``, whose values they are. NaN is not 0. The arguments are those of ``select``."""
    return _found(wanted_by(_flat), x, (size, fill_value, out, n), stream)


@repeatable
def nonzero(
    x: Any, *, size: int | None = None, fill_value: int = 0, out: Any = None, n: Any = None, stream: Stream = None
) -> Any:
    """Return the indices (int64) of the elements of ``x`` that are not 0, an array for each axis, in C order: NumPy's
    tuple for NumPy arrays, otherwise ``Selected``, whose values are the tuple; of one axis, the array alone. One pass
    finds them all. ``out``, of several axes, is a tuple of arrays. The other arguments are those of ``select``; ``n``
    counts elements of the flattened ``x``.

    Errors: ``cutesync.errors``; an array of no axes is refused, as by NumPy.
    """
    axes = _axes(x)
    if axes == 0:
        raise ArgumentValueError(explain("x", "an array of no axes", "at least one axis", "x.reshape(1)"))
    found = _found(wanted_by(_apart, axes), x, (size, fill_value, out, n), stream)
    return (found,) if type(found) is np.ndarray else found


@repeatable
def argwhere(
    x: Any, *, size: int | None = None, fill_value: int = 0, out: Array = None, n: Any = None, stream: Stream = None
) -> Any:
    """Return the indices of the elements of ``x`` that are not 0 as rows of one array of int64, of shape (number, axes
    of ``x``), in C order: an array for NumPy arrays, otherwise ``Selected``, whose values it is. The arguments are
    those of ``select``; ``out`` has the shape (capacity, axes of ``x``), and ``n`` counts elements of the flattened
    ``x``.

    Errors: ``cutesync.errors``.
    """
    axes = _axes(x)
    if axes == 0:
        raise ArgumentValueError(explain("x", "an array of no axes", "at least one axis", "x.reshape(1)"))
    return _found(wanted_by(_together, axes), x, (size, fill_value, out, n), stream)


def _flat() -> Wanted:
    return Wanted("flatnonzero", 1, False, True, False, True)


def _apart(axes: int) -> Wanted:
    return Wanted("nonzero", 1, False, True, False, True, axes=axes if axes > 1 else 0)


def _together(axes: int) -> Wanted:
    return Wanted("argwhere", 1, False, True, False, True, axes=axes, together=True)


def _axes(x: Any) -> int:
    axes = getattr(x, "ndim", None)
    return axes if type(axes) is int else len(arrays.view_of(x, "x").shape)


def _found(wanted: Wanted, x: Any, options: tuple, stream: Stream) -> Any:
    found = selected(wanted, (x,), None, NO_ARGS, options, stream)
    on_host = type(found.values[0] if type(found.values) is tuple else found.values) is np.ndarray
    return found.values if on_host else found
