"""``n=``: every function that reads an array takes a length that only the device knows, and chains of such calls."""

from __future__ import annotations

import inspect

import numpy as np

import cutesync as cs

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
    wanted = x[x > 0].cumsum()
    assert int(total) == wanted[-1]
    assert np.array_equal(np.asarray(even), wanted[wanted % 2 == 0])
    assert np.array_equal(np.asarray(counts), np.bincount(x[x > 0], minlength=9))
    assert int(last) == wanted[wanted % 2 == 0].max()
