"""Every reduction kernel agrees with NumPy under hostile schedules of all policies, the sanitizer watching."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.reduce import plan
from cutesync.kernels.reduce.problem import (
    Choice,
    ColumnPolicy,
    NarrowPolicy,
    SegmentPolicy,
    ShortRowPolicy,
    WholeRowPolicy,
)
from cutesync.runtime import call as calls

from ..cases import SCHEDULES, bicyclic, brackets, data, reduced, same

QUICK = 9  # each policy once
# name: choice, shape, axis
KERNELS = {
    "rows by warps": (Choice(SegmentPolicy("warp", 2, 2, 4), 1, 1, 2), (3, 700), 1),
    "rows by blocks": (Choice(SegmentPolicy("block", 4, 4, 2), 1, 1, 2), (2, 9001), 1),
    "one row, few blocks": (Choice(SegmentPolicy("grid", 2, 4, 2, False, True), 5, 1, 5), (14003,), None),
    "one row of whole chunks": (Choice(SegmentPolicy("grid", 2, 4, 2, True, True), 5, 1, 5), (13 * 512,), None),
    "one row of whole chunks, one block": (Choice(SegmentPolicy("block", 4, 4, 2, True), 1, 1, 1), (13 * 512,), None),
    "one row, more blocks than lanes": (Choice(SegmentPolicy("grid", 2, 1, 2), 37, 1, 37), (14003,), None),
    "rows, several blocks each": (Choice(SegmentPolicy("grid_rows", 2, 2, 2), 3, 1, 6), (2, 5003), 1),
    "short rows of vectors": (Choice(ShortRowPolicy(True, 4, 2, 2), 1, 1, 2), (50, 16), 1),
    "short rows of elements": (Choice(ShortRowPolicy(False, 4, 2, 2), 1, 1, 2), (50, 19), 1),
    "rows of three": (Choice(WholeRowPolicy(3, 48, 2, 1, True), 1, 1, 2), (301, 3), 1),
    "columns of vectors": (Choice(ColumnPolicy(True, 8, 4, 4, False, True), 1, 1, 1), (101, 24), 0),
    "columns of vectors, split": (Choice(ColumnPolicy(True, 8, 4, 4, True, True), 3, 1, 3), (101, 24), 0),
    "columns of elements, split": (Choice(ColumnPolicy(False, 16, 4, 4, True, False), 3, 2, 6), (101, 23), 0),
    "slabs of columns": (Choice(ColumnPolicy(False, 16, 4, 4, False, False), 1, 2, 4), (2, 31, 23), 1),
    "three columns": (Choice(NarrowPolicy(3, 48, 4, 2, False), 1, 1, 1), (1003, 3), 0),
    "three columns, split": (Choice(NarrowPolicy(3, 48, 2, 2, True), 3, 1, 3), (2003, 3), 0),
    "sixteen columns, split": (Choice(NarrowPolicy(16, 64, 2, 8, True), 2, 1, 2), (1003, 16), 0),
    "five columns anywhere, split": (Choice(NarrowPolicy(5, 60, 2, 2, True, True, True), 3, 1, 3), (2003, 5), 0),
    "short rows of several vectors": (Choice(ShortRowPolicy(True, 4, 2, 2, 0, 2), 1, 1, 4), (50, 32), 1),
    "six columns in turn": (Choice(NarrowPolicy(6, 48, 2, 2, False, False, True), 1, 1, 1), (1003, 6), 0),
    "slices of warps": (Choice(NarrowPolicy(4, 16, 2, 2, False, False, False, True), 1, 1, 2), (3, 128, 4), 1),
    "three columns in turn, split": (Choice(NarrowPolicy(3, 48, 2, 2, True, False, True), 3, 1, 3), (2003, 3), 0),
}


# what: (data, call, what it must give)
WHAT = {
    "sum": (
        lambda shape: data(shape, "int32"),
        lambda x, axis: cs.reduce(x, axis=axis),
        lambda x, axis: reduced(x, axis=axis),
    ),
    "order": (
        brackets,
        lambda x, axis: cs.reduce(x, bicyclic, axis=axis),
        lambda x, axis: reduced(x, bicyclic, axis=axis),
    ),
    "argmax": (lambda shape: data(shape, "int32"), cs.argmax, cs.reference.argmax),
}


# every kernel meets one of the three under each policy, the others in the slow tests under two of a policy
TURNS = [
    (name, what, QUICK) if i % 3 == j else pytest.param(name, what, SCHEDULES, marks=pytest.mark.slow)
    for i, name in enumerate(KERNELS)
    for j, what in enumerate(WHAT)
]


@pytest.mark.drawn(14)
@pytest.mark.parametrize("name, what, schedules", TURNS)
def test_agrees_under_hostile_schedules(name, what, schedules, monkeypatch):
    choice, shape, axis = KERNELS[name]
    if what == "order":  # the packed monoid has 8-byte elements: the kernel must be one for their size
        if isinstance(choice.policy, (WholeRowPolicy, NarrowPolicy)) or getattr(choice.policy, "vectors", False):
            pytest.skip("this kernel's geometry is one of 4-byte elements")
    monkeypatch.setattr(plan, "choose", lambda problem: choice)
    monkeypatch.setattr(plan, "strided_is_faster", lambda problem: False)
    monkeypatch.setattr(calls, "_plans", {})
    make, call, expected = WHAT[what]
    x = make(shape)
    with cs.emulate(schedules=schedules, seed=11) as ran:
        got = call(cs.asarray(x), axis)
    assert ran.launches == schedules
    same(np.asarray(got), expected(x, axis), name)


@pytest.mark.parametrize("algorithm", ["atomic", "multi_launch"])
def test_the_other_rungs_agree_under_hostile_schedules(algorithm):
    x = data(40_001, "int32")
    with cs.emulate(schedules=SCHEDULES, seed=11):
        same(np.asarray(cs.reduce(cs.asarray(x), algorithm=algorithm)), cs.reference.reduce(x), algorithm)
