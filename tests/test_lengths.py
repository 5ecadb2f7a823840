"""``n=``: every function that reads an array takes a length that only the device knows, and chains of such calls."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import cutesync as cs

from .memory import forget_behind

# Functions without ``n=``: what makes arrays, and products, whose operands have a length for each axis.
WITHOUT = {"asarray", "empty", "emulate", "launch", "compile", "warm", "matmul"}


def public() -> dict:
    return {name: getattr(cs, name) for name in cs.__all__ if inspect.isfunction(getattr(cs, name))}


def test_every_function_takes_a_length():
    missing = {name for name, function in public().items() if "n" not in inspect.signature(function).parameters}
    assert missing == WITHOUT


def test_select_sum_scan_select():
    """Four calls, each of which takes the count of the first or the last one."""
    x = np.random.default_rng(3).integers(-9, 9, 700).astype(np.int32)
    with cs.emulate():
        kept = cs.select(cs.asarray(x), lambda v: v > 0)
        total = cs.sum(kept.values, n=kept.count)
        running = cs.cumsum(kept.values, n=kept.count)
        even = cs.select(running, lambda v: v % 2 == 0, n=kept.count)
        counts = cs.bincount(kept.values, length=9, n=kept.count)
        last = cs.reduce(even.values, "max", n=even.count, init=0)
        heads = cs.flag_heads(kept.values, n=kept.count)
    wanted = x[x > 0].cumsum()
    assert int(total) == wanted[-1]
    assert np.array_equal(np.asarray(even), wanted[wanted % 2 == 0])
    assert np.array_equal(np.asarray(counts), np.bincount(x[x > 0], minlength=9))
    assert np.array_equal(np.asarray(heads)[: wanted.size], np.r_[True, x[x > 0][1:] != x[x > 0][:-1]])
    assert int(last) == wanted[wanted % 2 == 0].max()


# Calls of an array of one axis; ``more(dtype)`` makes a second array of its shape.
CALLS = {
    "all": lambda x, n, more: cs.all(x, n=n),
    "bincount": lambda x, n, more: cs.bincount(x, more("float32"), length=4, n=n),
    "cummax": lambda x, n, more: cs.cummax(x, n=n),
    "cumsum": lambda x, n, more: cs.cumsum(x, n=n),
    "difference": lambda x, n, more: cs.adjacent_difference(x, n=n),
    "flags": lambda x, n, more: cs.flag_heads_and_tails(x, n=n),
    "flags by callable": lambda x, n, more: cs.flag_tails(x, lambda a, b: a < b, n=n),
    "flags in bits": lambda x, n, more: cs.flag_heads(x, dtype="bits", n=n),
    "histogram": lambda x, n, more: cs.histogram(x, 7, range=(0, 3), n=n),
    "max": lambda x, n, more: cs.reduce(x, "max", init=0, n=n),
    "nonzero": lambda x, n, more: cs.flatnonzero(x, n=n),
    "partition": lambda x, n, more: cs.partition(x, more("bool"), n=n),
    "partition3": lambda x, n, more: cs.partition3(x, lambda v: v > 1, lambda v: v > 0, n=n),
    "reduce": lambda x, n, more: cs.reduce(x, lambda a, b: a + b, init=0, n=n),
    "reduce_by_key": lambda x, n, more: cs.reduce_by_key(x, more("int32"), size=x.size, n=n),
    "run_length_encode": lambda x, n, more: cs.run_length_encode(x, n=n),
    "scan": lambda x, n, more: cs.scan(x, lambda a, b: a + b, exclusive=True, init=1, reverse=True, n=n),
    "scan_by_key": lambda x, n, more: cs.scan_by_key(x, more("int32"), n=n),
    "scan_by_key backward": lambda x, n, more: cs.scan_by_key(x, more("int32"), reverse=True, n=n),
    "searchsorted": lambda x, n, more: cs.searchsorted(x, cs.asarray(np.arange(3).astype(x.dtype.name)), n=n),
    "segmented_scan": lambda x, n, more: cs.segmented_scan(x, heads=more("bool"), n=n),
    "segmented_reduce": lambda x, n, more: cs.segmented_reduce(x, heads=more("bool"), n=n),
    "select": lambda x, n, more: cs.select(x, lambda v: v > 0, n=n),
    "select by mask": lambda x, n, more: cs.select(x, more("bool"), indices=True, n=n),
    "topk": lambda x, n, more: cs.topk(x, 5, n=n),
    "unique": lambda x, n, more: cs.unique_consecutive(x, return_inverse=True, n=n),
}
# Calls along an axis.
ALONG = {
    "cummin": lambda x, n, axis: cs.cummin(x, axis=axis, n=n),
    "difference": lambda x, n, axis: cs.adjacent_difference(x, reverse=True, axis=axis, n=n),
    "flags": lambda x, n, axis: cs.flag_heads_and_tails(x, axis=axis, n=n),
    "flags in bits": lambda x, n, axis: cs.flag_tails(x, dtype="bits", axis=axis, n=n),
    "max": lambda x, n, axis: cs.reduce(x, "max", init=0, axis=axis, n=n),
    "scan": lambda x, n, axis: cs.scan(x, lambda a, b: a + b, reverse=True, axis=axis, n=n),
    "select": lambda x, n, axis: cs.select(x, lambda v: v > 0, axis=axis, n=n),
    "sum": lambda x, n, axis: cs.sum(x, axis=axis, n=n),
    "topk": lambda x, n, axis: cs.topk(x, 3, axis=axis, n=n),
    "unique": lambda x, n, axis: cs.unique_consecutive(x, axis=axis, n=n),
}
VIEWS = {
    "C": lambda host: cs.asarray(host),
    "F": lambda host: cs.asarray(np.ascontiguousarray(host.T)).T,
    "inside": lambda host: cs.asarray(np.pad(host, (1, 2)))[(slice(1, -2),) * host.ndim],
    "backward": lambda host: cs.asarray(host[..., ::-1].copy())[..., ::-1],
}


@pytest.mark.parametrize("length", [0, -2])
def test_no_element_counts(length):
    """Nothing is read of arrays whose elements are gathered, and nothing is written."""
    x = VIEWS["backward"](np.ones(70, np.int32))
    forget_behind(x, 0)
    with cs.emulate():
        out, n = cs.asarray(np.full(70, 5)), cs.asarray(np.int64(length))
        cs.scan_by_key(x, x, dtype="int64", reverse=True, n=n, out=out)
        found = cs.select(x, lambda v: v > 0, n=n)
    assert np.asarray(out).tolist() == [5] * 70
    assert int(np.asarray(found.count)) == 0


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("view", "dtype"), [("C", "int32"), ("F", "int32"), ("inside", "float32"), ("backward", "int32")]
)
def test_elements_that_do_not_count_are_not_read(view, dtype):
    """They are memory that nobody has written, as that behind what ``select`` returns."""
    rng = np.random.default_rng([7, len(dtype)])

    def made(shape: tuple, dtype: str, n: int, axis: int | None):
        x = VIEWS[view](rng.integers(0, 3, shape).astype(dtype))
        forget_behind(x, n, axis)
        return x

    with cs.emulate():
        first = ("C", "inside", "backward", "F").index(view)
        for turn, (name, call) in enumerate(CALLS.items(), first):  # each call in one view of three
            if view != "F" and turn % 3 == 0 and (name != "bincount" or dtype != "float32"):  # "F" is "C" for one axis
                n = int(rng.integers(300, 700)) if rng.random() < 0.6 else 0
                more = lambda dtype, n=n: made((1203,), dtype, n, None)  # noqa: E731
                call(made((1203,), dtype, n, None), cs.asarray(np.int64(n)), more)
        for turn, call in enumerate(ALONG.values(), list(VIEWS).index(view)):  # each call has each shape in some view
            shape, axis = (((7, 300), 1), ((300, 7), 0), ((5, 60, 40), 1))[turn % 3]
            n = int(rng.integers(0, shape[axis]))
            call(made(shape, dtype, n, axis), cs.asarray(np.int64(n)), axis)
