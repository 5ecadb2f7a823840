"""Operations on segments that begins and ends give agree with NumPy: in any order, with gaps, empty, overlapping."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest

import cutesync as cs
from cutesync.errors import ArgumentTypeError, ArgumentValueError, DeviceError
from cutesync.kernels.segments import ranges_policy, ranges_rows
from cutesync.kernels.segments.calls import OFFSETS

from .. import faults, states
from ..cases import SCHEDULES, numpy_dtype
from ..select.test_agreement import equal
from .kernels import RANGES, force_ranges
from .reference import SUM

slow = functools.partial(pytest.param, marks=pytest.mark.slow)


@pytest.fixture
def small(monkeypatch):
    force_ranges(monkeypatch)
    with cs.emulate():
        yield


def overlapping(length: int, segments: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Segments anywhere: about a third of them are empty, some end before they begin, most overlap."""
    rng = np.random.default_rng([length, segments, seed])
    begins = rng.integers(0, length + 1, segments)
    lengths = rng.integers(-9, 20, segments)
    lengths[rng.random(segments) < 0.1] = length // 2
    return begins, np.minimum(begins + lengths, length)


def disjoint(length: int, segments: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Segments in any order that do not overlap, with gaps; some are empty."""
    rng = np.random.default_rng([length, segments, seed])
    cuts = np.sort(rng.integers(0, length + 1, 2 * segments))
    order = rng.permutation(segments)
    return cuts[::2][order], cuts[1::2][order]


def reduced(xs, pair, case=SUM, nothing=(0,), init=None) -> list[np.ndarray]:
    """The reduction of each segment."""
    out = [np.full(len(pair[0]), value, x.dtype) for x, value in zip(xs, nothing)]
    for k, (first, stop) in enumerate(zip(*pair)):
        if stop > first:
            for result, found in zip(out, states.scanned(case, [x[first:stop] for x in xs], 0, init=init)):
                result[k] = found[-1]
    return out


def scanned(xs, pair, case=SUM, rest=0, **options) -> list[np.ndarray]:
    """The scan of each segment; ``rest`` where there is none."""
    out = [np.full_like(x, rest) for x in xs]
    for first, stop in zip(*pair):
        if stop > first:
            for result, found in zip(out, states.scanned(case, [x[first:stop] for x in xs], 0, **options)):
                result[first:stop] = found
    return out


def on_device(pair, kinds=("int64", "int64")) -> tuple:
    return tuple(cs.asarray(array.astype(kind)) for array, kind in zip(pair, kinds))


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    ("length", "segments"), [(700, 90), slow(0, 5), slow(1, 1), slow(1291, 1), slow(300, 900), slow(1291, 0)]
)
def test_agrees(small, length, segments):
    x, pair, apart = np.arange(length, dtype=np.int32) * 7, overlapping(length, segments), disjoint(length, segments)
    equal(cs.segmented_reduce(x, offsets=pair), *reduced([x], pair))
    equal(cs.segmented_scan(cs.asarray(x), offsets=on_device(apart)), *scanned([x], apart))


@pytest.mark.slow
def test_types_of_elements_and_offsets_and_alignment(small):
    kinds = [("int64", "int32"), ("uint32", "uint32"), ("int32", "int64")]
    firsts = (0, 1), (7, 0), (1,)
    for dtype, kind, places in zip(("int8", "float64", "bool"), kinds, firsts):
        x = (np.arange(700) % 3).astype(numpy_dtype(dtype))
        for first in places:
            part, pair = cs.asarray(x)[first:], disjoint(700 - first, 60)
            options = {"dtype": "int32"} if dtype == "bool" else {}
            values = x[first:].astype(np.int32) if dtype == "bool" else x[first:]
            given = on_device(pair, kind)
            equal(cs.segmented_reduce(part, offsets=given, **options), *reduced([values], pair))
            for how in ({"reverse": True}, {"reverse": True, "exclusive": True}, {"exclusive": True, "init": 3}):
                found = cs.segmented_scan(part, offsets=given, **how, **options)
                init = (how.get("init", 0),) if "exclusive" in how else None
                equal(found, *scanned([values], pair, **{**how, "init": init}))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["matrices"])
def test_states_that_do_not_commute(small, name):
    case = states.CASES[name]
    xs, pair, apart = states.data(case, (500,), 3), overlapping(500, 40), disjoint(500, 40)
    device = tuple(map(cs.asarray, xs))
    found = cs.segmented_reduce(device, case.op, offsets=on_device(pair), identity=case.identity)
    for one, other in zip(found, reduced(xs, pair, case, case.identity), strict=True):
        equal(one, other)
    for how in ({"reverse": True}, {"init": case.identity[::-1], "exclusive": True}):
        found = cs.segmented_scan(device, case.op, offsets=on_device(apart), **how)
        for one, other in zip(found, scanned(xs, apart, case, **how), strict=True):
            equal(one, other)


@pytest.mark.slow
def test_init_finish_arguments_and_indices(small):
    """A callable gets the index in the array, in both directions."""
    x, pair, apart = np.arange(600).astype(np.float32) % 50, overlapping(600, 80), disjoint(600, 80)
    out = cs.empty((80,), "float64")
    found = cs.segmented_reduce(
        cs.asarray(x),
        "max",
        offsets=on_device(pair),
        init=-1,
        transform=lambda v, i, t: v * t + i,
        finish=lambda v, t: v / t,
        out_dtype="float64",
        args=(2.0,),
        out=out,
    )
    assert found is out
    equal(out, np.float64([max([-1.0, *(x * 2 + np.arange(600))[a:b]]) for a, b in zip(*pair)]) / 2)
    index = {"transform": lambda v, i: i, "dtype": "int64"}
    for how in ({}, {"reverse": True}):
        found = cs.segmented_scan(cs.asarray(x), offsets=on_device(apart), **index, **how)
        equal(found, *scanned([np.arange(600)], apart, **how))
    start = cs.asarray(np.float32([5]))
    equal(cs.segmented_scan(cs.asarray(x), init=start, offsets=on_device(apart)), *scanned([x], apart, init=(5,)))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int8", "uint16", "float32", "float64"])
def test_elements_are_combined_in_order(small, dtype):
    """Of one array, by operators that do not commute: the last element, and the first."""
    x = (np.arange(900) * 7 % 101).astype(dtype)
    for first in (0, 1):
        part, pair = cs.asarray(x)[first:], overlapping(900 - first, 70, first)
        for op, place in (lambda a, b: b, -1), (lambda a, b: a, 0):
            found = cs.segmented_reduce(part, op, offsets=on_device(pair), identity=0, dtype=dtype)
            wanted = [x[first + a : first + b][place] if b > a else 0 for a, b in zip(*pair)]
            equal(found, np.array(wanted, dtype))


@pytest.mark.slow
@pytest.mark.parametrize("name", RANGES)
def test_lanes_go_through_short_segments(monkeypatch, name):
    """From one vector to many, of which the first and the last one are whole or not; some are empty."""
    force_ranges(monkeypatch, name)
    for dtype, most in ("int32", 1), ("float32", 12), ("int8", 40), ("float64", 30):
        rng, x = np.random.default_rng(most), (np.arange(2000) * 7 % 101).astype(dtype)
        begins = rng.integers(0, 2000 - most, 100)
        lengths = np.where(rng.random(100) < 0.1, 0, rng.integers(max(1, most // 2), most + 1, 100))
        for pair in (begins, begins + lengths), (begins // 16 * 16, begins // 16 * 16 + most // 4 * 4):
            with cs.emulate():
                last = cs.segmented_reduce(
                    cs.asarray(x), lambda a, b: b, offsets=on_device(pair), identity=0, dtype=dtype
                )
                found = cs.segmented_reduce(cs.asarray(x), offsets=on_device(pair), dtype=dtype)
            equal(last, np.array([x[b - 1] if b > a else 0 for a, b in zip(*pair)], dtype))
            equal(found, *reduced([x], pair))


@pytest.mark.slow
def test_batches_that_stop_inside_segments(small, monkeypatch):
    """A batch has so many positions at most that places in its list are numbers of 32 bits."""
    monkeypatch.setattr(ranges_rows, "MOST", 200)
    x = np.arange(3000, dtype=np.int32) * 7
    for pair in (overlapping(3000, 90), (np.int64([1, 0, 2999, 5]), np.int64([2900, 3000, 3000, 205]))):
        equal(cs.segmented_reduce(x, offsets=pair), *reduced([x], pair))


@pytest.mark.slow
def test_strided_arrays(small):
    """The elements, the offsets and the results."""
    x = (np.arange(1300) % 7).reshape(26, 50)
    a, (begins, ends), apart = cs.asarray(x).T, overlapping(1300, 150), disjoint(1300, 150)
    table = cs.asarray(np.stack([begins, ends], 1))
    out = cs.asarray(np.full((2, 150), 5))
    cs.segmented_reduce(a, offsets=(table[:, 0], table[:, 1]), out=out[1, ::-1])
    equal(np.asarray(out)[1, ::-1], *reduced([x.T.ravel()], (begins, ends)))
    assert (np.asarray(out)[0] == 5).all()
    given = (cs.asarray(apart[0][::-1].copy())[::-1], cs.asarray(apart[1]))
    wide = cs.asarray(np.full((1300, 3), 5))
    cs.segmented_scan(a, offsets=given, reverse=True, out=wide[:, 2])
    equal(np.asarray(wide)[:, 2], *scanned([x.T.ravel()], apart, rest=5, reverse=True))
    assert (np.asarray(wide)[:, :2] == 5).all()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["count", "int"])
def test_segments_that_count(small, form):
    """Results from ``n`` on stay, as do those of elements in no segment; so it is for NumPy arrays."""
    x, pair = np.arange(500, dtype=np.int32), disjoint(500, 40)
    for n in (13,) if form == "count" else (0, 99):
        m, given = min(n, 40), n if form == "int" else cs.asarray(np.int64(n))
        first = tuple(array[:m] for array in pair)
        out = cs.asarray(np.full(40, 777, np.int32))
        cs.segmented_reduce(cs.asarray(x), n=given, out=out, offsets=on_device(pair))
        equal(out, np.append(*reduced([x], first), np.full(40 - m, 777, np.int32)))
        out = np.full(500, 777, np.int32)
        assert cs.segmented_scan(x, n=n, out=out, offsets=pair) is out
        equal(out, *scanned([x], first, rest=777))
        equal(cs.segmented_scan(cs.asarray(x), n=given, offsets=on_device(pair)), *scanned([x], first))


@pytest.mark.slow
def test_places_outside_the_array(small):
    """They count as its ends."""
    x, ends = np.arange(300, dtype=np.int32), np.int64([1 << 62, 40, -3, 300, 301, 7])
    begins = np.int64([-(1 << 62), -5, -9, 299, 300, 1 << 40])
    clipped = np.clip(begins, 0, 300), np.clip(ends, 0, 300)
    for given in ((begins, ends), on_device((begins, ends))):
        equal(
            cs.segmented_reduce(cs.asarray(x) if given[0] is not begins else x, offsets=given), *reduced([x], clipped)
        )
    found = cs.segmented_scan(cs.asarray(x), offsets=on_device((begins[2:], ends[2:])))
    equal(found, *scanned([x], [array[2:] for array in clipped]))


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", RANGES)
def test_agrees_under_hostile_schedules(name, monkeypatch):
    force_ranges(monkeypatch, name)
    x, pair, apart = np.arange(500, dtype=np.int16), overlapping(500, 90), disjoint(500, 90)
    with cs.emulate(schedules=SCHEDULES, seed=8):
        found = cs.segmented_reduce(cs.asarray(x), offsets=on_device(pair))
        scan = cs.segmented_scan(cs.asarray(x), offsets=on_device(apart), reverse=True)
    equal(found, *reduced([x], pair))
    equal(scan, *scanned([x], apart, reverse=True))


@pytest.mark.slow
def test_sizes_of_large_calls():
    """With the sizes that calls have: one segment, many empty ones, one giant that overlaps others."""
    x = np.random.default_rng(0).integers(-9, 9, 9000).astype(np.int64)
    pairs = [(np.zeros(3, int), np.int64([9000, 0, 8999])), overlapping(9000, 30), (np.arange(9000), np.arange(9000))]
    with cs.emulate():
        for pair in pairs:
            equal(cs.segmented_reduce(x, offsets=pair), *reduced([x], pair))
        apart = disjoint(9000, 700)
        equal(cs.segmented_scan((x, x), offsets=apart, reverse=True)[1], *scanned([x], apart, reverse=True))


def test_shares_do_not_depend_on_how_many_segments_count():
    """Nor on what is a multiple of the share; shared memory has room for blocks, and for one at least."""
    policy = ranges_policy.choose((4,))
    assert ranges_policy.blocks(policy, 1, 0) == 1
    assert ranges_policy.blocks(policy, 1 << 30, 1) == ranges_policy.blocks(policy, 1 << 40, 1 << 20)
    assert all(ranges_policy.choose((8,) * k).bytes((8,) * k) <= ranges_policy.SHARED_BYTES for k in range(1, 33))
    with pytest.raises(ArgumentValueError, match="bytes at each position"):
        ranges_policy.choose((8,) * 100)


def test_refused():
    x, ends = np.arange(9.0), np.array([4, 9])
    wrong = [
        ((ends,), ArgumentTypeError, "a tuple of 1"),
        ((ends, ends, ends), ArgumentTypeError, "a tuple of 3"),
        ((ends, x[:2]), ArgumentTypeError, r"offsets\[1\]: got an array of float64"),
        ((ends.astype(np.int16), ends), ArgumentTypeError, r"offsets\[0\]: got an array of int16"),
        ((ends, 9), ArgumentTypeError, r"offsets\[1\]"),
        ((ends, ends[:1]), ArgumentValueError, r"offsets\[1\]: got 1 ends"),
        ((ends[:, None], ends), ArgumentValueError, r"offsets\[0\]: got shape \(2, 1\)"),
    ]
    with cs.emulate():
        for call in (cs.segmented_reduce, cs.segmented_scan):
            for pair, error, text in wrong:
                with pytest.raises(error, match=text):
                    call(x, offsets=pair)
            with pytest.raises(DeviceError):
                call(cs.asarray(x), offsets=(ends, ends))
        with pytest.raises(ArgumentValueError, match="identity"):
            cs.segmented_reduce(x, "max", offsets=(ends, ends))
        with pytest.raises(ArgumentTypeError, match="one of them"):
            cs.segmented_reduce(x, offsets=(ends, ends), lengths=ends)
    assert "int16" not in OFFSETS
    with cs.emulate(devices=2):
        group = cs.dist.Group.local()
        sharded, pair = group.shard(x), (group.shard(ends, axis=None), group.shard(ends, axis=None))
        for call in (cs.segmented_reduce, cs.segmented_scan):
            with pytest.raises(ArgumentValueError, match="begins and ends, for a Sharded"):
                call(sharded, offsets=pair)


MAX = states.Case(None, lambda p, q: (np.maximum(p[0], q[0]),), ("int32",), (-1000,))


@functools.cache
def bench(kind: str) -> faults.Bench:
    """Calls that share memory, where what one leaves is wrong for the next: shares begin where segments do, or not.
    Arrays of which every other element counts have a kernel of their own."""
    reduce, step = kind != "scan", 2 if kind == "strided" else 1
    options: dict = {"nothing": MAX.identity} if reduce else {}
    calls = []
    for pair in (disjoint(700, 70), (np.arange(0, 700, 2), np.arange(1, 700, 2)), (np.r_[650, 20], np.r_[690, 640])):
        x = -1 - (np.arange(700, dtype=np.int32) * 7 + len(calls)) % 300
        calls.append((x, pair, *(reduced if reduce else scanned)([x], pair, MAX, **options)))

    def right() -> bool:
        call = functools.partial(cs.segmented_reduce if reduce else cs.segmented_scan, op="max", identity=-1000)
        found = [
            (call(cs.asarray(np.repeat(x, step))[::step], offsets=on_device(pair)), wanted) for x, pair, wanted in calls
        ]
        return all(np.array_equal(*pair) for pair in found)

    made = faults.of_tiles(force_ranges, right, schedules=2)
    made.texts = [text for text in made.texts if re.search(r"\.entry cutesync_segment_", text)]
    return made


# What a launch, a warp or a block does not wait for, and what is not stored
FAULTS = ("no wait for the launch before", "no sync_warp", "no block barrier", "no store")
WRONG = {faults.RESULT, "out-of-bounds", "uninitialised", "race"}
TABLE = {name: (faults.TABLE[name][0], {*faults.TABLE[name][1], *WRONG}) for name in FAULTS}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["reduce", "strided", "scan"])
def test_no_mutant_survives(kind):
    assert bench(kind).survivors(TABLE) == []
