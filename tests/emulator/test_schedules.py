"""Correct kernels agree with NumPy under every policy, seeds replay exactly, and a launch behaves."""

import json
import threading

import numpy as np
import pytest

from cutesync import emulator
from cutesync.emulator import POLICIES
from cutesync.errors import ArgumentValueError, LaunchError

from ..compiled import check, compiled
from . import (
    kernels_basic as basic,
    kernels_cluster as cluster,
    kernels_epilogue as epilogue,
    kernels_matmul as matmul,
    kernels_pipeline as pipeline,
)

SCHEDULES = 2 * len(POLICIES)
random = np.random.default_rng(3)


@pytest.mark.parametrize("n", (1, 31, 128, 1000))
def test_add(n):
    a, b = random.random(n, np.float32), random.random(n, np.float32)
    c = np.zeros(n, np.float32)
    check(basic.add, a, b, c, n, schedules=SCHEDULES)
    assert np.array_equal(c, a + b)


def test_block_reduction():
    x = random.integers(0, 9, 1000).astype(np.float32)
    out = np.zeros(4, np.float32)
    check(basic.reduce, x, out, 1000, True, 4, schedules=SCHEDULES)
    assert out.sum() == x.sum()


def test_last_block_reduction_resets_its_ticket():
    x = random.integers(-9, 9, 500).astype(np.int32)
    partials, ticket, out = np.zeros(6, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)
    check(basic.last_block, x, partials, ticket, out, 500, "acq_rel", "gpu", 6, schedules=SCHEDULES)
    assert out[0] == x.sum() and ticket[0] == 0


@pytest.mark.parametrize("n", (1, 32, 1000))
def test_look_back_scan(n):
    x = random.integers(-9, 9, n).astype(np.int32)
    tiles = (n + 31) // 32
    out, flags, sums, ticket = (np.zeros(m, np.int32) for m in (n, tiles, tiles, 1))
    check(basic.look_back, x, out, flags, sums, ticket, n, True, "acquire", "release", "gpu", schedules=SCHEDULES)
    assert np.array_equal(out, np.cumsum(x))


def test_named_barriers():
    out = np.zeros(32, np.int32)
    check(basic.named, out, 1, 1, 2, 64, schedules=SCHEDULES)
    assert np.array_equal(out, 600 + 4 * (np.arange(32) ^ 1))


@pytest.mark.parametrize("tiles", (0, 1, 3, 7))
def test_tensor_copy_ring(tiles):
    x = random.random((max(tiles, 1) * pipeline.ROWS, pipeline.COLUMNS), np.float32)
    y = np.zeros_like(x)
    check(pipeline.stream_tiles, x, y, tiles, None, schedules=SCHEDULES)
    assert np.array_equal(y, x + 1 if tiles else 0 * x)


@pytest.mark.parametrize("rounds", (1, 2, 7))
def test_parity_waits_that_leave_phases_out(rounds):
    out = np.zeros(1, np.int32)
    check(pipeline.take_turns, out, rounds, None, schedules=SCHEDULES)
    assert out[0] == rounds


@pytest.mark.parametrize("k", (64, 200))
def test_matmul(k):
    a, b = (random.integers(-3, 4, (64, k)).astype(np.float16) for _ in range(2))
    c = np.zeros((64, 64), np.float32)
    check(matmul.matmul, a, b, c, k, None, schedules=len(POLICIES))
    assert np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T)


@pytest.mark.parametrize("policy", POLICIES)
def test_matmul_of_a_cluster_with_its_epilogue(policy):
    a, b = random.integers(-3, 4, (256, 200)).astype(np.float16), random.integers(-3, 4, (64, 200)).astype(np.float16)
    d = np.zeros((256, 64), np.float16)
    check(epilogue.matmul, a, b, d, 200, None, policy=policy, schedules=2)
    assert np.array_equal(d, (a.astype(np.float32) @ b.astype(np.float32).T).astype(np.float16))


def test_clusters_read_each_other():
    out = np.zeros(8 * 32, np.int32)
    check(cluster.read_peer, out, None, 8, schedules=SCHEDULES)
    assert out.tolist() == [(b // 4 * 4 + (b + 1) % 4) * 100 + 31 - t for b in range(8) for t in range(32)]


def test_asynchronous_stores_to_peers():
    out = np.zeros(8, np.int32)
    check(cluster.gather, out, None, 8, schedules=SCHEDULES)
    assert out.tolist() == [10] * 4 + [26] * 4


def test_hand_over_at_cluster_scope():
    out = np.zeros(32, np.int32)
    check(cluster.hand_over, out, None, schedules=SCHEDULES)
    assert np.array_equal(out, 3 * np.arange(31, -1, -1))


def test_multicast():
    x = random.random((cluster.TILES * cluster.ROWS, cluster.COLUMNS), np.float32)
    y = np.zeros((2, *x.shape), np.float32)
    check(cluster.multicast, x, y, None, schedules=SCHEDULES)
    assert np.array_equal(y[0], x) and np.array_equal(y[1], x)


# --- replay, settings, launches ---------------------------------------------------------------------------------------


def footprint(policy: str, seed: int, path) -> list:
    """Everything that ran, in order."""
    x, out = np.ones(256, np.int32), np.zeros(256, np.int32)
    flags, sums, ticket = (np.zeros(8, np.int32) for _ in range(3))
    arguments = (x, out, flags, sums, ticket, 256, True, "acquire", "release", "gpu")
    with emulator.emulate(policy=policy, seed=seed, trace=path):
        emulator.call(compiled(basic.look_back, *arguments), basic.look_back, *arguments)
    return json.loads(path.read_text())["traceEvents"]


@pytest.mark.parametrize("policy", [p for p in POLICIES if p != "round_robin"])
def test_a_seed_replays_exactly(policy, tmp_path):
    runs = [footprint(policy, seed, tmp_path / "trace.json") for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_a_failing_schedule_is_found_again_by_what_its_report_says():
    x, out = np.ones(100, np.float32), np.zeros(2, np.float32)
    with pytest.raises(emulator.EmulationError) as first:
        emulator.check(basic.reduce, x, out, 100, False, 2)
    replay = first.value.report.replay
    policy, seed = replay.split("'")[1], int(replay.split("seed=")[1])
    with pytest.raises(emulator.EmulationError) as second:
        emulator.check(basic.reduce, x, out, 100, False, 2, policy=policy, seed=seed, schedules=1)
    assert str(second.value) == str(first.value)


def test_one_compiled_function_runs_many_times_with_new_arguments():
    a, c = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    kernel = emulator.compile_for_emulator(basic.add, a, a, c, 64)
    for n in (64, 10, 33):
        c[:] = 0
        emulator.call(kernel, basic.add, a, a, c, n)
        assert np.array_equal(c, np.where(np.arange(64) < n, 2 * a, 0))


def test_bad_settings_are_refused():
    with pytest.raises(ArgumentValueError, match="policy"), emulator.emulate(policy="fair"):
        pass
    with pytest.raises(ArgumentValueError, match="schedules"), emulator.emulate(schedules=0):
        pass


def test_an_empty_grid_is_an_invalid_configuration():
    x = np.zeros(4, np.float32)
    with pytest.raises(LaunchError, match="invalid configuration"):
        emulator.check(basic.add, x, x, x.copy(), 0, schedules=1)


def test_settings_nest():
    with emulator.emulate(policy="random") as outer:
        with emulator.emulate(policy="one_block") as inner:
            assert emulator.settings() is inner
        assert emulator.settings() is outer
    assert emulator.settings().policy is None


def test_tensor_parameters_and_kernels_of_several_launches():
    a, b = random.random((4, 64), np.float32), random.random((4, 64), np.float32)
    c = np.zeros((4, 64), np.float32)
    emulator.check(basic.add_tensors, a, b, c, schedules=5)
    assert np.array_equal(c, (a + b) + b)


def test_threads_may_launch_at_the_same_time():
    arrays = [np.full(200, float(i), np.float32) for i in range(4)]
    outputs = [np.zeros(200, np.float32) for _ in arrays]
    kernel = emulator.compile_for_emulator(basic.add, arrays[0], arrays[0], outputs[0], 200)
    threads = [
        threading.Thread(target=emulator.call, args=(kernel, basic.add, a, a, out, 200))
        for a, out in zip(arrays, outputs)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(out, 2 * a) for a, out in zip(arrays, outputs))
