"""Selections of short arrays, a block for each tile: which they are, and that they agree with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync import emulator
from cutesync.kernels.hardware import SMS
from cutesync.kernels.select.policy import Problem, WavePolicy, choose

from ..cases import data


def test_policy():
    """One block up to 4096 positions; then blocks that fit side by side, until there are too many tiles."""
    for length in (0, 1, 4096):
        choice = choose(Problem(length, (4,)))
        assert isinstance(choice.policy, WavePolicy) and choice.policy.alone and choice.grid == 1
    for length in (4097, 1 << 14, (1 << 18) + 1, 1 << 20):
        choice = choose(Problem(length, (4,)))
        assert isinstance(choice.policy, WavePolicy) and not choice.policy.alone
        assert 1 < choice.grid == choice.tiles <= SMS and choice.policy.tile * choice.tiles >= length
    pairs = choose(Problem(2 << 20, (4,)))  # two blocks on a multiprocessor
    assert isinstance(pairs.policy, WavePolicy) and pairs.policy.together == 2 and pairs.grid == 256
    longer_ones = Problem(9 << 18, (4,)), Problem(2 << 20, (4,), rejects=True), Problem(1 << 20, (8, 8), located=True)
    for longer in longer_ones:
        assert not isinstance(choose(longer).policy, WavePolicy)
    for other in ({"rows": 3}, {"strided": True}, {"filled": True}):
        assert not isinstance(choose(Problem(100, (4,), **other)).policy, WavePolicy)


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.parametrize("length", [0, 4096, 4097, 9000])
def test_agrees(length):
    """Several kinds of selections, few resident blocks: capacities of all positions and of too few of them."""
    x, rng = data(length, "int16"), np.random.default_rng(length)
    mask, runs = rng.random(length) < 0.4, np.cumsum(rng.random(length) < 0.2).astype(np.int32)
    heads = np.append(True, runs[1:] != runs[:-1])[:length]
    with cs.emulate(), emulator.emulate(schedules=2, seed=1, resident=3):
        found = cs.select(cs.asarray(x), cs.asarray(mask), indices=True).exact()
        assert all(np.array_equal(*pair) for pair in zip(found, (x[mask], np.flatnonzero(mask)), strict=True))
        encoded = cs.run_length_encode(cs.asarray(runs)).exact()
        wanted = runs[heads], np.diff(np.append(np.flatnonzero(heads), length))
        assert all(np.array_equal(*pair) for pair in zip(encoded, wanted, strict=True))
        few, positive = cs.asarray(np.full(12, 77, np.int16)), x[x > 0]
        count = cs.select(cs.asarray(x), lambda value: value > 0, out=few[:10]).count
        kept = min(10, len(positive))
        assert int(count) == len(positive) and np.array_equal(np.asarray(few)[:kept], positive[:kept])
        assert (np.asarray(few)[10:] == 77).all()


@pytest.mark.slow
@pytest.mark.parametrize("n", [0, 30, 5000, 9000])
def test_counts_on_the_device(n):
    """Fewer positions than the launch has tiles for: blocks that have none."""
    x = data(9000, "int32")
    with cs.emulate(), emulator.emulate(schedules=2, seed=2, resident=3):
        found = cs.select(cs.asarray(x), lambda value: value > 0, n=cs.asarray(np.int64(n)))
        assert np.array_equal(found.exact(), x[:n][x[:n] > 0])
