"""Reductions of segments that offsets give: where segments, tiles, chunks and blocks begin and end."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.hardware import SMS
from cutesync.kernels.segments import reduced_policy

from .. import faults
from ..cases import SCHEDULES, STAND_FOR_ALL, numpy_dtype
from ..select.test_agreement import equal
from .kernels import REDUCED, RINGS, force
from .test_segmented import offsets_of, reduce_all

slow = functools.partial(pytest.param, marks=pytest.mark.slow)
TILE = 128  # elements, of all but one of the small kernels
LENGTHS = [1, 31, 33, TILE - 1, TILE, TILE + 1, 6 * TILE + 5]


def mixes(n: int) -> dict[str, list[int]]:
    """Offsets of ``n`` elements."""
    many = 5 * TILE + 3  # more than the ends that are looked at together
    return {
        "ones": list(range(n + 1)),
        "one": [0, n],
        "empty first": [0] * many + [n],
        "empty last": [0] + [n] * many,
        "empty between": [0, *[n // 2] * many, n],
        "a giant between ones": [*range(n // 4 + 1), *range(n - n // 4, n + 1)],
        "runs of 16": [*range(0, n, 16), n],
        "every second one empty": [k for k in (*range(0, n, 21), n) for _ in range(2)],
        "some elements": [n // 3, n // 3, n // 2 + 1],
        "no element": [n // 2] * 5,
    }


def compose(p, q):
    """Of affine maps: not commutative."""
    return p[0] * q[0], p[1] * q[0] + q[1]


def check(n: int, offsets: list[int]) -> None:
    """Sums, and maps composed in order."""
    x, at = np.arange(n, dtype=np.int32) * 7 + 1, np.array(offsets)
    equal(cs.segmented_reduce(x, offsets=at), *reduce_all([x], at))
    pair = x | 1, x % 5
    found = cs.segmented_reduce(pair, compose, offsets=at, identity=(1, 0))
    wanted = np.array([functools.reduce(compose, zip(*(v[a:b] for v in pair)), (1, 0)) for a, b in zip(at, at[1:])])
    for one, other in zip(found, wanted.T):
        equal(one, other.astype(np.int32))


@pytest.mark.drawn(1)
@pytest.mark.parametrize("name", ["three blocks", *map(slow, ("one block", "many chunks"))])
def test_where_segments_begin_and_end(name, monkeypatch):
    force(monkeypatch, name)
    lengths = LENGTHS[::2] if name != "three blocks" else LENGTHS[-1:]
    with cs.emulate(), np.errstate(over="ignore"):
        for n in lengths:
            for offsets in mixes(n).values():
                check(n, offsets)


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.parametrize("dtype", STAND_FOR_ALL)
def test_every_type_at_every_place(dtype, monkeypatch):
    """Elements and results lie anywhere; arrays of a tuple lie at different places of a vector."""
    force(monkeypatch)
    x, offsets = (np.arange(900) % 5).astype(numpy_dtype(dtype)), offsets_of(897, 70)
    with cs.emulate():
        a = cs.asarray(x)
        for first in (0, 1, 3):
            part, out = a[first : first + 897], cs.asarray(np.zeros(73, x.dtype))[first:][:70]
            cs.segmented_reduce(part, "max", offsets=cs.asarray(offsets), init=0, out=out)
            ends = [(x[first:][b:e].max() if e > b else 0) for b, e in zip(offsets, offsets[1:])]
            equal(out, np.array(ends).astype(x.dtype))
        pair = cs.asarray(np.arange(900, dtype=np.int64))[2:899], a[1:898]
        op = lambda p, q: (p[0] + q[0], q[1])  # noqa: E731
        sums, last = cs.segmented_reduce(pair, op, offsets=cs.asarray(offsets), identity=(0, 0))
        equal(sums, *reduce_all([np.arange(2, 899)], offsets))
        ends = [x[1:][e - 1] if e > b else 0 for b, e in zip(offsets, offsets[1:])]
        equal(last, np.array(ends).astype(x.dtype))


@pytest.mark.slow
def test_chosen_kernels_agree():
    """The sizes that calls have, in several blocks."""
    rng = np.random.default_rng(3)
    with cs.emulate():
        for dtype, n in (("int8", 150_001), ("int32", 170_000), ("int64", 60_000)):
            x, offsets = rng.integers(-9, 9, n).astype(dtype), np.sort(rng.integers(0, n + 1, 3000))
            offsets[500:900] = offsets[500]
            assert reduced_policy.blocks(reduced_policy.choose((x.itemsize,), (8,), False), n)[0] > 1
            total = np.append(0, np.cumsum(x, dtype=np.int64))
            found = cs.segmented_reduce(x, offsets=offsets, dtype="int64")
            equal(found, total[offsets[1:]] - total[offsets[:-1]])


@pytest.mark.slow
def test_transform_that_takes_the_index(monkeypatch):
    force(monkeypatch)
    x, offsets = np.arange(777, dtype=np.float32)[::-1].copy(), offsets_of(777, 90)
    with cs.emulate():
        found = cs.segmented_reduce(x, "max", offsets=offsets, transform=lambda v, i: i, dtype="int64", init=-1)
    equal(found, np.where(offsets[1:] > offsets[:-1], offsets[1:] - 1, -1))


@pytest.mark.drawn(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", REDUCED)
def test_agrees_under_hostile_schedules(name, monkeypatch):
    force(monkeypatch, name)
    x = np.arange(6 * TILE + 5, dtype=np.int16)
    with cs.emulate(schedules=SCHEDULES, seed=5):
        for offsets in (np.array(mixes(len(x))["a giant between ones"]), offsets_of(len(x), 300)):
            found = cs.segmented_reduce(cs.asarray(x), offsets=cs.asarray(offsets))
            equal(found, *reduce_all([x], offsets))


def check_rings(dtype: str, n: int, first: int, mix: str) -> None:
    """Sums of elements as large as states, from element ``first`` of an array on."""
    x, at = (np.arange(n + first) * 7 % 1000 + 1).astype(dtype), np.array(mixes(n)[mix])
    found = cs.segmented_reduce(cs.asarray(x)[first:], offsets=cs.asarray(at), dtype=dtype)
    total = np.append(0, np.cumsum(x[first:].astype(np.int64)))
    equal(found, (total[at[1:]] - total[at[:-1]]).astype(dtype))


@pytest.mark.drawn(2)
@pytest.mark.parametrize("mix", mixes(1))
@pytest.mark.parametrize("dtype", ["float32", slow("int64")])
@pytest.mark.parametrize("name", RINGS)
def test_rings(name, dtype, mix, monkeypatch):
    """Tiles that bulk copies bring, of arrays that begin and end anywhere in a line."""
    force(monkeypatch, name)
    with cs.emulate():
        for n, first in ((1, 3), (33, 0), (400, 1), (3001, 31), (3000, 32)):
            check_rings(dtype, n, first, mix)


@pytest.mark.parametrize("dtype", ["uint32", "uint64", "int32"])
def test_rings_of_other_types(dtype, monkeypatch):
    force(monkeypatch, "rings")
    with cs.emulate():
        check_rings(dtype, 1000, 5, "runs of 16")


def test_rings_of_transformed_elements(monkeypatch):
    """States are of another type than the elements whose place they take."""
    force(monkeypatch, "rings")
    x, offsets = np.arange(1777, dtype=np.float64)[::-1].copy(), offsets_of(1777, 200)
    with cs.emulate():
        found = cs.segmented_reduce(x, "max", offsets=offsets, transform=lambda v, i: i, dtype="int64", init=-1)
    equal(found, np.where(offsets[1:] > offsets[:-1], offsets[1:] - 1, -1))


@pytest.mark.drawn(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", RINGS)
def test_rings_under_hostile_schedules(name, monkeypatch):
    force(monkeypatch, name)
    with cs.emulate(schedules=SCHEDULES, seed=5):
        for mix in ("a giant between ones", "runs of 16", "empty between"):
            check_rings("float32", 6 * TILE + 5, 3, mix)


def test_which_arrays_have_rings():
    """Those of elements that are as large as states; the sizes follow from the mean length of segments."""
    chosen, n = functools.partial(reduced_policy.choose, strided=False), 1 << 28
    for size, sizes in reduced_policy.RINGS.items():
        for least, policy in sizes:
            assert chosen((size,), (size,), length=n, segments=n // least) == policy
            assert policy.run % 4 == 0 and policy.bytes((size,), ()) <= 226 << 10
        assert not isinstance(chosen((size,), (size,), length=n, segments=n // 2), reduced_policy.RingPolicy)
        assert not isinstance(chosen((size,), (size,), strided=True), reduced_policy.RingPolicy)
    for sources, states in (((2,), (4,)), ((4,), (8,)), ((4, 4), (4, 4))):
        assert not isinstance(chosen(sources, states), reduced_policy.RingPolicy)


def test_each_block_has_a_part_of_its_own():
    for blocks in range(1, SMS + 1):
        assert len({block * reduced_policy.DEALT % blocks for block in range(blocks)}) == blocks


@functools.cache
def bench(name: str) -> faults.Bench:
    """Two reductions on one workspace, with segments that cross tiles, chunks and blocks."""
    x = np.arange(1500, dtype=np.int32)
    offsets = np.array([0, 3, 3, 40, 41, *range(60, 130, 9), *[500] * 230, 501, *range(700, 790, 3), 1400, 1400, 1500])
    if name == "many chunks":  # the first end of a block is not among the chunks of its first warp's threads
        offsets = np.array([0, 800, 803, 803, *range(840, 1000, 9), 1500])
    if name in RINGS:  # a chunk has more tiles than a ring
        x = np.arange(9000, dtype=np.int64)
        offsets = np.append(offsets, [1500, *range(1600, 1700, 16), 9000])
    (wanted,) = reduce_all([x], offsets)

    def right() -> bool:
        arrays = cs.asarray(x), cs.asarray(offsets)
        return all(np.array_equal(cs.segmented_reduce(arrays[0], offsets=arrays[1]), wanted) for _ in range(2))

    return faults.of_tiles(functools.partial(force, name=name), right, schedules=3)


NAMES = ("no wait for the launch before", "no block barrier", "no sync_warp", "no store")
FAULTS = {name: (faults.TABLE[name][0], {*faults.TABLE[name][1], faults.RESULT, "uninitialised"}) for name in NAMES}


@pytest.mark.slow
@pytest.mark.parametrize("fault", {**FAULTS, **faults.OF_TILES})
def test_faults_are_found(fault):
    others = {"no block barrier": "many chunks", "no store": "one block"}  # whose chunks have many ends
    bench(others.get(fault, "three blocks")).check(*{**FAULTS, **faults.OF_TILES}[fault])


OF_RINGS = {
    name: (faults.TABLE[name][0], {*faults.TABLE[name][1], faults.RESULT, "uninitialised"})
    for name in ("no sync_warp", "no proxy fence", "init count +1", "expect_tx +16", "expect_tx -16", "constant parity")
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", {**OF_RINGS, **faults.OF_TILES})
def test_faults_of_rings_are_found(fault):
    bench("rings").check(*{**OF_RINGS, **faults.OF_TILES}[fault])
