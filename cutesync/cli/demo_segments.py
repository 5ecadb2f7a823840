"""The operations on segments of the demo: reductions and scans by key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import cutesync as cs

from .demo_case import Case, words
from .demo_flags import runs


def cases(place: str) -> Iterator[Case]:
    """Yield the cases for a ``place``, as ``demo_flags.cases`` does. What lies behind the results is filled with 0."""
    full, odd = ((1 << 24,), (10**7 + 19,)) if place != "emulator" else ((1 << 14,), (10007,))
    for source in ("int32", "float64"):
        yield _case("reduce by key", source, full, _sums, _sums_of)
        yield _case("scan by key", source, odd, _running, _running_of)


def _case(operation: str, source: str, shape: tuple, call: Callable, expected: Callable) -> Case:
    def make(generator: np.random.Generator) -> tuple:
        return runs(generator, "int32", shape), generator.integers(-9, 10, shape).astype(source)

    return Case(operation, source, words(shape), make, call, expected)


def _sums(keys: Any, x: Any, out: Any = None) -> Any:
    return cs.reduce_by_key(keys, x, size=x.shape[0]).values


def _running(keys: Any, x: Any, out: Any = None) -> Any:
    return cs.scan_by_key(keys, x, out=out)


def _heads(keys: np.ndarray) -> np.ndarray:
    return np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))


def _sums_of(keys: np.ndarray, x: np.ndarray) -> np.ndarray:
    found = np.add.reduceat(x, _heads(keys), dtype=x.dtype)
    return np.append(found, np.zeros(len(x) - len(found), x.dtype))


def _running_of(keys: np.ndarray, x: np.ndarray) -> np.ndarray:
    total, heads = np.cumsum(x, dtype=x.dtype), _heads(keys)
    before = (total - x)[heads]
    return total - np.repeat(before, np.diff(np.append(heads, len(x))))
