"""Elements that are loaded one by one: single results a block apart, columns of tiles a warp apart, bits of short odd
rows, and tiles that have all of a short axis."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync import reference
from cutesync.kernels.flags import (
    ballots_policy,
    fitted_policy,
    packed_policy,
    plan,
    singles_policy,
    strided_policy,
    tile_policy,
    turned_bits_policy,
)
from cutesync.runtime import call

from ..cases import same
from ..compiled import dry, needed
from .cases import keys


@pytest.fixture
def chosen(monkeypatch) -> list:
    """The policies that are chosen, of arrays that count as large."""
    for module in (singles_policy, fitted_policy):
        monkeypatch.setattr(module, "ONE_VECTOR_THREADS", 1)
    monkeypatch.setattr(fitted_policy, "MIN_SPACED_WIDE", 0)
    monkeypatch.setattr(singles_policy, "MIN_SHORT", 0)
    monkeypatch.setattr(strided_policy, "FEW_ELEMENTS", (0, 0))
    monkeypatch.setattr(strided_policy, "MAX_ONE", 0)
    for name in ("FEWEST_THREADS", "FEW_THREADS"):
        monkeypatch.setattr(tile_policy, name, 0)
    monkeypatch.setattr(tile_policy, "is_gathered", lambda *_: False)
    monkeypatch.setattr(packed_policy, "MIN_ELEMENTS", ((0, 0),))
    monkeypatch.setattr(ballots_policy, "MAX_FEW_BITS", 0)
    monkeypatch.setattr(turned_bits_policy, "MIN_WORDS", 0)
    return watched(monkeypatch)


def watched(monkeypatch) -> list:
    """The launches that are chosen from now on."""
    monkeypatch.setattr(call, "_plans", {})
    found, strided = [], plan.strided_spec
    monkeypatch.setattr(plan, "strided_spec", lambda choice, *rest: found.append(choice) or strided(choice, *rest))
    return found


BITS = {"dtype": "bits"}
CASES = {  # policy, call, type, elements of memory, view, options
    "few rows of wide elements": (
        "Singles",
        "adjacent_difference",
        "float64",
        1002,
        lambda x: x.reshape(2, 501),
        {"axis": 0},
    ),
    "three rows, one element off": (
        "Singles",
        "flag_heads_and_tails",
        "int64",
        904,
        lambda x: x[1:].reshape(3, 301),
        {"axis": 0},
    ),
    "two rows of wide elements": (
        "Tile",
        "flag_heads_and_tails",
        "int64",
        2062,
        lambda x: x.reshape(2, 1031),
        {"axis": 0},
    ),
    "every third": (
        "Singles",
        "adjacent_difference",
        "uint32",
        2100,
        lambda x: x.reshape(2, 350, 3)[:, :, 0],
        {"axis": 1},
    ),
    "a middle axis": (
        "Singles",
        "adjacent_difference",
        "int32",
        1515,
        lambda x: x.reshape(5, 3, 101),
        {"axis": 1, "reverse": True},
    ),
    "short slices": (
        "Singles",
        "flag_heads",
        "uint16",
        41 * 24,
        lambda x: x.reshape(41, 6, 4)[:, ::-1],
        {"axis": 2, "predecessor": 1},
    ),
    "pairs that lie apart": (
        "Singles",
        "flag_heads_and_tails",
        "int8",
        301 * 8,
        lambda x: x.reshape(301, 8)[:, 4:6],
        {"axis": 1},
    ),
    "a small array of odd columns": (
        "Singles",
        "flag_heads_and_tails",
        "float16",
        3 * 501,
        lambda x: x.reshape(501, 3),
        {"axis": 0, "predecessor": 1.0},
    ),
    "bits of few rows": ("Tile", "flag_heads", "uint16", 1806, lambda x: x.reshape(2, 3, 301), {"axis": 1, **BITS}),
    "bits of rows backwards": (
        "Tile",
        "flag_tails",
        "bool",
        1806,
        lambda x: x.reshape(3, 2, 301)[:, :, ::-1],
        {"axis": 1, **BITS},
    ),
    "columns backwards": (
        "Tile",
        "flag_heads",
        "float16",
        2709,
        lambda x: x.reshape(9, 301)[:, ::-1],
        {"axis": 0, "n": 7},
    ),
    "short odd rows": ("Packed", "flag_heads", "int32", 35 * 77, lambda x: x.reshape(77, 35), BITS),
    "shorter than words": ("Packed", "flag_heads_and_tails", "int64", 13 * 500, lambda x: x.reshape(500, 13), BITS),
    "given ends": ("Packed", "flag_tails", "float64", 63 * 40, lambda x: x.reshape(40, 63), {"successor": 1.0, **BITS}),
    "turned words": (
        "TurnedBits",
        "flag_heads",
        "float16",
        2 * 37 * 41,
        lambda x: x.reshape(41, 37, 2).transpose(2, 1, 0),
        {"axis": 0, **BITS},
    ),
    "turned bytes": (
        "TurnedBits",
        "flag_tails",
        "int8",
        20 * 70 * 36,
        lambda x: x.reshape(20, 70, 36).transpose(0, 2, 1),
        {"axis": 0, **BITS},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_elements_that_are_loaded_one_by_one(chosen, name):
    kind, called, dtype, size, view, options = CASES[name]
    host = keys(size, dtype)
    found = getattr(cs, called)(view(cs.asarray(host)), **options)
    wanted = getattr(reference, called)(view(host), **options)
    n = options.get("n")
    for ours, each in zip(found, wanted) if isinstance(wanted, tuple) else ((found, wanted),):
        same(np.asarray(ours)[:n], each[:n])
    assert type(chosen[-1].policy).__name__ == kind + "Policy"


CALLABLE = lambda a, b, index: (a != b) & (index % 3 != 1)  # noqa: E731


@pytest.mark.parametrize("name", ["short odd rows", "bits of few rows", "turned words", "every third", "short slices"])
def test_callables_that_know_the_index(chosen, name):
    _, _, dtype, size, view, options = CASES[name]
    host = keys(size, dtype)
    found = cs.flag_heads(view(cs.asarray(host)), CALLABLE, **options)
    same(np.asarray(found), reference.flag_heads(view(host), CALLABLE, **options))
    assert chosen


FULL = (  # shape, axis, options; single columns, or others
    ((2, 300), 0, {}),
    ((2, 301), 0, {}),
    ((3, 6, 31), 0, {"predecessor": 1}),
    ((7, 2, 64), 1, {}),
    ((7, 2, 65), 1, {}),
    ((5, 64), 0, {"n": 4}),
    ((6, 64), 0, {"tile": 4}),
)


@pytest.mark.parametrize(("shape", "axis", "options"), FULL)
@pytest.mark.parametrize("dtype", ["int8", "int32"])
def test_tiles_that_have_all_of_a_short_axis(chosen, dtype, shape, axis, options):
    """Those of single columns, or not loaded as vectors, load no element beyond it, and know which are its ends;
    not where a number, or periods, say these."""
    wide = (*shape[:-1], shape[-1] + 4)
    host = keys(wide, dtype)
    found = cs.flag_heads(cs.asarray(host)[..., 4:], axis=axis, **options)
    n = options.get("n")
    same(np.asarray(found)[:n], reference.flag_heads(host[..., 4:], axis=axis, **options)[:n])
    *_, policy = [choice.policy for choice in chosen if hasattr(choice.policy, "full")]
    known = policy.columns == 1 or policy.loads != "vector"
    assert policy.full == (known and not options.keys() & {"n", "tile"})


def test_few_long_odd_rows(monkeypatch):
    """Tiles of them have all rows, and load each once, if there are few for the outputs."""
    found = watched(monkeypatch)
    for flags, shape, once in (
        (cs.flag_heads_and_tails, (3, 1652035), True),
        (cs.flag_heads_and_tails, (4, 20001), True),
        (cs.flag_tails, (2, 1652035), True),
        (cs.flag_tails, (3, 1652035), False),
        (cs.flag_heads_and_tails, (5, 1652035), False),
    ):
        needed(flags, dry(shape, "int32"), axis=0)
        assert (type(found[-1].policy).__name__ == "TilePolicy") == once, shape


def test_small_arrays_of_odd_columns(monkeypatch):
    """Their threads have two results, or four."""
    found = watched(monkeypatch)
    for shape, dtype, singles in (((8192, 2), "int16", 2), ((50074, 5), "bool", 4), ((90001, 5), "int8", 0)):
        needed(cs.flag_heads, dry(shape, dtype), axis=0)
        assert getattr(found[-1].policy, "singles", 0) == singles, shape


def test_blocks_of_single_results(chosen):
    """A block has as many results as its threads have together."""
    cs.adjacent_difference(cs.asarray(keys((20, 301), "int64")), axis=0)
    (choice,) = chosen
    assert choice.grid == -(-6020 // (choice.policy.threads * choice.policy.singles))


LIMITS = [  # op, type, shape, axis, singles
    ("adjacent_difference", "float64", (1 << 14, 9), 0, 0),
    ("adjacent_difference", "float64", (1 << 15, 9), 0, 2),
    ("adjacent_difference", "float64", (1 << 17, 9), 0, 4),
    ("flag_heads", "int64", (1 << 12, 201), 0, 4),
    ("flag_heads", "int64", (1 << 11, 201), 0, 0),  # two are no faster than tiles
    ("flag_heads", "int64", (1 << 10, 1201), 0, 0),  # rows are too far apart
    ("adjacent_difference", "int32", (1 << 10, 1201), 0, 4),
    ("adjacent_difference", "int32", (1 << 11, 1201), 0, 0),  # joined vectors of more are as fast
    ("flag_heads", "int32", (1 << 10, 1201), 0, 0),
]


@pytest.mark.parametrize(("op", "dtype", "shape", "axis", "singles"), LIMITS)
def test_where_threads_have_single_results(monkeypatch, op, dtype, shape, axis, singles):
    monkeypatch.setattr(call, "_plans", {})
    found, strided = [], plan.strided_spec
    monkeypatch.setattr(
        plan, "strided_spec", lambda choice, *rest: found.append(choice.policy) or strided(choice, *rest)
    )
    getattr(cs, op)(dry(shape, dtype), axis=axis)
    assert getattr(found[-1], "singles", 0) == singles
