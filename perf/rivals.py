"""The libraries of a sweep: which are installed, and one buffer seen by each of them.

Everything runs on the stream of ``gpu.py``, made current in torch and CuPy, and on its buffers: only the kernels
differ. cutesync is given torch tensors where torch is installed, otherwise objects with ``__cuda_array_interface__``.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform

import cub
import numpy as np
from gpu import Array, Event, Gpu

NOT_OF_NUMPY = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
PACKAGES = (
    "cutesync",
    "nvidia-cutlass-dsl",
    "cuda-python",
    "cuda-bindings",
    "cuda-core",
    "numpy",
    "torch",
    "cupy-cuda13x",
    "cupy-cuda12x",
    "cuda-cccl",
    "jax",
    "quack-kernels",
)
TRIAL_CALLS, TRIAL_US = 20, 2000  # most calls and microseconds with which QuACK's tuner times a configuration
ENQUEUE_US = 50  # at most what the host takes to enqueue a call of QuACK


def numpy_dtype(name: str) -> np.dtype:
    """A dtype by name; those that NumPy lacks need the ml_dtypes package."""
    if name in NOT_OF_NUMPY:
        return np.dtype(getattr(importlib.import_module("ml_dtypes"), name))
    return np.dtype(name)


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


class Libraries:
    """torch, CuPy, cuda.compute, QuACK, JAX and CUB as far as they are installed and asked for.

    ``missing`` says why others are not there. ``compiling``: whether CUB may be compiled, which takes a minute.
    """

    def __init__(self, gpu: Gpu, family: str, wanted: list[str], compiling: bool = True):
        self.gpu, self.stream = gpu, gpu.stream.address
        self.missing: dict[str, str] = {}
        self.cutesync = importlib.import_module("cutesync")
        self.torch = self._find("torch", "torch", [*wanted, "torch"])
        self.cupy = self._find("cupy", "cupy", wanted)
        self.compute = self._find("compute", "cuda.compute", wanted)
        self.quack = self._find("quack", "quack.gemm_interface", wanted)
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        self.jax = self._find("jax", "jax", wanted)
        self.cub = None
        self.current = []  # the libraries' own objects of the one stream, kept alive
        if self.torch:
            self.current.append(self.torch.cuda.ExternalStream(self.stream))
            self.torch.cuda.set_stream(self.current[-1])
        if self.cupy:
            self.current.append(self.cupy.cuda.ExternalStream(self.stream))
            self.current[-1].use()
        if self.quack:
            os.environ.setdefault("QUACK_COMPILE_WORKERS", str(min(48, os.cpu_count() or 8)))
            self.quack.gemm_tuned._do_bench = self._trial
        if "cub" in wanted:
            try:
                self.cub = cub.Cub(family, gpu, compiling)
            except cub.Unavailable as error:
                self.missing["cub"] = str(error)

    def _find(self, name: str, module: str, wanted: list[str]):
        if name not in wanted:
            return None
        try:
            return importlib.import_module(module)
        except Exception as error:  # an installed but broken rival must not stop the sweep
            self.missing[name] = f"{type(error).__name__}: {error}".splitlines()[0]
            return None

    def _trial(self, call, quantiles) -> list[float]:
        """Milliseconds of a call, for QuACK's tuner, which itself spends a second and more on each of some fifty."""
        call()
        once = self._microseconds(call, 1)
        count = max(1, min(TRIAL_CALLS, int(TRIAL_US / once)))
        return [self._microseconds(call, count) / count / 1000] * len(quantiles)

    def _microseconds(self, call, count: int) -> float:
        """``count`` calls back to back, enqueued while the stream is held."""
        start, end = Event(), Event()
        self.gpu.spin(count * ENQUEUE_US)
        start.record(self.gpu.stream)
        for _ in range(count):
            call()
        end.record(self.gpu.stream)
        self.gpu.stream.synchronize()
        return end.microseconds_since(start)

    def torch_view(self, array: Array):
        name = array.dtype.name
        if name in NOT_OF_NUMPY:
            bits = Array(array.pointer, array.shape, f"int{8 * array.dtype.itemsize}")
            return self.torch.as_tensor(bits, device="cuda").view(getattr(self.torch, name))
        return self.torch.as_tensor(array, device="cuda")

    def cupy_view(self, array: Array):
        memory = self.cupy.cuda.UnownedMemory(array.pointer, max(array.nbytes, 1), array)
        return self.cupy.ndarray(array.shape, array.dtype, self.cupy.cuda.MemoryPointer(memory, 0))

    def ours(self, array: Array):
        return self.torch_view(array) if self.torch else array

    def to_host(self, result) -> np.ndarray:
        """A result that a library allocated itself (or an input that a call works on in place), as a NumPy array."""
        if isinstance(result, Array):
            return self.gpu.download(result)
        if hasattr(result, "cpu"):
            return (result.float() if result.dtype is self.torch.bfloat16 else result).cpu().numpy()
        if hasattr(result, "get"):
            return result.get()
        return np.asarray(result)


def copy(case, slot, libraries):
    """A device-to-device copy that moves as many bytes as the case (half read, half written)."""
    gpu, target, source, nbytes = libraries.gpu, slot.copy_target, slot.copy_source, slot.copy_bytes
    return lambda: gpu.copy(target, source, nbytes)


def read(case, slot, libraries):
    """The read-only kernel over the inputs of the case."""
    gpu = libraries.gpu
    spans = [(array.pointer & ~15, array.nbytes) for array in slot.inputs]

    def call():
        for pointer, nbytes in spans:
            gpu.read_all(pointer, nbytes)

    return call


ROOFS = {"copy": copy, "read": read}
