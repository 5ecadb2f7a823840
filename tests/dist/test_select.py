"""Selections from sharded arrays are those from the whole array; runs go on across the seams."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.dist import Group

from .test_reduce import lengths

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("size", [2, 4, 8])
def test_agrees_with_numpy(size):
    random = np.random.default_rng(size)
    with cs.emulate(devices=size):
        group = Group.local()
        for n in (1, 5, 400):
            parts = lengths(random, n, size)
            x, mask = random.integers(-9, 9, n).astype(np.int32), random.random(n) < 0.4
            sharded = group.shard(x, 0, parts)
            cases = [
                (mask, cs.select(sharded, group.shard(mask, 0, parts))),
                (x > 2, cs.select(sharded, lambda v: v > 2)),
            ]
            for chosen, found in cases:
                assert np.array_equal(np.asarray(found.values), x[chosen]) and int(found.count) == chosen.sum()
                cuts = np.cumsum([0, *parts])
                before = [int(chosen[:cut].sum()) for cut in cuts[:-1]]
                assert [int(offset) for offset in found.values.offsets] == before
                assert len(found) == chosen.sum() and np.array_equal(np.asarray(found), x[chosen])


@pytest.mark.parametrize("size", [2, 4])
def test_runs_go_on_across_the_seams(size):
    random = np.random.default_rng(size)
    with cs.emulate(devices=size):
        group = Group.local()
        for dtype in ("int16", "float32"):
            x = np.repeat(random.integers(0, 3, 20), 4).astype(dtype)
            if dtype == "float32":
                x[18:50] = np.nan
            found = cs.unique_consecutive(group.shard(x, 0, lengths(random, x.size, size)))
            wanted = np.asarray(cs.unique_consecutive(cs.asarray(x)))
            assert np.array_equal(np.asarray(found), wanted, equal_nan=dtype == "float32"), dtype


def test_what_is_refused():
    x = np.arange(12)
    with cs.emulate(devices=2):
        sharded = Group.local().shard(x)
        for call in (
            lambda: cs.flatnonzero(sharded),
            lambda: cs.select(sharded, lambda v: v > 2, size=3),
            lambda: cs.select(sharded, lambda v, i: i > 2),
            lambda: cs.run_length_encode(sharded),
        ):
            with pytest.raises(cs.errors.ArgumentValueError, match="Sharded"):
                call()
