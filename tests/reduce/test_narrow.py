"""Rows of few columns that begin anywhere, and results or elements in another order than that of memory."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.reduce import launches, plan, policy
from cutesync.runtime import call as calls

from ..cases import bicyclic, brackets, data, fold, same

SLOW = [
    ("argmax", "uint8", 12),
    ("any", "bool", 20),
    ("sum", "float16", 2),
    ("argmax", "uint16", 11),
    ("argmax", "bool", 13),
]
ROWS = [
    ("argmax", "int8", 5),
    ("argmax", "int8", 15),
    ("argmax", "int16", 7),
    *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW),
]
FUNCTIONS = {"sum": np.sum, "argmax": np.argmax, "any": np.any}


@pytest.fixture
def chosen(monkeypatch):
    """The policies of contiguous arrays that calls chose, of which none is small."""
    found, choose = [], plan.choose
    monkeypatch.setattr(plan, "choose", lambda problem: found.append(choose(problem)) or found[-1])
    for name in (
        "NARROW_BYTES",
        "MIN_ANYWHERE_BYTES",
        "MIN_KEYS_BYTES",
        "MIN_NARROW_KEYS",
        "MIN_NARROWEST_KEYS",
    ):
        monkeypatch.setattr(policy, name, 0)
    for name in ("MIN_BYTES_IN_ORDER", "MIN_PAIRS_IN_ORDER"):
        monkeypatch.setattr(launches, name, 0)
    monkeypatch.setattr(calls, "_plans", {})
    return found


def behind(x: np.ndarray, first: int):
    """The array behind ``first`` elements of memory that ends with it."""
    return cs.asarray(np.concatenate([np.zeros(first, x.dtype), x.ravel()]))[first:].reshape(x.shape)


@pytest.mark.drawn(2)
@pytest.mark.parametrize(("name", "dtype", "columns"), ROWS)
def test_rows_that_begin_anywhere(name, dtype, columns, chosen, on_emulator):
    """Whole steps of a warp with and without a ragged end, slices that begin on different bytes, and one block for a
    slice or several."""
    for shape, first in (((1, 999, columns), 0), ((1, 2048, columns), 1), ((3, 1333, columns), 3)):
        x = data(shape, dtype)
        same(np.asarray(getattr(cs, name)(behind(x, first), axis=1)), FUNCTIONS[name](x, axis=1), f"{shape} {first}")
    narrow = [choice.policy for choice in chosen if isinstance(choice.policy, policy.NarrowPolicy)]
    assert len(narrow) >= 2 and all(each.in_turn for each in narrow if each.anywhere)
    assert any(each.anywhere for each in narrow)


SLICES = [
    ("argmax", "bool", (9, 512, 2)),
    ("argmax", "uint32", (8, 512, 4)),
    ("argmax", "int64", (3, 96, 2)),
    ("sum", "int8", (17, 256, 4)),
    ("any", "uint8", (5, 768, 2)),
    ("max", "int16", (3, 512, 4)),
]


@pytest.mark.drawn(3)
@pytest.mark.parametrize(("name", "dtype", "shape"), SLICES)
def test_short_slices_have_a_warp_each(name, dtype, shape, monkeypatch, on_emulator):
    """Blocks with and without a slice for each warp; and operands that stay in order."""
    found, choose = [], plan.choose
    monkeypatch.setattr(plan, "choose", lambda problem: found.append(choose(problem)) or found[-1])
    monkeypatch.setattr(calls, "_plans", {})
    monkeypatch.setattr(policy, "MIN_SLICES_OF_WARPS", 0)
    monkeypatch.setattr(policy, "COSTLY_WORDS", 1)
    x = data(shape, dtype)
    same(np.asarray(getattr(cs, name)(cs.asarray(x), axis=1)), getattr(np, name)(x, axis=1))
    rows = brackets((9, 256, 2))
    same(np.asarray(cs.reduce(cs.asarray(rows), bicyclic, axis=1)), fold(bicyclic, rows.transpose(0, 2, 1)))
    assert [choice.policy.alone for choice in found] == [True, True]


def test_operators_that_do_not_commute_keep_the_order_of_rows(chosen, on_emulator):
    x = data((4001, 8), "uint8")
    got = cs.reduce(behind(x, 1), lambda a, b: a * 2 + b - a, axis=0)
    wanted = x[0]
    for row in x[1:]:
        wanted = wanted * np.uint8(2) + row - wanted
    same(np.asarray(got), wanted)
    assert chosen[-1].policy.anywhere and not chosen[-1].policy.in_turn


VIEWS = {
    "columns backwards": lambda x: x.reshape(2000, 2)[:, ::-1],
    "rows backwards": lambda x: x.reshape(2, 2000)[::-1],
    "rows in another order": lambda x: x.reshape(2, 2, 1000).transpose((1, 0, 2)),
}


@pytest.mark.parametrize("name", list(VIEWS))
def test_results_in_another_order(name, chosen, on_emulator):
    """Two launches: one reduces in the order of memory, one stores the results where they belong."""
    x = data(4000, "int16")
    ours, theirs = VIEWS[name](cs.asarray(x)), VIEWS[name](x)
    axis = 0 if name == "columns backwards" else theirs.ndim - 1
    with cs.emulate(schedules=2, seed=5) as ran:
        got = np.asarray(cs.sum(ours, axis=axis, keepdims=True))
    same(got, theirs.sum(axis, keepdims=True))
    assert len(chosen) == 1 and ran.launches == 4
    whole = np.full((*got.shape, 2), 7, got.dtype)
    out = cs.asarray(whole)
    cs.sum(ours, axis=axis, keepdims=True, out=out[..., 0])
    whole[..., 0] = got
    same(np.asarray(out), whole)


def test_elements_that_run_backwards(on_emulator, monkeypatch):
    """They are read forwards: an operator of the user's has its operands exchanged, unless it begins with ``init``."""
    found, launch = [], plan.launch
    monkeypatch.setattr(plan, "launch", lambda choice, of, *more: found.append(of.flipped) or launch(choice, of, *more))
    monkeypatch.setattr(calls, "_plans", {})
    for shape, axis in (((1371,), 0), ((7, 600), 1), ((60, 9), 0)):
        x = brackets(shape)
        backwards = (slice(None),) * axis + (slice(None, None, -1),)
        wanted = fold(bicyclic, np.moveaxis(x[backwards], axis, -1))
        same(np.asarray(cs.reduce(cs.asarray(x)[backwards], bicyclic, axis=axis)), wanted, f"{shape}")
        first = x.ravel()[3]
        wanted = bicyclic(np.full_like(wanted, first), wanted)
        got = cs.reduce(cs.asarray(x)[backwards], bicyclic, axis=axis, init=int(first))
        same(np.asarray(got), wanted, f"{shape}, init")
    assert found and all(found)
