"""A script that talks to the driver: device queries, memory, streams, a kernel of its own PTX, calls without answer."""

import ctypes
import sys

import cupy
import numpy as np
from cuda.bindings import driver as cuda, runtime as cudart

PTX = b"""
.version 8.8
.target sm_90a
.address_size 64
.visible .entry add(.param .u64 x, .param .u32 n) {
    .reg .pred %p<2>;
    .reg .b32 %r<4>;
    .reg .b64 %a<3>;
    ld.param.u64 %a0, [x];
    ld.param.u32 %r0, [n];
    mov.u32 %r1, %tid.x;
    setp.ge.u32 %p0, %r1, %r0;
    @%p0 ret;
    mul.wide.u32 %a1, %r1, 4;
    add.u64 %a2, %a0, %a1;
    ld.global.b32 %r2, [%a2];
    add.u32 %r3, %r2, 5;
    st.global.b32 [%a2], %r3;
    ret;
}
"""


def checked(result):
    assert int(result[0]) == 0, result
    return result[1] if len(result) == 2 else result[1:]


checked(cuda.cuInit(0))
device = checked(cuda.cuDeviceGet(0))
sms = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
assert checked(cuda.cuDeviceGetAttribute(sms, device)) == 3
assert checked(cudart.cudaGetDeviceProperties(0)).multiProcessorCount == 3
stream = checked(cuda.cuStreamCreate(0))
host, back = np.arange(40, dtype=np.int32), np.zeros(40, np.int32)
x = checked(cuda.cuMemAlloc(host.nbytes))
checked(cuda.cuMemcpyHtoD(x, host.ctypes.data, host.nbytes))
module = checked(cuda.cuModuleLoadData(PTX))
function = checked(cuda.cuModuleGetFunction(module, b"add"))
count = 41 if "--fault" in sys.argv else 40
types = (ctypes.c_uint64, ctypes.c_uint32)
checked(cuda.cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, stream, ((int(x), count), types), 0))
checked(cuda.cuStreamSynchronize(stream))
checked(cuda.cuMemcpyDtoH(back.ctypes.data, x, host.nbytes))
checked(cuda.cuMemFree(x))
assert "--fault" in sys.argv or np.array_equal(back, host + 5)

y = cupy.arange(40, dtype=cupy.int32)
address = y.__cuda_array_interface__["data"][0]
checked(cuda.cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, stream, ((address, 40), types), 0))
assert np.array_equal(cupy.asnumpy(y + 1), host + 6)

assert checked(cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)) == ()
assert checked(cuda.cuStreamIsCapturing(stream)) == cuda.CUstreamCaptureStatus(1)
checked(cuda.cuMemsetD32Async(address, 7, 20, stream))
checked(cuda.cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, stream, ((address, 40), types), 0))
graph = checked(cuda.cuStreamEndCapture(stream))
assert checked(cuda.cuStreamIsCapturing(stream)) == cuda.CUstreamCaptureStatus(0)
assert np.array_equal(cupy.asnumpy(y), host + 5), "a capture does nothing"
ready = checked(cuda.cuGraphInstantiate(graph, 0))
checked(cuda.cuGraphDestroy(graph))
for rounds in (1, 2):
    checked(cuda.cuGraphLaunch(ready, stream))
    assert np.array_equal(cupy.asnumpy(y), np.where(host < 20, 12, host + 5 + 5 * rounds))
checked(cudart.cudaStreamBeginCapture(stream, cudart.cudaStreamCaptureMode.cudaStreamCaptureModeRelaxed))
checked(cuda.cuGraphLaunch(ready, stream))
ready = checked(cudart.cudaGraphInstantiate(checked(cudart.cudaStreamEndCapture(stream)), 0))
checked(cudart.cudaGraphLaunch(ready, stream))
assert np.array_equal(cupy.asnumpy(y), np.where(host < 20, 12, host + 20))
if "--crash" in sys.argv:
    ctypes.string_at(0)
if "--sleep" in sys.argv:
    import time

    time.sleep(60)
if "--refused" in sys.argv:
    cuda.cuGraphCreate(0)
