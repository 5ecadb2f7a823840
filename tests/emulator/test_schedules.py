"""Correct kernels agree with NumPy under every policy, seeds replay exactly, and a launch behaves."""

import json

import numpy as np
import pytest

from cutesync import emulator
from cutesync.errors import ArgumentValueError, LaunchError

from .. import faults
from ..compiled import compiled
from ..concurrency import in_threads
from . import kernels_basic as basic
from .cases import KERNELS, SIZES
from .support import kernel_text, launch

SCHEDULES = 2 * len(emulator.POLICIES)
random = np.random.default_rng(3)


@pytest.mark.drawn(20)
@pytest.mark.parametrize("name", [*KERNELS, *SIZES])
def test_correct_kernels_are_clean_and_right(name):
    """A bench runs its kernel and compares before anything is planted."""
    faults.of_function(*{**KERNELS, **SIZES}[name], SCHEDULES)


# --- replay, settings, launches ---------------------------------------------------------------------------------------


def footprint(policy: str, seed: int, path) -> list:
    """Everything that ran, in order."""
    x, out = np.ones(256, np.int32), np.zeros(256, np.int32)
    flags, sums, ticket = (np.zeros(8, np.int32) for _ in range(3))
    arguments = (x, out, flags, sums, ticket, 256, True, "acquire", "release", "gpu")
    with emulator.emulate(policy=policy, seed=seed, trace=path):
        emulator.call(compiled(basic.look_back, *arguments), basic.look_back, *arguments)
    return json.loads(path.read_text())["traceEvents"]


@pytest.mark.parametrize("policy", [p for p in emulator.POLICIES if p != "round_robin"])
def test_a_seed_replays_exactly(policy, tmp_path):
    runs = [footprint(policy, seed, tmp_path / "trace.json") for seed in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_a_failing_schedule_is_found_again_by_what_its_report_says(monkeypatch):
    faults.without("cutlass.cute:arch.barrier")(monkeypatch)
    x, out = np.ones(100, np.float32), np.zeros(2, np.float32)
    with pytest.raises(emulator.EmulationError) as first:
        emulator.check(basic.reduce, x, out, 100, 2)
    replay = first.value.report.replay
    policy, seed = replay.split("'")[1], int(replay.split("seed=")[1])
    with pytest.raises(emulator.EmulationError) as second:
        emulator.check(basic.reduce, x, out, 100, 2, policy=policy, seed=seed, schedules=1)
    assert str(second.value) == str(first.value)


EXCHANGE = """
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    mad.lo.u32 %r2, %r0, 4, %r1;
    xor.b32 %r3, %r0, 16;
    mad.lo.u32 %r3, %r3, 4, %r1;
    st.volatile.shared.b32 [%r2], 0;
    bar.sync 0;
    st.volatile.shared.b32 [%r2], %r0;
    {sync}
    ld.volatile.shared.b32 %r4, [%r3];
    mul.wide.u32 %rd0, %r0, 4;
    add.u64 %rd0, %rd0, %a0;
    st.global.b32 [%rd0], %r4;"""


@pytest.mark.parametrize("sync, kinds", [("", {"", "mismatch"}), ("bar.warp.sync -1;", {""})])
def test_lanes_of_a_lone_warp_fall_behind(sync, kinds):
    """Volatile accesses are no race; without a barrier between them a lane may see what the other stores too late."""
    found = set()
    for seed in range(16):
        out = np.zeros(32, np.int32)
        launch(
            kernel_text(EXCHANGE.format(sync=sync), 1, shared=128),
            out,
            settings=emulator.Settings("lagging_lane", seed, 1),
        )
        found.add("" if np.array_equal(out, np.arange(32) ^ 16) else "mismatch")
    assert found == kinds


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
    kernel = compiled(basic.add, arrays[0], arrays[0], outputs[0], 200)
    in_threads(lambda i: emulator.call(kernel, basic.add, arrays[i], arrays[i], outputs[i], 200))
    assert all(np.array_equal(out, 2 * a) for a, out in zip(arrays, outputs))


# Each warp looks three times (the second six times) at a word that does not change, so it sleeps in between and is
# woken to look once more. The second warp writes that word while the first one waits at a barrier.
GIVEN_UP = """
\tmov.u32 %r0, %tid.x;
\tmov.u32 %r1, smem;
\tsetp.lt.u32 %p1, %r0, 32;
\tselp.u32 %r2, 3, 6, %p1;
\tmov.u32 %r3, 0;
LOOK:
\tld.relaxed.gpu.global.b32 %r4, [%a0];
\tadd.u32 %r3, %r3, 1;
\tsetp.lt.u32 %p2, %r3, %r2;
\t@%p2 bra LOOK;
\t@%p1 bra MEET;
\tst.relaxed.gpu.global.b32 [%a0], 7;
\tmov.u32 %r3, 0;
AGAIN:
\tld.relaxed.gpu.global.b32 %r4, [%a1];
\tadd.u32 %r3, %r3, 1;
\tsetp.lt.u32 %p2, %r3, 3;
\t@%p2 bra AGAIN;
\tst.shared.b32 [%r1], 7;
MEET:
\tbar.sync 1, 64;
\t@!%p1 bra END;
\tld.shared.b32 %r5, [%r1];
\tst.relaxed.gpu.global.b32 [%a1], %r5;
END:"""


def test_a_write_wakes_nobody_who_has_given_up_looking():
    looked, out = np.zeros(1, np.int32), np.zeros(1, np.int32)
    settings = emulator.Settings(schedules=SCHEDULES)
    launch(kernel_text(GIVEN_UP, 2, shared=64), looked, out, block=(64, 1, 1), settings=settings)
    assert out[0] == 7
