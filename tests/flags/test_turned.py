"""Results that are turned in shared memory and stored in words wherever they begin, agree with the reference: those of
columns that begin anywhere, and those of short columns that follow each other; in blocks with any number of lanes."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync import reference
from cutesync.kernels.flags import strided_policy, tile_policy
from cutesync.kernels.flags.strided_choice import TransposedPolicy
from cutesync.runtime import call

from ..cases import same
from .cases import keys
from .test_strided import LIMITS, SENTINEL


@pytest.fixture
def chosen(monkeypatch) -> list:
    """The policies that are chosen, of arrays that count as large."""
    for limit in (*LIMITS, "MIN_RUN", "MIN_RUN_LANES"):
        monkeypatch.setattr(tile_policy, limit, 0)
    monkeypatch.setattr(tile_policy, "FEW_BLOCKS", 0)
    monkeypatch.setattr(tile_policy, "is_gathered", lambda *_: False)
    monkeypatch.setattr(call, "_plans", {})
    found, choose = [], strided_policy.choose_strided

    def choose_strided(form, facts):
        choice = choose(form, facts)
        found.append(choice.policy)
        return choice

    monkeypatch.setattr("cutesync.kernels.flags.plan.choose_strided", choose_strided)
    return found


def check(host: np.ndarray, axes, axis: int, call: str, first: int) -> None:
    """The results of a turned array, in memory that begins ``first`` elements behind a boundary; none beside it."""
    theirs = host.transpose(axes)
    ours = cs.asarray(host).transpose(axes)
    wanted = getattr(reference, call)(theirs, axis=axis)
    several = isinstance(wanted, tuple)
    outs = []
    for each in wanted if several else (wanted,):
        memory = cs.asarray(np.full(each.size + 40, SENTINEL, each.dtype))
        outs.append((memory, memory[first : first + each.size].reshape(each.shape)))
    getattr(cs, call)(ours, axis=axis, out=tuple(out for _, out in outs) if several else outs[0][1])
    for (memory, _), each in zip(outs, wanted if several else (wanted,)):
        found = np.asarray(memory)
        same(found[first : first + each.size].reshape(each.shape), each)
        assert (np.delete(found, slice(first, first + each.size)) == SENTINEL).all()


ANYWHERE = (
    ((61, 70), (1, 0), 0, "flag_tails", "uint16", 0),
    ((45, 133), (1, 0), 1, "flag_heads_and_tails", "int8", 3),
    ((130, 39), (1, 0), 0, "adjacent_difference", "int16", 1),
    ((37, 3, 66), (2, 1, 0), 1, "flag_heads", "float32", 2),
    ((2, 70, 90), (0, 2, 1), 0, "adjacent_difference", "uint8", 1),
)
RUNS = (
    ((13, 3, 150), (1, 2, 0), 0, "flag_heads", "uint16", 0),
    ((13, 3, 150), (1, 2, 0), 0, "flag_heads_and_tails", "int8", 5),
    ((7, 170), (1, 0), 0, "adjacent_difference", "int16", 1),
    ((6, 170), (1, 0), 1, "adjacent_difference", "float32", 0),
    ((9, 2, 300), (1, 2, 0), 1, "flag_tails", "int64", 3),
    ((7, 110), (1, 0), 0, "adjacent_difference", "int32", 0),
    ((11, 601), (1, 0), 1, "flag_tails", "bool", 1),
)


@pytest.mark.parametrize(("shape", "axes", "axis", "name", "dtype", "first"), ANYWHERE)
def test_columns_that_begin_anywhere(chosen, shape, axes, axis, name, dtype, first):
    check(keys(shape, dtype), axes, axis, name, first)
    assert [(type(policy), policy.stores) for policy in chosen] == [(TransposedPolicy, "anywhere")]


@pytest.mark.parametrize(("shape", "axes", "axis", "name", "dtype", "first"), RUNS)
def test_short_columns_that_follow_each_other(chosen, shape, axes, axis, name, dtype, first):
    check(keys(shape, dtype), axes, axis, name, first)
    assert [(type(policy), policy.stores) for policy in chosen] == [(TransposedPolicy, "run")]


FITTED = (
    ((56, 33), "adjacent_difference", 40),
    ((70, 65), "adjacent_difference", 40),
    ((41, 63), "adjacent_difference", 64),
    ((56, 137), "adjacent_difference", 64),
    ((56, 137), "flag_tails", 48),
)


@pytest.mark.parametrize(("shape", "name", "lanes"), FITTED)
def test_lanes_that_fit_the_columns(chosen, shape, name, lanes):
    """Threads that are left over have no columns; of two bytes, results fit if more threads would be."""
    check(keys(shape, "uint16"), (1, 0), 1, name, 0)
    assert chosen[-1].lanes == lanes
