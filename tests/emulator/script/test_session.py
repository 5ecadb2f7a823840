"""The parts of a checked run by themselves: device memory, calls of host code, launches that are repeated."""

import ctypes
import gc

import numpy as np
import pytest

from cutesync.emulator import DEVICE, heap, limits
from cutesync.emulator.host_calls import HostCalls, calls_of
from cutesync.emulator.script.session import CHECKED_REPEATS, Options, Session
from cutesync.errors import LaunchError

from ..support import HEADER, kernel_text

RACE = kernel_text("\tmov.u32 %r0, %tid.x;\n\tst.global.b32 [%a0], %r0;", 1)


def launch(session, text, address, threads=32):
    """What cuda.bindings does for cuLaunchKernel."""
    calls = HostCalls(text, session.launch, session.failed)
    cell = ctypes.c_uint64(address)
    places = (ctypes.c_void_p * 1)(ctypes.addressof(cell))
    return calls, lambda keep=cell: calls.launch("k", (1, 1, 1), (threads, 1, 1), 0, ctypes.addressof(places))


def test_each_launch_is_checked_and_a_loop_is_not_checked_for_ever():
    session = Session(Options(schedules=2))
    memory = heap.allocate(4, "one word")
    _, run = launch(session, RACE, memory.ctypes.data)
    for number in range(CHECKED_REPEATS + 3):
        session.record.begin()
        run()
        assert bool(session.record.failures) == (number < CHECKED_REPEATS), number
    assert session.record.launches == CHECKED_REPEATS + 3 and "run unchecked" in session.record.notes[0]
    assert memory.view(np.int32)[0] in range(32), "the result is left behind"


def test_findings_that_are_allowed_are_no_failures():
    session = Session(Options(schedules=3, allow=("race",)))
    memory = heap.allocate(4, "one word")
    launch(session, RACE, memory.ctypes.data)[1]()
    assert [r.kind for r in session.record.findings] == ["race"], "one, of all schedules"
    assert not session.record.failures


def test_device_memory_has_bounds_and_ends_with_its_arrays():
    words = [heap.allocate(8, f"array {i}") for i in range(3)]
    assert all(heap.holds(w.ctypes.data) and not heap.holds(w.ctypes.data + 8) for w in words)
    assert all(w.ctypes.data % heap.ALIGNMENT == 0 and w[:1].ctypes.data for w in words)
    session = Session(Options(schedules=1))
    launch(session, RACE, words[1].ctypes.data + 8)[1]()
    (report,) = session.record.failures
    assert report.kind == "out-of-bounds" and "0 bytes past the end of array 1 (8 bytes)" in report.text()
    address, view = words[0].ctypes.data, words[0][4:]
    del words
    gc.collect()
    assert heap.holds(address), "a view keeps it alive"
    del view
    gc.collect()
    assert not heap.holds(address) and not DEVICE.memory.starting_at(address)
    session.record.begin()
    launch(session, RACE, address)[1]()
    assert "in array 0, which has been freed" in session.record.failures[-1].text()


def test_fresh_memory_must_be_written_only_if_asked():
    for strict in (False, True):
        fresh = heap.allocate(16, "fresh", fresh=True, strict=strict)
        assert np.isnan(fresh.view(np.float32)).all()
        session = Session(Options(schedules=1))
        text = kernel_text("\tld.global.b32 %r0, [%a0];\n\tst.global.b32 [%a0+4], %r0;", 1)
        launch(session, text, fresh.ctypes.data, 1)[1]()
        assert [r.kind for r in session.record.failures] == ["uninitialised"] * strict
    heap.initialised(fresh.ctypes.data)
    session = Session(Options(schedules=1))
    launch(session, text, fresh.ctypes.data, 1)[1]()
    assert not session.record.findings


SUMS = """
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd1, %r0, SIZE;
    add.u64 %rd1, %a0, %rd1;
    add.u64 %rd1, %rd1, 16;
    ld.global.BITS VALUE, [%rd1];
    red.relaxed.gpu.global.add.KIND [%a0], VALUE;
    LAST"""


@pytest.mark.parametrize(
    ("kind", "dtype", "last", "found"),
    [
        ("f32", np.float32, "", []),
        ("f64", np.float64, "", []),
        ("noftz.f16", np.float16, "", []),
        ("f32", np.float32, "atom.relaxed.gpu.global.exch.b32 %r5, [%a0], %r4;", ["mismatch"]),
        ("f32", np.float32, "atom.relaxed.gpu.global.exch.b32 %r5, [%a0+4], %r4;", ["mismatch"]),
    ],
)
def test_sums_of_floats_may_be_rounded_in_any_order(kind, dtype, last, found):
    """A note says so. What differs by more, or elsewhere than in sums, is an error."""
    bits = 8 * np.dtype(dtype).itemsize
    value = {16: "%rs1", 32: "%r4", 64: "%rd4"}[bits]
    text = SUMS.replace("SIZE", str(bits // 8)).replace("BITS", f"b{bits}").replace("VALUE", value)
    text = kernel_text(text.replace("KIND", kind).replace("LAST", last), 1)
    memory = heap.allocate(16 + 64 * bits // 8, "sums")
    memory[:] = 0
    memory[16:].view(dtype)[:] = np.random.default_rng(0).normal(size=64) * 10
    session = Session(Options(schedules=9))
    launch(session, text, memory.ctypes.data, 64)[1]()
    assert sorted({r.kind for r in session.record.failures}) == found
    assert found or "adds floats in any order" in session.record.notes[0]


MEET = """
    mov.u32 %r2, %tid.x;
    setp.ne.u32 %p2, %r2, 0;
    @%p2 bra END;
    red.relaxed.gpu.global.add.u32 [%a0], 1;
    AGAIN: ld.relaxed.gpu.global.u32 %r1, [%a0];
    setp.lt.u32 %p1, %r1, 20;
    @%p1 bra AGAIN;
    END:"""


@pytest.mark.parametrize(
    ("option", "threads", "found"), [(False, 32, {"deadlock"}), (True, 32, set()), (True, 1024, {"deadlock"})]
)
def test_grids_that_fit_may_count_on_all_their_blocks(option, threads, found, monkeypatch):
    """One multiprocessor holds 32 blocks of a warp, and two of 1024 threads. Without the option nobody says so."""
    monkeypatch.setattr(limits, "multiprocessors", lambda: 1)
    session = Session(Options(schedules=9, co_resident=option))
    memory = heap.allocate(4, "count")
    memory[:] = 0
    calls = HostCalls(kernel_text(MEET, 1), session.launch, session.failed)
    cell = ctypes.c_uint64(memory.ctypes.data)
    places = (ctypes.c_void_p * 1)(ctypes.addressof(cell))
    calls.launch("k", (20, 1, 1), (threads, 1, 1), 0, ctypes.addressof(places))
    assert {r.kind for r in session.record.failures} == found


def test_host_code_is_refused_before_it_runs():
    module = """
  llvm.func @_cudaGraphLaunch(!llvm.ptr, !llvm.ptr) -> i32
  llvm.func @_cudaGetDevice(!llvm.ptr) -> i32 attributes {llvm.linkage = "external"}
  llvm.func @_cudaOwn(%arg0: !llvm.ptr) -> i32 {
"""
    assert calls_of(module) == {"_cudaGraphLaunch", "_cudaGetDevice"}
    calls = HostCalls(HEADER, lambda launch: None)
    with pytest.raises(LaunchError, match="calls of cudaGraphLaunch"):
        calls.callbacks(calls_of(module))
    answers = calls.callbacks({"_cudaGetDevice", "_cudaDeviceGetAttribute", "_cudaMalloc", "_cudaFree"})
    place = ctypes.c_int(-1)
    at = ctypes.addressof(place)
    assert answers["_cudaGetDevice"](at) == 0 == place.value
    assert answers["_cudaDeviceGetAttribute"](at, 16, 0) == 0 and place.value == limits.multiprocessors()
    pointer = ctypes.c_void_p()
    assert answers["_cudaMalloc"](ctypes.addressof(pointer), 100) == 0 and heap.holds(pointer.value + 99)
    assert answers["_cudaFree"](pointer.value) == 0 and answers["_cudaFree"](pointer.value) != 0


def test_a_launch_that_a_gpu_refuses_is_an_error_code():
    session = Session(Options(schedules=1))
    calls, _ = launch(session, RACE, 0)
    run = calls.callbacks({"_cudaLibraryGetKernel", "_cudaLaunchKernel"})
    kernel, name = ctypes.c_void_p(), ctypes.create_string_buffer(b"k")
    assert run["_cudaLibraryGetKernel"](ctypes.addressof(kernel), None, ctypes.addressof(name)) == 0
    cell = ctypes.c_uint64(0)
    places = (ctypes.c_void_p * 1)(ctypes.addressof(cell))
    given = kernel.value, 1, 1, 1, 2048, 1, 1, ctypes.addressof(places), 0, None
    assert run["_cudaLaunchKernel"](*given) == 9 and session.record.launches == 0
    assert "block (2048, 1, 1)" in session.record.notes[0]
    with pytest.raises(LaunchError, match="block"):
        calls.reraise()
