"""A channel: one launch gives items to it, and a later launch takes them.

    launch 1   every thread: keep(x[i])? --> sync.Queue.give          places come from one atomic an item, a warp,
                                    |                                  or a block (the fastest)
               (end of the launch: all items are there)
                                    v
    launch 2   every thread: sync.Queue.take --> out

Items beyond the capacity are counted, never written. The channel can be used after that, and after a take from an empty
channel.
"""

from __future__ import annotations

import numpy as np

from cutesync.arguments import choice, integer
from cutesync.dtypes import DType, dtype as parse_dtype
from cutesync.errors import DeviceError, explain
from cutesync.patterns.host import Step, Task, call, placed, traceable
from cutesync.runtime import arrays, device_array

METHODS = ("block", "warp", "each")
THREADS = 256  # a block
MOST = 1 << 40


class Channel:
    """Room for ``capacity`` items of ``dtype`` on the current device."""

    def __init__(self, capacity: int, dtype="int32") -> None:
        self.capacity, self.dtype = integer(capacity, "capacity", 1, MOST), parse_dtype(dtype)
        self._items = device_array.empty(self.capacity, self.dtype)
        self._stream = 0  # of the last launch
        self._state = device_array.asarray(np.zeros(4, np.int64))  # held, lost; the same of the queue that a take fills

    def give(self, x, keep=None, *, method: str = "block", stream=None) -> Channel:
        """Add the elements of ``x`` for which ``keep`` (a traced callable; default all) is true, in any order.

        ``method``: one atomic a "block", a "warp", or for "each" item.
        """
        choice(method, "method", METHODS)
        keep, capacity = _all if keep is None else traceable(keep, "keep"), self.capacity
        x, handle = placed(x, stream)
        device, own = arrays.checked(x, "x").device, self._items.device
        if device != own:
            raise DeviceError(explain("x", f"an array on device {device}", f"the device of the channel, {own}"))

        def task(x, _):
            items, vector = shares(x.dtype, x.ptr)

            def make(dtype):
                from cutesync.patterns.channel_kernels import Give

                return Give(keep, dtype, method, items, THREADS, vector)

            return Task(x, Step(make, items * THREADS, m=capacity), shape=(capacity,))

        call(task, x, self._items, handle, self._state, dtypes=(self.dtype.name,))
        self._stream = handle
        return self

    def take(self, count: int, *, stream=0) -> np.ndarray:
        """Remove up to ``count`` items, the last given first, and return them as a NumPy array."""
        count, handle = integer(count, "count", 0, MOST), arrays.stream_handle(stream)
        out = device_array.empty(count, self.dtype)
        self._write(2, 0, 0)
        self._stream = handle

        call(
            lambda x, out: Task(x, Step(_take, THREADS, count), shape=out.shape), self._items, out, handle, self._state
        )
        return device_array.to_numpy(out[: int(self._words()[2])], self._stream)

    @property
    def size(self) -> int:
        """How many items it holds. Waits for the last launch."""
        return int(self._words()[0])

    @property
    def overflowed(self) -> int:
        """How many items it had no room for since it was made or reset."""
        return int(self._words()[1])

    def reset(self) -> None:
        """Empty, nothing lost."""
        self._write(0, 0, 0)

    def to_numpy(self) -> np.ndarray:
        """The items held, in the order of their places."""
        return device_array.to_numpy(self._items[: self.size], self._stream)

    def _words(self) -> np.ndarray:
        return device_array.to_numpy(self._state, self._stream)

    def _write(self, first: int, *words: int) -> None:
        host = self._words()
        host[first : first + len(words)] = words
        self._state = device_array.asarray(host)


def _take(dtype):
    from cutesync.patterns.channel_kernels import Take

    return Take(dtype, THREADS)


def shares(dtype: DType, address: int) -> tuple[int, int]:
    """``(items, vector)``: how many items a thread gives at a time (16 or 64 bytes), and how many it reads at once."""
    vector = 16 // dtype.size
    while address % (vector * dtype.size):
        vector //= 2
    return min(16, 64 // dtype.size), vector


def _all(value):
    return value == value


def reference(x: np.ndarray, keep) -> np.ndarray:
    """What ``give`` adds, in index order."""
    return x[np.asarray(keep(x), bool)]
