"""Settings, backend and trace belong to the thread or task that entered ``emulate``; a launch puts back and compares
what it writes alone; whatever interrupts a launch, everything is as new after it."""

import asyncio
import contextlib
import contextvars
import gc
import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest

import cutesync as cs
from cutesync import emulator
from cutesync.emulator import host_calls, machine, rewind, trace, watchdog
from cutesync.errors import ArgumentTypeError, ArgumentValueError
from cutesync.runtime import device

from ..compiled import check, compiled
from ..concurrency import in_threads
from . import kernels_basic as basic
from .support import enqueue, kernel_text, reported

X = np.arange(3000, dtype=np.int32)


def in_a_thread(work):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result(60)


# --- whose settings ---------------------------------------------------------------------------------------------------


def test_settings_are_those_of_the_thread():
    with emulator.emulate("one_block", schedules=3) as mine:
        assert emulator.settings() is mine
        assert in_a_thread(emulator.settings).policy is None
        assert in_a_thread(lambda: contextvars.copy_context().run(emulator.settings)).schedules == 1


def test_the_backend_is_that_of_the_thread(monkeypatch):
    monkeypatch.setattr(device, "_chosen", lambda: "gpu")
    with cs.emulate():
        assert device.backend() == "emulator"
        assert in_a_thread(device.backend) == "gpu"
    assert device.backend() == "gpu"


def test_settings_are_those_of_the_task():
    async def one(policy: str, entered: asyncio.Event, other: asyncio.Event):
        with cs.emulate(policy) as mine:
            entered.set()
            await other.wait()
            assert emulator.settings() is mine and mine.policy == policy
            child = asyncio.create_task(outlives(mine))
            await asyncio.sleep(0)
        return await child

    async def outlives(outer):
        inside = emulator.settings() is outer
        await asyncio.sleep(0.01)
        return inside and emulator.settings() is not outer

    async def both():
        a, b = asyncio.Event(), asyncio.Event()
        return await asyncio.gather(one("random", a, b), one("one_block", b, a))

    assert asyncio.run(both()) == [True, True]
    assert emulator.settings().policy is None


def test_blocks_that_end_out_of_order():
    first, second = emulator.emulate("random"), emulator.emulate("one_block")
    with first:
        second.__enter__()
    assert emulator.settings().policy == "one_block"
    second.__exit__(None, None, None)
    assert emulator.settings().policy is None


def test_blocks_inside_are_counted_outside():
    x = np.ones(64, np.float32)
    with emulator.emulate() as outer, emulator.emulate(schedules=2) as inner:
        emulator.call(compiled(basic.add, x, x, x.copy(), 64), basic.add, x, x, x.copy(), 64)
    assert outer.launches == inner.launches == 2 and outer.steps == inner.steps > 0


# --- traces -----------------------------------------------------------------------------------------------------------


def test_a_trace_holds_what_check_ran(tmp_path):
    x, path = np.ones(64, np.float32), tmp_path / "run.json"
    with cs.emulate(trace=path) as used:
        emulator.check(basic.add, x, x, x.copy(), 64, schedules=2)
    events = json.loads(path.read_text())["traceEvents"]
    assert any(e["ph"] == "X" for e in events) and used.launches == 2


def test_one_trace_at_a_time(tmp_path):
    outer, inner = (cs.emulate(trace=tmp_path / name) for name in ("a.json", "b.json"))
    with outer, pytest.raises(ArgumentValueError, match=r"a\.json"), inner:
        pass
    assert not (tmp_path / "b.json").exists()


def test_a_trace_that_cannot_be_written_is_said_first(tmp_path):
    before = emulator.settings()
    for path in (tmp_path, tmp_path / "no" / "folder.json", "a\0b"):
        with pytest.raises(ArgumentValueError, match="trace: "), cs.emulate(trace=path):
            raise AssertionError("the block is not entered")
    with pytest.raises(ArgumentTypeError, match="trace: "), cs.emulate(trace=3.5):
        pass
    assert emulator.settings() is before


# --- whose memory -----------------------------------------------------------------------------------------------------

MANY = (
    "\tmov.u32 %r0, %tid.x;\n\tmul.wide.u32 %rd1, %r0, 4;\n\tadd.u64 %rd2, %a0, %rd1;\n\tmov.u32 %r5, 7;\n"
    "\tst.global.b32 [%rd2], %r5;"
)


def between_schedules(monkeypatch, work) -> None:
    """``work()`` runs while the second schedule of a launch does."""
    start, runs = machine.Machine.run, []

    def run(self):
        runs.append(1)
        if len(runs) == 2:
            work()
        start(self)

    monkeypatch.setattr(machine.Machine, "run", run)


def test_arrays_of_others_are_left_alone(monkeypatch):
    mine, others, part = np.zeros(32, np.int32), np.zeros(32, np.int32), np.zeros(64, np.int32)

    def change():
        others[:] = 1
        part[40:] = 2

    between_schedules(monkeypatch, change)
    with emulator.emulate(schedules=3), emulator.DEVICE.arrays(mine, others, part):
        emulator.launch(kernel_text(MANY, 1), (1, 1, 1), (32, 1, 1), [part.ctypes.data])
    assert (others == 1).all() and (part[:32] == 7).all() and (part[40:] == 2).all() and not part[32:40].any()
    assert not mine.any()


def test_arrays_may_come_and_go_while_a_launch_runs(monkeypatch):
    x, held = np.zeros(32, np.int32), []

    def change():
        held[:] = [cs.asarray(np.full(1000, i, np.int32)) for i in range(30)]
        gc.collect()

    with cs.emulate(schedules=3), emulator.DEVICE.arrays(x):
        held[:] = [cs.asarray(np.zeros(5, np.int32)) for _ in range(20)]
        between_schedules(monkeypatch, change)
        emulator.launch(kernel_text(MANY, 1), (1, 1, 1), (32, 1, 1), [x.ctypes.data])
        assert [int(np.asarray(a)[0]) for a in held] == list(range(30)) and (x == 7).all()


def test_what_a_later_schedule_writes_is_compared_and_put_back():
    """The first block to come writes: each schedule starts from the same memory, and its own place is a difference."""
    body = """
\tatom.global.add.u32 %r1, [%a0], 1;
\tsetp.ne.u32 %p1, %r1, 0;
\t@%p1 bra DONE;
\tmov.u32 %r2, %ctaid.x;
\tmul.wide.u32 %rd1, %r2, 4;
\tadd.u64 %rd2, %a0, %rd1;
\tst.global.b32 [%rd2+4], %r2;
DONE:"""
    x = np.full(70, 9, np.int32)
    x[0] = 0
    with emulator.emulate(schedules=9):
        reported("mismatch", "", enqueue, kernel_text(body, 1), x, (64, 1, 1))
    assert x[0] == 64 and (x[1:65] != 9).sum() == 1


def test_variables_of_a_module_start_every_schedule_as_they_were():
    text = kernel_text("\tmov.u64 %rd1, count;\n\tatom.global.add.u32 %r1, [%rd1], 1;\n\tst.global.b32 [%a0], %r1;", 1)
    text = text.replace(".visible", ".global .align 4 .u32 count;\n.visible", 1)
    x = np.zeros(1, np.int32)
    with emulator.emulate(schedules=4):
        enqueue(text, x)
        assert x[0] == 0
        enqueue(text, x)
    assert x[0] == 1  # a module's variables live from launch to launch


WRITES = {
    "store": "\tst.global.b32 [%a0], %r0;",
    "atomic": "\tatom.global.add.u32 %r1, [%a0], 1;",
    "reduction": "\tred.global.add.u32 [%a0], 1;",
    "bulk copy": "\tmov.u32 %r1, smem;\n\tst.shared.b64 [%r1], %rd1;\n\tst.shared.b64 [%r1+8], %rd1;\n"
    "\tfence.proxy.async;\n"
    "\tcp.async.bulk.global.shared::cta.bulk_group [%a0], [%r1], 16;",
}


@pytest.mark.parametrize("way", WRITES)
def test_no_way_to_write_to_memory_that_is_read_only(way):
    x = np.zeros(64, np.int32)
    x.flags.writeable = False
    text = kernel_text("\tmov.u32 %r0, 1;\n\tmov.u64 %rd1, 1;\n" + WRITES[way], 1, shared=64)
    at = x.ctypes.data + -x.ctypes.data % 16
    with emulator.DEVICE.arrays(x):
        reported("out-of-bounds", "read-only", emulator.launch, text, (1, 1, 1), (1, 1, 1), [at])
    assert not x.any()


@pytest.mark.parametrize("sanitize", (True, False))
def test_threads_that_check_and_threads_that_call(sanitize):
    def checks():
        for _ in range(3):
            with cs.emulate(schedules=3, sanitize=sanitize) as used:
                assert int(cs.sum(X)) == X.sum() and used.launches % 3 == 0

    def calls(number: int):
        for i in range(6):
            y = np.full(700 + i % 3, number + i, np.int32)
            with cs.emulate(sanitize=sanitize):
                on_device = cs.asarray(y)
                assert int(np.asarray(cs.sum(on_device))) == y.sum() and np.array_equal(np.asarray(on_device), y)

    works = (checks, partial(calls, 1), partial(calls, 100))
    in_threads(lambda k: works[k](), len(works))


def test_threads_that_check_the_same_arrays():
    x, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)

    def work(_):
        for _ in range(5):
            check(basic.add, x, x, out, 64, schedules=2)

    compiled(basic.add, x, x, out, 64)
    in_threads(work, 3)
    assert np.array_equal(out, 2 * x)


# --- interrupts -------------------------------------------------------------------------------------------------------

PLACES = {
    "while warps run": (machine.Machine, "run_fragment"),
    "while a block starts": (machine.Machine, "admit"),
    "while a thread ends": (machine.Machine, "threads_ended"),
    "while a copy lands": (machine.Machine, "wake"),
    "while the launch is looked at": (watchdog.Watchdog, "look"),
    "before the first write": (rewind.Rewind, "keep"),
    "between two schedules": (rewind.Rewind, "restore"),
    "in the comparison": (rewind.Rewind, "difference"),
    "while the trace is kept": (trace.Trace, "ran"),
    "at the trace's end": (trace.Trace, "end"),
}
CALLS = {
    "sum": (lambda: cs.sum(X), X.sum()),
    "scan": (lambda: cs.cumsum(X), np.cumsum(X)),
    "matmul": (
        lambda: cs.matmul(np.ones((70, 40), np.float16), np.ones((40, 70), np.float16)),
        np.full((70, 70), 40, np.float16),
    ),
}


def right(call: str) -> bool:
    run, expected = CALLS[call]
    return np.array_equal(np.asarray(run()), expected)


INTERRUPTS = (  # every other one at each place
    ("sum", KeyboardInterrupt, 1),
    ("scan", MemoryError, 2),
    ("matmul", KeyboardInterrupt, 40),
    ("sum", OSError, 40),
)


@pytest.mark.drawn(5)
@pytest.mark.parametrize("place", PLACES)
def test_everything_is_as_new_after_an_interrupt(place, monkeypatch, tmp_path):
    owner, name = PLACES[place]
    original = getattr(owner, name)
    with cs.emulate(sanitize=False):
        assert all(map(right, CALLS))  # compiled, and their workspaces are there
    before, regions = emulator.settings(), len(emulator.DEVICE.memory.regions)
    for call, error, moment in INTERRUPTS[list(PLACES).index(place) % 2 :: 2]:
        left = [moment]

        def interrupted(*arguments, left=left, error=error):
            left[0] -= 1
            if not left[0]:
                raise error
            return original(*arguments)

        monkeypatch.setattr(owner, name, interrupted)
        with contextlib.suppress(error), cs.emulate(schedules=2, trace=tmp_path / "run.json", sanitize=False):
            CALLS[call][0]()
        monkeypatch.setattr(owner, name, original)
        assert emulator.settings() is before and not device._forced.get()
        assert in_a_thread(lambda: emulator.LOCK.acquire(timeout=5) and emulator.LOCK.release() is None)
        with cs.emulate(sanitize=False):
            assert right(call)
    if len(emulator.DEVICE.memory.regions) > regions:
        gc.collect()
    assert len(emulator.DEVICE.memory.regions) <= regions


def test_an_interrupt_in_the_host_code_of_a_check(monkeypatch):
    x = np.ones(64, np.float32)
    kernel = compiled(basic.add, x, x, x.copy(), 64)
    emulator.call(kernel, basic.add, x, x, x.copy(), 64)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(host_calls.HostCalls, "_parameters", Mock(side_effect=KeyboardInterrupt))
        emulator.call(kernel, basic.add, x, x, x.copy(), 64)
    out = np.zeros(64, np.float32)
    emulator.call(kernel, basic.add, x, x, out, 64)
    assert (out == 2).all()


def test_an_error_of_a_signal_handler_stays_what_it_is(monkeypatch):
    monkeypatch.setattr(machine.Machine, "run_fragment", Mock(side_effect=TimeoutError("late")))
    with cs.emulate(), pytest.raises(TimeoutError, match="late"):
        cs.sum(X)
