"""Which rows are tiles of a wave, and which a block has in registers, with which sizes."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.scan.policy import PipelinePolicy, choose
from cutesync.kernels.scan.problem import Problem
from cutesync.kernels.scan.row_policy import RowPolicy
from cutesync.kernels.scan.wave_policy import WavePolicy

from ..cases import data, same, scanned
from .kernels import force, rows, wave


def chosen(count: int, length: int, size: int, first: int = 0):
    """The choice of so many rows, whose input begins ``first`` bytes behind a boundary."""
    return choose(Problem(count, length, 1, (size,), (size,), (first,), (0,)))


@pytest.mark.parametrize(
    ("length", "size", "sizes", "tiles"),
    [
        (1 << 20, 4, (8, 8, True), 128),
        (1 << 22, 4, (8, 16, False), 256),
        (1 << 21, 4, (16, 8, True), 128),
        (5 << 18, 4, (16, 4, True), 160),
        (1 << 19, 4, (8, 8, True), 64),
        (7 << 19, 4, (16, 16, True), 112),
        (1 << 18, 4, (8, 4, True), 64),
        (1 << 20, 8, (16, 8, True), 128),
        (1 << 23, 2, (16, 16, True), 128),
        ((1 << 20) - 4, 4, (16, 4, True), 128),
    ],
)
def test_waves_by_size(length, size, sizes, tiles):
    """Whole chunks of words have eight warps where each SM has at most one tile, and where nearly each has two."""
    choice = chosen(1, length, size)
    policy = choice.policy
    assert isinstance(policy, WavePolicy)
    assert ((policy.warps, policy.rows, policy.asks), choice.tiles) == (sizes, tiles)


def test_waves_of_rows_that_are_not_whole():
    """Large blocks of few bytes an element are two on an SM, but where nearly each SM has one tile."""
    for length, size, first in ((1_600_001, 4, 0), (2636142, 2, 0), (1 << 23, 2, 2)):
        assert chosen(1, length, size, first).policy.blocks_per_sm == 2
    for length, size, first in ((1 << 21, 4, 0), (1 << 21, 4, 4), (10**6, 4, 0), (6021299, 1, 1), (700_001, 8, 0)):
        assert chosen(1, length, size, first).policy.blocks_per_sm == 1


@pytest.mark.parametrize(("length", "size", "vectors"), [(5400, 8, 6), (9035, 8, 12), (9001, 4, 6), (20000, 4, 12)])
def test_tiles_that_have_a_whole_row(length, size, vectors):
    """They have as few vectors as hold the row: a large tile would leave most warps idle."""
    choice = chosen((10 << 20) // (length * size), length, size)
    assert (type(choice.policy), choice.policy.rows, choice.tiles) == (WavePolicy, vectors, 1)


@pytest.mark.parametrize(
    ("count", "length", "first", "vectors"), [(1024, 8192, 8, 9), (292, 5611, 8, 6), (1720, 4940, 0, 5)]
)
def test_long_rows_of_a_block(count, length, first, vectors):
    """Rows of 8-byte elements whose results lie elsewhere in a vector, and those that fill little of two tiles."""
    policy = chosen(count, length, 8, first).policy
    assert (type(policy), policy.team, policy.rows, policy.ragged) == (RowPolicy, 16, vectors, first > 0)


def test_long_rows_that_are_tiles():
    for count, length, size, first in (
        (597, 6348, 8, 0),
        (900, 4097, 8, 0),
        (320, 7573, 8, 0),
        (1024, 9300, 8, 8),
        (1024, 10000, 4, 4),
    ):
        assert isinstance(chosen(count, length, size, first).policy, PipelinePolicy)
    for count, length in ((1, 8192), (90, 8192)):
        assert isinstance(chosen(count, length, 8, 8).policy, WavePolicy)


@pytest.mark.parametrize(("dtype", "length", "first"), [("int64", 8193, 1), ("float64", 4940, 0), ("uint64", 9213, 1)])
def test_long_rows_in_registers(dtype, length, first, on_emulator, monkeypatch):
    force(monkeypatch, rows(16, -(-length // 1024), ragged=first > 0))
    x = data((2, length), dtype)
    memory = cs.asarray(np.concatenate([np.zeros(first, dtype), x.ravel()]))
    for ways in ({}, {"exclusive": True, "reverse": True}):
        found = cs.scan(memory[first:].reshape(2, length), axis=1, **ways)
        same(np.asarray(found), scanned(x, axis=1, **ways), f"{dtype} {ways}")


def test_tiles_of_eight_warps_that_ask_for_nothing(on_emulator, monkeypatch):
    force(monkeypatch, wave(8, 8, asks=False))
    x = data((3, 1 << 14), "float32")
    same(np.asarray(cs.scan(cs.asarray(x), axis=1)), scanned(x, axis=1), "three rows of two tiles")
