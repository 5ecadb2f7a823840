"""Sharded: one array in parts, each on its own device."""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

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

    In a group of several processes, ``parts`` is a sequence of one array, that of this process, and all ranks make the
    Sharded together; ``parts`` then has stand-ins for those of the others.
    """

    __slots__ = ("_facts", "_like", "axis", "group", "parts")

    _like: _Facts | None  # the facts of another one, which differ only in addresses

    def __init__(self, group: Group, parts: Sequence[Any], axis: int | None = 0) -> None:
        self.group, self.parts = group, tuple(parts)
        if group.team is not None and len(self.parts) != group.size:
            self.parts = group.team.complete(self.parts)
        if len(self.parts) != group.size:
            raise ArgumentValueError(
                explain("parts", f"{len(self.parts)} arrays", f"{group.size}, one for each device")
            )
        views = tuple(_checked(group, rank, part) for rank, part in enumerate(self.parts))
        self.axis = None if axis is None else axis_number(axis, len(views[0].shape))
        _check_alike(views, self.axis)
        self._facts: _Facts | None = _facts(views, self.axis, self.parts)
        self._like = None

    @classmethod
    def of_results(cls, group: Group, parts: Sequence[Any], axis: int | None, like: _Facts | None = None) -> Sharded:
        """Return the Sharded of parts that this package has made, which need no check. ``like``: the ``facts`` of one
        made by the same call with other memory."""
        made = cls.__new__(cls)
        made.group, made.parts, made.axis, made._facts, made._like = group, tuple(parts), axis, None, like
        return made

    @property
    def facts(self) -> _Facts:
        if self._facts is None and self._like is not None:
            self._facts = _moved(self._like, self.parts)
        if self._facts is None:
            self._facts = _facts(self._views(), self.axis, self.parts)
        return self._facts

    def _views(self) -> tuple[View, ...]:
        return tuple(arrays.adapter(part).view(part) for part in self.parts)

    @property
    def views(self) -> tuple[View, ...]:
        facts = self.facts
        if facts.views is None:
            self._facts = facts = facts._replace(views=self._views())
        return facts.views  # type: ignore[return-value]

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """Where the memory of each part begins and ends."""
        facts = self.facts
        if facts.spans is None:
            spans = tuple(view.span for view in self.views)
            self._facts = facts = self.facts._replace(spans=spans)
        return facts.spans  # type: ignore[return-value]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.facts.shape

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where each part begins along ``axis``, and where the last one ends."""
        return self.facts.offsets

    @property
    def dtype(self) -> DType:
        return self.views[0].dtype

    @property
    def pointers(self) -> tuple[int, ...]:
        """The address of each part."""
        return self.facts.pointers

    @property
    def key(self) -> Signature:
        """What a plan depends on. Parts that are not what they were when they were last asked are checked again:
        libraries can give an array another shape or other memory."""
        facts = self._facts or self.facts
        same = facts.key.same
        if same is not None and same(*self.parts) and tuple(map(facts.key.address, self.parts)) == facts.pointers:
            return facts.key
        for part, (identify, known) in zip(self.parts, facts.identified):
            if identify(part) != known:
                views = tuple(_checked(self.group, rank, part) for rank, part in enumerate(self.parts))
                _check_alike(views, self.axis)
                self._facts = facts = _facts(views, self.axis, self.parts)
                break
        return facts.key

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
        """Return a NumPy copy of the whole array, after waiting for the work on every device. Processes send each other
        their parts."""
        if self.axis is None:
            host = host_of(self.parts[self.group.rank or 0])
        else:
            host = np.concatenate(self.group.hosts(lambda rank: host_of(self.parts[rank])), self.axis)
        return host if dtype is None else host.astype(dtype)

    def reshard(self, axis: int | None, lengths: Sequence[int] | None = None, *, stream: Any = None) -> Sharded:
        """Return a copy spread along another axis, in parts of ``lengths`` (by default as equal as ``np.array_split``
        makes them), or with ``axis`` None the whole array on every device. Each device reads what it gets from the
        parts of the others, in one launch. ``stream`` is a sequence of streams, or None (the current ones)."""
        from .reshard import reshard

        return reshard(self, axis, lengths, stream)

    def gather(self, rank: int = 0, *, stream: Any = None) -> Any:
        """Return a copy of the whole array on the device of ``rank``: an array of the library of its part. Other
        processes get None."""
        from .reshard import gather

        return gather(self, rank, stream)

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


class Ragged:
    """Values that lie on several devices, as many on each as only the device knows.

    ``parts[r]`` has room for all elements of part ``r``; its first ``counts[r]`` elements count, and ``offsets[r]``
    come before them on lower ranks. Both are 0-d int64 arrays on device ``r``. ``np.asarray(ragged)`` waits, and
    returns the values of all devices one after the other. Reductions, scans, flags and selections take a Ragged as
    they take a Sharded: of its elements one after the other."""

    __slots__ = ("counts", "offsets", "room")

    def __init__(self, room: Sharded, counts: Sequence[Any], offsets: Sequence[Any]) -> None:
        self.room, self.counts, self.offsets = room, counts, offsets

    @property
    def shape(self) -> tuple[int, ...]:
        return self.room.shape

    @property
    def parts(self) -> tuple[Any, ...]:
        return self.room.parts

    @property
    def dtype(self) -> DType:
        return self.room.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def results(self, made: Any) -> Any:
        """Return the results of a call, one Sharded or a tuple of them, as values that lie as these do."""
        if isinstance(made, tuple):
            return tuple(map(self.results, made))
        return Ragged(made, self.counts, self.offsets)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        host = np.concatenate(self.room.group.hosts(self._values))
        return host if dtype is None else host.astype(dtype)

    def _values(self, rank: int) -> np.ndarray:
        return host_of(self.parts[rank])[: int(host_of(self.counts[rank]))]

    def __getitem__(self, index: Any) -> np.ndarray:
        """Wait; return NumPy values of all devices."""
        return np.asarray(self)[index]

    def __repr__(self) -> str:
        return f"Ragged({len(self.parts)} parts, room for {self.shape[0]})"


class Signature:
    """Stands for all that a plan depends on of a Sharded. There is one for each meaning, so comparing two compares
    their addresses. ``same(*parts)`` says whether parts mean the same, but for their addresses; None if no library's
    guard can tell."""

    __slots__ = ("__weakref__", "address", "same")

    def __init__(self, libraries: Sequence[Any] = (), parts: tuple = ()) -> None:
        first = libraries[0] if libraries else None
        guarded = first is not None and first.guard is not None and all(library is first for library in libraries)
        self.same: Callable[..., bool] | None = first.guard(parts) if guarded else None  # type: ignore[union-attr]
        self.address: Callable[[Any], int] = first.address if guarded else int  # type: ignore[union-attr]


_signatures: weakref.WeakValueDictionary[tuple, Signature] = weakref.WeakValueDictionary()


class _Facts(NamedTuple):
    """What a Sharded knows of its parts. ``identified`` has for each part the function that identifies it, and what
    that returned: its address and signature. ``streams`` has the function that returns its library's current stream,
    and its device. ``views`` and ``spans``: None if nobody has asked."""

    views: tuple[View, ...] | None
    shape: tuple[int, ...]
    offsets: tuple[int, ...]
    pointers: tuple[int, ...]
    identified: tuple[tuple[Callable[[Any], tuple], tuple], ...]
    streams: tuple[tuple[Callable[[int], int], int], ...]
    key: Signature
    spans: tuple[tuple[int, int], ...] | None = None


def _facts(views: tuple[View, ...], axis: int | None, parts: tuple) -> _Facts:
    lengths = [] if axis is None else [view.shape[axis] for view in views]
    offsets = tuple(itertools.accumulate(lengths, initial=0))
    shape = views[0].shape
    if axis is not None:
        shape = (*shape[:axis], offsets[-1], *shape[axis + 1 :])
    libraries = [arrays.adapter(part) for part in parts]
    identified = tuple(
        (library.identify_strided, library.identify_strided(part)) for library, part in zip(libraries, parts)
    )
    streams = tuple((library.stream, view.device) for library, view in zip(libraries, views))
    meaning = (axis, *((type(part), at & 15, found) for part, (_, (at, found)) in zip(parts, identified)))
    key = _signatures.get(meaning)
    if key is None:
        key = _signatures[meaning] = Signature(libraries, parts)
    return _Facts(views, shape, offsets, tuple(at for _, (at, _) in identified), identified, streams, key)


def _moved(like: _Facts, parts: tuple) -> _Facts | None:
    """Return the facts of parts like others in other memory; None if they are not alike."""
    identified, pointers = [], []
    for part, (identify, (before, known)) in zip(parts, like.identified):
        at, found = identify(part)
        if found != known or (at ^ before) & 15:
            return None
        identified.append((identify, (at, found)))
        pointers.append(at)
    return like._replace(views=None, spans=None, pointers=tuple(pointers), identified=tuple(identified))


def _check_alike(views: tuple[View, ...], axis: int | None) -> None:
    first = views[0]
    for view in views[1:]:
        if view.dtype is not first.dtype:
            raise ArgumentTypeError(explain("parts", f"{view.dtype} and {first.dtype}", "parts of one type"))
        if _but(view.shape, axis) != _but(first.shape, axis):
            allowed = "parts of one shape" + ("" if axis is None else f" except along axis {axis}")
            raise ArgumentValueError(explain("parts", f"shapes {first.shape} and {view.shape}", allowed))


def _checked(group: Group, rank: int, part: Any) -> View:
    """Return the view of a part, which lies on the device of its rank."""
    view = arrays.checked(part, f"parts[{rank}]", strided=True)
    if isinstance(part, np.ndarray) or view.device != group.ordinals[rank]:
        came = "a NumPy array" if isinstance(part, np.ndarray) else f"an array on device {view.device}"
        allowed = f"one on device {group.ordinals[rank]}, that of rank {rank}"
        raise DeviceError(explain(f"parts[{rank}]", came, allowed, "group.shard(x) spreads a NumPy array"))
    return view


def axis_number(axis: Any, ndim: int) -> int:
    """Return an axis counted from 0."""
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)):
        raise ArgumentTypeError(explain("axis", repr(axis), "an int"))
    if not -ndim <= axis < ndim:
        raise ArgumentValueError(explain("axis", axis, f"an axis of {ndim} dimensions"))
    return int(axis) % ndim


def _but(shape: tuple[int, ...], axis: int | None) -> tuple[int, ...]:
    return shape if axis is None else shape[:axis] + shape[axis + 1 :]


def host_of(part: Any) -> np.ndarray:
    """Return a NumPy copy of one part, after the work on its library's current stream."""
    view = arrays.adapter(part).view(part)
    stream = arrays.adapter(part).stream(view.device)
    if not isinstance(part, DeviceArray):
        part = DeviceArray(view.ptr, view.shape, view.dtype, view.device, part, view.strides)
    return device_array.to_numpy(part, stream)
