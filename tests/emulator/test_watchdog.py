"""Launches that never end are reported, with who goes on and where; what is only long is not, and the bound can be
raised.
"""

import time

import cutlass.cute as cute
import numpy as np
import pytest

import cutesync as cs
from cutesync import emulator
from cutesync.emulator import watchdog
from cutesync.errors import ArgumentTypeError, ArgumentValueError

from .hosts import host
from .support import enqueue, kernel_text, reported

LOOPS = {
    "stores": "L:\n\tadd.u32 %r1, %r1, 1;\n\tst.global.b32 [%a0], %r1;\n\tbra L;",
    "stores the same": "L:\n\tst.global.b32 [%a0], %r1;\n\tbra L;",
    "counts": "L:\n\tadd.u32 %r1, %r1, 1;\n\tbra L;",
    "nothing": "L:\n\tbra L;",
    "loads": "L:\n\tld.global.b32 %r2, [%a0];\n\tadd.u32 %r1, %r1, %r2;\n\tbra L;",
    "atomics": "L:\n\tatom.global.add.u32 %r1, [%a0], 1;\n\tbra L;",
    "meets at a barrier": "L:\n\tbar.sync 0;\n\tbra L;",
    "arrives": "\tmov.u32 %r3, smem;\n\tmbarrier.init.shared.b64 [%r3], 1;\n"
    "L:\n\tmbarrier.arrive.shared.b64 %rd2, [%r3];\n\tbra L;",
    "sleeps": "L:\n\tnanosleep.u32 100;\n\tbra L;",
    "reads the clock": "L:\n\tmov.u64 %rd2, %globaltimer;\n\tbra L;",
    "copies": "\tmov.u32 %r3, smem;\nL:\n\tcp.async.ca.shared.global [%r3], [%a0], 4;\n\tcp.async.wait_all;\n\tbra L;",
    "diverges": "\tsetp.lt.u32 %p1, %r0, 1;\nL:\n\t@%p1 bra M;\n\tadd.u32 %r1, %r1, 1;\nM:\n\tbra L;",
}


def run(loop: str, block: int = 1, **settings) -> None:
    text = kernel_text(f"\tmov.u32 %r0, %tid.x;\n\tmov.u32 %r1, 0;\n{loop}", 1, shared=64)
    x = np.zeros(4, np.int32)
    with emulator.emulate(**settings):
        enqueue(text, x, block=(block, 1, 1))


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("sanitize", (True, False))
def test_an_endless_loop_is_reported(loop, sanitize):
    block, where = 32 if loop == "diverges" else 1, r"block \(0, 0, 0\) warp 0"
    text = reported("livelock deadlock", where, run, LOOPS[loop], block, max_steps=3000, sanitize=sanitize)
    assert text.startswith("deadlock") or ("max_steps=" in text and "CUTESYNC_MAX_STEPS" in text)


@pytest.mark.parametrize("policy", emulator.POLICIES)
def test_an_endless_loop_of_some_warps_of_many(policy):
    loop = "\tsetp.lt.u32 %p1, %r0, 32;\n\t@!%p1 bra DONE;\n" + LOOPS["atomics"] + "\nDONE:"
    reported("livelock", r"livelock: block .* warp 0", run, loop, block=128, policy=policy, max_steps=2000)


@host(block=32)
@cute.kernel
def forever(x: cute.Tensor):
    i = x[0]
    while i >= 0:
        i = x[0] + 1
        x[0] = i * 0


def test_check_says_the_line():
    how = {"schedules": 1, "max_steps": 2000, "sanitize": False}
    reported("livelock", r"test_watchdog\.py:\d+", emulator.check, forever, np.zeros(4, np.int32), **how)


def counted(rounds: int) -> str:
    return f"L:\n\tadd.u32 %r1, %r1, 1;\n\tst.global.b32 [%a0], %r1;\n\tsetp.lt.u32 %p1, %r1, {rounds};\n\t@%p1 bra L;"


def test_the_bound_can_be_raised(monkeypatch):
    reported("livelock", "", run, counted(3000), max_steps=1000)
    run(counted(3000), max_steps=4000)
    monkeypatch.setenv("CUTESYNC_MAX_STEPS", "1000")
    reported("livelock", "", run, counted(3000))
    run(counted(3000), max_steps=4000)
    monkeypatch.setenv("CUTESYNC_MAX_STEPS", "4000")
    run(counted(3000))


def test_what_ends_block_by_block_may_be_long():
    text = kernel_text(
        "\tmov.u32 %r1, 0;\n"
        + counted(20)
        .replace("[%a0]", "[%rd1]")
        .replace("L:", "\tmov.u32 %r2, %ctaid.x;\n\tmul.wide.u32 %rd1, %r2, 4;\n\tadd.u64 %rd1, %rd1, %a0;\nL:"),
        1,
    )
    x = np.zeros(200, np.int32)
    with emulator.emulate(max_steps=1000, resident=4) as used:
        enqueue(text, x, (200, 1, 1))
    assert (x == 20).all() and used.steps > 4000


def test_a_quiet_loop_is_reported_in_time(monkeypatch):
    """Without a bound of the user's it is the time that counts, and that of this thread alone."""
    monkeypatch.setattr(watchdog, "_QUIET_SECONDS", 0.5)
    before = time.perf_counter()
    reported("livelock", "nothing visible changed", run, LOOPS["counts"])
    assert time.perf_counter() - before < 20


def test_the_own_bounds_hold_for_what_is_cheap_or_slow(monkeypatch):
    """Steps and seconds must both be spent."""
    monkeypatch.setattr(watchdog, "_STEPS", 1)
    monkeypatch.setattr(watchdog, "_STEPS_OF_WARP", 1)
    run(counted(9000))
    monkeypatch.setattr(watchdog, "_SECONDS", 1e-9)
    reported("livelock", "no thread has ended", run, counted(9000))


@pytest.mark.parametrize("value", (0, -1))
def test_bounds_that_are_none(value, monkeypatch):
    with pytest.raises(ArgumentValueError, match="max_steps"), cs.emulate(max_steps=value):
        pass
    monkeypatch.setenv("CUTESYNC_MAX_STEPS", str(value))
    with pytest.raises(ArgumentValueError, match="CUTESYNC_MAX_STEPS"):
        run("")


@pytest.mark.parametrize("name", ("max_steps", "seed", "schedules", "resident"))
def test_settings_that_are_no_numbers(name):
    with pytest.raises(ArgumentTypeError, match=name), emulator.emulate(**{name: "many"}):
        pass
