"""What ``check`` makes of its arguments: memory that a pointer or tensor cannot stand for is refused, the rest arrives
as it is.
"""

import cutlass.cute as cute
import numpy as np
import pytest

import cutesync as cs
from cutesync import emulator
from cutesync.errors import ArgumentTypeError, ArgumentValueError

from ..cases import Capsule
from ..runtime import kernels_host as own
from .hosts import host


@host(block=32)
@cute.kernel
def copy(x: cute.Pointer, y: cute.Pointer):
    t = cute.arch.thread_idx()[0]
    cute.make_tensor(y, cute.make_layout(32))[t] = cute.make_tensor(x, cute.make_layout(32))[t]


@host(block=32)
@cute.kernel
def add_one(x: cute.Tensor, y: cute.Tensor):
    t = cute.arch.thread_idx()[0]
    y[t] = x[t] + 1


STRIDED = {
    "every second": np.arange(64, dtype=np.int32)[::2],
    "backwards": np.arange(32, dtype=np.int32)[::-1],
    "one for all": np.broadcast_to(np.int32(1), 32),
    "transposed": np.arange(32, dtype=np.int32).reshape(4, 8).T,
    "columns": np.arange(64, dtype=np.int32).reshape(8, 8)[:, :4],
}


@pytest.mark.parametrize("name", STRIDED)
@pytest.mark.parametrize("where", (0, 1))
def test_a_pointer_has_no_strides(name, where):
    arguments = [np.zeros(32, np.int32), np.zeros(32, np.int32)]
    arguments[where] = STRIDED[name]
    with pytest.raises(ArgumentValueError, match=rf"{'xy'[where]}: got strides .*ascontiguousarray"):
        emulator.check(copy, *arguments, schedules=1)


def test_contiguous_views_are_pointers():
    x, y = np.arange(100, dtype=np.int32)[3:35], np.zeros((4, 8), np.int32)
    emulator.check(copy, x, y, schedules=2)
    assert np.array_equal(x, y.reshape(-1))


def test_a_tensor_has_strides():
    x, y = np.arange(64, dtype=np.int32), np.zeros(96, np.int32)
    emulator.check(add_one, x[::2], y[1::3], schedules=2)
    assert np.array_equal(y[1::3], x[::2] + 1) and not y[::3].any() and not y[2::3].any()


def test_arrays_that_share_memory_are_one_buffer():
    x = np.arange(64, dtype=np.int32)
    emulator.check(copy, x, x[32:], schedules=2)
    assert np.array_equal(x[32:], np.arange(32))
    with pytest.raises(emulator.EmulationError, match=r"race|mismatch"):
        emulator.check(add_one, x[:40], x[1:41], schedules=9)


def test_an_array_registered_by_the_caller_stays_registered():
    x, y = np.arange(32, dtype=np.int32), np.zeros(32, np.int32)
    with emulator.DEVICE.arrays(x):
        before = emulator.DEVICE.memory.regions
        emulator.check(copy, x, y, schedules=1)
        assert emulator.DEVICE.memory.regions == tuple(region for region in before if region.alive())
    assert not emulator.DEVICE.memory.starting_at(x.ctypes.data)


@pytest.mark.parametrize(
    "x, error, words",
    [
        (
            np.ma.masked_array(np.arange(32, dtype=np.int32), np.arange(32) % 2),
            ArgumentTypeError,
            "its mask would be lost",
        ),
        (np.arange(32, dtype=">i4"), ArgumentTypeError, "dtype: got .*>i4"),
        (np.zeros(32, np.complex64), ArgumentTypeError, "complex64"),
        (np.zeros(32, object), ArgumentTypeError, "dtype: got .*'O'"),
    ],
)
def test_arrays_that_a_kernel_cannot_see(x, error, words):
    with pytest.raises(error, match=words):
        emulator.check(copy, x, np.zeros(32, np.int32), schedules=1)


def test_too_many_arguments():
    x = np.zeros(32, np.int32)
    with pytest.raises(ArgumentTypeError, match=r"arguments of copy: got 3; needs 2 \(x, y\)"):
        emulator.check(copy, x, x, x, schedules=1)


def test_the_arguments_are_those_of_launch():
    """Lists, named tuples, numbers, defaults, None, streams left out; all arrays are changed in place."""
    xs, y = [np.full(32, n, np.int32) for n in (1, 10, 100)], np.zeros(32, np.int32)
    emulator.check(own.add_all, xs[:2], own.Pair(xs[2], 5), y, schedules=1)
    assert (y == 511).all()
    x, y = np.arange(64, dtype=np.float32), np.zeros(128, np.float32)
    emulator.check(own.scale, x, y[::-2], np.float64(2), schedules=2)
    assert np.array_equal(y[::-2], 2 * x) and not y[::2].any()
    emulator.check(own.Adder(7), np.arange(32, dtype=np.int32), z := np.zeros(32, np.int32), schedules=1)
    assert np.array_equal(z, np.arange(7, 39))
    emulator.check(own.choose, z, None, True, own.cutlass.Int32, schedules=1)
    assert z[0] == 107


@pytest.mark.parametrize("wrap", [cs.asarray, Capsule], ids=["DeviceArray", "DLPack"])
def test_arrays_in_host_memory_are_changed_in_place(on_emulator, wrap):
    x, y = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    there = wrap(y)
    emulator.check(own.copy, wrap(x[::2]), there, schedules=2)
    assert np.array_equal((y if wrap is Capsule else np.asarray(there))[:32], x[::2])


def test_unaligned_arrays_are_refused():
    x = np.zeros(129, np.uint8)[1:].view(np.int32)
    with pytest.raises(ArgumentValueError, match="x: got address .* for int32; needs a multiple of 4 bytes"):
        emulator.check(add_one, x, x, schedules=1)


def test_a_trace_of_check(tmp_path):
    x = np.arange(32, dtype=np.int32)
    emulator.check(add_one, x, x.copy(), schedules=2, trace=tmp_path / "run.json")
    assert "kernel" in (tmp_path / "run.json").read_text()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_tolerance_for_float_atomics(dtype):
    """The order of atomic sums follows from the schedule, and so do their last bits."""
    x = np.random.default_rng(0).standard_normal(256).astype(dtype)
    with pytest.raises(emulator.EmulationError, match="mismatch"):
        emulator.check(own.atomic_sum, x, np.zeros(1, dtype))
    total = np.zeros(1, dtype)
    emulator.check(own.atomic_sum, x, total, tolerance=1e-4)
    assert np.allclose(total, x.sum(), atol=1e-4)


def test_a_tolerance_hides_no_other_difference():
    """Integers must be equal, and floats that differ by more are reported."""
    with pytest.raises(emulator.EmulationError, match="mismatch"):
        emulator.check(own.last_block, np.zeros(1, np.int32), tolerance=0.1)
    with pytest.raises(emulator.EmulationError, match="mismatch"):
        emulator.check(own.last_block, np.zeros(1, np.float32), tolerance=0.1)


@pytest.mark.parametrize("tolerance", [-1e-9, 1, "a", True, None])
def test_tolerances_that_are_none(tolerance):
    with pytest.raises(ArgumentValueError, match="tolerance: got .*; needs a number from 0 to below 1"):
        emulator.check(add_one, np.zeros(32), np.zeros(32), tolerance=tolerance)


@pytest.mark.gpu
def test_arrays_of_a_gpu_are_copied_there_and_back():
    torch = pytest.importorskip("torch")
    x, y = torch.arange(64, device="cuda", dtype=torch.int32), torch.zeros(64, device="cuda", dtype=torch.int32)
    emulator.check(own.copy, x[::2], y[1::2], schedules=2)
    assert torch.equal(y[1::2], x[::2]) and not y[::2].any()
