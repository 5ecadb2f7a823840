"""Every building block does what it says under 20 hostile schedules, the sanitizer watching."""

import numpy as np
import pytest

from ..compiled import check
from . import kernels

SCHEDULES = 20
T = kernels.THREADS


def zeros(n):
    return np.zeros(n, np.int32)


def numbers(n):
    return np.random.default_rng(n).integers(-99, 99, n).astype(np.int32)


@pytest.mark.parametrize("how", ["token", "warp", "parity", "both", "test_wait"])
def test_what_was_written_before_the_arrival_is_read_after_the_wait(how):
    x, out = numbers(7 * T), zeros(7 * T)
    check(kernels.turns, x, out, 7, how, schedules=SCHEDULES)
    assert np.array_equal(out.reshape(7, T), x.reshape(7, T)[:, ::-1])


def test_a_barrier_may_be_made_again_once_it_is_given_back():
    out = zeros(T)
    check(kernels.lifecycle, out, schedules=SCHEDULES)
    assert np.array_equal(out, np.arange(T))


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_phase_waits_for_its_bytes(by_hand):
    x, out = numbers(64), zeros(64)
    check(kernels.counted_bytes, x, out, by_hand, schedules=SCHEDULES)
    assert np.array_equal(out, x[::-1])


@pytest.mark.parametrize("completes", [False, True])
def test_threads_that_drop_are_not_waited_for(completes):
    out = zeros(T)
    check(kernels.leaving, out, completes, schedules=SCHEDULES)
    assert np.array_equal(out, np.full(T, 3) if completes else np.arange(T) // 32 + 1)


def test_the_completion_function_sees_all_and_is_seen_by_all():
    x, out = numbers(5 * T), zeros(5 * T)
    check(kernels.running, x, out, 5, schedules=SCHEDULES)
    assert np.array_equal(out.reshape(5, T), np.repeat(np.cumsum(x.reshape(5, T).sum(1)), T).reshape(5, T))


def test_arrivals_reach_another_block_of_the_cluster():
    out = zeros(3 * 2 * 32)
    check(kernels.peers, out, 3, schedules=SCHEDULES)
    expected = [100 * i + 10 * (rank ^ 1) + 31 - t for i in range(3) for rank in range(2) for t in range(32)]
    assert np.array_equal(out, expected)


def test_named_barriers_take_turns():
    out = zeros(1)
    check(kernels.named, out, 6, schedules=SCHEDULES)
    value = 0
    for _ in range(6):
        value = (value + 3) * 2
    assert out[0] == value


RINGS = [
    ("threads", 1, 3, 2, 8),
    ("threads", 2, 4, 3, 5),
    ("threads", 1, 1, 1, 3),
    ("bulk", 1, 3, 2, 8),
    ("bulk", 1, 4, 3, 5),
    ("bulk", 1, 1, 1, 3),
    ("tensor", 1, 3, 2, 8),
    ("tensor", 1, 4, 1, 5),
    ("cp_async", 1, 1, 1, 3),
    ("cp_async", 2, 1, 2, 2),
    ("cp_async", 1, 3, 2, 8),
]


@pytest.mark.parametrize("how, producers, stages, consumers, fills", RINGS)
def test_a_ring_hands_every_fill_over(how, producers, stages, consumers, fills):
    x, out = numbers(fills * kernels.LENGTH), zeros(fills * kernels.LENGTH)
    check(kernels.ring, x, out, fills, how, stages, producers, consumers, schedules=SCHEDULES)
    assert np.array_equal(out, x + 1)


def test_roles_run_their_functions_with_their_registers():
    out = zeros(256)
    check(kernels.budgets, out, schedules=SCHEDULES)
    assert np.array_equal(out, np.where(np.arange(256) < 128, 100 + np.arange(256) // 32, 196 + np.arange(256) // 32))


@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_blocks_meet_at_the_grid_barrier_launch_after_launch(blocks):
    rounds, n = 3, 64 * blocks
    out, word = zeros(n), zeros(1)
    for _ in range(2):  # the second launch finds the word as the first has left it
        check(kernels.grid, zeros(rounds * n), out, word, rounds, blocks, schedules=SCHEDULES)
    value = np.arange(n).reshape(blocks, 64)
    for _ in range(rounds):
        value = np.roll(value, -1, 0)[:, ::-1] + 1
    assert np.array_equal(out, value.ravel())
    assert word[0] & 0x7FFFFFFF == 0
