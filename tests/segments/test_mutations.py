"""Faults planted in the compiled kernel of segments are found; the kernel as it is runs clean."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cutesync as cs

from .. import faults
from .kernels import force, force_decode, force_searches
from .reference import heads_of, keys_of, reduced, scanned
from .test_segmented import heads_of as heads_at, offsets_of

pytestmark = pytest.mark.slow


@functools.cache
def bench() -> faults.Bench:
    """Two filled reductions."""
    keys, x = keys_of(2203, 9), np.arange(2203, dtype=np.int32)
    heads = heads_of(keys)
    (sums,) = reduced(heads, [x])
    wanted = np.append(sums, np.full(700 - len(sums), 7, np.int32))
    first = np.append(keys[heads], np.full(700 - len(sums), 7, keys.dtype))

    def right() -> bool:
        arrays = cs.asarray(keys), cs.asarray(x)
        found = [cs.reduce_by_key(*arrays, size=700, fill_value=7) for _ in range(2)]
        same = (np.array_equal(s.values, wanted) and np.array_equal(s.keys, first) for s in found)
        return all(same) and all(int(s.count) == len(sums) for s in found)

    return faults.of_tiles(force, right)


@functools.cache
def of_waves(name: str) -> faults.Bench:
    """Two reductions, and two scans, by blocks that have a tile each."""
    wide, x = keys_of(902, 9), np.arange(901, dtype=np.int32)
    keys = wide[1:]
    heads = heads_of(keys)
    (sums,), (running,) = reduced(heads, [x]), scanned(heads, [x])

    def right() -> bool:
        arrays = cs.asarray(wide)[1:], cs.asarray(x)
        found, count = [cs.reduce_by_key(*arrays) for _ in range(2)], len(sums)
        same = [np.array_equal(np.asarray(s.keys)[:count], keys[heads]) for s in found]
        same += [np.array_equal(np.asarray(s.values)[:count], sums) and int(s.count) == count for s in found]
        return all(same) and all(np.array_equal(cs.scan_by_key(*arrays), running) for _ in range(2))

    return faults.of_tiles(functools.partial(force, name=name), right)


@functools.cache
def of_offsets() -> faults.Bench:
    """Two scans by offsets, which differ: a launch of its own marks where segments begin, and the scan clears the
    marks."""
    x, offsets = np.arange(900, dtype=np.int32), (offsets_of(900, 250), np.arange(0, 901, 9))
    wanted = [scanned(heads_at(900, each), [x])[0] for each in offsets]

    def right() -> bool:
        array = cs.asarray(x)
        found = [cs.segmented_scan(array, offsets=cs.asarray(each)) for each in offsets]
        return all(map(np.array_equal, found, wanted))

    return faults.of_tiles(force, right, schedules=3)


@functools.cache
def of_decode() -> faults.Bench:
    """Runs decoded twice, of which some are empty, and one is so long that its tile is stored in parts."""
    lengths = np.random.default_rng(5).integers(0, 4, 1100)
    lengths[100:180], lengths[200] = 0, 3500
    x = np.arange(1100, dtype=np.int32)
    wanted = np.append(np.repeat(x, lengths), np.full(6000, -1, np.int32))[:6000]

    def right() -> bool:
        arrays = [cs.asarray(np.append(array[:1], array))[1:] for array in (x, lengths)]
        found = [cs.run_length_decode(*arrays, size=6000, fill_value=-1) for _ in range(2)]
        return all(np.array_equal(f.values, wanted) and int(f.count) == lengths.sum() for f in found)

    return faults.of_tiles(force_decode, right, schedules=2)


@functools.cache
def of_filled() -> faults.Bench:
    """Runs of bytes decoded, some of which begin where windows do, in tiles and in parts."""
    lengths = np.random.default_rng(5).integers(0, 20, 700)
    lengths[100:180], lengths[200], lengths[300:330] = 0, 5000, 512
    x = (np.arange(700) * 7 % 251).astype(np.uint8)
    wanted = np.append(np.repeat(x, lengths), np.full(30000, 5, np.uint8))[:30000]

    def right() -> bool:
        arrays = [cs.asarray(np.append(array[:1], array))[1:] for array in (x, lengths)]
        found = cs.run_length_decode(*arrays, size=30000, fill_value=5)
        return np.array_equal(found.values, wanted) and int(found.count) == lengths.sum()

    return faults.of_tiles(force_decode, right, schedules=1)


@functools.cache
def of_dense() -> faults.Bench:
    """Runs of few bytes, and in one place of many, whose windows have many runs."""
    lengths = np.random.default_rng(5).integers(1, 4, 2900)
    lengths[1500] = 3000
    x = (np.arange(2900) * 7 % 251).astype(np.uint8)
    wanted = np.repeat(x, lengths)

    def right() -> bool:
        found = cs.run_length_decode(cs.asarray(x), cs.asarray(lengths), size=len(wanted))
        return np.array_equal(found.values, wanted) and int(found.count) == len(wanted)

    return faults.of_tiles(functools.partial(force_decode, name="two blocks"), right, schedules=1)


@functools.cache
def of_ends() -> faults.Bench:
    """Runs of one or two words, whose tiles begin and end inside vectors."""
    lengths = np.random.default_rng(5).integers(1, 3, 2900)
    x = np.arange(2900, dtype=np.int32)
    wanted = np.repeat(x, lengths)

    def right() -> bool:
        found = cs.run_length_decode(cs.asarray(x), cs.asarray(lengths), size=len(wanted))
        return np.array_equal(found.values, wanted)

    return faults.of_tiles(functools.partial(force_decode, name="two blocks"), right, schedules=1)


@functools.cache
def of_searched() -> faults.Bench:
    """Runs decoded by searches, some of them empty, and searches; what groups come to is that of launches before."""
    lengths = np.random.default_rng(5).integers(0, 12, 1700)
    lengths[100:180] = 0
    x = np.arange(1700, dtype=np.int32)
    wanted = np.append(np.repeat(x, lengths), np.full(9999, -1, np.int32))[:9999]

    def right() -> bool:
        wide, narrow = (
            cs.run_length_decode(cs.asarray(x.astype(t)), cs.asarray(lengths), size=9999, fill_value=-1).values
            for t in (np.int32, np.int16)
        )
        places = cs.searchsorted(wide, cs.asarray(x[::9]), "right")
        return np.array_equal(wide, wanted) and np.array_equal(narrow, wanted) and places.shape == (189,)

    return faults.of_tiles(force_searches, right, schedules=2)


@functools.cache
def of_search() -> faults.Bench:
    a, v = np.sort(np.random.default_rng(6).integers(0, 40, 333)).astype(np.int32), np.arange(-2, 45, dtype=np.int32)

    def right() -> bool:
        found = [cs.searchsorted(cs.asarray(a), cs.asarray(v), side) for side in ("left", "right")]
        return all(np.array_equal(one, np.searchsorted(a, v, side)) for one, side in zip(found, ("left", "right")))

    return faults.of_tiles(force, right, schedules=1)


# Of marks and what a squad puts together; the rest of the pipeline is that of reductions by key.
MARKS = ("init count +1", "no wait for the launch before", "no arrive", "no wait at a named barrier", "no store")
MARKS += ("no look at the barrier", "parity flipped", "named barrier count +32", "named barrier count -32")
TILES = {name: faults.TILES[name] for name in MARKS}
# of kernels in which a block has one tile
WAVE = ("expect_tx +16", "expect_tx -16", "no sync_warp", "no block barrier", "no wait for the launch before")
WAVE = {name: faults.TILES[name] for name in (*WAVE, "no store", "no look at the barrier")}
CLUSTER = ("no init fence at all", "no cluster barrier", "cluster to cta scope", "a relaxed wait")
CLUSTER = WAVE | {name: faults.TABLE[name] for name in CLUSTER}
# A ticket is asked for too early: tiles still come in order, and only a grid that does not fit would wait forever.
EARLY = "no look at the barrier #0"
# Of kernels in which no thread waits for another: bounds and comparisons
WRONG = {faults.RESULT, "out-of-bounds", "uninitialised"}
DECODE = r"\.entry cutesync_decode"
OF_DECODE = faults.OF_TILES | {
    "a place that no flag counts for": (
        faults.first(r"(dp4a\.u32\.u32 %r\d+, %r\d+, )4,", r"\g<1>0,", after=DECODE),
        WRONG,
    ),
    "a share of long tiles that begins behind them": (
        faults.first(r"div\.u32 \t(%r\d+, %r\d+), %r\d+;", r"mov.b32 \t\g<1>;", after=DECODE),
        WRONG,
    ),
    "a row of runs without marks": (
        faults.first(r"(st\.shared\.b8 \t\[%r\d+\], )1;", r"\g<1>0;", after=DECODE),
        WRONG,
    ),
    "no end behind the runs": (faults.every(faults.op(r"st\.shared\.b32 \t\[[^;]*\], 1073741824")), WRONG),
}
BEGUN = r"(ld\.shared\.b8 \t%r\d+, \[%r\d+\];[^;]*selp\.b32 \t%r\d+, )%r\d+, 0,"
OF_ENDS = {
    "a run that does not count at a tile's begin": (faults.first(BEGUN, r"\g<1>0, 0,", after=DECODE), WRONG),
    "a run that does not count at a tile's end": (faults.last(BEGUN, r"\g<1>0, 0,", after=DECODE), WRONG),
}
OF_FILLED = {
    "changes by a lane twice": (faults.first(r"(@%p\d+ )xor\.b32", r"\g<1>or.b32", after=DECODE), WRONG),
    "an element of the wrong place": (faults.first(r"(prmt.*, 0, )8738;", r"\g<1>4369;", after=DECODE), WRONG),
    "a head that counts twice": (
        faults.last(r"redux\.sync\.add\.s32", "redux.sync.max.s32", after=DECODE),
        {*WRONG, "race"},  # its change lies before the window, where another warp's may be
    ),
}
OF_DENSE = {
    "changes by elements two places apart": (
        faults.every(r"(shf\.l\.wrap\.b32 %r\d+, %r\d+, %r\d+, )8;", r"\g<1>16;"),
        WRONG,
    ),
    "a tile without bands": (
        faults.first(r"(st\.shared\.v4\.b32 \t\[[^]]*\], {%r\d+, )%r\d+", r"\g<1>0", after=DECODE),
        WRONG,
    ),
    "bands by another warp than the tile before says": (
        faults.first(
            r"(mul\.hi\.u32 \t[^;]*, -1431655765;\s+shr\.u32 [^;]*;\s+mul\.lo\.s32 [^;]*, )3;",
            r"\g<1>-3;",
            after=DECODE,
        ),
        WRONG,
    ),
}
OF_SEARCHED = {
    "no wait for the launch before": faults.TABLE["no wait for the launch before"],
    "no sync_warp": (faults.each(faults.op(r"bar\.warp\.sync"), after=DECODE), {"race", *WRONG}),
    "an empty run that counts": (faults.first(r"setp\.gt\.s32", "setp.ge.s32", after=DECODE), {"race", *WRONG}),
    "a result too many": (faults.last(r"setp\.ge\.u32", "setp.gt.u32", after=DECODE), WRONG),
}
OF_SEARCH = {
    "the other side": (
        faults.each(r"setp\.(lt|le)\.s32", lambda m: "setp.le.s32" if m[1] == "lt" else "setp.lt.s32"),
        WRONG,
    ),
    "a step too short": (faults.each(r"(add\.s64 \t%rd\d+, %rd\d+, )1;", r"\g<1>2;"), WRONG),
}


def test_no_mutant_of_offsets_survives():
    assert of_offsets().survivors(TILES, [EARLY]) == [EARLY]


def test_no_mutant_of_waves_survives():
    assert of_waves("waves").survivors(WAVE) == []


def test_no_mutant_of_parts_survives():
    assert of_waves("waves in parts").survivors(WAVE) == []


def test_no_mutant_of_clusters_survives():
    assert of_waves("clusters").survivors(CLUSTER) == []


@pytest.mark.parametrize("fault", faults.OF_TILES)
def test_own_faults_of_waves_are_found(fault):
    of_waves("waves").check(*faults.OF_TILES[fault])


def test_no_mutant_of_decode_survives():
    # all lanes look ahead together
    harmless = ["no sync_warp #4"]
    assert of_decode().survivors(faults.VARIANT, harmless) == harmless


def test_no_mutant_of_filled_windows_survives():
    harmless = ["no sync_warp #4"]  # all lanes look ahead together
    edit, kinds = faults.TABLE["no sync_warp"]  # copies overwrite what is put behind the elements, too
    assert of_filled().survivors({"no sync_warp": (edit, {*kinds, "proxy"})}, harmless) == harmless


@pytest.mark.parametrize("fault", OF_DENSE)
def test_faults_of_dense_windows_are_found(fault):
    of_dense().check(*OF_DENSE[fault])


@pytest.mark.parametrize("fault", OF_FILLED)
def test_faults_of_filled_windows_are_found(fault):
    of_filled().check(*OF_FILLED[fault])


@pytest.mark.parametrize("fault", OF_DECODE)
def test_faults_of_decode_are_found(fault):
    of_decode().check(*OF_DECODE[fault])


@pytest.mark.parametrize("fault", OF_ENDS)
def test_faults_of_ends_are_found(fault):
    of_ends().check(*OF_ENDS[fault])


@pytest.mark.parametrize("fault", OF_SEARCHED)
def test_faults_of_searched_runs_are_found(fault):
    of_searched().check(*OF_SEARCHED[fault])


@pytest.mark.parametrize("fault", OF_SEARCH)
def test_faults_of_searches_are_found(fault):
    of_search().check(*OF_SEARCH[fault])


def test_no_mutant_survives():
    harmless = [*faults.ONE_FENCE, "no init fence #4", EARLY]
    assert bench().survivors(faults.TILES, harmless) == harmless


@pytest.mark.parametrize("fault", faults.OF_TILES)
def test_own_faults_are_found(fault):
    bench().check(*faults.OF_TILES[fault])
