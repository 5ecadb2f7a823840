"""What the wait of one warp says about its warpgroup, and whether waits for a phase that is complete ever fail."""

from collections.abc import Iterator

import numpy as np

from .case import HEADER, Case

_N, _CHAIN, _LATE = 64, 16, 30_000
_D = ", ".join(f"%f{i}" for i in range(_N // 2))
_STARTED = f"""
.visible .entry litmus(.param .u64 out)
{{
.reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<8>, %da, %db; .reg .f32 %f<{_N}>;
.shared .align 1024 .b8 smem[8192];
mov.u32 %r0, %tid.x; mov.u32 %r1, smem; shr.u32 %r4, %r0, 5;
ld.param.u64 %rd3, [out]; mul.wide.u32 %rd4, %r0, 4; add.u64 %rd3, %rd3, %rd4;
"""
_MULTIPLY = f"wgmma.mma_async.sync.aligned.m64n{_N}k16.f32.f16.f16 {{{_D}}}, %da, %db, 1, 1, 1, 0, 0;\n"


def early_wait(early: int) -> Case:
    """A and B are ones. The other three warps come late to the wgmma; the early one waits for its group and overwrites
    B with twos. Each thread gives the largest of its accumulators."""
    ones = "".join(f"st.shared.v2.b64 [%r2+{at}], {{%rd1, %rd1}};\n" for at in (0, 2048, 4096))
    twos = "".join(f"st.shared.v2.b64 [%r7+{2048 + 512 * i}], {{%rd1, %rd1}};\n" for i in range(4))
    zeros = "".join(f"mov.f32 %f{i}, 0f00000000;\n" for i in range(_N // 2))
    largest = "".join(f"max.f32 %f0, %f0, %f{i};\n" for i in range(1, _N // 2))
    body = f"""shl.b32 %r2, %r0, 4; add.u32 %r2, %r2, %r1; mov.b64 %rd1, 0x3c003c003c003c00;
{ones}shr.u32 %r3, %r1, 4; cvt.u64.u32 %da, %r3; add.u32 %r3, %r3, 128; cvt.u64.u32 %db, %r3;
mov.b64 %rd2, {8 << 16 | 16 << 32}; or.b64 %da, %da, %rd2; or.b64 %db, %db, %rd2;
{zeros}fence.proxy.async; bar.sync 0;
setp.eq.u32 %p1, %r4, {early}; @%p1 bra GO;
mov.u32 %r5, %clock;
LATE: mov.u32 %r6, %clock; sub.u32 %r6, %r6, %r5; setp.lt.u32 %p2, %r6, {_LATE}; @%p2 bra LATE;
GO: wgmma.fence.sync.aligned;
{_MULTIPLY * _CHAIN}wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
@!%p1 bra DONE;
and.b32 %r7, %r0, 31; shl.b32 %r7, %r7, 4; add.u32 %r7, %r7, %r1; mov.b64 %rd1, 0x4000400040004000;
{twos}fence.proxy.async;
DONE: bar.sync 0;
{largest}st.global.f32 [%rd3], %f0;
ret;
}}
"""
    expected = np.full(128, 16.0 * _CHAIN, np.float32)
    name = f"warpgroup.wait.warp{early}"
    return Case(name, HEADER + _STARTED + body, (np.zeros(128, np.float32),), 0, lambda: expected, block=128)


def complete_phases() -> Case:
    """How often ``try_wait`` and ``test_wait`` fail for a phase that is complete."""
    body = """setp.eq.u32 %p1, %r0, 0;
@%p1 mbarrier.init.shared.b64 [%r1], 1;
mov.u32 %r9, 0; mov.u32 %r8, 0;
LOOP: and.b32 %r7, %r9, 1;
bar.sync 0;
@%p1 mbarrier.arrive.shared.b64 _, [%r1];
bar.sync 0;
mbarrier.try_wait.parity.shared.b64 %p2, [%r1], %r7;
@!%p2 add.u32 %r8, %r8, 1;
mbarrier.test_wait.parity.shared.b64 %p2, [%r1], %r7;
@!%p2 add.u32 %r8, %r8, 1;
add.u32 %r9, %r9, 1; setp.lt.u32 %p3, %r9, 200; @%p3 bra LOOP;
st.global.b32 [%rd3], %r8;
ret;
}
"""
    none = np.zeros(128, np.uint32)
    return Case(
        "warpgroup.complete_phase", HEADER + _STARTED + body, (np.ones(128, np.uint32),), 0, lambda: none, block=128
    )


def cases() -> Iterator[Case]:
    yield from map(early_wait, range(4))
    yield complete_phases()
