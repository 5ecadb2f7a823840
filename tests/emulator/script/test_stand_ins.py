"""The stand-ins for torch and CuPy: memory of the device, torch's meaning of strides, types and tolerances."""

import sys

import numpy as np
import pytest

from cutesync.emulator import heap
from cutesync.emulator.script import cupy_stub, torch_stub
from cutesync.emulator.script.host_arrays import KDL_CUDA
from cutesync.emulator.script.session import Options, Session


@pytest.fixture
def torch(monkeypatch):
    monkeypatch.setattr("sys.modules", dict(sys.modules))
    torch_stub.install()
    return sys.modules["torch"]


def test_tensors_lie_in_device_memory(torch):
    x = torch.arange(6, dtype=torch.float32, device="cuda").view(2, 3)
    for made in (x, x.t(), x + 1, x[1:], x.to(torch.float16), torch.einsum("ij->i", x), torch.cat([x, x], dim=1)):
        assert isinstance(made, torch.Tensor) and heap.holds(made.data_ptr()), made
        assert made.__dlpack_device__() == (KDL_CUDA, 0) and made.is_cuda
    assert (x.stride(), x.t().stride(), x.size(1), x.numel()) == ((3, 1), (1, 3), 3, 6)
    assert np.array_equal((2 * x + x.sum(axis=0)).numpy(), [[3, 7, 11], [9, 13, 17]])
    assert np.isnan(torch.empty(3).numpy()).all() and x.cpu().numpy() is not None


def test_copies_keep_the_order_of_the_axes(torch):
    x = torch.empty(2, 3, 4).random_(-2, 2).permute(1, 2, 0)
    for made in (torch.empty_like(x), torch.zeros_like(x, dtype=torch.int8), x.to(torch.float64), x.clone()):
        assert made.stride() == x.stride() == (4, 1, 12)
    one = torch.ones(1, 3, 4).permute(1, 2, 0).to(torch.float16)
    assert one.stride() == (4, 1, 12) and one.dim_order() == (2, 0, 1)


def test_types(torch):
    x = torch.zeros(2, dtype=torch.int8)
    assert x.dtype is torch.int8 and torch.int8.is_signed and not torch.uint8.is_signed
    assert torch.float16.is_floating_point and torch.float16.itemsize == 2 and torch.half is torch.float16
    assert torch.tensor([1.5]).dtype is torch.float32 and torch.tensor([1]).dtype is torch.int64
    assert torch.float8_e4m3fn.itemsize == 1 and str(torch.bfloat16) == "torch.bfloat16"


def test_tolerances(torch):
    x = torch.ones(4)
    torch.testing.assert_close(x, x + 1e-6)
    with pytest.raises(AssertionError, match="Mismatched elements: 4 / 4"):
        torch.testing.assert_close(x, x + 1e-3)
    with pytest.raises(AssertionError, match=r"int64\[4\]"):
        torch.testing.assert_close(x, torch.tensor([1, 1, 1, 1]))


def test_cupy(monkeypatch):
    monkeypatch.setattr("sys.modules", dict(sys.modules))
    cupy_stub.install(Session(Options()))
    cupy = sys.modules["cupy"]
    x = cupy.arange(6, dtype=cupy.float32).reshape(2, 3)
    total = cupy.sum(x * 2, axis=0)
    assert isinstance(total, cupy.ndarray) and heap.holds(total.__cuda_array_interface__["data"][0])
    assert np.array_equal(cupy.asnumpy(total), [6, 10, 14]) and type(total.get()) is np.ndarray
    assert cupy.random.rand(3).shape == (3,) and cupy.cuda.runtime.getDeviceCount() == 1
