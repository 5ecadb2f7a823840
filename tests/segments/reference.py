"""Operations on segments in NumPy, segment by segment."""

from __future__ import annotations

import numpy as np

from .. import states
from ..cases import numpy_dtype

SUM = states.Case(None, lambda p, q: (p[0] + q[0],), ("int32",), (0,))


def keys_of(length: int, mean: float, dtype="int32", seed: int = 0) -> np.ndarray:
    """Keys in segments of a length that is ``mean`` on average."""
    rng = np.random.default_rng([seed, length])
    return (np.cumsum(rng.random(length) * mean < 1) % 100 + 3).astype(numpy_dtype(dtype))


def heads_of(*keys: np.ndarray) -> np.ndarray:
    """Whether each position begins a segment: the first does, and those where any of the keys changes."""
    found = np.zeros(len(keys[0]), bool)
    found[:1] = True
    for one in keys:
        found[1:] |= one[1:] != one[:-1]
    return found


def slices(heads: np.ndarray) -> list[slice]:
    """The segments."""
    bounds = [*np.flatnonzero(heads), len(heads)]
    return [slice(first, stop) for first, stop in zip(bounds, bounds[1:])]


def scanned(heads, xs, case=SUM, **options) -> list[np.ndarray]:
    """The scan of each segment."""
    out = [np.empty_like(x) for x in xs]
    for part in slices(heads):
        for result, found in zip(out, states.scanned(case, [x[part] for x in xs], 0, **options)):
            result[part] = found
    return out


def reduced(heads, xs, case=SUM, init=None) -> list[np.ndarray]:
    """The last result of the scan of each segment."""
    stops = [part.stop - 1 for part in slices(heads)]
    return [found[stops] for found in scanned(heads, xs, case, init=init)]
