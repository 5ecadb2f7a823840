"""Every flag kernel agrees with NumPy under hostile schedules over all policies, the sanitizer watching; planted
faults are found."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.flags import (
    ballots_policy,
    boxes_policy,
    fitted_policy,
    packed_policy,
    periods,
    plan,
    policy,
    singles_policy,
    strided_policy,
    tile_policy,
    turned_bits_policy,
)
from cutesync.runtime import call as calls

from ..cases import SCHEDULES, same
from ..faults import RESULT, Bench, each, every, first, op
from .cases import keys

INDEXED = lambda a, b, index: (a != b) & (index % 5 != 2)  # noqa: E731

# name: call, dtype, shape, options, (unroll, warps)
KERNELS = {
    "heads": ("flag_heads", "int32", 1200, {}, (2, 2)),
    "tails": ("flag_tails", "int32", 1024, {}, (4, 1)),
    "both": ("flag_heads_and_tails", "int32", 3001, {}, (2, 2)),
    "ends": ("flag_heads_and_tails", "int16", 2100, {"predecessor": 1, "successor": 2}, (1, 2)),
    "vectors of sixteen": ("flag_heads_and_tails", "int8", 2500, {}, (2, 2)),
    "vectors of two": ("flag_heads", "int64", 400, {}, (4, 2)),
    "wide flags": ("flag_heads_and_tails", "int8", 1000, {"dtype": "int64"}, (4, 2)),
    "bits of four": ("flag_heads_and_tails", "int32", 2100, {"dtype": "bits"}, (4, 2)),
    "bits of sixteen": ("flag_heads", "uint8", 2600, {"dtype": "bits"}, (4, 1)),
    "bits of odd rows": ("flag_heads_and_tails", "uint8", (3, 801), {"dtype": "bits"}, (1, 2)),
    "bits of short odd rows": ("flag_heads", "int8", (5, 399), {"dtype": "bits", "predecessor": 1}, (2, 2)),
    "odd rows of two bytes": ("flag_heads_and_tails", "int16", (3, 1201), {"dtype": "bits"}, (2, 2)),
    "odd rows of tiles": ("flag_heads_and_tails", "int16", (3, 1201), {"tile": 24, "dtype": "bits"}, (2, 2)),
    "bits of two": ("flag_tails", "float64", 700, {"dtype": "bits"}, (8, 1)),
    "tiles": ("flag_heads_and_tails", "int32", 1500, {"tile": 7}, (2, 2)),
    "rows as one": ("flag_heads", "int32", (40, 37), {}, (2, 2)),
    "rows": ("flag_heads_and_tails", "int32", (3, 1024), {}, (2, 2)),
    "rows of tiles, bits": ("flag_heads_and_tails", "int32", (3, 300), {"tile": 13, "dtype": "bits"}, (2, 2)),
    "differences": ("adjacent_difference", "int32", 1300, {}, (2, 2)),
    "differences to the right": ("adjacent_difference", "int8", 1300, {"reverse": True}, (2, 1)),
    "the index": ("flag_heads_and_tails", "int32", 1300, {"op": INDEXED}, (2, 2)),
    "the index in tiles": ("flag_heads_and_tails", "int32", 1300, {"op": INDEXED, "tile": 100}, (2, 2)),
}


def right(name: str, schedules: int) -> bool:
    """A case agrees with NumPy in its configuration."""
    call, dtype, shape, options, (unroll, warps) = KERNELS[name]
    choose, x = policy.choose, keys(shape, dtype)
    with pytest.MonkeyPatch.context() as patch, cs.emulate(schedules=schedules, seed=11) as ran:
        patch.setattr(plan, "choose", lambda problem: choose(problem, unroll, warps))
        patch.setattr(policy, "MIN_ODD_ELEMENTS", 0)
        patch.setattr(policy, "MIN_JOINED", {1: 0, 2: 0})
        patch.setattr(policy, "MIN_JOINED_PERIODS", 0)
        patch.setattr(calls, "_plans", {})
        found = getattr(cs, call)(cs.asarray(x), **options)
    assert ran.launches == schedules
    wanted = getattr(cs.reference, call)(x, **options)
    for one, other in zip(found, wanted) if isinstance(found, tuple) else [(found, wanted)]:
        same(one, other, name)
    return True


@pytest.mark.drawn(12)
@pytest.mark.parametrize("name", KERNELS)
def test_agrees_under_hostile_schedules(name):
    assert right(name, SCHEDULES)


FAULTS = {
    "the element before a vector, one too far": (
        "heads",
        every(r"(ld\.global\.b32 [^;]*)\+-4\]", r"\g<1>+-8]"),
        {RESULT},
    ),
    "the element behind a vector, one too near": (
        "tails",
        every(r"(ld\.global\.b32 [^;]*)\+16\]", r"\g<1>+12]"),
        {RESULT},
    ),
    "an element before the first": (
        "ends",
        every(r"@%p\d+ bra[^;]*;(\s*(?:\.loc[^\n]*\s*)*ld\.global\.b16 [^;]*\+-2\])", r"\1"),
        {"out-of-bounds"},
    ),
    "an element behind the last": (
        "tails",
        every(r"@%p\d+ bra[^;]*;(\s*(?:\.loc[^\n]*\s*)*ld\.global\.b32 [^;]*\+1552\])", r"\1"),
        {"out-of-bounds"},
    ),
    "no tail": ("heads", every(r"setp\.lt\.u32 \t(%p\d+, %r\d+), 32;", r"setp.lt.u32 \t\1, 64;"), {RESULT}),
    "bits joined with the wrong lane": (
        "bits of four",
        every(r"shfl\.sync\.bfly\.b32 \t([^;]*), 1, 31", r"shfl.sync.bfly.b32 \t\1, 8, 31"),
        {RESULT},
    ),
    "bytes shifted by too few bits": (
        "vectors of sixteen",
        each(r"(shf\.l\.wrap\.b32 [^;]*, )8;", r"\g<1>7;"),
        {RESULT},
    ),
    "vectors as they lie": (
        "bits of odd rows",
        every(r"shf\.r\.wrap\.b32 (%\w+), (%\w+), [^;]*;", r"mov.b32 \1, \2;"),
        {RESULT},
    ),
    "vectors of two bytes as they lie": (
        "odd rows of two bytes",
        every(r"shf\.r\.wrap\.b32 (%\w+), (%\w+), [^;]*;", r"mov.b32 \1, \2;"),
        {RESULT},
    ),
    "bits of bytes in the wrong order": ("bits of sixteen", every(r"270549120", "134480385"), {RESULT}),
    "tiles one item late": ("tiles", every(r"rem\.u32|rem\.s32", "div.s32"), {RESULT}),
    "joined tiles one item late": ("odd rows of tiles", every(r"mul\.hi\.u32", "mul.lo.u32"), {RESULT}),
}


@functools.cache
def bench(name: str) -> Bench:
    return Bench(lambda: right(name, 9))


@pytest.mark.parametrize("fault", FAULTS)
def test_every_planted_fault_is_found(fault):
    name, edit, kinds = FAULTS[fault]
    bench(name).check(edit, kinds)


STRIDED = {
    "columns": ("flag_heads_and_tails", "int32", lambda x: x((9, 70)), {"axis": 0}),
    "few columns": ("flag_heads_and_tails", "int32", lambda x: x((9, 70)), {"axis": 0}),
    "bits of columns": ("flag_heads", "int8", lambda x: x((70, 36)), {"axis": 0, "dtype": "bits"}),
    "stored down": ("flag_heads", "int8", lambda x: x((36, 40)).T, {"axis": 1}),
    "transposed": ("flag_heads_and_tails", "int16", lambda x: x((66, 40)).T, {"axis": 1}),
    "transposed differences": ("adjacent_difference", "int32", lambda x: x((36, 40)).T, {"axis": 0}),
    "boxes": ("flag_heads_and_tails", "int16", lambda x: x((19, 40, 3)).transpose(1, 0, 2), {"axis": 0}),
    "differences in boxes": ("adjacent_difference", "int32", lambda x: x((18, 33, 4)).transpose(1, 0, 2), {"axis": 1}),
    "transposed rows as periods": ("flag_tails", "int8", lambda x: x((9, 5, 70)).transpose(2, 0, 1), {}),
    "transposed columns of two axes": ("flag_tails", "int16", lambda x: x((37, 5, 6)).transpose(2, 1, 0), {"axis": 2}),
    "turned columns anywhere": ("flag_tails", "int16", lambda x: x((37, 66)).T, {"axis": 0}),
    "turned runs": ("flag_heads_and_tails", "int16", lambda x: x((9, 3, 70)).transpose(1, 2, 0), {"axis": 0}),
    "odd lanes": ("adjacent_difference", "int16", lambda x: x((40, 33)).T, {"axis": 1}),
    "bits of odd columns": ("flag_tails", "int8", lambda x: x((70, 37)), {"axis": 0, "dtype": "bits"}),
    "bits of short odd rows": ("flag_heads_and_tails", "int32", lambda x: x((90, 35)), {"dtype": "bits"}),
    "turned bits": ("flag_tails", "int16", lambda x: x((35, 40, 2)).transpose(2, 1, 0), {"axis": 0, "dtype": "bits"}),
    "single results": ("flag_heads_and_tails", "int64", lambda x: x((2, 3, 501)), {"axis": 1}),
    "single results of far rows": ("adjacent_difference", "int32", lambda x: x((5, 401)), {"axis": 0}),
    "columns a warp apart": ("flag_heads_and_tails", "int16", lambda x: x((9, 301))[:, ::-1], {"axis": 0}),
    "bits of columns a warp apart": ("flag_tails", "int16", lambda x: x((3, 3, 301)), {"axis": 1, "dtype": "bits"}),
    "a middle axis": ("flag_tails", "int8", lambda x: x((7, 20, 3)), {"axis": 1}),
    "stepped backwards": ("adjacent_difference", "int16", lambda x: x((900,))[::-2], {}),
    "rows with a pitch": ("flag_heads_and_tails", "int32", lambda x: x((3, 700))[:, 8:660], {"dtype": "bits"}),
    "the first n": ("flag_tails", "int32", lambda x: x((5, 100)), {"n": 77}),
    "votes": ("flag_heads_and_tails", "int16", lambda x: x((3, 400))[:, ::-1], {"dtype": "bits"}),
    "slices apart": ("flag_heads_and_tails", "int16", lambda x: x((5, 3, 10, 8))[::2], {"axis": 2}),
    "rows backwards": ("flag_heads_and_tails", "int32", lambda x: x((90, 4))[:, ::-1], {}),
    "columns backwards": ("flag_heads_and_tails", "int16", lambda x: x((9, 64))[:, ::-1], {"axis": 0}),
    "columns apart": ("flag_heads_and_tails", "int16", lambda x: x((9, 80))[:, ::2], {"axis": 0}),
}


def strided_is_right(name: str, schedules: int) -> bool:
    call, dtype, view, options = STRIDED[name]
    with pytest.MonkeyPatch.context() as patch, cs.emulate(schedules=schedules, seed=5) as ran:
        if name != "few columns":  # tiles as large arrays have
            patch.setattr(tile_policy, "FEWEST_THREADS", 0)
        patch.setattr(tile_policy, "is_gathered", lambda *_: False)
        if name.startswith("turned"):
            for limit in ("FEW_BLOCKS", "MIN_RUN", "MIN_RUN_LANES"):
                patch.setattr(tile_policy, limit, 0)
        patch.setattr(tile_policy, "MIN_JOINED_THREADS", 0 if name == "bits of odd columns" else 1 << 40)
        if name.startswith(("transposed", "turned", "odd lanes")):  # in shared memory
            for limit in ("MIN_TRANSPOSED", "MIN_TRANSPOSED_ROWS", "MIN_TRANSPOSED_THIN"):
                patch.setattr(tile_policy, limit, 0)
            patch.setattr(periods, "MIN_TRANSPOSED", 0)
        if "bits" in name:
            patch.setattr(packed_policy, "MIN_ELEMENTS", ((0, 0),))
            patch.setattr(ballots_policy, "MAX_FEW_BITS", 0)
            patch.setattr(turned_bits_policy, "MIN_WORDS", 0)
        if name.startswith("single results") or name.endswith("a warp apart"):
            patch.setattr(singles_policy, "ONE_VECTOR_THREADS", 1)
            patch.setattr(fitted_policy, "ONE_VECTOR_THREADS", 1)
            patch.setattr(strided_policy, "MIN_FAR_BYTES", 0)
        if name.endswith("boxes"):
            patch.setattr(boxes_policy, "MIN_ELEMENTS", 0)
            patch.setattr(boxes_policy, "FAR_BYTES", 8)
            patch.setattr(boxes_policy, "MIN_FILLED", 0)
        patch.setattr(calls, "_plans", {})
        x = view(lambda shape: cs.asarray(keys(shape, dtype)))
        found = getattr(cs, call)(x, **options)
    assert ran.launches == schedules
    wanted = getattr(cs.reference, call)(view(lambda shape: keys(shape, dtype)), **options)
    n = options.get("n")
    for one, other in zip(found, wanted) if isinstance(found, tuple) else [(found, wanted)]:
        same(np.asarray(one)[..., :n], other[..., :n], name)
    return True


@pytest.mark.drawn(10)
@pytest.mark.parametrize("name", STRIDED)
def test_strided_arrays_agree_under_schedules(name):
    assert strided_is_right(name, 5)


STRIDED_FAULTS = {
    "votes of items that there are not": (
        "votes",
        every(r"and\.pred( \t%p\d+), %p\d+, (%p\d+);(?=(?:\s*\.loc[^\n]*)*\s*vote)", r"mov.pred\1, \2;"),
        {RESULT},
    ),
    "a neighbour too far": ("votes", every(r"(add\.s32 [^;]*), -1;", r"\1, -2;"), {RESULT}),
    "bytes of a tile in the wrong order": ("stored down", each(r"(prmt\.b32 [^;]*, )29538;", r"\g<1>29522;"), {RESULT}),
    "the row behind a tile, one too near": (
        "columns",
        each(r"(min\.s64 [^;]*, )3;", r"\g<1>2;"),
        {RESULT},
    ),
    "the row behind a thread's only one is its own": (
        "few columns",
        each(r"(min\.s64 [^;]*, )1;", r"\g<1>0;"),
        {RESULT},
    ),
    "no barrier between the tiles of threads and that of a block": (
        "transposed",
        first(op(r"bar\.sync"), after=r"st\.shared"),
        {"race", "uninitialised"},
    ),
    "no barrier between the tiles of threads and columns that are stored in words": (
        "turned columns anywhere",
        first(op(r"bar\.sync"), after=r"st\.shared"),
        {"race", "uninitialised"},
    ),
    "no barrier between the tiles of threads and a run": (
        "turned runs",
        first(op(r"bar\.sync"), after=r"st\.shared"),
        {"race", "uninitialised"},
    ),
    "words of a run as they lie": (
        "turned runs",
        every(r"shf\.r\.wrap\.b32 (%\w+), (%\w+), [^;]*;", r"mov.b32 \1, \2;"),
        {RESULT},
    ),
    "words of columns as they lie": (
        "bits of odd columns",
        every(r"shf\.r\.wrap\.b32 (%\w+), (%\w+), [^;]*;", r"mov.b32 \1, \2;"),
        {RESULT},
    ),
    "no barrier between the elements of a box and its flags": (
        "boxes",
        every(op(r"bar\.sync")),
        {"race", "uninitialised"},
    ),
    "no barrier between votes and the words of rows": (
        "bits of short odd rows",
        every(op(r"bar\.sync")),
        {"race", "uninitialised"},
    ),
    "votes as they lie": (
        "bits of short odd rows",
        every(r"shf\.r\.wrap\.b32 (%\w+), (%\w+), [^;]*;", r"mov.b32 \1, \2;"),
        {RESULT},
    ),
    "no barrier between words and those who store them": (
        "turned bits",
        every(op(r"bar\.sync")),
        {"race", "uninitialised"},
    ),
    "before a box lies its own first position": (
        "boxes",
        every(r"neg\.s64 ([^,]*), [^;]*;", r"mov.b64 \1, 0;"),
        {RESULT},
    ),
    "before a piece of a slice lies itself": (
        "slices apart",
        every(r"neg\.s64 ([^,]*), [^;]*;", r"mov.b64 \1, 0;"),
        {RESULT},
    ),
    "a vector of rows twice": (
        "rows backwards",
        every(r"(ld\.global\.v4\.b32 [^;]*)\+4\]", r"\g<1>+-12]"),
        {RESULT},
    ),
    "columns behind those of a tile": (
        "columns backwards",
        each(r"(ld\.global\.v4\.b32 [^;]*)\+-14\]", r"\g<1>+-30]"),
        {RESULT, "out-of-bounds"},
    ),
    "periods as long as a row": (
        "transposed rows as periods",
        every(r"rem\.u64 ([^,]*), ([^,]*), [^;]*;|rem\.s64 ([^,]*), ([^,]*), [^;]*;", r"mov.b64 \1\3, 1;"),
        {RESULT},
    ),
    "results of the column behind": (
        "transposed columns of two axes",
        every(r"(shr\.u32 ([^,]*), [^,]*, %r\d+;)", r"\1 add.u32 \2, \2, 1;", after=r"\.pragma"),
        {RESULT, "out-of-bounds"},
    ),
    "items that do not count": (
        "the first n",
        every(r"min\.s64 \S+, m, \S+;", ""),
        {RESULT, "uninitialised", "out-of-bounds"},
    ),
}


@functools.cache
def strided_bench(name: str) -> Bench:
    return Bench(lambda: strided_is_right(name, 2))


@pytest.mark.parametrize("fault", STRIDED_FAULTS)
def test_every_planted_fault_of_strided_kernels_is_found(fault):
    name, edit, kinds = STRIDED_FAULTS[fault]
    strided_bench(name).check(edit, kinds)
