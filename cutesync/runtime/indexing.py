"""NumPy's basic indexing and reshaping of strided memory: views, without a copy."""

from __future__ import annotations

import math
import operator
from typing import Any

from ..errors import ArgumentIndexError, ArgumentTypeError, ArgumentValueError, explain, shown

Layout = tuple[tuple[int, ...], tuple[int, ...], int]
"""Shape, strides in elements, and the offset of the first element in elements."""

_SUBJECT = "DeviceArray index"
_ALLOWED = "ints, slices, None and one ... in a tuple"


def select(index: Any, shape: tuple[int, ...], steps: tuple[int, ...]) -> Layout:
    """Return the layout of ``x[index]`` for ints, slices, None and ``...``, as NumPy defines it."""
    parts = list(index) if isinstance(index, tuple) else [index]
    taken = sum(part is not None and part is not Ellipsis for part in parts)
    if taken > len(shape):
        raise ArgumentIndexError(explain(_SUBJECT, shown(index), f"at most {len(shape)} indices for shape {shape}"))
    dots = [i for i, part in enumerate(parts) if part is Ellipsis]
    if len(dots) > 1:
        raise ArgumentIndexError(explain(_SUBJECT, shown(index), "one ... at most"))
    at = dots[0] if dots else len(parts)
    parts[at : at + 1] = [slice(None)] * (len(shape) - taken)
    extents, strides, offset, axis = [], [], 0, 0
    for part in parts:
        if part is None:
            extents.append(1)
            strides.append(0)
            continue
        extent, step = shape[axis], steps[axis]
        axis += 1
        if isinstance(part, slice):
            first, count, pace = _slice(part, extent)
            extents.append(count)
            strides.append(step * pace)
            offset += first * step if count else 0
        else:
            offset += _place(part, extent) * step
    return tuple(extents), tuple(strides), offset


def _slice(part: slice, extent: int) -> tuple[int, int, int]:
    """Return the first index, the number of entries and the step of a slice."""
    try:
        first, stop, pace = part.indices(extent)
    except TypeError as error:
        raise ArgumentTypeError(explain(_SUBJECT, shown(part), "a slice of ints")) from error
    except ValueError as error:
        raise ArgumentValueError(explain(_SUBJECT, shown(part), "a slice whose step is not 0")) from error
    return first, len(range(first, stop, pace)), pace


def _place(part: Any, extent: int) -> int:
    """Return an index as a number from 0 on."""
    try:
        place = None if isinstance(part, bool) else operator.index(part)
    except Exception:  # no int, or a user's ``__index__`` that fails
        place = None
    if place is None:
        raise ArgumentIndexError(explain(_SUBJECT, shown(part), _ALLOWED, "use np.asarray(x)[...] for the rest"))
    if not -extent <= place < extent:
        raise ArgumentIndexError(explain(_SUBJECT, str(place), f"{-extent} to {extent - 1}" if extent else "no index"))
    return place % extent


def reshaped(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Return the shape of ``reshape(shape)`` of ``size`` elements: one extent of -1 follows from the others."""
    rest = math.prod(extent for extent in shape if extent != -1)
    if shape.count(-1) == 1 and rest and size % rest == 0:
        shape = tuple(size // rest if extent == -1 else extent for extent in shape)
    if -1 in shape or math.prod(shape) != size:
        allowed = "a shape of as many elements, with one -1 at most"
        raise ArgumentValueError(explain("reshape", f"{shape} for {size} elements", allowed))
    return shape
