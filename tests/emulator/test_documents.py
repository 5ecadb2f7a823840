"""The defects of the source documents' listings are found."""

import numpy as np
import pytest

from ..compiled import check
from . import kernels_documents as documents
from .support import reported

random = np.random.default_rng(5)


def test_the_naive_global_reduction_is_right_for_one_block():
    x = random.integers(0, 9, 64).astype(np.int32)
    total = x.sum()
    check(documents.global_reduction, x, 64)
    assert x[0] == total


def test_the_naive_global_reduction_races_beyond_one_block():
    reported("race", "", check, documents.global_reduction, random.integers(0, 9, 256).astype(np.int32), 256)


def test_the_block_reductions_read_past_the_end():
    x, out = np.ones(100, np.int32), np.zeros(2, np.int32)
    reported("out-of-bounds", "", check, documents.block_reduction, x, out, 2)
    check(documents.block_reduction, np.ones(128, np.int32), out, 2)
    assert out.tolist() == [64, 64]


def test_the_atomic_reduction_adds_to_memory_nobody_zeroed():
    x, out = np.ones(100, np.int32), np.zeros(1, np.int32)
    reported("uninitialised", "", check, documents.atomic_reduction, x, out, 100, fresh=[out])
    out[0] = 0
    check(documents.atomic_reduction, x, out, 100)
    assert out[0] == 100


@pytest.mark.parametrize("n", (96, 100))
def test_the_two_partition_listing_drops_a_ragged_tail(n):
    x = random.integers(0, 99, n).astype(np.int32)
    listing, ours = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
    check(documents.two_partitions, x, listing, n, 48, False)
    check(documents.two_partitions, x, ours, n, 48, True)
    assert np.array_equal(ours, x + 1)
    assert np.array_equal(listing[:96], x[:96] + 1) and np.all(listing[96:] == -1)


def test_a_failed_take_drives_the_counter_below_zero():
    items, got, count = np.arange(64, dtype=np.int32) + 1, np.zeros(64, np.int32), np.array([10], np.int32)
    check(documents.take, items, count, got, schedules=1)
    assert sorted(got[got > 0].tolist()) == list(range(1, 11))
    assert count[0] == 10 - 64


# --- the matmul skeleton ----------------------------------------------------------------------------------------------


def operands(k):
    a, b = (random.integers(-3, 4, (64, k)).astype(np.float16) for _ in range(2))
    return a, b, np.zeros((64, 64), np.float32)


def test_the_repaired_skeleton_multiplies():
    a, b, c = operands(320)
    check(documents.skeleton, a, b, c, 320, ())
    assert np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T)


@pytest.mark.parametrize(
    "fault, kinds, word",
    (
        ("no_empty_init", "barrier", "no mbarrier has been initialised"),
        ("full_counts_128", "deadlock", "127 of 128"),
        ("release_after_commit", "race", "wgmma"),
        ("no_parity", "race deadlock barrier", ""),
        ("setmaxnreg_one_warp", "convergence", "setmaxnreg"),
    ),
)
def test_each_synchronization_fault_of_the_skeleton(fault, kinds, word):
    reported(kinds, word, check, documents.skeleton, *operands(320), 320, (fault,))


def test_the_skeleton_as_printed():
    printed = (
        "no_empty_init",
        "full_counts_128",
        "release_after_commit",
        "no_parity",
        "setmaxnreg_one_warp",
        "drops_tail",
    )
    reported("barrier convergence deadlock race", "", check, documents.skeleton, *operands(320), 320, printed)


def test_the_skeleton_drops_a_ragged_k():
    a, b, c = operands(100)
    a[:, 64:] = b[:, 64:] = 1
    padded = [np.zeros((64, 104), np.float16) for _ in range(2)]
    for whole, part in zip(padded, (a, b)):
        whole[:, :100] = part
    check(documents.skeleton, *padded, c, 104, ("drops_tail",))
    assert np.array_equal(c, padded[0][:, :64].astype(np.float32) @ padded[1][:, :64].astype(np.float32).T)
    check(documents.skeleton, *padded, c, 104, ())
    assert np.array_equal(c, padded[0].astype(np.float32) @ padded[1].astype(np.float32).T)
