"""Selections whose tiles leave their stages early agree with NumPy: where everything is kept and room is short, where
hardly anything is, at the borders of tiles, and under hostile schedules."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync import emulator
from cutesync.kernels.select import heads, policy as policies
from cutesync.kernels.select.policy import RunPolicy

from .. import faults
from ..cases import SCHEDULES, data
from .kernels import bits_of, force, masks
from .test_agreement import equal, positive
from .test_runs import heads_of, of_runs

slow = functools.partial(pytest.param, marks=pytest.mark.slow)
NAMES = ["flow", slow("flow, one squad")]
LENGTHS = [slow(1), slow(256), 257, slow(9000)]


@pytest.mark.drawn(4)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", NAMES)
def test_selections(monkeypatch, name, length):
    force(monkeypatch, name)
    x, rng = data(length, "int32"), np.random.default_rng(length)
    with cs.emulate():
        for mask in masks(rng, length):
            equal(cs.select(x, mask).values, x[mask])
            values, _, places = cs.select(x, bits_of(mask), indices=True)
            equal(values, x[mask])
            equal(places, np.flatnonzero(mask))
            size = length // 2 + 3
            kept = x[mask][:size]
            found = cs.select(cs.asarray(x), cs.asarray(mask), size=size, fill_value=-1)
            equal(found.values, np.append(kept, np.full(size - len(kept), -1)).astype(np.int32))
        equal(cs.select(x, positive).values, x[x > 0])
        (a, b), _ = cs.select((x, x.astype(np.float64)), lambda a, b: a > 0)
        equal(a, x[x > 0])
        equal(b, x[x > 0].astype(np.float64))


@pytest.mark.parametrize("dtype", ["int8", slow("bool"), slow("uint8")])
def test_selections_of_bytes(monkeypatch, dtype):
    """Half, hardly any, all, runs of both; chunks that are not whole, arrays that begin anywhere."""
    force(monkeypatch, "runs of bytes")
    rng = np.random.default_rng(3)
    x = rng.integers(-9, 9, 9000).astype(dtype)
    with cs.emulate():
        a = cs.asarray(x)
        for i, length in ((0, 1), (0, 4096), (5, 2100), (16, 6200)):
            part = x[i : i + length]
            for mask in masks(rng, length):
                equal(cs.select(a[i : i + length], cs.asarray(mask)).exact(), part[mask])
                equal(cs.select(a[i : i + length], cs.asarray(bits_of(mask))).exact(), part[mask])
            equal(cs.select(a[i : i + length], positive).exact(), part[part > 0])
            located = cs.select(a[i : i + length], positive, indices=True).exact()
            equal(located[0], part[part > 0])
            equal(located[-1], np.flatnonzero(part > 0))
            found = cs.select(a[i : i + length], positive, size=1000, fill_value=1)
            kept = part[part > 0][:1000]
            equal(found.values, np.append(kept, np.ones(1000 - len(kept))).astype(dtype))


@pytest.mark.drawn(7)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        slow("flow", "float64"),
        ("runs of bytes", "int8"),
        slow("runs", "int16"),
        slow("runs, one squad", "bool"),
    ],
)
def test_runs(monkeypatch, name, dtype, length):
    force(monkeypatch, name)
    rng = np.random.default_rng(length)
    with cs.emulate():
        for share in (0.0, 0.01, 0.3, 1.0):
            x = np.cumsum(rng.random(length) < share).astype(dtype)
            values, index, _, lengths = of_runs(x, heads_of(x))
            equal(cs.unique_consecutive(x), values)
            for found, wanted in zip(
                cs.unique_consecutive(x, return_index=True, return_counts=True), (values, index, lengths)
            ):
                equal(found, wanted)
            capacity = max(len(values) // 2, 1)
            found = cs.run_length_encode(cs.asarray(x), size=capacity, dtype="int32")
            equal(found.lengths, lengths[:capacity].astype(np.int32))


@pytest.mark.parametrize("length", [1023, slow(1024), slow(1025), slow(6145)])
def test_runs_by_a_callable(monkeypatch, length):
    """Of tiles and chunks that are full or nearly so."""
    force(monkeypatch, "runs")
    x = (np.arange(length) // 9 % 7).astype(np.float16)
    values, _, _, lengths = of_runs(x, np.append(True, np.diff(x) >= 0.5))
    with cs.emulate():
        found = cs.unique_consecutive(x, equal=lambda a, b: b - a < 0.5, return_counts=True)
    equal(found[0], values)
    equal(found[1], lengths)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("flow", "int16"),
        slow("flow", "float64"),
        slow("runs", "float16"),
    ],
)
def test_arrays_that_begin_anywhere(monkeypatch, name, dtype):
    """Chunks whose arrays do not begin on vectors are read element by element."""
    force(monkeypatch, name)
    x, mask = data(2100, dtype), np.random.default_rng(2).random(2100) < 0.6
    with cs.emulate():
        a, where = cs.asarray(x), cs.asarray(mask)
        for i, j in ((0, 0), (1, 16), (16, 3)):
            part, chosen = x[i : i + 2000], mask[j : j + 2000]
            equal(cs.select(a[i : i + 2000], where[j : j + 2000]).exact(), part[chosen])
            equal(cs.select(a[i : i + 2000], positive).exact(), part[part > 0])
            equal(cs.unique_consecutive(a[i : i + 2000]).exact(), part[heads_of(part)])


@pytest.mark.parametrize(
    ("name", "dtype", "begin"),
    [
        ("runs of bytes", "int8", 3),
        ("runs of bytes", "uint8", 16),
        slow("runs of bytes", "uint8", 18),
        slow("runs", "int16", 1),
    ],
)
def test_runs_that_begin_anywhere(monkeypatch, name, dtype, begin):
    """Words of chunks that do not begin on vectors are put together; those at the ends of the array are not."""
    force(monkeypatch, name)
    shares = np.repeat([0.1, 0.9, 0.1, 0.5], 2000)
    x = np.cumsum(np.random.default_rng(begin).random(8000) < shares).astype(dtype)
    values, _, _, lengths = of_runs(x[begin:], heads_of(x[begin:]))
    with cs.emulate():
        found = cs.run_length_encode(cs.asarray(x)[begin:]).exact()
    equal(found[0], values)
    equal(found[1], lengths)


@pytest.mark.parametrize("name", NAMES)
def test_agrees_under_hostile_schedules(monkeypatch, name):
    force(monkeypatch, name)
    x, mask = data(1291, "int32"), np.random.default_rng(1).random(1291) < 0.7
    with cs.emulate(schedules=SCHEDULES, seed=3) as ran:
        found = cs.select(cs.asarray(x), cs.asarray(mask), size=1000, fill_value=5)
    assert ran.launches == SCHEDULES
    wanted = np.append(x[mask], np.full(1000 - mask.sum(), 5)).astype(np.int32)
    equal(found.values, wanted)


def test_runs_agree_under_hostile_schedules(monkeypatch):
    force(monkeypatch, "runs of bytes")
    x = (np.cumsum(np.random.default_rng(1).random(5003) < 0.3) % 100).astype(np.int8)
    values, _, _, lengths = of_runs(x, heads_of(x))
    with cs.emulate(schedules=SCHEDULES, seed=3):
        found = cs.run_length_encode(cs.asarray(x)).exact()
    equal(found[0], values)
    equal(found[1], lengths)


@pytest.mark.parametrize("name", ["runs of bytes", slow("runs")])
def test_bytes_agree_under_hostile_schedules(monkeypatch, name):
    force(monkeypatch, name)
    rng = np.random.default_rng(4)
    x = rng.integers(1, 99, 9001).astype(np.int8)
    mask = rng.random(len(x)) < np.repeat([0.1, 1.0, 0.6], 3001)[: len(x)]
    with cs.emulate(schedules=SCHEDULES, seed=6):
        equal(cs.select(cs.asarray(x), cs.asarray(mask)).exact(), x[mask])
        equal(cs.select(cs.asarray(np.where(mask, x, -x)), positive).exact(), x[mask])


def test_bytes_behind_a_mask_have_four_stages():
    """So do those of a callable, of more rows; arrays that are not long, and places, are other kernels'."""
    masked, alone = (policies.choose(policies.Problem(1 << 28, (1,), mask=mask)).policy for mask in (True, False))
    assert [(type(p), p.rows, p.stages) for p in (masked, alone)] == [(RunPolicy, 32, 4), (RunPolicy, 64, 4)]
    for problem in (
        policies.Problem(policies.FLOW_LENGTH - 1, (1,)),
        policies.Problem(1 << 28, (1,), True, located=True),
    ):
        assert type(policies.choose(problem).policy) is not RunPolicy


@pytest.mark.parametrize(
    ("name", "tile", "kept"),
    [("flow", 256, 256), slow("flow", 256, 64), slow("runs", 1024, 550), slow("runs", 1024, 220)],
)
def test_a_room_that_tiles_fill_to_its_end(monkeypatch, name, tile, kept):
    """So many positions are selected of every tile that the last one in the room leaves no place behind it."""
    force(monkeypatch, name)
    x = np.arange(tile * 11).astype(np.int16)
    with cs.emulate():
        equal(cs.select(x, x % tile < kept).values, x[x % tile < kept])
        runs = np.minimum(x % tile, kept - 1) + x // tile % 2 * tile
        equal(cs.unique_consecutive(runs), runs[x % tile < kept])


@pytest.mark.parametrize("share", [0.9, slow(0.05)])
def test_runs_of_two_resident_blocks_make_progress(monkeypatch, share):
    """A tile keeps its stage until it has room, which waits for tiles before it alone."""
    force(monkeypatch, "runs of bytes")
    x = (np.cumsum(np.random.default_rng(2).random(9001) < share) % 100).astype(np.int8)
    with cs.emulate(), emulator.emulate(schedules=3, seed=5, resident=1):
        equal(cs.run_length_encode(cs.asarray(x), size=9001).exact()[0], x[heads_of(x)])


def test_two_resident_blocks_make_progress(monkeypatch):
    """A tile that waits for room waits only for tiles of its block that come before it."""
    force(monkeypatch, "flow")
    x = data(2003, "int64")
    with cs.emulate(), emulator.emulate(schedules=5, seed=5, resident=1):
        equal(cs.select(cs.asarray(x), lambda v: v > -50, size=2003).exact(), x[x > -50])


@functools.cache
def bench() -> faults.Bench:
    """Two filled selections, of all elements at first, and then of few."""
    x, mask = data(3001, "int32"), np.random.default_rng(4).random(3001) < np.where(np.arange(3001) < 1800, 1, 0.1)
    wanted = np.concatenate([x[mask], np.full(3100 - mask.sum(), 7, np.int32)])

    def right() -> bool:
        arrays = cs.asarray(x), cs.asarray(mask)
        found = [cs.select(*arrays, size=3100, fill_value=7) for _ in range(2)]
        return all(np.array_equal(s.values, wanted) and int(s.count) == mask.sum() for s in found)

    return faults.of_tiles(functools.partial(force, name="flow"), right, schedules=20)


def of_many_heads() -> tuple:
    """Bytes, many of which begin runs: ``(x, values)``."""
    shares = np.repeat([0.996, 0.6, 0.3, 1.0], 2500)
    x = np.cumsum(np.random.default_rng(7).random(10_000) < shares).astype(np.uint8)
    return x, x[heads_of(x)]


def test_many_heads_of_bytes_agree_under_hostile_schedules(monkeypatch):
    force(monkeypatch, "runs of bytes")
    x, values = of_many_heads()
    with cs.emulate(schedules=SCHEDULES, seed=5):
        found = cs.unique_consecutive(cs.asarray(x)).exact()
    equal(found, values)


CROWDED = [-1, 0, 1, 32]  # more than what chunks may have that are put as they are


def of_crowded_chunks(dtype: str) -> tuple:
    """Bytes in chunks of 2048, of which so many are positive: ``(x, kept)``."""
    rng, limit = np.random.default_rng(8), int(2048 * heads.CROWDED)
    mask = np.concatenate([rng.permutation(2048) < limit + more for more in CROWDED])
    x = np.where(mask, rng.integers(1, 99, len(mask)), 0).astype(dtype)
    return x, x[mask]


@pytest.mark.parametrize("dtype", ["int8", slow("uint8")])
def test_chunks_of_which_most_bytes_are_kept(monkeypatch, dtype):
    """They are put in halves of neighbours, others as they are."""
    force(monkeypatch, "runs of bytes")
    x, kept = of_crowded_chunks(dtype)
    with cs.emulate():
        a = cs.asarray(x)
        equal(cs.select(a, positive).exact(), kept)
        equal(cs.select(a, cs.asarray(x > 0)).exact(), kept)
        found = cs.select(a, positive, size=len(x), fill_value=3)
        equal(found.values, np.append(kept, np.full(len(x) - len(kept), 3, dtype)))
        runs = np.cumsum(x > 0).astype(dtype)  # as many heads, and the first position if it is 0
        equal(cs.unique_consecutive(cs.asarray(runs)).exact(), runs[heads_of(runs)])


def test_crowded_chunks_agree_under_hostile_schedules(monkeypatch):
    force(monkeypatch, "runs of bytes")
    x, kept = of_crowded_chunks("int8")
    with cs.emulate(schedules=SCHEDULES, seed=9):
        equal(cs.select(cs.asarray(x), positive).exact(), kept)


@functools.cache
def bench_of_many_heads() -> faults.Bench:
    x, values = of_many_heads()

    def right() -> bool:
        found = cs.unique_consecutive(cs.asarray(x), size=len(values))
        return np.array_equal(found.values, values) and int(found.count) == len(values)

    return faults.of_tiles(functools.partial(force, name="runs of bytes"), right)


WORDS = r"shf\.r\.clamp\.b32 "
OF_MANY_HEADS = {
    "a word that other chunks have a part of is stored whole": (
        faults.every(r"(%r\d+, 3;\n(?:[^\n]*\.loc[^\n]*\n)*[ \t]*and\.b32 \t%r\d+, %r\d+, )-4;", r"\g<1>-8;"),
        {"race", faults.RESULT},
    ),
    "the last words of lanes do not wait for whole ones, in halves": (
        faults.first(faults.op(r"bar\.warp\.sync"), after=WORDS),
        {"race"},
    ),
    "the last words of lanes do not wait for whole ones, as they are": (
        faults.first(faults.op(r"bar\.warp\.sync"), after=WORDS + r"[\s\S]*?bar\.warp\.sync"),
        {"race"},
    ),
}


@pytest.mark.parametrize("fault", OF_MANY_HEADS)
def test_own_faults_of_many_heads_are_found(fault):
    bench_of_many_heads().check(*OF_MANY_HEADS[fault])


@functools.cache
def bench_of_runs() -> faults.Bench:
    """Runs of one byte each at first but for a few, then some of more, which are put in words, and at last those that
    are found bit by bit."""
    share = np.repeat([0.996, 0.7, 0.1], [3000, 3000, 7000])
    x = (np.cumsum(np.random.default_rng(4).random(13000) < share) % 100).astype(np.int8)
    values, _, _, lengths = of_runs(x, heads_of(x))

    def right() -> bool:
        found = [cs.run_length_encode(cs.asarray(x), size=len(values)) for _ in range(2)]
        return all(
            np.array_equal(s.values, values) and np.array_equal(s.lengths, lengths) and int(s.count) == len(values)
            for s in found
        )

    return faults.of_tiles(functools.partial(force, name="runs of bytes"), right)


HARMLESS = [*faults.ONE_FENCE, "no init fence #4", "no init fence #5", "no look at the barrier #0"]


@pytest.mark.slow
def test_no_mutant_survives():
    assert bench().survivors(faults.TILES, HARMLESS) == HARMLESS


# Of what its warps do otherwise; places are read as soon as they are listed, elements as long as a tile has its stage.
OF_RUNS = {name: faults.TILES[name] for name in ("no arrive", "no look at the barrier", "parity flipped")}
OF_RUNS |= {
    "a relaxed arrival": (faults.TILES["a relaxed arrival"][0], {"race", "proxy"}),
    "no sync_warp": (faults.TILES["no sync_warp"][0], {"race", "barrier", "uninitialised"}),
}


@pytest.mark.slow
def test_no_mutant_of_runs_survives():
    """The warps that compact leave a stage behind the one that publishes, one lane of which writes all of a tile of one
    chunk; of two arrivals in a row, the second one has its warp together."""
    harmless = ["no look at the barrier #0", "a relaxed arrival #0", *(f"no sync_warp #{k}" for k in (1, 3, 8))]
    assert bench_of_runs().survivors(OF_RUNS, harmless) == harmless


# Heads of bytes: their bits, and the parts of bits that lanes give each other where there are many heads
OWN_OF_RUNS = {
    "a head that is another byte's": faults.every(r"(dp4a\.u32\.u32 %r\d+, %r\d+, )134480385,", r"\g<1>134480898,"),
    "a byte of the wrong lane's heads": faults.every(r"(prmt\.b32 %r\d+, %r\d+, %r\d+, )21520;", r"\g<1>4180;"),
    "the first of several heads twice": faults.every(r"(lop3\.b32 [^;]*, )0x40;", r"\g<1>0xC0;"),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", OWN_OF_RUNS)
def test_own_faults_of_runs_are_found(fault):
    bench_of_runs().check(OWN_OF_RUNS[fault], {faults.RESULT, "race", "out-of-bounds", "uninitialised", "deadlock"})


WRAPS = r"(setp\.gt\.s32 \t(%p\d+), %r\d+, 512;[^@]*?selp\.b32 \t(%r\d+), %r\d+, 0, \2;)"
OWN = faults.OF_TILES | {
    "a room that is full to its end does not begin anew": (
        faults.only(WRAPS, r"\1\nsetp.gt.s32 \2, \3, 0;"),
        {faults.RESULT, "race", "out-of-bounds"},
    ),
    "room beyond its end": (faults.only(WRAPS, lambda m: m[0].replace("512", "900", 1)), {"race", "out-of-bounds"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", OWN)
def test_own_faults_are_found(fault):
    bench().check(*OWN[fault])
