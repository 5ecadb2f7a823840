"""Many producers and many consumers at once: every item of ``x`` passes through one small ring of slots.

    giver threads of all blocks    place = tail++    wait for the slot's turn    store, release the turn
                                                           ^           |
                                                           |           v
    taker threads of all blocks    place = head++    load, release  <--  wait for the slot's turn

Each block gives and takes equally many items, so any number of resident blocks makes progress.
"""

from __future__ import annotations

import numpy as np

from ..arguments import integer, whole
from ..dtypes import INT64
from ..errors import ArgumentValueError, explain
from .host import Call

ITEMS, WARPS = 512, 4  # items a block passes on; warps that give, and that take


def run(x, capacity: int = 1024, *, items: int = ITEMS, stream=None):
    """``x`` (a vector) in an order that depends on timing: each element exactly once. ``capacity`` is a power of two."""
    capacity, items = whole(capacity, "capacity"), integer(items, "items", 1, 1 << 30)
    if capacity < 1 or capacity & (capacity - 1) or capacity > 1 << 30:
        raise ArgumentValueError(explain("capacity", capacity, "a power of two up to 2**30"))
    call = Call(x, stream)
    dtype, log = call.x.dtype, capacity.bit_length() - 1
    turn_words = capacity + capacity % 2
    state = call.zeros(2 + turn_words // 2 + -(-capacity * dtype.size // 8))
    out = call.array(call.x.shape, dtype)

    def host():
        from .channel_kernels import Relay

        return Relay(dtype, items, WARPS)

    if call.size:
        call.launch(
            host,
            call.x.ptr,
            call.pointer(out),
            state=state.ptr,
            types=(dtype, dtype, INT64),
            n=call.size,
            m=log,
            grid=-(-call.size // items),
        )
    return call.result(out)


def reference(x: np.ndarray) -> np.ndarray:
    """The same elements, sorted: compare with the sorted result."""
    return np.sort(x)
