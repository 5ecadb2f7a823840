"""Flags and differences of sharded arrays are those of the whole array, across the seams."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.dist import Group

from .test_reduce import lengths

SIZES = (2, 4, 8)
CASES = {
    "heads": lambda x, axis: cs.flag_heads(x, axis=axis),
    "heads, predecessor": lambda x, axis: cs.flag_heads(x, "lt", predecessor=1, axis=axis),
    "tails, callable": lambda x, axis: cs.flag_tails(x, lambda a, b: a + b > 2, dtype="int32", axis=axis),
    "both": lambda x, axis: cs.flag_heads_and_tails(x, successor=2, axis=axis),
    "differences": lambda x, axis: cs.adjacent_difference(x, axis=axis),
    "differences, reverse": lambda x, axis: cs.adjacent_difference(x, lambda a, b: a * 3 - b, reverse=True, axis=axis),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_one_device(name, size):
    random = np.random.default_rng([len(name), size])
    with cs.emulate(devices=size):
        group = Group.local()
        for shape, axis, flagged in (((50,), 0, 0), ((4, 30), 1, 1), ((9, 3, 4), 1, 1), ((9, 5), 0, 0), ((6, 4), 0, 1)):
            x = random.integers(0, 3, shape).astype("int16" if len(shape) == 1 else "float32")
            want, got = (
                CASES[name](cs.asarray(x), flagged),
                CASES[name](group.shard(x, axis, lengths(random, shape[axis], size)), flagged),
            )
            pairs = zip(got, want) if isinstance(want, tuple) else [(got, want)]
            for one, other in pairs:
                assert np.array_equal(np.asarray(one), np.asarray(other)), (shape, axis, one)


@pytest.mark.slow
def test_calls_in_flight_under_many_schedules():
    x = np.repeat(np.arange(12, dtype=np.int32), 3)
    with cs.emulate(devices=3, schedules=10):
        group = Group.local()
        sharded = group.shard(x)
        with group.together():
            found = [cs.flag_heads_and_tails(sharded) for _ in range(2)]
        for heads, tails in found:
            assert np.flatnonzero(np.asarray(heads)).tolist() == list(range(0, 36, 3))
            assert np.flatnonzero(np.asarray(tails)).tolist() == list(range(2, 36, 3))
