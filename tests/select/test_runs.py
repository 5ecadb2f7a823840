"""Runs of equal neighbours agree with NumPy: elements, indices, numbers of runs, lengths."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync.errors import ArgumentTypeError

from ..cases import SCHEDULES
from .kernels import KERNELS, force
from .test_agreement import equal, slow


def runs(length: int, mean: float, dtype="int32", seed=0) -> np.ndarray:
    """Runs of a length that is ``mean`` on average."""
    rng = np.random.default_rng([seed, length])
    return (np.cumsum(rng.random(length) * mean < 1) % 100 + 3).astype(dtype)


def of_runs(x: np.ndarray, heads: np.ndarray) -> tuple:
    """``(values, index, inverse, lengths)`` of an array whose runs begin where ``heads`` holds."""
    index = np.flatnonzero(heads)
    return x[index], index, np.cumsum(heads) - 1, np.diff(np.append(index, len(x)))


def heads_of(x: np.ndarray) -> np.ndarray:
    return np.append(np.ones(min(len(x), 1), bool), x[1:] != x[:-1])


def everything(x, **options):
    return cs.unique_consecutive(x, return_index=True, return_inverse=True, return_counts=True, **options)


def check(found, wanted) -> None:
    for one, other in zip(found, wanted, strict=True):
        equal(one, other)


@pytest.fixture
def small(monkeypatch):
    force(monkeypatch)
    with cs.emulate():
        yield


def test_all_of_runs_of_every_length(small):
    for length in (0, 1, 2, 32, 33, 257, 1291):
        for mean in (1, 1.1, 3, 50, 400, 1e9):
            x = runs(length, mean)
            check(everything(x), of_runs(x, heads_of(x)))


@pytest.mark.parametrize("dtype", [slow("bool"), "uint16", slow("float32"), slow("int64")])
def test_encoding_of_every_type(small, dtype):
    """Arrays that begin at any element of a vector, too."""
    x = runs(1291, 5, dtype)
    a = cs.asarray(x)
    for first in (0, 1, 2, 3, 7):
        values, _, _, lengths = of_runs(x[first:], heads_of(x[first:]))
        found = cs.run_length_encode(a[first:])
        check(found.exact(), (values, lengths))


def test_nan_and_zeros(small):
    x = np.float32([np.nan, np.nan, 0.0, -0.0, 1, 1, np.nan, 2, np.nan, np.nan])
    heads = np.array([1, 0, 1, 0, 1, 0, 1, 1, 1, 0], bool)
    check(everything(x), of_runs(x, heads))
    check(everything(x, equal_nan=False), of_runs(x, heads_of(x)))


@pytest.mark.slow
def test_callables_and_keys_of_several_arrays(small):
    x, y = runs(900, 9), runs(900, 4, "float64", 1)
    heads = heads_of(x) | heads_of(y)
    (values, others), *rest = everything((x, y))
    check((values, *rest), of_runs(x, heads))
    equal(others, y[heads])
    within = cs.unique_consecutive(x, equal=lambda a, b: (a // 4) == (b // 4))
    equal(within, x[heads_of(x // 4)])
    both = cs.unique_consecutive((x, y), equal=lambda a, b, c, d: (a == c) & (b == d), return_counts=True)
    equal(both[1], of_runs(x, heads)[3])


def test_results_of_a_given_size_and_lengths_on_the_device(small):
    x = runs(1291, 7)
    a = cs.asarray(x)
    for n in (1291, 700, 1, 0):
        values, _, inverse, lengths = of_runs(x[:n], heads_of(x[:n]))
        for size in (0, 5, 400):
            found = cs.unique_consecutive(
                a,
                return_inverse=True,
                return_counts=True,
                size=size,
                fill_value=-7,
                dtype="int32",
                n=cs.asarray(np.int64(n)),
            )
            assert int(found.count) == len(values)
            equal(found.values, np.append(values, np.full(400, -7, np.int32))[:size])
            equal(found.lengths, np.append(lengths, np.zeros(400)).astype(np.int32)[:size])
            equal(np.asarray(found.inverse)[:n], inverse)


@pytest.mark.drawn(6)
@pytest.mark.parametrize("name", [name if name == "three blocks" else slow(name) for name in KERNELS])
def test_agrees_under_hostile_schedules(name, monkeypatch):
    force(monkeypatch, name)
    x = runs(1291, 6, "int16")
    with cs.emulate(schedules=SCHEDULES, seed=8):
        found = everything(cs.asarray(x))
    check(found.exact(), of_runs(x, heads_of(x)))


@pytest.mark.slow
def test_more_tiles_than_the_look_ahead_reads_at_once(monkeypatch):
    """Runs that are longer than all of them."""
    force(monkeypatch)
    x = np.repeat(np.int8([1, 2, 1]), [100, 80_000, 300])
    with cs.emulate(sanitize=False):
        values, lengths = cs.run_length_encode(x)
    assert values.tolist() == [1, 2, 1]
    assert lengths.tolist() == [100, 80_000, 300]


def test_refused():
    x = np.arange(9)
    with cs.emulate():
        for options in ({"equal": 3}, {"equal": lambda a: a}, {"return_counts": 1}, {"dtype": "float32"}):
            with pytest.raises(ArgumentTypeError):
                cs.unique_consecutive(x, **{"return_counts": True} | options)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("dtype, kind", [("int8", "int32"), ("int8", "int64"), ("int32", "int32"), ("int16", "int64")])
def test_lengths_that_begin_anywhere(monkeypatch, dtype, kind):
    """They are stored two at a time, wherever pairs of them begin in memory; and one by one if they lie apart."""
    force(monkeypatch, {"int8": "runs of bytes", "int16": "runs", "int32": "flow"}[dtype])
    x = np.cumsum(np.random.default_rng(4).random(9000) < 0.8).astype(dtype)
    values, _, _, lengths = of_runs(x, heads_of(x))
    with cs.emulate():
        for places in (slice(0, 8000), slice(1, 8001), slice(3, 8003), slice(1, 16001, 2)):
            out = cs.asarray(np.full(16002, -1, kind))
            found = cs.run_length_encode(
                cs.asarray(x), dtype=kind, out=(cs.asarray(np.zeros(8000, dtype)), out[places])
            )
            assert int(found.count) == len(values)
            equal(found.values[: len(values)], values)
            wanted = np.full(16002, -1, kind)
            wanted[places][: len(lengths)] = lengths
            equal(out, wanted)
