"""Every scan kernel agrees with the reference under hostile schedules, the sanitizer watching."""

import numpy as np
import pytest

import cutesync as cs
from cutesync import emulator

from ..cases import SCHEDULES, adjacent, bicyclic, brackets, data, same, scanned, segments
from .kernels import KERNELS, column_tiles, force, force_backward, pipeline

QUICK = 9  # schedules of the tests that are not slow: each policy once
# what: (data, operator, options)
WHAT = {
    "sum": (lambda shape, axis: data(shape, "int32"), "add", {}),
    "order": (lambda shape, axis: brackets(shape), bicyclic, {"exclusive": True, "init": (2 << 32) | 1}),
    "neighbours in reverse": (segments, adjacent, {"reverse": True}),
}


def halved(shape, axis) -> tuple[int, ...]:
    """The operators below have elements of 8 bytes: half as many along the last axis make as many vectors."""
    return (*shape[:-1], -(-shape[-1] // 2))


# every kernel meets adjacent segments, one in four sums, some of them among the quick tests; the state of 64 bits
# with a first operand is for one of each kind
ORDER = (
    "short rows of vectors",
    "rows by two warps",
    "a wave of rows",
    "pipeline, small ring",
)


@pytest.mark.drawn(24)
@pytest.mark.parametrize(
    ("what", "name", "schedules"),
    [
        pytest.param(what, name, SCHEDULES, marks=pytest.mark.slow)
        if i % (4 if what == "order" else 12) != (0 if what == "sum" else 2)
        else (what, name, QUICK)
        for what in WHAT
        for i, name in enumerate(ORDER if what == "order" else KERNELS)
        if what != "sum" or ("few" not in name and i % 4 == 0)
    ],
)
def test_agrees_under_hostile_schedules(what, name, schedules, monkeypatch):
    choice, shape, axis = KERNELS[name]
    make, op, options = WHAT[what]
    x = make(shape if what == "sum" else halved(shape, axis), axis)
    force(monkeypatch, choice)
    with cs.emulate(schedules=schedules, seed=11) as ran:
        got = cs.scan(cs.asarray(x), op, axis=axis, **options)
    assert ran.launches == schedules
    same(np.asarray(got), scanned(x, op, axis=axis, **options), name)


@pytest.mark.parametrize("name", ["a wave of rows", "tiles of columns", "pipeline, small ring"])
def test_two_resident_blocks_make_progress(name, monkeypatch):
    """Blocks that wait for others wait only for those that have started. (One of the policies above has one block
    resident.)"""
    choice, shape, axis = KERNELS[name]
    x = data(shape, "int32")
    force(monkeypatch, choice)
    with cs.emulate(), emulator.emulate(schedules=9, seed=5, resident=2):
        got = cs.scan(cs.asarray(x), axis=axis)
    same(np.asarray(got), scanned(x, axis=axis), name)


def test_columns_that_run_backwards(monkeypatch):
    """Lanes read vectors that others of their warp have copied."""
    x = data((53, 20), "int32")
    force_backward(monkeypatch, column_tiles(1, 16, 4, 4, 2, 3))
    with cs.emulate(schedules=QUICK, seed=4):
        got = cs.scan(cs.asarray(x)[:, ::-1], axis=0)
    same(np.asarray(got), scanned(x[:, ::-1], axis=0))


def test_more_tiles_than_the_look_ahead_reads_at_once(monkeypatch):
    """Whole groups of tiles are carried along; a new row begins anew."""
    x = data((2, 33_500), "int64")
    force(monkeypatch, pipeline(4, 1, 4, 1, 2, 3))
    with cs.emulate(seed=2):
        same(np.asarray(cs.scan(cs.asarray(x))), scanned(x))


def test_the_number_of_blocks_changes_no_bit(monkeypatch):
    """Which block takes a tile, and how many there are, is no part of the order of operations."""
    x = np.random.default_rng(1).standard_normal(6007, np.float32)
    results = set()
    for blocks in (1, 2, 5):
        force(monkeypatch, pipeline(4, 2, 4, 1, 2, blocks))
        with cs.emulate(seed=blocks):
            results.add(np.asarray(cs.scan(cs.asarray(x))).tobytes())
    assert len(results) == 1
