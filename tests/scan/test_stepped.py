"""Scans of rows whose elements lie a few elements apart: waves and rows in registers that load them one by one, and the
pipeline and rows of bytes, which load what lies between them, too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import cutesync as cs
from cutesync import emulator
from cutesync.emulator import EmulationError
from cutesync.kernels.scan import plan, policy, wave_policy
from cutesync.kernels.scan.gapped import GappedScan
from cutesync.kernels.scan.policy import GappedPolicy, choose, suits
from cutesync.kernels.scan.problem import Problem
from cutesync.kernels.scan.row_policy import RowPolicy, ShortRowPolicy
from cutesync.kernels.scan.strided_policy import StridedPolicy
from cutesync.kernels.scan.wave_policy import WavePolicy
from cutesync.runtime import call

from ..cases import adjacent, data, same, scanned, segments
from ..faults import RESULT, Bench, each, every


@pytest.fixture
def policies(monkeypatch):
    """The policies of the launches of a test, in which tiles are small and no row is too short."""
    found, launch = [], plan.launch
    monkeypatch.setattr(plan, "launch", lambda choice, *more: found.append(choice.policy) or launch(choice, *more))
    monkeypatch.setattr(policy, "MIN_GAPPED_BYTES", 0)
    monkeypatch.setattr(wave_policy, "sizes", lambda problem, table, total: (2, 2))
    monkeypatch.setattr(call, "_plans", {})
    return found


@pytest.fixture
def pipelines(monkeypatch, policies):
    """The same, in which the pipeline has small tiles, and few blocks."""
    monkeypatch.setattr(policy, "MIN_PIPELINED_GAPS", dict.fromkeys(policy.MIN_PIPELINED_GAPS, 0))
    monkeypatch.setattr(policy, "HALF_TILES", replace(policy.HALF_TILES, vectors_per_thread=1, stages=6))
    monkeypatch.setattr(policy, "SMS", 2)
    return policies


def stepped(x: np.ndarray, step: int, first: int):
    """An array of the values of ``x``, ``step`` elements apart, from element ``first`` of its memory on; the last one
    ends the memory."""
    memory = np.full(first + (x.size - 1) * step + 1, 77, x.dtype)
    memory[first::step] = x
    return cs.asarray(memory)[first::step]


@pytest.mark.drawn(2)
@pytest.mark.parametrize(("dtype", "step"), [("int16", 2), ("float32", 3), ("int64", 4)])
def test_every_step(dtype, step, on_emulator, policies):
    for length, first, reverse in ((2, 0, dtype == "int16"), (1211, 1, dtype == "int16")):
        x = data((length,), dtype)
        around = cs.asarray(np.full(length + 9, 7, dtype))
        cs.scan(stepped(x, step, first), reverse=reverse, out=around[first : first + length])
        found = np.asarray(around)
        same(found[first : first + length], scanned(x, axis=0, reverse=reverse), f"{length}")
        assert (found[:first] == 7).all() and (found[first + length :] == 7).all()
    assert {(type(each), each.gap) for each in policies} == {(WavePolicy, step)}


def test_operators_that_do_not_commute(on_emulator, policies):
    x = segments((1301,), 0)
    for options in ({"reverse": True}, {"exclusive": True, "init": 5}):
        found = np.asarray(cs.scan(stepped(x, 3, 1), adjacent, **options))
        same(found, scanned(x, adjacent, axis=0, **options), str(options))
    assert {(type(each), each.gap) for each in policies} == {(WavePolicy, 3)}


def test_hostile_schedules(policies):
    x = data((1101,), "int32")
    with cs.emulate(schedules=3, seed=5):
        same(np.asarray(cs.scan(stepped(x, 2, 1))), scanned(x, axis=0))
    assert [each.gap for each in policies] == [2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "edit",
    [
        every(r"(ld\.global\.b32 .*)\+12\]", r"\1+8]"),
        every(r"(mul\.lo\.s64 \t%rd\d+, %rd\d+), 3;", r"\1, 2;"),
        every(r"(mul\.lo\.s32 \t%r\d+, %r\d+), 3;", r"\1, 4;"),
    ],
    ids=["an element beside it", "tiles that are too near", "ends that are too far"],
)
def test_planted_faults_are_found(edit, policies, on_emulator):
    x = data((1101,), "int32")

    def right() -> bool:
        with cs.emulate():
            return np.array_equal(np.asarray(cs.scan(stepped(x, 3, 1))), scanned(x, axis=0))

    Bench(right).check(edit, {RESULT, "out-of-bounds"})


def test_where_elements_are_loaded_one_by_one():
    def problem(length: int, size: int, gap: int) -> Problem:
        return Problem(1, length, 1, (size,), (size,), (0,), (0,), view="pitched", pitches=((0, 0), (0, 0)), gap=gap)

    for length, size, gap in ((1 << 14, 4, 4), (1 << 20, 1, 2), (1 << 20, 2, 2), (1 << 20, 2, 3), (1 << 20, 8, 3)):
        assert suits(problem(length, size, gap)) and choose(problem(length, size, gap)).policy.gap == gap
    for length, size, gap in ((1 << 12, 4, 2), (1 << 20, 2, 4), (5_000_000, 2, 3), (1 << 16, 1, 2), (1 << 23, 4, 2)):
        assert not suits(problem(length, size, gap))


# name: type, step, length, and whether from the end. The last vector of a row reaches beyond the memory if it is whole.
ROWS = {
    "ends in a vector": ("int16", 2, 3283, False),
    "ends with a tile": ("int16", 2, 3072, False),
    "ends with a vector": ("int8", 3, 4096 + 48, False),
    "from the end": ("float32", 3, 1536, True),
    "bytes from the end": ("int8", 2, 4112, True),
}


@pytest.mark.drawn(2)
@pytest.mark.parametrize("name", ROWS)
def test_rows_of_the_pipeline(name, on_emulator, pipelines):
    dtype, step, length, reverse = ROWS[name]
    x = data((length,), dtype)
    same(np.asarray(cs.scan(stepped(x, step, 0), reverse=reverse)), scanned(x, axis=0, reverse=reverse))
    assert [(type(each), each.gap) for each in pipelines] == [(GappedPolicy, step)]


# Rows whose elements lie apart: type, shape, step, elements from row to row, and the options. Of small ones, vectors of
# memory are loaded. The memory ends with the last element.
SEVERAL = {
    "several rows of a warp": ("int8", (70, 32), 2, 64, {}),
    "bytes, three apart": ("uint8", (9, 64), 3, 208, {"exclusive": True, "init": 5}),
    "bytes, four apart": ("uint8", (9, 160), 4, 640, {"reverse": True}),
    "several vectors of a lane": ("uint8", (3, 2000), 2, 4000, {"reverse": True, "init": 3}),
    "one warp of a row": ("int16", (11, 504), 2, 1016, {"reverse": True}),
    "words": ("float32", (11, 200), 2, 403, {"exclusive": True}),
    "numbers of eight bytes": ("int64", (5, 37), 2, 74, {"reverse": True}),
}


@pytest.fixture
def few_blocks(monkeypatch):
    """Small arrays take the kernels of large ones."""
    monkeypatch.setattr(policy, "MIN_ROW_BLOCKS", 0)


def rows_apart(x: np.ndarray, step: int, pitch: int, backward: bool = False):
    """An array of the values of ``x``, whose rows are ``pitch`` elements apart; the last element ends the memory."""
    memory = np.full((len(x) - 1) * pitch + (x.shape[1] - 1) * step + 1, 77, x.dtype)
    size = x.itemsize
    np.lib.stride_tricks.as_strided(memory, x.shape, (pitch * size, step * size))[...] = x[::-1] if backward else x
    whole = cs.asarray(memory)
    return (
        whole.as_strided(x.shape, (-pitch, step), (len(x) - 1) * pitch)
        if backward
        else whole.as_strided(x.shape, (pitch, step))
    )


@pytest.mark.drawn(4)
@pytest.mark.parametrize("name", SEVERAL)
def test_several_rows(name, on_emulator, few_blocks, policies):
    dtype, shape, step, pitch, ways = SEVERAL[name]
    x = data(shape, dtype)
    for backward in (False, True):
        around = cs.asarray(np.full(x.size + 16, 7, dtype))
        cs.scan(rows_apart(x, step, pitch, backward), axis=1, out=around[8 : 8 + x.size].reshape(shape), **ways)
        found = np.asarray(around)
        same(found[8:-8].reshape(shape), scanned(x, axis=1, **ways), f"{name} {backward}")
        assert (found[:8] == 7).all() and (found[-8:] == 7).all()
    assert {(each.gap, each.whole) for each in policies} == {(step, x.itemsize < 4)}
    assert set(map(type, policies)) <= {RowPolicy, ShortRowPolicy}


# What is no row in registers: rows of a block, several of a warp, more than two vectors a lane, but for bytes, and rows
# that do not begin with vectors
TILES = [("int16", (20, 48), 2, 96), ("int16", (5, 1000), 2, 2000), ("uint8", (3, 6000), 2, 12000)]
TILES += [("uint8", (5, 2000), 3, 6000)]
TILES += [("uint8", (9, 528), 2, 1057), ("int16", (9, 520), 2, 1044)]


def test_rows_of_others_are_tiles(on_emulator, few_blocks, policies):
    for dtype, shape, step, pitch in TILES:
        x = data(shape, dtype)
        same(np.asarray(cs.scan(rows_apart(x, step, pitch), axis=1)), scanned(x, axis=1))
    assert set(map(type, policies)) == {StridedPolicy}


OF_ROWS = {
    "what lies between": (every(r"0x7772U", "0x7773U"), {RESULT}),
    "the last vector is loaded whole": (
        every(r"setp\.gt\.s64( \t%p\d+), (%rd\d+), %rd\d+;", r"setp.lt.s64\1, \2, 0;"),
        {"out-of-bounds"},
    ),
}


@pytest.mark.parametrize("fault", OF_ROWS)
def test_faults_of_vectors_of_memory_are_found(fault, few_blocks, policies, on_emulator):
    x = data((9, 32), "uint8")

    def right() -> bool:
        with cs.emulate(schedules=1):
            return np.array_equal(np.asarray(cs.scan(rows_apart(x, 2, 64), axis=1)), scanned(x, axis=1))

    Bench(right).check(*OF_ROWS[fault])
    assert {type(policy) for policy in policies} == {ShortRowPolicy}


@pytest.mark.drawn(1)
@pytest.mark.parametrize(("dtype", "length"), [("int64", 2053), ("float32", 4101)])
def test_tiles_of_several_rows(dtype, length, on_emulator, policies):
    x = data((3, length), dtype)
    same(np.asarray(cs.scan(rows_apart(x, 2, 2 * length + 5), axis=1)), scanned(x, axis=1))
    assert {(type(each), each.gap) for each in policies} == {(WavePolicy, 2)}


@pytest.mark.drawn(1)
@pytest.mark.parametrize(("dtype", "step", "reverse"), [("int16", 2, False), ("uint8", 3, True)])
def test_tiles_of_several_rows_in_the_pipeline(dtype, step, reverse, on_emulator, pipelines, monkeypatch):
    monkeypatch.setattr(policy, "rows", lambda problem: None)
    x = data((3, 4128), dtype)
    found = np.asarray(cs.scan(rows_apart(x, step, 4128 * step + 48), axis=1, reverse=reverse))
    same(found, scanned(x, axis=1, reverse=reverse))
    assert [(type(each), each.gap) for each in pipelines] == [(GappedPolicy, step)]


def affine(p, q):
    """The map p, then q; each is (a, b) for a * x + b, of 16 bits each."""
    a = (p >> 16) * (q >> 16)
    b = (p & 0xFFFF) * (q >> 16) + (q & 0xFFFF)
    return ((a & 0xFFFF) << 16) | (b & 0xFFFF)


def test_an_operator_that_does_not_commute_in_the_pipeline(on_emulator, pipelines):
    x = np.random.default_rng(3).integers(0, 1 << 32, 1601, "uint32") | 0x10000
    options = {"exclusive": True, "init": 5}
    same(np.asarray(cs.scan(stepped(x, 3, 0), affine, **options)), scanned(x, affine, **options))
    assert [each.gap for each in pipelines] == [3]


def test_copies_that_reach_beyond_the_memory_are_found(pipelines, monkeypatch):
    monkeypatch.setattr(GappedScan, "load_end", lambda self, targets, sources, count, start, length: count)
    with cs.emulate(schedules=1), pytest.raises(EmulationError, match="out-of-bounds"):
        cs.scan(stepped(data((3072,), "uint16"), 2, 0))


@pytest.mark.slow
def test_faults_of_the_last_vector_are_found(pipelines, on_emulator):
    """From the end it is that of the first tile, and others come into its stage."""
    x = data((9216,), "int16")
    wanted = scanned(x, axis=0, reverse=True)

    def right() -> bool:
        with cs.emulate(), emulator.emulate(schedules=3, seed=3):
            return np.array_equal(np.asarray(cs.scan(stepped(x, 2, 0), reverse=True)), wanted)

    bench = Bench(right)
    bench.check(each(r"st\.shared\.b32 \t\[%r\d+\+-\d+\], [^;]*;", ""), {RESULT, "uninitialised"})
    bench.check(every(r"fence\.proxy\.async[^;]*;", ""), {"proxy", "proxy-read"})


def test_where_the_pipeline_copies_gaps():
    def problem(length: int, size: int, gap: int, **more) -> Problem:
        pitches = (0, 0), (0, 0)
        return Problem(1, length, 1, (size,), (size,), (0,), (0,), view="pitched", pitches=pitches, gap=gap, **more)

    for length, size, gap in ((1 << 25, 2, 2), (1 << 26, 1, 3), (1 << 26, 4, 3)):
        found = problem(length, size, gap, whole_vectors=True)
        assert suits(found) and choose(found).policy.gap == gap and isinstance(choose(found).policy, GappedPolicy)
        assert not suits(problem(length, size, gap))
    assert not suits(problem(1 << 26, 4, 2, whole_vectors=True))
