"""Columns of small arrays, whose rows the blocks of a cluster share."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.scan.cluster_policy import MAX_CLUSTER, MAX_THREADS, ColumnClusterPolicy, clusters
from cutesync.kernels.scan.policy import choose
from cutesync.kernels.scan.problem import Problem

from ..cases import DTYPES, check_scan, data, same, scanned
from .kernels import column_clusters, force, wave

QUICK = ("int16",)


@pytest.mark.drawn(6)
@pytest.mark.parametrize("dtype", [t if t in QUICK else pytest.param(t, marks=pytest.mark.slow) for t in DTYPES])
def test_every_type(dtype, on_emulator, monkeypatch):
    """Clusters of three blocks, the last of which is not full."""
    x = data((2, 43, 12), dtype)
    for width, options in ((1, {"init": 1}), (4, {}), (4, {"reverse": True, "exclusive": True})):
        force(monkeypatch, column_clusters(width, 4, 8, 2))
        check_scan(x, axis=1, **options)


def test_in_place(on_emulator, monkeypatch):
    x = data((2, 53, 10), "int32")
    for choice in (column_clusters(2, 4, 8, 2), column_clusters(2, 4, 16, 4)):
        force(monkeypatch, choice)
        array = cs.asarray(x)
        assert cs.scan(array, axis=1, out=array, reverse=True) is array
        same(array, scanned(x, axis=1, reverse=True))


def test_arguments_in_memory_are_read_behind_the_wait(on_emulator, monkeypatch):
    """The launch before may still write them. Blocks of a wave ask for their tiles before the wait otherwise."""
    twice = cs.asarray(np.array([2], np.int32))
    for choice, shape, axis in ((column_clusters(2, 4, 8, 2), (43, 12), 0), (wave(2, 1), (1203,), 0)):
        force(monkeypatch, choice)
        x = data(shape, "int32")
        found = cs.scan(cs.asarray(x), axis=axis, transform=lambda v, t: v * t, args=(twice[0],))
        same(np.asarray(found), scanned(x * 2, axis=axis))


def problem(rows: int, length: int, inner: int, size: int, **more) -> Problem:
    return Problem(rows, length, inner, (size,), (size,), (0,), (0,), **more)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_what_the_policy_promises(size):
    """A cluster has all rows of its columns; a block has whole warps, and lanes enough to tell every block."""
    for rows, length, inner in (
        (1, 8192, 64),
        (2, 2048, 8),
        (7, 300, 1001),
        (1, 263, 17797),
        (3, 1428, 300),
        (1, 512, 65536),
    ):
        choice = clusters(problem(rows, length, inner, size))
        if choice is None:
            continue
        policy = choice.policy
        assert isinstance(policy, ColumnClusterPolicy) and inner % policy.width == 0
        assert (
            policy.groups * policy.height * (policy.cluster - 1)
            < length
            <= policy.groups * policy.height * policy.cluster
        )
        assert policy.cluster <= min(MAX_CLUSTER, policy.groups)
        assert policy.lanes * policy.groups % 32 == 0 and policy.lanes * policy.groups <= MAX_THREADS
        assert choice.grid == rows * -(-inner // (policy.lanes * policy.width)) * policy.cluster


def test_where_clusters_share_columns():
    packed = {"packs": True, "apart": True}
    shared = (
        problem(1, 8192, 64, 4),
        problem(2, 2048, 8, 1),
        problem(1, 512, 32768, 2),
        problem(8, 8192, 16, 8),
        problem(1, 47, 54376, 2),
        problem(1, 60, 43689, 4),
        problem(1, 176, 14639, 2, **packed),
    )
    others = (
        problem(1, 32, 64, 4),
        problem(1, 256, 16, 4),
        problem(1, 7838, 19, 2),
        problem(1, 65536, 2048, 2),
        problem(1, 414, 40_929, 1),
        problem(3, 3400, 393, 1),
        problem(1, 64, 524288, 4),
        problem(1, 675, 5001, 2, **packed),
        problem(1, 8192, 64, 4, counted=True),
    )
    found = [isinstance(choose(one).policy, ColumnClusterPolicy) for one in (*shared, *others)]
    assert found == [True] * len(shared) + [False] * len(others)
