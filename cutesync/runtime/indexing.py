"""NumPy's basic indexing, reshaping, permuting and broadcasting of strided memory: views, without a copy."""

from __future__ import annotations

import math
import operator
from typing import Any

from ..arguments import whole
from ..errors import ArgumentIndexError, ArgumentTypeError, ArgumentValueError, explain, shown
from .layout import axes_of, merged

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


def relaid(shape: tuple[int, ...], old: tuple[int, ...], steps: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the strides with which ``shape`` visits the elements of an array of shape ``old`` and strides ``steps`` in
    C order; None if there are none. Both shapes have the same number of elements, which is not 0."""
    runs, left, step = merged(axes_of(old, steps)), 1, 1
    strides: list[int] = []
    for extent in reversed(shape):
        if left == 1 and extent > 1:  # the next run of elements that lie evenly apart
            run = runs.pop()
            left, (step,) = run.extent, run.steps
        if left % extent:
            return None
        strides.append(step)
        left //= extent
        step *= extent
    return tuple(reversed(strides))


def permutation(axes: Any, rank: int) -> tuple[int, ...]:
    """Return the axes of ``transpose(*axes)`` as numbers from 0 on: all of them once, or reversed if none are given."""
    given = axes[0] if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))) else axes
    if given is None or (not given and not axes):
        return tuple(range(rank))[::-1]
    found = tuple(axis_number(axis, rank, "transpose") for axis in given)
    if sorted(found) != list(range(rank)):
        raise ArgumentValueError(explain("transpose", shown(given), f"each of {rank} axes once"))
    return found


def axis_number(axis: Any, rank: int, subject: str) -> int:
    """Return an axis as a number from 0 on."""
    number = whole(axis, subject)
    if not -rank <= number < rank:
        raise ArgumentValueError(explain(subject, f"axis {number}", f"{-rank} to {rank - 1}" if rank else "no axis"))
    return number % rank


def broadcast(shape: tuple[int, ...], old: tuple[int, ...], steps: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of ``broadcast_to(shape)``: 0 along axes that repeat elements."""
    more = len(shape) - len(old)
    if more < 0 or any(extent not in (1, wanted) for extent, wanted in zip(old, shape[more:])):
        allowed = "the extents of the array or, where these are 1, any; more axes in front"
        raise ArgumentValueError(explain("broadcast_to", f"{shape} for shape {old}", allowed))
    kept = (step if extent == wanted else 0 for extent, wanted, step in zip(old, shape[more:], steps))
    return (0,) * more + tuple(kept)
