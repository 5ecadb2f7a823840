"""Faults planted in the compiled kernels of strided arrays and of slices are found; as they are, they run clean."""

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.reduce import strided_loads
from cutesync.runtime import call as calls, device

from ..cases import bicyclic, brackets, data, fold
from ..faults import RESULT, Bench, every, first, op
from .strided_cases import SLICES, VIEWS, kernels_of, rows, slices

pytestmark = pytest.mark.slow


@functools.cache
def bench(name: str, in_order: bool = False) -> Bench:
    """Two reductions on one workspace, each under all policies."""
    shape, index, axis = VIEWS[name][:3] if name in VIEWS else SLICES[name]
    x = brackets(shape) if in_order else data(shape, "int32")
    each = rows(x[index], axis)
    wanted = fold(bicyclic, each) if in_order else each.sum(-1, dtype=np.int32)

    def right() -> bool:
        policies = kernels_of(name) if name in VIEWS else slices()
        with policies, device.forced("emulator"), cs.emulate(schedules=9, seed=3):
            array, op = cs.asarray(x)[index], bicyclic if in_order else "add"
            return np.array_equal([np.asarray(cs.reduce(array, op, axis=axis)) for _ in range(2)][-1], wanted)

    return Bench(right)


BARRIER, STORED = op(r"bar\.sync"), r"st\.shared"
PUBLISHED, READ = r"st\.relaxed\.gpu\.global\.b64", r"ld\.relaxed\.gpu\.global\.b64"
FAULTS = {
    "no barrier between columns' groups": ("columns", first(BARRIER, after=STORED), {"race", "uninitialised"}),
    "no barrier between a block's warps": (
        "positions of a block",
        first(BARRIER, after=STORED),
        {"race", "uninitialised"},
    ),
    "no barrier between a block's runs": ("runs of a block", first(BARRIER, after=STORED), {"race", "uninitialised"}),
    "columns published by a plain store": ("columns, split", every(PUBLISHED, "st.global.b64"), {"race"}),
    "columns collected by a plain load": ("columns, split", every(READ, "ld.global.b64"), {"race"}),
    "positions published for the block alone": (
        "positions, split",
        every(PUBLISHED, "st.relaxed.cta.global.b64"),
        {"race"},
    ),
    "runs collected within the block alone": ("runs, split", every(READ, "ld.relaxed.cta.global.b64"), {"race"}),
    "lanes that look the wrong way": ("runs of a warp", every(r"shfl\.sync\.bfly\.b32", "shfl.sync.up.b32"), {RESULT}),
    "no barrier after the copy of slices": (
        "slices of three columns",
        first(BARRIER, after=STORED),
        {"race", "uninitialised"},
    ),
    "no barrier after the copy of rows with gaps": (
        "slices of short rows with gaps",
        first(BARRIER, after=STORED),
        {"race", "uninitialised"},
    ),
    "no barrier after the copy of padded slices": (
        "slices of eight columns",
        first(BARRIER, after=STORED),
        {"race", "uninitialised"},
    ),
}


FAULTS_IN_ORDER = {
    "lanes of a chunk that look the wrong way": (
        "positions of a warp",
        every(r"shfl\.sync\.bfly\.b32", "shfl.sync.up.b32"),
        {RESULT},
    ),
    "no barrier between a block's warps": (
        "positions of a block",
        first(BARRIER, after=STORED),
        {"race", "uninitialised"},
    ),
    "positions collected within the block alone": (
        "positions, split",
        every(READ, "ld.relaxed.cta.global.b64"),
        {"race"},
    ),
}


@pytest.mark.parametrize("fault", FAULTS_IN_ORDER)
def test_every_fault_planted_in_kernels_that_keep_the_order_is_found(fault):
    name, edit, kinds = FAULTS_IN_ORDER[fault]
    bench(name, in_order=True).check(edit, kinds)


@pytest.mark.parametrize("fault", FAULTS)
def test_every_planted_fault_is_found(fault):
    name, edit, kinds = FAULTS[fault]
    bench(name).check(edit, kinds)


def wide_words(policies) -> bool:
    """Whether columns that begin anywhere, in vectors, are reduced right."""
    for name, value in (("MIN_WORDS_BYTES", 0), ("MIN_WIDE_UNITS", 0)):
        policies.setattr(strided_loads, name, value)
    policies.setattr(calls, "_plans", {})
    x = data((3, 301), "int8")
    with device.forced("emulator"):
        return np.array_equal(np.asarray(cs.max(cs.asarray(x), axis=0)), x.max(0))


def test_columns_that_begin_anywhere_are_wrong_if_their_words_are_shifted_the_other_way():
    with pytest.MonkeyPatch.context() as policies:
        Bench(lambda: wide_words(policies)).check(every(r"shf\.r\.wrap", "shf.l.wrap"), {RESULT})
