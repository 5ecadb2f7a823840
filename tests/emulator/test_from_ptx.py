"""``check_ptx``: kernels of other compilers, here CUDA C++ compiled by NVRTC where its wheel is installed."""

import numpy as np
import pytest

from cutesync import emulator
from cutesync.errors import ArgumentTypeError, ArgumentValueError, LaunchError

from .support import kernel_text, reported

SUM = r"""
extern "C" __global__ void sum(const float* x, float* total, int n, double scale) {
    extern __shared__ float partial[];
    int t = threadIdx.x;
    float mine = 0;
    for (int i = blockIdx.x * blockDim.x + t; i < n; i += gridDim.x * blockDim.x) mine += x[i];
    partial[t] = mine;
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
#ifndef FAULT
        __syncthreads();
#endif
        if (t < step) partial[t] += partial[t + step];
    }
    if (t == 0) total[blockIdx.x] = partial[0] * (float)scale;
}
"""
COPY = r"""
struct Range { int first; int count; };
extern "C" __global__ void copy(const int* x, int* y, Range range) {
    __shared__ __align__(16) int tile[128];
    __shared__ __align__(8) unsigned long long ready;
    unsigned bar = (unsigned)__cvta_generic_to_shared(&ready), to = (unsigned)__cvta_generic_to_shared(tile);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(bar));
        asm volatile("fence.mbarrier_init.release.cluster;");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(4 * BYTES_OF));
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                     :: "r"(to), "l"(x + range.first), "r"(4 * 128), "r"(bar) : "memory");
    }
    __syncthreads();
    asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra W; }"
                 :: "r"(bar) : "memory");
    for (int i = threadIdx.x; i < range.count; i += blockDim.x) y[i] = tile[i] + 1;
}
"""


@pytest.fixture(scope="module")
def compiled():
    """Compiles CUDA C++ for sm_90a. The library is a wheel of the test extra."""
    from cuda.bindings import nvrtc

    def run(source: str, *options: str) -> bytes:
        def checked(result):
            assert int(result[0]) == 0, result
            return result[1] if len(result) > 1 else None

        made = checked(nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], []))
        flags = [b"--gpu-architecture=sm_90a", b"-lineinfo", *(o.encode() for o in options)]
        checked(nvrtc.nvrtcCompileProgram(made, len(flags), flags))
        text = b" " * checked(nvrtc.nvrtcGetPTXSize(made))
        checked(nvrtc.nvrtcGetPTX(made, text))
        return text

    try:
        nvrtc.nvrtcVersion()
    except RuntimeError as error:
        pytest.skip(f"NVRTC: {error}".split("\n")[0][:60])
    return run


def test_a_kernel_of_cuda(compiled):
    x = np.random.default_rng(0).integers(-8, 8, 1000).astype(np.float32)
    totals = np.zeros(3, np.float32)
    text, arguments = compiled(SUM), [x, totals, 1000, 2.0]
    used = emulator.check_ptx(text, "sum", 3, 128, arguments, smem=512, fresh=[totals])
    assert used.launches == len(emulator.POLICIES) and totals.sum() == 2 * x.sum()
    faulty = compiled(SUM, "-DFAULT")
    report = reported("race", "kernel.cu:12", emulator.check_ptx, faulty, "sum", 3, 128, arguments, smem=512)
    assert "shared memory of block" in report


def test_bulk_copies_of_cuda(compiled):
    x, y = np.arange(256, dtype=np.int32), np.zeros(100, np.int32)
    part = np.array([64, 100], np.int32).tobytes()
    emulator.check_ptx(compiled(COPY, "-DBYTES_OF=128"), None, 1, 64, [x, y, part], schedules=4)
    assert np.array_equal(y, np.arange(65, 165))
    few = compiled(COPY, "-DBYTES_OF=127")
    reported("transaction", "", emulator.check_ptx, few, None, 1, 64, [x, y, part], schedules=4)


TEXT = """
.version 8.8
.target sm_90a
.address_size 64
.visible .entry scale(.param .u64 x, .param .f32 factor, .param .u16 count) {
    .reg .pred %p<2>;
    .reg .b16 %h<2>;
    .reg .b32 %r<3>;
    .reg .f32 %f<4>;
    .reg .b64 %a<3>;
    ld.param.u64 %a0, [x];
    ld.param.f32 %f0, [factor];
    ld.param.u16 %h0, [count];
    cvt.u32.u16 %r1, %h0;
    mov.u32 %r0, %tid.x;
    setp.ge.u32 %p0, %r0, %r1;
    @%p0 ret;
    mul.wide.u32 %a1, %r0, 4;
    add.u64 %a2, %a0, %a1;
    ld.global.f32 %f1, [%a2];
    mul.f32 %f2, %f1, %f0;
    st.global.f32 [%a2], %f2;
    ret;
}
"""


def test_the_arguments():
    x = np.arange(40, dtype=np.float32)
    emulator.check_ptx(TEXT, "scale", (1,), (64, 1), [x, 0.5, np.uint16(40)], schedules=2)
    assert np.array_equal(x, np.arange(40) / 2)
    reported("out-of-bounds", "", emulator.check_ptx, TEXT, None, 1, 64, [x, 0.5, 41])
    reported("uninitialised", "", emulator.check_ptx, TEXT, None, 1, 64, [x, 0.5, 40], fresh=[x])
    with pytest.raises(LaunchError, match="block"):
        emulator.check_ptx(TEXT, None, 1, 2048, [x, 0.5, 40])


@pytest.mark.parametrize(
    ("entry", "arguments", "error", "words"),
    [
        ("other", [0, 0, 0], ArgumentValueError, "kernel: got other; needs .*scale"),
        (None, [0, 0], ArgumentValueError, "arguments of scale: got 2; needs 3"),
        (None, [0, np.float64(0.5), 1], ArgumentTypeError, "argument 1: got 8 bytes"),
        (None, [0, b"abc", 1], ArgumentTypeError, "argument 1: got 3 bytes"),
    ],
)
def test_wrong_arguments(entry, arguments, error, words):
    with pytest.raises(error, match=words):
        emulator.check_ptx(TEXT, entry, 1, 32, arguments)


GRID_BARRIER = """
    mov.u32 %r0, %ctaid.x;
    mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd2, %a0, %rd1;
    st.global.b32 [%rd2], %r0;
    mov.u32 %r1, %envreg1;
    mov.u32 %r2, %envreg2;
    mov.b64 %rd3, {%r2, %r1};
    red.release.gpu.global.add.u32 [%rd3+4], 1;
    AGAIN: ld.acquire.gpu.global.u32 %r3, [%rd3+4];
    setp.lt.u32 %p1, %r3, 4;
    @%p1 bra AGAIN;
    xor.b32 %r4, %r0, 3;
    mul.wide.u32 %rd1, %r4, 4;
    add.u64 %rd2, %a0, %rd1;
    ld.global.b32 %r5, [%rd2];
    add.u64 %rd2, %a1, %rd1;
    st.global.b32 [%rd2], %r5;"""


def test_a_grid_that_synchronizes_as_cooperative_groups_do():
    """Their barrier is a word of memory, whose address the driver leaves in two special registers."""
    x, y = np.zeros(4, np.int32), np.zeros(4, np.int32)
    text = kernel_text(GRID_BARRIER, 2)
    emulator.check_ptx(text, "k", 4, 1, [x, y], cooperative=True)
    assert y.tolist() == [0, 1, 2, 3]
    reported("out-of-bounds", "", emulator.check_ptx, text, "k", 4, 1, [x, y])


RESERVED = """
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, %reserved_smem_offset_1;
    shl.b32 %r4, 1, %r0;
    red.release.cta.shared.or.b32 [%r1], %r4;
    AGAIN: ld.acquire.cta.shared.u32 %r5, [%r1];
    setp.ne.u32 %p1, %r5, -1;
    @%p1 bra AGAIN;
    mov.u32 %r6, %total_smem_size;
    mov.u32 %r7, %aggr_smem_size;
    mov.u32 %r8, %reserved_smem_offset_end;
    sub.u32 %r8, %r8, %r1;
    setp.eq.u32 %p2, %r0, 0;
    @!%p2 bra END;
    st.shared.u32 [smem], %r8;
    ld.shared.u32 %r9, [smem];
    st.global.v4.u32 [%a0], {%r5, %r6, %r7, %r9};
    END:"""


def test_shared_memory_that_cuda_keeps_for_itself():
    """Cooperative groups of several warps synchronize by words there, which are zeros at first. Sizes as on an H100."""
    x = np.zeros(4, np.uint32)
    emulator.check_ptx(kernel_text(RESERVED, 1, shared=500), "k", 1, 32, [x])
    assert x.tolist() == [0xFFFFFFFF, 512, 500 + 1024, 288]
    beyond = RESERVED.replace("[smem], %r8", "[%r1+288], %r8")
    reported("out-of-bounds", "", emulator.check_ptx, kernel_text(beyond, 1, shared=500), "k", 1, 32, [x])


MAPPED = """
.version 8.8
.target sm_90a
.address_size 64
.visible .entry tile(.param PLACE, .param .u64 y) {
    .reg .pred %p<2>;
    .reg .b32 %r<12>;
    .reg .b64 %a<8>;
    .shared .align 128 .b8 smem[2176];
    ADDRESS
    ld.param.u64 %a1, [y];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    setp.eq.u32 %p1, %r0, 0;
    @%p1 mbarrier.init.shared.b64 [%r1+2048], 1;
    @%p1 fence.mbarrier_init.release.cluster;
    bar.warp.sync -1;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1+2048], 2048;
    mov.u32 %r2, 0;
    mov.u32 %r3, ROW;
    @%p1 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
        [%r1], [%a0, {%r2, %r3}], [%r1+2048];
    AGAIN: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1+2048], 0;
    @!%p1 bra AGAIN;
    mad.lo.u32 %r4, %r0, 64, %r1;
    mad.wide.u32 %a2, %r0, 64, %a1;
    BODY
    ret;
}
"""
BODY = "".join(
    f"ld.shared.v4.b32 {{%r5, %r6, %r7, %r8}}, [%r4+{i}];\nst.global.v4.b32 [%a2+{i}], {{%r5, %r6, %r7, %r8}};\n"
    for i in range(0, 64, 16)
)
PLACES = {  # how the kernel takes the map, and how it is given
    "value": (".align 64 .b8 x[128]", "mov.b64 %a0, x;\ncvta.param.u64 %a0, %a0;", lambda m: m),
    "pointer": (".u64 x", "ld.param.u64 %a0, [x];", lambda m: m),
    "structure of CUDA 13": (
        ".align 128 .b8 x[256]",
        "mov.b64 %a0, x;\ncvta.param.u64 %a0, %a0;\nadd.u64 %a0, %a0, 128;\nld.param.u32 %r3, [x+4];",
        lambda m: ((np.uint8(1), np.int32(8)), m),
    ),
    "structure": (
        ".align 64 .b8 x[192]",
        "mov.b64 %a0, x;\ncvta.param.u64 %a0, %a0;\nadd.u64 %a0, %a0, 64;\nld.param.u32 %r3, [x+4];",
        lambda m: (np.uint8(1), np.int32(8), m),
    ),
}


def mapped(place: str, row: int | str) -> str:
    parameter, address, _ = PLACES[place]
    text = MAPPED.replace("PLACE", parameter).replace("ADDRESS", address).replace("BODY", BODY)
    return text.replace("    mov.u32 %r3, ROW;\n", "") if "structure" in place else text.replace("ROW", str(row))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("swizzle", [0, 32, 128])
def test_an_array_that_a_tensor_map_alone_reaches(place, swizzle):
    columns = 64 if swizzle != 32 else 16
    wide = np.arange(40 * 80, dtype=np.float16).reshape(40, 80)
    x, y = wide[:, 8 : 8 + columns], np.zeros((1024 // columns, columns), np.float16)
    rows = len(y)
    box = emulator.TiledMap(x, (rows, columns), swizzle=swizzle)
    emulator.check_ptx(mapped(place, 8), None, 1, 32, [PLACES[place][2](box), y], schedules=2)
    units = np.zeros((rows, columns * 2 // 16, 8), np.float16)
    inside = x[8 : 8 + rows].reshape(-1, units.shape[1], 8)
    for r in range(len(inside)):
        for c in range(units.shape[1]):
            at = c ^ {0: 0, 32: r // 4 & 1, 128: r & 7}[swizzle]
            units[r, at] = inside[r, c]
    assert np.array_equal(y.reshape(units.shape), units)


def test_arrays_that_are_reached_through_memory():
    """A table of pointers, as grouped kernels take it."""
    parts = [np.arange(32, dtype=np.int32) + 100 * i for i in range(2)]
    table, y = np.array([part.ctypes.data for part in parts]), np.zeros(32, np.int32)
    text = kernel_text(
        """mov.u32 %r0, %tid.x;
        mul.wide.u32 %rd1, %r0, 4;
        ld.global.b64 %rd2, [%a0+8];
        add.u64 %rd2, %rd2, %rd1;
        ld.global.b32 %r1, [%rd2];
        add.u64 %rd3, %a1, %rd1;
        st.global.b32 [%rd3], %r1;""",
        2,
    )
    emulator.check_ptx(text, None, 1, 32, [table, y], reached=parts, schedules=1)
    assert np.array_equal(y, parts[1])
    reported("out-of-bounds", "", emulator.check_ptx, text, None, 1, 32, [table, y], schedules=1)


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        (emulator.TiledMap(np.zeros((8, 64), np.float16), (8,)), "tensor map rank"),
        (emulator.TiledMap(np.zeros((8, 64), np.float16), (8, 64), 64), "inner box: got 128 bytes"),
        (emulator.TiledMap(np.zeros((8, 64), np.float16).T, (8, 64)), "contiguous last axis"),
        (emulator.TiledMap(np.zeros((8, 64), np.float16), (8, 64), element="tf32"), "element: got 'tf32'"),
        ((1, 2), r"argument 0\[0\]: got 1; needs a NumPy scalar"),
        ((np.int32(1),), "argument 0: got 4 bytes"),
    ],
)
def test_wrong_maps_and_structures(argument, words):
    with pytest.raises((ArgumentTypeError, ArgumentValueError), match=words):
        emulator.check_ptx(mapped("value", 0), None, 1, 32, [argument, np.zeros(1024, np.float16)])
