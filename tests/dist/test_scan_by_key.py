"""Scans by segments that cross seams are those of the whole array."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.dist import Group
from cutesync.errors import ArgumentValueError

from .test_reduce import lengths


def reference(keys: np.ndarray, x: np.ndarray, op, reverse: bool = False) -> np.ndarray:
    same, out = keys[1:] == keys[:-1], x.copy()
    if reverse:
        for i in range(len(x) - 2, -1, -1):
            out[i] = op(x[i], out[i + 1]) if same[i] else x[i]
    else:
        for i in range(1, len(x)):
            out[i] = op(out[i - 1], x[i]) if same[i - 1] else x[i]
    return out


# call: what it returns for keys, values and a mask, and what it should
CALLS = {
    "sums": (lambda k, v, m: cs.scan_by_key(k, v), lambda k, v, m: reference(k, v, np.add)),
    "last": (
        lambda k, v, m: cs.scan_by_key(k, v, lambda a, b: b, reverse=True),
        lambda k, v, m: reference(k, v, lambda a, b: b, True),
    ),
    "largest": (lambda k, v, m: cs.scan_by_key(k, v, "max"), lambda k, v, m: reference(k, v, np.maximum)),
    "by an equality": (
        lambda k, v, m: cs.scan_by_key(k, v, equal=lambda a, b: b - a <= 1),
        lambda k, v, m: reference(np.r_[0, (k[1:] - k[:-1] > 1).cumsum()], v, np.add),
    ),
    "by a mask": (
        lambda k, v, m: cs.segmented_scan(v, "add", heads=m),
        lambda k, v, m: reference(m.cumsum(), v, np.add),
    ),
    "states": (
        lambda k, v, m: cs.scan_by_key(
            k, (v, v), lambda p, q: (p[0] + q[0], q[1]), finish=lambda s: s[0] - s[1], out_dtype="int64"
        ),
        lambda k, v, m: reference(k, v, np.add) - v,
    ),
    "a transform": (
        lambda k, v, m: cs.scan_by_key(k, v, transform=lambda a: a * a),
        lambda k, v, m: reference(k, v * v, np.add),
    ),
}
QUICK = ("sums", "by a mask")
SLOW = pytest.mark.slow


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    "name, size",
    [(name, 2) if name in QUICK else pytest.param(name, 3, marks=SLOW) for name in CALLS],
)
def test_segments_across_seams(name, size):
    call, expected = CALLS[name]
    random = np.random.default_rng(size)
    with cs.emulate(devices=size):
        group = Group.local()
        for count in (300, 5) if name in QUICK else (40,):
            keys, x = np.sort(random.integers(0, 6, count)), random.integers(-5, 6, count)
            mask, parts = random.integers(0, 9, count) == 0, lengths(random, count, size)
            given = [group.shard(array, 0, parts) for array in (keys, x, mask)]
            assert np.array_equal(np.asarray(call(*given)), expected(keys, x, mask)), parts


@pytest.mark.drawn(1)
@SLOW
@pytest.mark.parametrize("size, schedules", [(2, 9), (8, 1)])
def test_many_schedules(size, schedules):
    keys, x = np.repeat(np.arange(4), 20), np.arange(80)
    with cs.emulate(devices=size, schedules=schedules):
        group = Group.local()
        with group.together():
            found = [cs.scan_by_key(group.shard(keys), group.shard(x), reverse=reverse) for reverse in (False, True)]
        for reverse, y in enumerate(found):
            assert np.array_equal(np.asarray(y), reference(keys, x, np.add, bool(reverse)))


@SLOW
def test_floats_that_are_nan():
    keys, x = np.float32([np.nan, np.nan, 1, 1]), np.float16([1, 2, np.nan, 4])
    with cs.emulate(devices=2):
        group = Group.local()
        found = np.asarray(cs.scan_by_key(group.shard(keys), group.shard(x), "min"))
        assert found.dtype == np.float16 and np.array_equal(found, [1, 1, np.nan, np.nan], equal_nan=True)


def test_what_is_refused():
    x = np.ones(4, np.float32)
    with cs.emulate(devices=2):
        group = Group.local()
        k, v = group.shard(x), group.shard(x)
        for words, call in (
            ("exclusive", lambda: cs.scan_by_key(k, v, exclusive=True, n=2)),
            ("several parts", lambda: cs.scan_by_key((k, k), v, equal=lambda a, b, c, d: a == c)),
            ("takes the index", lambda: cs.scan_by_key(k, v, transform=lambda e, i: e)),
            ("whole on each device", lambda: cs.segmented_scan(v, offsets=group.shard(np.array([0, 4])))),
            ("n: ", lambda: cs.segmented_reduce(v, heads=group.shard(x > 0), n=group.shard(np.array(2), None))),
        ):
            with pytest.raises(ArgumentValueError, match=words):
                call()
