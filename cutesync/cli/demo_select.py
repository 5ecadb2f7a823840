"""The selections of the demo: by masks and callables, runs and their lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import cutesync as cs

from .demo_case import Case, numbers, words
from .demo_flags import runs


def above_at_even_places(value, index):
    return (value > 0) & (index % 2 == 0)


def cases(place: str) -> Iterator[Case]:
    """Yield the cases for a ``place``, as ``demo_flags.cases`` does. What lies behind the results is filled with 0."""
    large = place != "emulator"
    full, odd = ((1 << 24,), (10**7 + 19,)) if large else ((1 << 13,), (10007,))
    for source in ("int32", "int8", "int64", "float16") if large else ("int32", "int8"):
        yield _case("select by a mask", source, full, _masked, _by_mask, lambda x, mask: x[mask])
    above = lambda x: x[(x > 0) & (np.arange(len(x)) % 2 == 0)]  # noqa: E731
    yield _case("Python: select by value and index", "int32", odd, _numbers, _by_value, above)
    yield _case("flatnonzero", "bool", odd, _numbers, _indices, np.flatnonzero)
    yield _case("partition", "int32", odd, _masked, _partitioned, lambda x, mask: np.concatenate([x[mask], x[~mask]]))
    for source in ("int32", "float64"):
        yield _case("run lengths", source, full, _of_runs, _lengths, _lengths_of)


def _case(operation: str, source: str, shape: tuple, make: Callable, call: Callable, expected: Callable) -> Case:
    def padded(*arrays: np.ndarray) -> np.ndarray:
        found = expected(*arrays)
        return np.append(found, np.zeros(len(arrays[0]) - len(found), found.dtype))

    return Case(operation, source, words(shape), lambda g: make(g, source, shape), call, padded)


def _numbers(generator: np.random.Generator, source: str, shape: tuple) -> tuple:
    return (numbers(generator, source, shape),)


def _masked(generator: np.random.Generator, source: str, shape: tuple) -> tuple:
    return numbers(generator, source, shape), generator.random(shape) < 0.5


def _of_runs(generator: np.random.Generator, source: str, shape: tuple) -> tuple:
    return (runs(generator, source, shape),)


def _by_mask(x: Any, mask: Any, out: Any = None) -> Any:
    return cs.select(x, mask, size=x.shape[0], out=out).values


def _partitioned(x: Any, mask: Any, out: Any = None) -> Any:
    return cs.partition(x, mask, out=out).values


def _by_value(x: Any, out: Any = None) -> Any:
    return cs.select(x, above_at_even_places, size=x.shape[0], out=out).values


def _indices(x: Any, out: Any = None) -> Any:
    return cs.flatnonzero(x, size=x.shape[0], out=out).values


def _lengths(x: Any, out: Any = None) -> Any:
    return cs.run_length_encode(x, size=x.shape[0]).lengths


def _lengths_of(x: np.ndarray) -> np.ndarray:
    heads = np.flatnonzero(np.append(True, x[1:] != x[:-1]))
    return np.diff(np.append(heads, len(x)))
