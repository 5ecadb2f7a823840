"""Faults planted in the compiled reduction kernels are found; the kernels as they are run clean."""

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.reduce import plan
from cutesync.kernels.reduce.policy import Choice, SegmentPolicy
from cutesync.runtime import call, device

from ..faults import RESULT, Bench, every, first, only, op

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
