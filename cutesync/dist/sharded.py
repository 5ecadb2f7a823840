"""Sharded: one array in parts, each on its own device."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dtypes import DType
from ..errors import ArgumentTypeError, ArgumentValueError, DeviceError, explain
from ..runtime import arrays, device_array
from ..runtime.device_array import DeviceArray
from ..runtime.view import View

if TYPE_CHECKING:
    from .group import Group


class Sharded:
    """An array whose ``parts`` follow each other along ``axis``, part ``r`` on device ``r`` of ``group``.

    Parts are arrays of any library, of one type, and of one shape except along ``axis``; they may be empty. With
    ``axis`` None every part is the whole array: the same values on every device. ``group.shard(x)`` makes one of a
    NumPy array, ``np.asarray(sharded)`` makes a NumPy array of all parts.
    """

    __slots__ = ("axis", "dtype", "group", "offsets", "parts", "shape", "views")

    def __init__(self, group: Group, parts: Sequence[Any], axis: int | None = 0) -> None:
        self.group, self.parts = group, tuple(parts)
        if len(self.parts) != group.size:
            raise ArgumentValueError(
                explain("parts", f"{len(self.parts)} arrays", f"{group.size}, one for each device")
            )
        self.views = tuple(_checked(group, rank, part) for rank, part in enumerate(self.parts))
        first = self.views[0]
        self.dtype: DType = first.dtype
        self.axis = None if axis is None else _axis(axis, len(first.shape))
        for view in self.views[1:]:
            if view.dtype is not first.dtype:
                raise ArgumentTypeError(explain("parts", f"{view.dtype} and {first.dtype}", "parts of one type"))
            if _but(view.shape, self.axis) != _but(first.shape, self.axis):
                allowed = "parts of one shape" + ("" if self.axis is None else f" except along axis {self.axis}")
                raise ArgumentValueError(explain("parts", f"shapes {first.shape} and {view.shape}", allowed))
        lengths = [] if self.axis is None else [view.shape[self.axis] for view in self.views]
        self.offsets = tuple(itertools.accumulate(lengths, initial=0))
        shape = list(first.shape)
        if self.axis is not None:
            shape[self.axis] = self.offsets[-1]
        self.shape = tuple(shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def view(self) -> View:
        """The whole array's shape and type, with no address."""
        return View(0, self.shape, self.dtype, self.views[0].device, True)

    def __len__(self) -> int:
        if not self.shape:
            raise ArgumentTypeError(explain("len", "a Sharded of shape ()", "at least one dimension"))
        return self.shape[0]

    def __repr__(self) -> str:
        where = "on each device" if self.axis is None else f"axis={self.axis}, lengths={self.lengths}"
        return f"Sharded(shape={self.shape}, dtype={self.dtype}, {where})"

    @property
    def lengths(self) -> tuple[int, ...]:
        """How long each part is along ``axis``."""
        return tuple(b - a for a, b in zip(self.offsets, self.offsets[1:]))

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        """Return a NumPy copy of the whole array, after waiting for the work on every device."""
        if self.axis is None:
            host = _host(self, 0)
        else:
            host = np.concatenate([_host(self, rank) for rank in range(self.group.size)], self.axis)
        return host if dtype is None else host.astype(dtype)

    def item(self) -> Any:
        """Wait; return the only element as a Python number."""
        if self.size != 1:
            raise ArgumentTypeError(explain("array", f"shape {self.shape}", "an array of one element"))
        return np.asarray(self).item()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())

    __hash__ = None  # type: ignore[assignment]  # as NumPy's arrays


def _checked(group: Group, rank: int, part: Any) -> View:
    """Return the view of a part, which lies on the device of its rank."""
    view = arrays.checked(part, f"parts[{rank}]", strided=True)
    if isinstance(part, np.ndarray) or view.device != group.ordinals[rank]:
        came = "a NumPy array" if isinstance(part, np.ndarray) else f"an array on device {view.device}"
        allowed = f"one on device {group.ordinals[rank]}, that of rank {rank}"
        raise DeviceError(explain(f"parts[{rank}]", came, allowed, "group.shard(x) spreads a NumPy array"))
    return view


def _axis(axis: Any, ndim: int) -> int:
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)):
        raise ArgumentTypeError(explain("axis", repr(axis), "an int"))
    if not -ndim <= axis < ndim:
        raise ArgumentValueError(explain("axis", axis, f"an axis of {ndim} dimensions"))
    return int(axis) % ndim


def _but(shape: tuple[int, ...], axis: int | None) -> tuple[int, ...]:
    return shape if axis is None else shape[:axis] + shape[axis + 1 :]


def _host(sharded: Sharded, rank: int) -> np.ndarray:
    """Return a NumPy copy of one part, after the work on its library's current stream."""
    part, view = sharded.parts[rank], sharded.views[rank]
    stream = arrays.adapter(part).stream(view.device)
    if not isinstance(part, DeviceArray):
        part = DeviceArray(view.ptr, view.shape, view.dtype, view.device, part, view.strides)
    return device_array.to_numpy(part, stream)


def each_part(call: Callable, arguments: tuple, xs: tuple, streams: tuple | None, axis: int | None) -> Any:
    """Make a call of a front end for the parts of each device; the results are sharded along ``axis``."""
    group, found = xs[0].group, []
    for rank, ordinal in enumerate(group.ordinals):
        x, *others = (y.parts[rank] for y in xs)
        with group.place.using(ordinal):
            found.append(call(arguments, x, None, None if streams is None else streams[rank], tuple(others)))
    if isinstance(found[0], tuple):
        return tuple(Sharded(group, parts, axis) for parts in zip(*found))
    return Sharded(group, found, axis)
