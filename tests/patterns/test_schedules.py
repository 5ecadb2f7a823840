"""Every pattern agrees with NumPy under hostile schedules over all policies, sanitized; on a GPU at many sizes."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.emulator import POLICIES

from ..cases import with_slow
from .cases import PATTERNS, numbers, same, thirds

SCHEDULES = (3, 9)  # of small arrays, and of the largest of each pattern: each policy
LARGE = (1, 2, 31, 32, 255, 256, 257, 4095, 4097, 100_003, 1 << 20, (1 << 22) + 5)


# another type or method of a kernel that is among the others
ALSO = {"primes by block", "primes by each", "list by each", "bulk, three consumers", "block_atomic, float64"}


@pytest.mark.drawn(15)
@pytest.mark.parametrize("name", with_slow(PATTERNS, ALSO))
def test_agrees_under_hostile_schedules(name):
    pattern = PATTERNS[name]
    for n in pattern.sizes:
        x, schedules = pattern.make(n), SCHEDULES[n == pattern.sizes[-1]]
        if pattern.ordered:
            with cs.emulate(schedules=schedules, seed=5) as ran:
                got = pattern.run(x)
            assert same(got, pattern.wanted(x), True), n
            assert ran.launches
        else:  # the order is the schedule's: one launch at a time
            for number in range(schedules):
                policy = list(POLICIES)[(number * 4 + n) % 9]
                with cs.emulate(policy, seed=number // 9):
                    assert same(pattern.run(x), pattern.wanted(x), False), (n, policy)


@pytest.mark.gpu
@pytest.mark.parametrize("name", PATTERNS)
def test_agrees_on_the_gpu(name):
    pattern = PATTERNS[name]
    for n in LARGE if name != "relay of one slot" else LARGE[:7]:
        x = pattern.make(n)
        assert same(pattern.run(x), pattern.wanted(x), pattern.ordered), n


def test_nothing_in_nothing_out(on_emulator):
    empty = np.zeros(0, np.int32)
    for name, pattern in PATTERNS.items():
        if name not in ("chained", "launch_per_level", "scan of counts") and not name.startswith(
            ("block_atomic", "primes", "round trip", "warp")
        ):
            assert np.asarray(pattern.run(empty)).shape == (0,), name


@pytest.mark.parametrize("method", with_slow(["block", "warp", "each"], {"each"}))
def test_a_channel_is_used_on_after_overflow_and_failed_takes(method):
    x = numbers(3000)
    kept = x[thirds(x)]
    for seed, policy in enumerate(POLICIES):
        with cs.emulate(policy, seed):
            channel = cs.patterns.Channel(100)
            assert len(channel.take(5)) == 0 and channel.size == 0  # a take from an empty one changes nothing
            channel.give(x, thirds, method=method)
            assert (channel.size, channel.overflowed) == (100, len(kept) - 100)
            held = channel.to_numpy()
            assert not len(set(held) - set(kept))
            took = channel.take(130)
            assert sorted(took) == sorted(held) and channel.size == 0
            channel.give(x[:40], method=method)
            assert sorted(channel.to_numpy()) == sorted(x[:40]) and channel.size == 40
            channel.reset()
            assert (channel.size, channel.overflowed) == (0, 0)


def test_a_channel_of_one_item():
    for policy in POLICIES:
        with cs.emulate(policy):
            channel = cs.patterns.Channel(1, "float32").give(np.arange(70, dtype=np.float32))
            assert (channel.size, channel.overflowed) == (1, 69)
            assert 0 <= channel.take(2)[0] < 70 and channel.size == 0


@pytest.mark.gpu
def test_every_item_exactly_once_under_contention():
    x = np.random.default_rng(0).permutation(1 << 22).astype(np.int32)
    for method in ("block", "warp", "each"):
        channel = cs.patterns.Channel(1 << 22).give(x, method=method)
        assert channel.size == len(x) and np.array_equal(np.sort(channel.to_numpy()), np.arange(len(x)))
        parts = [channel.take(1 << 20) for _ in range(5)]
        assert [len(part) for part in parts] == [1 << 20] * 4 + [0]
        assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(x)))
    for capacity in (1, 2, 64, 1 << 14):
        y = cs.patterns.relay.run(x[: 1 << 18 if capacity > 2 else 1 << 12], capacity)
        assert np.array_equal(np.sort(y), np.sort(x[: len(y)])), capacity
