"""Random strided views: the same ones of a DeviceArray and of a NumPy array."""

from __future__ import annotations

import numpy as np

from cutesync.runtime.device_array import DeviceArray

LEAST, MOST = 1, 4  # steps from an array to a view


def broadcast_to(x, shape):
    """``numpy.broadcast_to`` of either kind of array."""
    return x.broadcast_to(shape) if isinstance(x, DeviceArray) else np.broadcast_to(x, shape)


def random_view(rng: np.random.Generator, *arrays, repeats: bool = True) -> list:
    """The same view of each array, in a list: sliced, stepped, reversed, permuted, with more axes, and with ``repeats``
    broadcast. Its elements lie within the array."""
    found = list(arrays)
    for _ in range(rng.integers(LEAST, MOST + 1)):
        kind = rng.integers(0, 5 if repeats else 4)
        shape = found[0].shape
        if kind < 2:
            index = tuple(_part(rng, extent) for extent in shape)
            found = [x[index] for x in found]
        elif kind == 2:
            order = tuple(int(i) for i in rng.permutation(len(shape)))
            found = [x.transpose(order) for x in found]
        elif kind == 3:
            index = (*(slice(None),) * int(rng.integers(0, len(shape) + 1)), None)
            found = [x[index] for x in found]
        else:
            wider = tuple(int(rng.integers(1, 4)) if extent == 1 else extent for extent in shape)
            wider = (int(rng.integers(1, 4)), *wider) if rng.random() < 0.3 else wider
            found = [broadcast_to(x, wider) for x in found]
    return found


def _part(rng: np.random.Generator, extent: int):
    """An index along an axis: mostly a slice with some elements."""
    if extent and rng.random() < 0.1:
        return int(rng.integers(-extent, extent))
    first, last = sorted(int(i) for i in rng.integers(0, extent + 1, 2))
    step = int(rng.choice([1, 1, 1, 2, 3, -1, -2]))
    return slice(first, last, step) if step > 0 else slice(last, first if rng.random() < 0.5 else None, step)
