"""The GPU as the benchmarks see it: memory, a stream, events, graphs and two helper kernels, by the driver alone.

Every contestant reads the same buffers, which belong to this file: a sweep needs no array library and favours none.
``read_all`` is the read-only ceiling (16-byte loads, nothing stored) and also flushes the L2. ``spin`` keeps the stream
busy while the host enqueues what is measured. Both are PTX text, which the driver compiles: no nvcc is needed.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import numpy as np
from cuda.bindings import driver

UNROLL = 4  # 16-byte loads in flight a thread of read_all
READ_THREADS = 512


HELPERS = """
.version 7.8
.target sm_80
.address_size 64

.visible .entry read_all(.param .u64 base, .param .u64 count, .param .u64 sink)
{{
    .reg .pred %p;
    .reg .b32 %v<{words}>, %fold, %small;
    .reg .b64 %base, %count, %sink, %threads, %bytes, %tile, %stride, %item, %end, %address;
    ld.param.u64 %base, [base];
    ld.param.u64 %count, [count];
    ld.param.u64 %sink, [sink];
    mov.u32 %small, %ntid.x;
    cvt.u64.u32 %threads, %small;
    shl.b64 %bytes, %threads, 4;
    mul.lo.u64 %tile, %threads, {unroll};
    mov.u32 %small, %nctaid.x;
    cvt.u64.u32 %stride, %small;
    mul.lo.u64 %stride, %stride, %tile;
    mov.u32 %small, %ctaid.x;
    cvt.u64.u32 %item, %small;
    mul.lo.u64 %item, %item, %tile;
    add.u64 %end, %item, %tile;
    mov.u32 %small, %tid.x;
    cvt.u64.u32 %address, %small;
    add.u64 %item, %item, %address;
    mov.b32 %fold, 0;
whole:
    setp.gt.u64 %p, %end, %count;
    @%p bra rest;
    mad.lo.u64 %address, %item, 16, %base;
    {loads}
    {folds}
    add.u64 %item, %item, %stride;
    add.u64 %end, %end, %stride;
    bra whole;
rest:
    setp.ge.u64 %p, %item, %count;
    @%p bra last;
    mad.lo.u64 %address, %item, 16, %base;
    {first_load}
    {first_fold}
    add.u64 %item, %item, %threads;
    bra rest;
last:
    setp.ne.b32 %p, %fold, 0x9e3779b9;
    @%p ret;
    st.global.b32 [%sink], %fold;
    ret;
}}

.visible .entry spin(.param .u64 nanoseconds)
{{
    .reg .pred %p;
    .reg .b64 %limit, %begin, %now;
    ld.param.u64 %limit, [nanoseconds];
    mov.u64 %begin, %globaltimer;
wait:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %begin;
    setp.lt.u64 %p, %now, %limit;
    @%p bra wait;
    ret;
}}
"""


def check(answer):
    """Unpack a driver answer, or raise with the name of its error."""
    code, *values = answer
    if code != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"the CUDA driver says {code.name}")
    return values[0] if len(values) == 1 else values


def helper_ptx() -> str:
    """PTX of ``read_all(base, count of 16-byte items, sink)`` and ``spin(nanoseconds)``."""
    registers = [[f"%v{4 * k + j}" for j in range(4)] for k in range(UNROLL)]
    loads = [f"ld.global.nc.L1::no_allocate.v4.b32 {{{', '.join(four)}}}, [%address];" for four in registers]
    folds = ["\n    ".join(f"xor.b32 %fold, %fold, {r};" for r in four) for four in registers]
    return HELPERS.format(
        unroll=UNROLL,
        words=4 * UNROLL,
        loads="\n    ".join(line for load in loads for line in (load, "add.u64 %address, %address, %bytes;")),
        folds="\n    ".join(folds),
        first_load=loads[0],
        first_fold=folds[0],
    )


class Array:
    """A view of device memory that every library can take in place (``__cuda_array_interface__``)."""

    def __init__(self, pointer: int, shape: tuple[int, ...], dtype):
        self.pointer, self.shape, self.dtype = pointer, tuple(shape), np.dtype(dtype)
        self.size = int(np.prod(self.shape, dtype=np.int64))
        self.nbytes = self.size * self.dtype.itemsize
        self.__cuda_array_interface__ = {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (pointer, False),
            "strides": None,
            "version": 3,
            "stream": None,
        }


class Event:
    def __init__(self):
        self.handle = check(driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DEFAULT))

    def record(self, stream: Stream) -> None:
        check(driver.cuEventRecord(self.handle, stream.handle))

    def done(self) -> bool:
        return driver.cuEventQuery(self.handle)[0] == driver.CUresult.CUDA_SUCCESS

    def microseconds_since(self, start: Event) -> float:
        return 1000.0 * check(driver.cuEventElapsedTime(start.handle, self.handle))


class Graph:
    """What ``calls`` enqueue on ``stream``, captured once; replayed by ``launch``."""

    def __init__(self, stream: Stream, calls):
        self.stream = stream
        check(driver.cuStreamBeginCapture(stream.handle, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
        try:
            for call in calls:
                call()
        finally:
            captured = driver.cuStreamEndCapture(stream.handle)
        graph = check(captured)
        self.handle = check(driver.cuGraphInstantiate(graph, 0))
        check(driver.cuGraphDestroy(graph))

    def launch(self) -> None:
        check(driver.cuGraphLaunch(self.handle, self.stream.handle))

    def free(self) -> None:
        check(driver.cuGraphExecDestroy(self.handle))


class Stream:
    def __init__(self):
        self.handle = check(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
        self.address = int(self.handle)

    def __cuda_stream__(self):
        return (0, self.address)

    def synchronize(self) -> None:
        check(driver.cuStreamSynchronize(self.handle))


class Gpu:
    """Device 0 in its primary context, with one stream on which everything measured runs."""

    def __init__(self):
        check(driver.cuInit(0))
        self.device = check(driver.cuDeviceGet(0))
        check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(self.device))))
        attribute = driver.CUdevice_attribute
        self.processors = self.attribute(attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
        self.l2_bytes = self.attribute(attribute.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)
        self.bus_id = check(driver.cuDeviceGetPCIBusId(32, self.device)).split(b"\0")[0].decode()
        self.name = check(driver.cuDeviceGetName(96, self.device)).split(b"\0")[0].decode()
        self.stream = Stream()
        module = check(driver.cuModuleLoadData(helper_ptx().encode() + b"\0"))
        self._read_all = check(driver.cuModuleGetFunction(module, b"read_all"))
        self._spin = check(driver.cuModuleGetFunction(module, b"spin"))
        self._scratch: dict[int, int] = {}
        self._sink = self.scratch(16)
        self.read_blocks = 4 * self.processors

    def attribute(self, which) -> int:
        return check(driver.cuDeviceGetAttribute(which, self.device))

    def allocate(self, nbytes: int) -> int:
        return int(check(driver.cuMemAlloc(max(nbytes, 16))))

    def free(self, pointer: int) -> None:
        check(driver.cuMemFree(pointer))

    def scratch(self, nbytes: int) -> int:
        """Temporary storage, one buffer a size: calls on the one stream may share it."""
        if nbytes not in self._scratch:
            self._scratch[nbytes] = self.allocate(nbytes)
        return self._scratch[nbytes]

    def lost(self) -> bool:
        """Whether an earlier error has made the context unusable."""
        return driver.cuStreamSynchronize(self.stream.handle)[0] != driver.CUresult.CUDA_SUCCESS

    def upload(self, pointer: int, host: np.ndarray) -> None:
        check(driver.cuMemcpyHtoD(pointer, host.ctypes.data, host.nbytes))

    def download(self, array: Array) -> np.ndarray:
        host = np.empty(array.shape, array.dtype)
        check(driver.cuMemcpyDtoH(host.ctypes.data, array.pointer, array.nbytes))
        return host

    def poison(self, array: Array) -> None:
        check(driver.cuMemsetD8Async(array.pointer, 0xCD, array.nbytes, self.stream.handle))

    def copy(self, target: int, source: int, nbytes: int) -> None:
        check(driver.cuMemcpyDtoDAsync(target, source, nbytes, self.stream.handle))

    def read_all(self, pointer: int, nbytes: int) -> None:
        items = nbytes // 16
        blocks = max(1, min(self.read_blocks, -(-items // (READ_THREADS * UNROLL))))
        values, types = (pointer, items, self._sink), (ctypes.c_uint64,) * 3
        self.launch(self._read_all, blocks, READ_THREADS, values, types)

    def spin(self, microseconds: float) -> None:
        self.launch(self._spin, 1, 1, (int(1000 * microseconds),), (ctypes.c_uint64,))

    def launch(self, function, blocks: int, threads: int, values: tuple, types: tuple) -> None:
        check(driver.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, self.stream.handle, (values, types), 0))


class Probe:
    """Clocks and power, read by nvidia-smi while a measurement runs. Empty where nvidia-smi is missing."""

    FIELDS = ("driver_version", "clocks.sm", "clocks.mem", "power.draw", "power.limit", "temperature.gpu")

    def __init__(self, gpu: Gpu):
        self.process = None
        if shutil.which("nvidia-smi"):
            command = [
                "nvidia-smi",
                "-i",
                gpu.bus_id,
                f"--query-gpu={','.join(self.FIELDS)}",
                "--format=csv,noheader,nounits",
            ]
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def read(self) -> dict[str, str]:
        if self.process is None:
            return {}
        values = [value.strip() for value in self.process.communicate()[0].strip().split(",")]
        return dict(zip(self.FIELDS, values, strict=True)) if len(values) == len(self.FIELDS) else {}
