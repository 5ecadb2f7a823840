"""Selections from sharded arrays are those from the whole array; runs go on across the seams."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.dist import Group

from .test_reduce import lengths


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 8])
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


def test_whether_a_run_began_on_another_device():
    """Parts that begin with a run, within one, after an empty part, and within a run that is a whole part before."""
    x, parts = np.array([4, 4, 7, 7, 7, 7, 1, 1, 2], np.int32), ([2, 3, 4], [3, 2, 4], [3, 0, 6], [0, 4, 5], [6, 1, 2])
    with cs.emulate(devices=3):
        group = Group.local()
        for lengths_of_parts in parts:
            found = cs.unique_consecutive(group.shard(x, 0, lengths_of_parts))
            assert np.asarray(found).tolist() == [4, 7, 1, 2], lengths_of_parts


@pytest.mark.slow
@pytest.mark.parametrize("size", [4])
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


@pytest.mark.slow
@pytest.mark.parametrize("size", [4])
def test_indices_and_lengths_of_runs(size):
    random = np.random.default_rng(size)
    with cs.emulate(devices=size):
        group = Group.local()
        for n in (1, 200):
            x = np.repeat(random.integers(0, 3, n), 2)
            x[n : n + n // 2] = 1  # a run across seams
            sharded = group.shard(x, 0, lengths(random, x.size, size))
            for count in (n, group.shard(np.array(n), None)):
                assert np.array_equal(np.asarray(cs.flatnonzero(sharded, n=count)), np.flatnonzero(x[:n]))
            assert np.array_equal(np.asarray(cs.argwhere(sharded)), np.argwhere(x))
            found = cs.select(sharded, lambda v: v > 1, indices=True)
            assert np.array_equal(np.asarray(found.indices), np.flatnonzero(x > 1))
            runs, wanted = cs.run_length_encode(sharded), cs.run_length_encode(x)
            assert np.array_equal(np.asarray(runs.values), wanted[0]) and int(runs.count) == len(wanted[0])
            assert np.array_equal(np.asarray(runs.lengths), wanted[1])
        rows = random.integers(0, 2, (9, 4))
        assert np.array_equal(np.asarray(cs.flatnonzero(group.shard(rows))), np.flatnonzero(rows))


def test_what_is_refused():
    x = np.arange(12)
    with cs.emulate(devices=2):
        sharded = Group.local().shard(x)
        for call in (
            lambda: cs.nonzero(Group.local().shard(x.reshape(4, 3))),
            lambda: cs.select(sharded, lambda v: v > 2, size=3),
            lambda: cs.select(sharded, lambda v, i: i > 2),
            lambda: cs.partition(sharded, lambda v: v > 2),
            lambda: cs.unique_consecutive(sharded, return_inverse=True),
        ):
            with pytest.raises(cs.errors.ArgumentValueError, match="Sharded"):
                call()
