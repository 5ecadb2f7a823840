"""Operations by key of short arrays, a block a tile: the blocks on their own, and those of a cluster."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.segments.policy import Problem, WavePolicy, choose

from .. import states
from ..cases import SCHEDULES
from ..select.test_agreement import equal
from .kernels import WAVES, force
from .reference import heads_of, keys_of, reduced, scanned

BY_KEY = Problem(0, (4, 4), (0,), 2)
slow = functools.partial(pytest.param, marks=pytest.mark.slow)


def test_policy():
    """One block, one cluster, then blocks on their own, until there are too many tiles; larger tiles in long arrays."""
    for length in (0, 1, 1024):
        choice = choose(replace(BY_KEY, length=length))
        assert isinstance(choice.policy, WavePolicy) and choice.policy.alone and choice.grid == 1
    for length in (1025, 1 << 12, 1 << 14):
        choice = choose(replace(BY_KEY, length=length))
        assert not choice.policy.alone and choice.policy.cluster == choice.grid <= 8
        assert choice.policy.tile * choice.grid >= length
    for length in ((1 << 14) + 1, 1 << 17, 1 << 20):
        choice = choose(replace(BY_KEY, length=length))
        assert isinstance(choice.policy, WavePolicy) and choice.policy.cluster == 1
        assert choice.grid == choice.tiles <= 128 and choice.policy.tile * choice.tiles >= length
    assert not isinstance(choose(replace(BY_KEY, length=1 << 21)).policy, WavePolicy)
    for other in ({"strided": True}, {"marked": True}, {"filled": True}, {"words": 5}):
        assert not isinstance(choose(replace(BY_KEY, length=100, **other)).policy, WavePolicy)
    few, many = (choose(replace(BY_KEY, length=length)).policy for length in (1 << 21, 1 << 28))
    assert (few.warps, few.look_aheads, many.warps, many.look_aheads) == (4, 2, 8, 1)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("name", WAVES)
@pytest.mark.parametrize("lengths", [(193,), slow((0, 95, 96, 97, 1291))])
def test_every_length(monkeypatch, name, lengths):
    force(monkeypatch, name)
    with cs.emulate():
        for turn, length in enumerate(lengths):
            keys, x = keys_of(length, (1, 3, 40, 1e9)[turn % 4]), np.arange(length, dtype=np.int32)
            heads = heads_of(keys)
            equal(cs.scan_by_key(keys, x), *scanned(heads, [x]))
            options = {"exclusive": True, "reverse": True}
            equal(cs.scan_by_key(keys, x, **options), *scanned(heads, [x], init=(0,), **options))
            found, sums = cs.reduce_by_key(keys, x)
            equal(found, keys[heads])
            equal(sums, *reduced(heads, [x]))


@pytest.mark.slow
@pytest.mark.parametrize("name", list(WAVES)[::2])
def test_lengths_on_the_device(monkeypatch, name):
    force(monkeypatch, name)
    keys, x = keys_of(1000, 9), np.arange(1000, dtype=np.int32)
    with cs.emulate():
        for n in (0, 1, 385, 1000, 2000):
            count, some = cs.asarray(np.int64(n)), min(n, 1000)
            heads = heads_of(keys[:some])
            sums = cs.reduce_by_key(cs.asarray(keys), cs.asarray(x), n=count)
            assert int(sums.count) == heads.sum()
            equal(np.asarray(sums.values)[: heads.sum()], *reduced(heads, [x[:some]]))
            equal(
                np.asarray(cs.scan_by_key(cs.asarray(keys), cs.asarray(x), n=count))[:some],
                *scanned(heads, [x[:some]]),
            )


@pytest.mark.parametrize("name", list(WAVES)[1:2])
def test_no_more_than_there_is_room_for(monkeypatch, name):
    force(monkeypatch, name)
    keys, x = keys_of(900, 3), np.arange(900, dtype=np.int32)
    heads = heads_of(keys)
    with cs.emulate():
        first, sums, count = cs.empty((100,), "int32"), cs.empty((100,), "int32"), cs.empty((), "int64")
        cs.reduce_by_key(cs.asarray(keys), cs.asarray(x), out=(first, sums, count))
        assert int(count) == heads.sum() > 100
        equal(first, keys[heads][:100])
        equal(sums, reduced(heads, [x])[0][:100])


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.parametrize(("of", "name"), [(("matrices", "maps")[i % 2], name) for i, name in enumerate(WAVES)])
def test_states_that_do_not_commute(monkeypatch, name, of):
    force(monkeypatch, name)
    case = states.CASES[of]
    keys, xs = keys_of(700, 30), states.data(case, (700,), 3)
    heads = heads_of(keys)
    with cs.emulate():
        device = cs.asarray(keys), tuple(map(cs.asarray, xs))
        for options in ({}, {"reverse": True}):
            found = cs.scan_by_key(*device, case.op, **options)
            for one, other in zip(found, scanned(heads, xs, case, **options), strict=True):
                equal(one, other)
        _, found, _ = cs.reduce_by_key(*device, case.op)
        for one, other in zip(found, reduced(heads, xs, case), strict=True):
            equal(np.asarray(one)[: heads.sum()], other)


@pytest.mark.slow
@pytest.mark.parametrize("name", WAVES)
def test_schedules(monkeypatch, name):
    force(monkeypatch, name)
    keys, x = keys_of(1000, 5), np.arange(1000, dtype=np.int32)
    heads = heads_of(keys)
    with cs.emulate(schedules=SCHEDULES):
        equal(cs.scan_by_key(keys, x), *scanned(heads, [x]))
        equal(cs.reduce_by_key(keys, x)[1], *reduced(heads, [x]))
