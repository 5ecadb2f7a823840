"""Faults planted in the compiled selection kernel are found; the kernel as it is runs clean."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cutesync as cs

from .. import faults
from ..cases import data
from .kernels import force
from .test_agreement import positive

pytestmark = pytest.mark.slow


@functools.cache
def bench() -> faults.Bench:
    """Two filled selections."""
    x, mask = data(3001, "int32"), np.random.default_rng(4).random(3001) < 0.5
    wanted = np.concatenate([x[mask], np.full(3100 - mask.sum(), 7, np.int32)])

    def right() -> bool:
        arrays = cs.asarray(x), cs.asarray(mask)
        found = [cs.select(*arrays, size=3100, fill_value=7) for _ in range(2)]
        return all(np.array_equal(s.values, wanted) and int(s.count) == mask.sum() for s in found)

    return faults.of_tiles(force, right)


OWN = faults.OF_TILES | {
    "ranks of the wrong bits": (
        faults.every(r"(shl\.b32 \t(%r\d+), %r\d+, %r\d+;\n\s*add\.s32 \t%r\d+, \2, )-1;", r"\g<1>0;"),
        {faults.RESULT, "race"},
    ),
}


def test_no_mutant_survives():
    # what a loader waits for before it asks for a tile only says when
    harmless = [*faults.ONE_FENCE, "no look at the barrier #0"]
    assert bench().survivors(faults.TILES, harmless) == harmless


@pytest.mark.parametrize("fault", OWN)
def test_own_faults_are_found(fault):
    bench().check(*OWN[fault])


@functools.cache
def bench_of_waves(name: str = "a block a tile") -> faults.Bench:
    """Two selections by blocks that have a tile each."""
    x, mask = data(1500, "int32"), np.random.default_rng(4).random(1500) < 0.5

    def right() -> bool:
        arrays = cs.asarray(x), cs.asarray(mask)
        found = [cs.select(*arrays) for _ in range(2)]
        total = mask.sum()
        return all(np.array_equal(np.asarray(s.values)[:total], x[mask]) and int(s.count) == total for s in found)

    return faults.of_tiles(functools.partial(force, name=name), right)


OF_WAVES = ("expect_tx +16", "expect_tx -16", "no sync_warp", "no block barrier", "no wait for the launch before")
OF_WAVES = {name: faults.TILES[name] for name in (*OF_WAVES, "no store", "no look at the barrier")}


def test_no_mutant_of_waves_survives():
    assert bench_of_waves().survivors(OF_WAVES) == []


OF_CLUSTERS = ("init count +1", "no init fence at all", "no cluster barrier", "cluster to cta scope", "a relaxed wait")
OF_CLUSTERS = OF_WAVES | {name: faults.TABLE[name] for name in OF_CLUSTERS}


def test_no_mutant_of_clusters_survives():
    # a stage is filled once, and nobody waits until it is empty
    assert bench_of_waves("a cluster").survivors(OF_CLUSTERS, ["init count +1 #1"]) == ["init count +1 #1"]


@pytest.mark.parametrize("fault", faults.OF_TILES)
def test_own_faults_of_waves_are_found(fault):
    bench_of_waves().check(*faults.OF_TILES[fault])


@functools.cache
def bench_of_words() -> faults.Bench:
    """A selection of bytes, and runs: of one byte each, of chunks that are kept as a whole, and of three."""
    x = np.random.default_rng(5).integers(-9, 9, 4500).astype(np.int8)
    kept, heads = x[x > 0], np.append(np.arange(2048), np.arange(800)).astype(np.int8)
    y = np.repeat(heads, np.append(np.full(2048, 1), np.full(800, 3)))

    def right() -> bool:
        found, runs = cs.select(cs.asarray(x), positive), cs.unique_consecutive(cs.asarray(y))
        return np.array_equal(np.asarray(found.values)[: len(kept)], kept) and np.array_equal(np.asarray(runs), heads)

    return faults.of_tiles(functools.partial(force, name="words"), right)


SQUEEZE = r"shf\.r\.clamp\.b32 "
OF_WORDS = {
    "the last words of lanes do not wait for whole ones": (
        faults.first(faults.op(r"bar\.warp\.sync"), after=SQUEEZE),
        {"race"},
    ),
    "words are stored while others are read": (
        faults.last(faults.op(r"bar\.warp\.sync"), before=SQUEEZE),
        {"race", faults.RESULT},
    ),
    "a chunk's last word is stored though it stays": (
        faults.every(r"(setp\.gt\.s32 \t%p\d+, %r\d+, )2047;", r"\g<1>2048;"),
        {"race"},
    ),
    "permutations keep one bit less": (
        faults.every(r"(shr\.u32 \t%r\d+, %r\d+, )20;", r"\g<1>21;"),
        {faults.RESULT, "race", "uninitialised"},
    ),
}


@pytest.mark.parametrize("fault", OF_WORDS)
def test_own_faults_of_words_are_found(fault):
    bench_of_words().check(*OF_WORDS[fault])
