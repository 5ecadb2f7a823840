"""What ``check`` makes of its arguments: memory that a pointer or tensor cannot stand for is refused, the rest arrives
as it is.
"""

import cutlass.cute as cute
import numpy as np
import pytest

from cutesync import emulator
from cutesync.errors import ArgumentTypeError, ArgumentValueError

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
        assert emulator.DEVICE.memory.regions == before
    assert not emulator.DEVICE.memory.starting_at(x.ctypes.data)


@pytest.mark.parametrize(
    "x, error, words",
    [
        (np.ma.masked_array(np.arange(32, dtype=np.int32), np.arange(32) % 2), ArgumentTypeError, "masked"),
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
    with pytest.raises(ArgumentTypeError, match="arguments of copy: got 3; needs 2 at most"):
        emulator.check(copy, x, x, x, schedules=1)
