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
from cutesync.dtypes import INT64, DType, dtype as parse_dtype
from cutesync.errors import DeviceError, explain
from cutesync.patterns.host import Call, launch, traceable
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
        call = Call(x, stream, dtypes=(self.dtype.name,))
        keep = _all if keep is None else traceable(keep, "keep")
        if call.device != self._items.device:
            raise DeviceError(
                explain("x", f"an array on device {call.device}", f"the device of the channel, {self._items.device}")
            )
        self._stream = call.stream
        items, vector = shares(self.dtype, call.x.ptr)
        dtype = self.dtype

        def host():
            from cutesync.patterns.channel_kernels import Give

            return Give(keep, dtype, method, items, THREADS, vector)

        if call.size:
            grid = -(-call.size // (items * THREADS))
            call.launch(
                host,
                (call.x.ptr, self._items.ptr, self._state.ptr),
                (self.dtype, self.dtype, INT64),
                n=call.size,
                m=self.capacity,
                grid=grid,
            )
        return self

    def take(self, count: int, *, stream=0) -> np.ndarray:
        """Remove up to ``count`` items, the last given first, and return them as a NumPy array."""
        count = integer(count, "count", 0, MOST)
        out = device_array.empty(count, self.dtype)
        self._write(2, 0, 0)
        self._stream = arrays.stream_handle(stream)

        dtype = self.dtype

        def host():
            from cutesync.patterns.channel_kernels import Take

            return Take(dtype, THREADS)

        if count:
            values = (self._items.ptr, out.ptr, self._state.ptr, count, 0)
            launch(
                host, values, (self.dtype, self.dtype, INT64), -(-count // THREADS), self._items.device, self._stream
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
