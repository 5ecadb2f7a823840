"""Flags and differences of sharded arrays are those of the whole array, across the seams."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.dist import Group

from .test_reduce import lengths

CASES = {
    "heads": lambda x, axis: cs.flag_heads(x, axis=axis),
    "heads, predecessor": lambda x, axis: cs.flag_heads(x, "lt", predecessor=1, axis=axis),
    "tails, callable": lambda x, axis: cs.flag_tails(x, lambda a, b: a + b > 2, dtype="int32", axis=axis),
    "both": lambda x, axis: cs.flag_heads_and_tails(x, successor=2, axis=axis),
    "differences": lambda x, axis: cs.adjacent_difference(x, axis=axis),
    "differences, reverse": lambda x, axis: cs.adjacent_difference(x, lambda a, b: a * 3 - b, reverse=True, axis=axis),
}


@pytest.mark.drawn(3)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "size"), [(name, (2, 8)[i % 2]) for i, name in enumerate(CASES)])
def test_agrees_with_one_device(name, size):
    random = np.random.default_rng([len(name), size])
    with cs.emulate(devices=size):
        group = Group.local()
        for shape, axis, flagged in (((50,), 0, 0), ((9, 3, 4), 1, 1), ((6, 4), 0, 1)):
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


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "call, options",
    [
        (cs.flag_heads, {"predecessor": 1}),
        (cs.flag_heads_and_tails, {"successor": 2, "dtype": "int16"}),
        (cs.adjacent_difference, {"reverse": True}),
    ],
)
def test_the_first_items(call, options):
    """``n=``: item ``n - 1`` is the last of its row, and what lies behind it is left as it is."""
    random = np.random.default_rng(4)
    with cs.emulate(devices=3):
        group = Group.local()
        for shape, axis in (((30,), 0), ((4, 12), 1)):
            x, full = random.integers(0, 3, shape).astype("int16"), np.full(shape, 77, "int16")
            dtype = "uint8" if call is cs.flag_heads else "int16"
            for n in (0, 1, 5, 99):
                parts, both = lengths(random, shape[axis], 3), call is cs.flag_heads_and_tails
                outs = [group.shard(full.astype(dtype), axis, parts) for _ in range(1 + both)]
                wants = [cs.asarray(full.astype(dtype)) for _ in range(1 + both)]
                call(group.shard(x, axis, parts), axis=axis, n=n, out=tuple(outs) if both else outs[0], **options)
                call(cs.asarray(x), axis=axis, n=n, out=tuple(wants) if both else wants[0], **options)
                for got, want in zip(outs, wants):
                    assert np.array_equal(np.asarray(got), np.asarray(want)), (shape, n, parts)
        assert np.asarray(cs.flag_tails(group.shard(np.arange(9)), n=3))[2] == 1
