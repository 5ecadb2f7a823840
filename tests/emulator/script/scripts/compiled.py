"""CUDA C++ that the script compiles to machine code and launches itself."""

import ctypes
import sys

import cupy
import numpy as np
from cuda.bindings import driver as cuda, nvrtc

SOURCE = b"""
extern "C" __global__ void reverse(const int* x, int* y) {
    __shared__ int tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    if (SYNC) __syncthreads();
    y[threadIdx.x] = tile[63 - threadIdx.x];
}
"""


def checked(result):
    assert int(result[0]) == 0, result
    return result[1] if len(result) == 2 else result[1:]


options = [b"--gpu-architecture=sm_90a", b"-lineinfo", b"-DSYNC=0" if "--fault" in sys.argv else b"-DSYNC=1"]
program = checked(nvrtc.nvrtcCreateProgram(SOURCE, b"reverse.cu", 0, [], []))
checked(nvrtc.nvrtcCompileProgram(program, len(options), options))
code = b" " * checked(nvrtc.nvrtcGetCUBINSize(program))
checked(nvrtc.nvrtcGetCUBIN(program, code))
function = checked(cuda.cuModuleGetFunction(checked(cuda.cuModuleLoadData(code)), b"reverse"))
x, y = cupy.arange(64, dtype=cupy.int32), cupy.zeros(64, dtype=cupy.int32)
addresses = tuple(a.__cuda_array_interface__["data"][0] for a in (x, y))
given = addresses, (ctypes.c_uint64, ctypes.c_uint64)
checked(cuda.cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, 0, given, 0))
assert "--fault" in sys.argv or np.array_equal(cupy.asnumpy(y), np.arange(64)[::-1])

SCALE = """
template <int N> __device__ float scaled(float x, double factor) { return N * x * (float)factor; }
extern "C" __global__ void scale(float* x, float few, double factor, long long n) {
    extern __shared__ float kept[];
    kept[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x < n) x[threadIdx.x] = scaled<2>(kept[threadIdx.x], factor) + few;
}
"""
z = cupy.ones(32, dtype=cupy.float32)
scale = cupy.RawKernel(SCALE, "scale", options=("-std=c++17", "-arch=sm_80"))
scale.max_dynamic_shared_size_bytes = 100 << 10
for _ in range(2):
    scale((1,), (32,), (z, np.float32(0.5), 1.5, 16), shared_mem=99 << 10)
assert np.array_equal(cupy.asnumpy(z), np.where(np.arange(32) < 16, 11, 1))
module = cupy.RawModule(code=SCALE.replace("few;", "undeclared;"))
try:
    module.get_function("scale")((1,), (32,), (z,))
except Exception as error:
    assert "undeclared" in str(error), error
else:
    raise AssertionError("it has compiled")
print("done")
