"""Arrays of every library go in, and results come back in the caller's own library, on the caller's stream."""

from __future__ import annotations

import ctypes
import gc

import numpy as np
import pytest

import cutesync as cs
from cutesync.errors import ArgumentTypeError, ArgumentValueError, DeviceError

from ..cases import data, same
from ..libraries import MAKERS, RESULTS, Interface, host, torch_tensor

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("library", MAKERS)
@pytest.mark.parametrize("dtype", ["uint8", "float16", "int64", "bool"])
def test_every_library_goes_in_and_its_own_comes_out(library, dtype):
    x = data((45, 20), dtype)
    array = MAKERS[library](x)
    for axis in (0, 1):
        result = cs.reduce(array, "max", axis=axis)
        assert type(result).__module__.partition(".")[0] == RESULTS.get(library, "cutesync")
        same(host(result), x.max(axis))
    same(np.asarray(host(cs.reduce(array, "max"))), x.max())


def test_numpy_gives_a_numpy_scalar_for_all_axes():
    assert isinstance(cs.reduce(np.arange(37, dtype=np.int32)), np.int32)
    assert isinstance(cs.sum(np.arange(37, dtype=np.int32)), np.int64)


@pytest.mark.parametrize("library", ["torch", "cupy", "own", "numpy"])
def test_out_of_the_same_library(library):
    x = data((45, 20), "int32")
    out = MAKERS[library](np.zeros(45, np.int32))
    assert cs.reduce(MAKERS[library](x), axis=1, out=out) is out
    same(host(out), x.sum(1, dtype=np.int32))


def test_out_of_another_library(torch):
    x = data((45, 20), "int32")
    out = torch_tensor(np.zeros(45, np.int32))
    assert cs.reduce(cs.asarray(x), axis=1, out=out) is out
    torch.cuda.synchronize()
    same(host(out), x.sum(1, dtype=np.int32))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_torchs_own_sum_agrees(dtype, torch):
    x = torch.randint(-3, 4, (70001,), device="cuda").to(getattr(torch, dtype))
    result = cs.reduce(x)
    assert result.dtype == x.dtype
    assert result.double().item() == x.double().sum().to(x.dtype).double().item()
    assert cs.reduce(x, "max").item() == x.max().item()


@pytest.mark.parametrize("offset", range(1, 16))
def test_torch_views_of_any_offset(offset, torch):
    x = torch.randint(-100, 100, (5000,), dtype=torch.int8, device="cuda")
    assert cs.sum(x[offset:]).item() == x[offset:].sum().item()


def test_a_numpy_view_that_is_not_contiguous_is_copied_like_any_other():
    x = data((40, 60), "int32")
    for view in (x.T, x[::2, 1:], x[::-1]):
        same(cs.reduce(np.ascontiguousarray(view), axis=0), view.sum(0, dtype=np.int32))


class TestRefusals:
    """Nothing is launched and nothing is written when the arrays do not fit."""

    @pytest.mark.parametrize(
        ("make", "error", "words"),
        [
            (
                lambda torch: torch.ones(30, device="cuda", requires_grad=True),
                ArgumentValueError,
                "requires? grad",
            ),
            (lambda torch: torch.ones(30), DeviceError, "host memory"),
            (lambda torch: torch.ones(30, device="cuda", dtype=torch.complex64), ArgumentTypeError, "complex64"),
        ],
        ids=["requires grad", "host", "complex"],
    )
    def test_torch_tensors_that_need_care(self, make, error, words, torch):
        with pytest.raises(error, match=words):
            cs.reduce(make(torch))

    @pytest.mark.parametrize(
        ("make", "error", "words"),
        [
            (lambda torch, x: torch.full((31,), 7.0, device="cuda"), ArgumentValueError, "shape"),
            (lambda torch, x: torch.full((30,), 7, device="cuda"), ArgumentTypeError, "dtype"),
            (lambda torch, x: torch.full((30,), 7.0), DeviceError, "host memory"),
            (lambda torch, x: x.view(-1)[5:35], ArgumentValueError, "overlap"),
        ],
        ids=["shape", "dtype", "host", "overlap"],
    )
    def test_out_that_does_not_fit(self, make, error, words, torch):
        x = torch.full((30, 40), 7.0, device="cuda")
        out = make(torch, x)
        with pytest.raises(error, match=words):
            cs.reduce(x, axis=1, out=out)
        torch.cuda.synchronize()
        assert bool((out == 7).all()) and bool((x == 7).all())

    def test_overlap_is_found_on_the_second_call_too(self, torch):
        """The plan is known by then, and only the address of ``out`` is new."""
        memory = torch.ones(2000, device="cuda")
        x = memory[:1200].view(30, 40)
        cs.reduce(x, axis=1, out=memory[1200:1230])
        for first in (0, 1170, 1199):
            with pytest.raises(ArgumentValueError, match="overlap"):
                cs.reduce(x, axis=1, out=memory[first : first + 30])

    def test_a_read_only_interface_is_no_out(self):
        owner = cs.empty(3, "float32")
        with pytest.raises(ArgumentValueError, match="read-only"):
            cs.reduce(cs.asarray(np.ones((3, 4), np.float32)), axis=1, out=Interface(owner, data=(owner.ptr, True)))

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            (lambda x: {"shape": (8,), "data": (x.ptr + 1, False)}, "multiple of 4"),
            (lambda x: {"shape": (8, 6), "strides": (4, 22)}, "multiples of the element"),
        ],
        ids=["not aligned to its element", "strides"],
    )
    def test_interfaces(self, changes, words):
        owner = cs.empty((6, 8), "float32")
        with pytest.raises(ArgumentValueError, match=words):
            cs.reduce(Interface(owner, **changes(owner)))


class Streamy:
    """An object with ``__cuda_stream__``."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self):
        return 0, self.handle


def test_every_form_of_stream(torch):
    from cuda.bindings import driver
    from cuda.core import Stream

    side = torch.cuda.Stream()
    x = torch.arange(70001, device="cuda", dtype=torch.int32)
    torch.cuda.synchronize()
    expected = int(x.sum())
    for stream in (
        side,
        side.cuda_stream,
        driver.CUstream(side.cuda_stream),
        Streamy(side.cuda_stream),
        Stream.from_handle(side.cuda_stream),
    ):
        out = torch.zeros((), dtype=torch.int64, device="cuda")
        torch.cuda.synchronize()
        cs.reduce(x, dtype="int64", out=out, stream=stream)
        side.synchronize()
        assert int(out) == expected, type(stream)


def test_a_stream_of_cupy(cupy):
    assert int(cs.reduce(cupy.arange(1000), stream=cupy.cuda.Stream())) == 499500


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_work_follows_the_current_stream(library):
    """On a side stream the input is produced late; the reduction must wait for that stream and no other."""
    module = pytest.importorskip(library)
    n = 1 << 22
    if library == "torch":
        x = module.zeros(n, dtype=module.int32, device="cuda")
        cs.reduce(x)
        module.cuda.synchronize()
        side = module.cuda.Stream()
        with module.cuda.stream(side):
            module.cuda._sleep(20_000_000)
            x.fill_(1)
            total = cs.reduce(x)
        side.synchronize()
        assert int(total) == n
    else:
        x = module.zeros(n, dtype=module.int32)
        cs.reduce(x)
        side = module.cuda.Stream(non_blocking=True)
        module.cuda.get_current_stream().synchronize()
        with side:
            for value in range(200):
                x.fill(value)
            total = cs.reduce(x)
        side.synchronize()
        assert int(total) == n * 199


READERS = {
    "NumPy": np.asarray,
    "torch, DLPack": lambda array: pytest.importorskip("torch").from_dlpack(array).cpu().numpy(),
    "torch, interface": lambda array: (
        pytest.importorskip("torch").as_tensor(Interface(array), device="cuda").cpu().numpy()
    ),
    "CuPy, DLPack": lambda array: pytest.importorskip("cupy").from_dlpack(array).get(),
    "CuPy": lambda array: pytest.importorskip("cupy").asarray(array).get(),
}


@pytest.mark.parametrize("reader", READERS)
def test_device_array_speaks_every_protocol(reader):
    x, read = data((12, 7), "float32"), READERS[reader]
    array = cs.asarray(x)
    same(read(array), x)
    same(read(array[3:5]), x[3:5])
    same(read(array.reshape(7, 12)), x.reshape(7, 12))


def test_memory_of_a_view_outlives_its_parent():
    view = cs.asarray(np.arange(100000, dtype=np.int32))[50000:50010]
    gc.collect()
    junk = [cs.asarray(np.full(100000, -1, np.int32)) for _ in range(4)]
    same(np.asarray(view), np.arange(50000, 50010, dtype=np.int32))
    del junk


@pytest.mark.multi_gpu
def test_arrays_of_two_devices_are_refused_and_each_device_works(torch):
    x = torch.arange(70001, device="cuda:1", dtype=torch.int32)
    assert int(cs.reduce(x, dtype="int64")) == int(x.sum())
    with pytest.raises(DeviceError, match="device 0"):
        cs.reduce(x, out=torch.zeros((), dtype=torch.int32, device="cuda:0"))
    assert torch.cuda.current_device() == 0
    for current, other in ((0, 1), (1, 0)):
        with torch.cuda.device(current):
            for n in (1000, 70001, 3000000):
                y = torch.arange(n, device=f"cuda:{other}", dtype=torch.int32) % 1000
                side = torch.cuda.Stream(device=other)
                side.wait_stream(torch.cuda.current_stream(other))
                beside = cs.reduce(y, dtype="int64", stream=side)
                side.synchronize()  # int() waits for the current stream alone
                assert int(cs.reduce(y, dtype="int64")) == int(y.sum()) == int(beside)
            assert torch.cuda.current_device() == current


def test_more_than_the_device_has_is_a_memory_error():
    with pytest.raises(MemoryError, match="memory"):
        cs.empty(1 << 45, "float64")
    assert int(np.asarray(cs.reduce(cs.asarray(np.ones(100, np.int32))))) == 100


def test_the_driver_is_reached_through_ctypes():
    """The launch path relies on this symbol; a driver without it would fail on every call."""
    assert ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx
