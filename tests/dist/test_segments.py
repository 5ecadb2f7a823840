"""Reductions and scans of segments that cross seams are those of one device: by keys, heads, offsets and lengths."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.dist import Group

from .test_reduce import lengths

SLOW = pytest.mark.slow
# call of values, keys, other keys, a mask, offsets, lengths and a number; so many results count
CALLS = {
    "exclusive": (lambda x, k, j, h, o, m, n: cs.scan_by_key(k, x, exclusive=True), None),
    "exclusive, init, reverse": (
        lambda x, k, j, h, o, m, n: cs.scan_by_key(k, x, lambda a, b: b, exclusive=True, init=7, reverse=True),
        None,
    ),
    "two keys, reverse": (lambda x, k, j, h, o, m, n: cs.scan_by_key((k, j), x, "max", reverse=True), None),
    "some": (lambda x, k, j, h, o, m, n: cs.scan_by_key(k, x, n=55), 55),
    "counted, reverse": (lambda x, k, j, h, o, m, n: cs.scan_by_key(k, x, n=n, reverse=True), 6),
    "args": (
        lambda x, k, j, h, o, m, n: cs.scan_by_key(
            k, x, lambda a, b, c: a + b, transform=lambda v, c: v * c, args=(5,), init=1
        ),
        None,
    ),
    "heads, reverse": (lambda x, k, j, h, o, m, n: cs.segmented_scan(x, heads=h, reverse=True), None),
    "heads, exclusive": (lambda x, k, j, h, o, m, n: cs.segmented_scan(x, heads=h, exclusive=True, init=2), None),
    "offsets": (lambda x, k, j, h, o, m, n: cs.segmented_scan(x, offsets=o), None),
    "counted offsets, reverse": (lambda x, k, j, h, o, m, n: cs.segmented_scan(x, offsets=o, n=n, reverse=True), None),
    "lengths, exclusive": (lambda x, k, j, h, o, m, n: cs.segmented_scan(x, lengths=m, exclusive=True), None),
    "tuples": (
        lambda x, k, j, h, o, m, n: cs.scan_by_key(
            k, (x, x), lambda p, q: (p[0] + q[0], q[1]), exclusive=True, init=(1, 2)
        )[1],
        None,
    ),
    "reduced offsets": (lambda x, k, j, h, o, m, n: cs.segmented_reduce(x, offsets=o), None),
    "reduced offsets, init": (
        lambda x, k, j, h, o, m, n: cs.segmented_reduce(x, lambda a, b: b, offsets=o, init=-77),
        None,
    ),
    "reduced, counted": (lambda x, k, j, h, o, m, n: cs.segmented_reduce(x, offsets=o, n=n), 6),
    "reduced lengths": (lambda x, k, j, h, o, m, n: cs.segmented_reduce(x, "max", lengths=m, init=-9), None),
    "reduced, finish": (
        lambda x, k, j, h, o, m, n: cs.segmented_reduce(
            x,
            lambda a, b, c: a + b,
            offsets=o,
            transform=lambda v, c: v * c,
            finish=lambda s, c: s - c,
            args=(3,),
            identity=0,
            out_dtype="int64",
        ),
        None,
    ),
    "reduced heads": (lambda x, k, j, h, o, m, n: cs.segmented_reduce(x, heads=h, n=50), None),
    "reduced keys": (lambda x, k, j, h, o, m, n: cs.segmented_reduce(x, keys=k, init=2), None),
}
QUICK = ("reduced offsets",)


@pytest.mark.drawn(8)
@pytest.mark.parametrize(
    "name, size",
    [(name, 2) if name in QUICK else pytest.param(name, (4, 2)[i % 2], marks=SLOW) for i, name in enumerate(CALLS)],
)
def test_agrees_with_one_device(name, size):
    call, most = CALLS[name]
    random = np.random.default_rng([len(name), size])
    with cs.emulate(devices=size):
        group = Group.local()
        for length in (60, 1) if name in QUICK else (60,):
            x, keys = random.integers(-5, 6, length), [np.sort(random.integers(0, k, length)) for k in (6, 3)]
            mask, offsets = random.random(length) < 0.1, np.sort(random.integers(0, length + 1, 9))
            offsets[3:5] = offsets[5]  # empty segments
            parts, sizes = lengths(random, length, size), np.diff(np.r_[0, offsets])
            spread = [group.shard(array, 0, parts) for array in (x, *keys, mask)]
            same = [group.shard(array, None) for array in (offsets, sizes, np.array(6))]
            alone = map(cs.asarray, (x, *keys, mask, offsets, sizes, np.array(6)))
            got, want = np.asarray(call(*spread, *same)), np.asarray(call(*alone))
            assert np.array_equal(got[:most], want[:most]), parts


@pytest.mark.drawn(1)
@SLOW
@pytest.mark.parametrize("size, schedules", [(2, 9), (8, 1)])
def test_many_schedules(size, schedules):
    """Several calls in flight, with results in memory that is given."""
    x, offsets = np.arange(80), np.array([0, 1, 1, 70, 75])
    with cs.emulate(devices=size, schedules=schedules):
        group = Group.local()
        out = group.shard(np.zeros(4, np.int64), None)
        with group.together():
            given, at = group.shard(x), group.shard(offsets, None)
            scanned = cs.segmented_scan(given, "max", offsets=at)
            assert cs.segmented_reduce(given, offsets=at, out=out) is out
        wanted = [x[a:b].sum() for a, b in zip(offsets, offsets[1:])]
        assert all(np.asarray(part).tolist() == wanted for part in out.parts)
        assert np.array_equal(np.asarray(scanned), x)
