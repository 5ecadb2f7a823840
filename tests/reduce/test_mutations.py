"""Faults planted in the compiled reduction kernels are found; the kernels as they are run clean."""

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync import emulator
from cutesync.kernels.reduce import launches, plan, policy
from cutesync.kernels.reduce.problem import Choice, NarrowPolicy, SegmentPolicy
from cutesync.runtime import call, device

from ..faults import RESULT, TABLE, Bench, every, first, only, op

pytestmark = pytest.mark.slow

GRID = SegmentPolicy("grid", 4, 4, 2, False, True)
N, WHOLE = 41003, 40960  # several chunks a block, with and without a ragged end
# name: (policy, blocks), how many elements
KERNELS = {
    "one block": (SegmentPolicy("block", 4, 4, 2), 1, N),
    "few blocks": (GRID, 5, N),
    "more blocks than lanes": (SegmentPolicy("grid", 2, 2, 2), 37, N),
    "whole chunks, one block": (SegmentPolicy("block", 4, 4, 2, True), 1, WHOLE),
    "whole chunks": (SegmentPolicy("grid", 4, 4, 2, True, True), 5, WHOLE),
}


@functools.cache
def bench(name: str) -> Bench:
    """Two reductions on one workspace, each under all policies."""
    policy, splits, n = KERNELS[name]
    x = np.arange(n, dtype=np.int32)

    def right() -> bool:
        with pytest.MonkeyPatch.context() as patch, device.forced("emulator"), cs.emulate(schedules=9, seed=3):
            patch.setattr(plan, "choose", lambda problem: Choice(policy, splits, 1, splits))
            patch.setattr(call, "_plans", {})
            array = cs.asarray(x)
            return [np.asarray(cs.reduce(array)) for _ in range(2)][-1] == x.sum(dtype=np.int32)

    return Bench(right)


BARRIER, COUNTER = op(r"bar\.sync"), r"atom\.global\.add"
UNORDERED = {"race", "uninitialised"}  # of shared memory, as the reader or the writer comes first
PUBLISHED, READ = r"st\.relaxed\.gpu\.global\.b64", r"ld\.relaxed\.gpu\.global\.b64"
FAULTS = {
    "no barrier in the block": ("one block", first(BARRIER, after=r"st\.shared"), UNORDERED),
    "no barrier before the collector's news is read": (
        "more blocks than lanes",
        first(BARRIER, after=PUBLISHED),
        UNORDERED,
    ),
    "no barrier between the collector's warps and their combination": (
        "more blocks than lanes",
        first(BARRIER, after=READ),
        UNORDERED,
    ),
    "a state published by a plain store": ("few blocks", every(PUBLISHED, "st.global.b64"), {"race"}),
    "a state published for the block alone": ("few blocks", every(PUBLISHED, "st.relaxed.cta.global.b64"), {"race"}),
    "a state collected by a plain load": ("few blocks", every(READ, "ld.global.b64"), {"race"}),
    "a state collected within the block alone": (
        "more blocks than lanes",
        every(READ, "ld.relaxed.cta.global.b64"),
        {"race"},
    ),
    "the epoch never raised": ("few blocks", only(r"^[ \t]*atom\.global\.add\.u64 [^;]*, %rd\d+;"), {RESULT}),
    "no barrier in a block of whole chunks": (
        "whole chunks, one block",
        first(BARRIER, after=r"st\.shared"),
        UNORDERED,
    ),
    "no barrier before whole chunks are combined": (
        "whole chunks",
        first(BARRIER, after=r"st\.shared"),
        UNORDERED,
    ),
    "whole chunks published for the block alone": (
        "whole chunks",
        every(PUBLISHED, "st.relaxed.cta.global.b64"),
        {"race"},
    ),
    "whole chunks collected by a plain load": ("whole chunks", every(READ, "ld.global.b64"), {"race"}),
    "lanes that look the wrong way": ("one block", every(r"shfl\.sync\.bfly\.b32", "shfl.sync.up.b32"), {RESULT}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_planted_fault_is_found(fault):
    name, edit, kinds = FAULTS[fault]
    bench(name).check(edit, kinds)


@functools.cache
def bench_of_rows() -> Bench:
    """Two sums of rows of five columns that begin on any byte; several blocks share them."""
    x = np.random.default_rng(8).integers(-9, 9, (2003, 5), np.int8)
    memory = np.concatenate([np.zeros(1, np.int8), x.ravel()])

    def right() -> bool:
        with pytest.MonkeyPatch.context() as patch, device.forced("emulator"), cs.emulate(schedules=9, seed=3):
            narrow = NarrowPolicy(5, 60, 2, 2, split=True, anywhere=True, in_turn=True)
            patch.setattr(plan, "choose", lambda problem: Choice(narrow, 3, 1, 3))
            patch.setattr(plan, "strided_is_faster", lambda problem: False)
            patch.setattr(call, "_plans", {})
            array = cs.asarray(memory)[1:].reshape(x.shape)
            return np.array_equal([np.asarray(cs.sum(array, axis=0)) for _ in range(2)][-1], x.sum(0))

    return Bench(right)


OF_ROWS = {
    "no barrier between the warps and their combination": (first(BARRIER, after=r"st\.shared"), UNORDERED),
    "a state published by a plain store": (every(PUBLISHED, "st.global.b64"), {"race"}),
    "a state collected by a plain load": (every(READ, "ld.global.b64"), {"race"}),
    "words shifted the wrong way": (every(r"shf\.r\.wrap\.b32", "shf.l.wrap.b32"), {RESULT}),
    "lanes that look the wrong way": (every(r"shfl\.sync\.bfly\.b32", "shfl.sync.up.b32"), {RESULT}),
}


@pytest.mark.parametrize("fault", OF_ROWS)
def test_faults_of_rows_that_begin_anywhere_are_found(fault):
    bench_of_rows().check(*OF_ROWS[fault])


@functools.cache
def bench_of_two_launches() -> Bench:
    """Sums whose order is not that of memory: one launch reduces, the next brings them to their places."""
    x = np.arange(6000, dtype=np.int32).reshape(3000, 2)

    def right() -> bool:
        with pytest.MonkeyPatch.context() as patch, device.forced("emulator"):
            patch.setattr(policy, "NARROW_BYTES", 0)
            for name in ("MIN_BYTES_IN_ORDER", "MIN_PAIRS_IN_ORDER"):
                patch.setattr(launches, name, 0)
            patch.setattr(call, "_plans", {})
            with cs.emulate(), emulator.emulate(schedules=3, seed=3, resident=2):
                return np.array_equal(np.asarray(cs.max(cs.asarray(x)[:, ::-1], axis=0)), x[:, ::-1].max(0))

    return Bench(right)


def test_a_launch_that_does_not_wait_for_the_one_before_is_found():
    bench_of_two_launches().check(*TABLE["no wait for the launch before"])


@functools.cache
def bench_of_last_vectors() -> Bench:
    """The index of the largest element of a row whose last chunk is not whole."""
    x = np.random.default_rng(1).integers(-99, 99, 1203).astype(np.int32)

    def right() -> bool:
        with pytest.MonkeyPatch.context() as patch, device.forced("emulator"), cs.emulate(schedules=2, seed=3):
            patch.setattr(call, "_plans", {})
            return int(np.asarray(cs.argmax(cs.asarray(x)))) == x.argmax()

    return Bench(right)


def test_lanes_that_do_not_stop_at_the_last_vector_are_found():
    limit = every(r"min\.s32 ([^,]*), ([^,]*), [^;]*;", r"mov.b32 \1, \2;")
    bench_of_last_vectors().check(limit, {RESULT, "out-of-bounds"})
