"""Asynchronous copies, tensor cores, and the fences between them and threads."""

import numpy as np

from .kit import DESCRIPTOR, FENCE, MEET, MULTIPLY, PAIR, PEER, READ, TWICE, WGMMA, Bug, init, load, ring, wait


def mapped_load() -> str:
    return """@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 64;
        @%p1 cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
        [%r1+128], [%a2, {%r11}], [%r1];"""


BUGS = {
    "a stage read, released and loaded again": Bug(
        "DeepEP #621, #632, #642", "read, then asynchronous write", "proxy-read", ring(READ, "+" + FENCE), wanted=TWICE
    ),
    "the same, copied code": Bug(
        "nccl-extensions #8",
        "read, then asynchronous write",
        "proxy-read",
        ring("ld.shared.v4.b32 {%r5, %r7, %r8, %r9}, [%r4];", "+" + FENCE),
        wanted=TWICE,
    ),
    "a fence before the reads that it must follow": Bug(
        "the same class: the fence is there, in the wrong place",
        "read, then asynchronous write",
        "proxy-read",
        ring(f"-{FENCE}\n{READ}", "+" + FENCE),
        wanted=TWICE,
    ),
    "a tile read by ldmatrix and loaded again": Bug(
        "TransformerEngine #2695 (Hadamard amax)",
        "read, then asynchronous write",
        "proxy-read",
        ring("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r5, %r7, %r8, %r9}, [%r4];\n" + READ, "+" + FENCE),
        wanted=TWICE,
    ),
    "a buffer of st.async read and released": Bug(
        "quack 77ed2cc (sm_90, CuTe DSL)",
        "read, then asynchronous write",
        "proxy-read",
        f"""{PEER}
        @%p1 mbarrier.init.shared.b64 [%r1], 1;
        @%p1 mbarrier.init.shared.b64 [%r1+8], 1;
        @%p1 fence.mbarrier_init.release.cluster;
        {MEET}
        mad.lo.u32 %r24, %r2, 4, %r22;
        @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 128;
        st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r24+128], %r0, [%r22];
        {wait("%r1")}
        mad.lo.u32 %r25, %r2, 4, %r1;
        ld.shared.b32 %r5, [%r25+128];
        +{FENCE}
        bar.warp.sync -1;
        @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 128;
        @%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r22+8];
        {wait("%r1+8", 0, ".acquire.cluster")}
        st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r24+128], %r5, [%r22];
        {wait("%r1", 1)}
        {MEET}""",
        block=32,
        options=PAIR,
    ),
    "a load hoisted over a block barrier and a copy": Bug(
        "triton #7262, #9610",
        "read, then asynchronous write",
        "proxy-read",
        f"""{init(1)}
        {load(size=1024)}
        {wait("%r1")}
        ld.shared.v4.b32 {{%r5, %r7, %r8, %r9}}, [%r4];
        +{FENCE}
        bar.sync 0;
        {load("%a1+1024", size=1024)}
        {wait("%r1", 1)}
        st.global.b32 [%rd2], %r5;""",
    ),
    "a copy into a stage that a copy still reads": Bug(
        "DeepEP #657",
        "race",
        "race",
        f"""{init(1)}
        {load()}
        {wait("%r1")}
        @%p1 cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r1+128], 512;
        @%p1 cp.async.bulk.commit_group;
        -@%p1 cp.async.bulk.wait_group.read 1;
        +@%p1 cp.async.bulk.wait_group.read 0;
        {load("%a1+512")}
        {wait("%r1", 1)}
        @%p1 cp.async.bulk.wait_group 0;""",
        "cp.async.bulk.global",
        block=32,
    ),
    "the result of a try_wait on the next stage": Bug(
        "fused_kernels_cutedsl_lib's attn/attempt6_epi_pipeline (CuTe DSL, sm_90)",
        "race",
        "race",
        f"""{init(1, 1)}
        {load()}
        {load("%a1+512", "%r1+640", barrier="%r1+8")}
        -mbarrier.try_wait.parity.shared::cta.b64 %p6, [%r1+8], 0;
        +mbarrier.try_wait.parity.shared::cta.b64 %p6, [%r1], 0;
        @%p6 bra READY;
        {wait("%r1")}
        READY: {READ}
        {wait("%r1+8")}
        ld.shared.b32 %r6, [%r4+512];
        add.u32 %r5, %r5, %r6;
        st.global.b32 [%rd2], %r5;""",
        "is of another stage or phase",
        block=32,
        wanted=TWICE[32:],
    ),
    "a tensor map edited while loads read it": Bug(
        "DeepGEMM #343, #430; SGLang #9392 (grouped GEMM, sm_90)",
        "race",
        "race",
        f"""{init(1)}
        add.u64 %rd6, %a1, 64;
        mov.u32 %r11, 0;
        {mapped_load()}
        +@%p1 cp.async.bulk.commit_group;
        +@%p1 cp.async.bulk.wait_group.read 0;
        @%p1 tensormap.replace.tile.global_address.global.b1024.b64 [%a2], %rd6;
        fence.proxy.tensormap::generic.release.cta;
        fence.proxy.tensormap::generic.acquire.cta [%a2], 128;
        {wait("%r1")}
        ld.shared.b32 %r5, [%r1+128];
        {FENCE}
        bar.warp.sync -1;
        {mapped_load()}
        {wait("%r1", 1)}
        ld.shared.b32 %r6, [%r1+128];
        shl.b32 %r6, %r6, 8;
        add.u32 %r5, %r5, %r6;
        st.global.b32 [%rd2], %r5;""",
        "tensormap.replace",
        block=32,
        mapped=True,
        wanted=np.full(32, 16 << 8, np.uint32),
    ),
    "stores without a fence where a sequence is empty": Bug(
        "FlashKDA #24, #25 (sm_90)",
        "ordinary write, then asynchronous read",
        "proxy",
        f"""ld.global.b32 %r5, [%a1];
        setp.eq.u32 %p6, %r5, 0;
        mad.lo.u32 %r4, %r0, 4, %r1;
        @%p6 bra EMPTY;
        st.shared.b32 [%r4], %r0;
        {FENCE}
        bra.uni STORE;
        EMPTY: st.shared.b32 [%r4], 0;
        +{FENCE}
        STORE: bar.sync 0;
        @%p1 cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r1], 256;
        @%p1 cp.async.bulk.commit_group;
        @%p1 cp.async.bulk.wait_group 0;""",
        wanted=np.zeros(64, np.uint32),
    ),
    "an operand stored before wgmma without a fence": Bug(
        "tilelang #2634 (H100; there a sparse wgmma)",
        "ordinary write, then asynchronous read",
        "proxy",
        f"""mov.u64 %rd3, 0;
        sub.u32 %r4, %r4, 128;
        st.shared.v2.b64 [%r4], {{%rd3, %rd3}};
        +{FENCE}
        bar.sync 0;
        {WGMMA}
        wgmma.wait_group.sync.aligned 0;""",
        "wgmma",
        block=128,
    ),
    "accumulators changed before the next wgmma": Bug(
        "CUTLASS's fp8 GEMM with two accumulators (CuTe DSL example)",
        "registers",
        "registers",
        f"""mov.u64 %rd3, 0;
        sub.u32 %r4, %r4, 128;
        st.shared.v2.b64 [%r4], {{%rd3, %rd3}};
        {FENCE}
        bar.sync 0;
        {WGMMA}
        wgmma.wait_group.sync.aligned 0;
        add.u32 %r10, %r10, 1;
        +wgmma.fence.sync.aligned;
        {MULTIPLY}
        wgmma.commit_group.sync.aligned;
        wgmma.wait_group.sync.aligned 0;""",
        "wgmma.fence",
        block=128,
    ),
    "an operand in registers loaded again too early": Bug(
        "DeepGEMM #448, #449 (tf32 prenorm GEMM, sm_90)",
        "registers",
        "registers",
        f"""mov.u64 %rd3, 0;
        sub.u32 %r4, %r4, 128;
        st.shared.v2.b64 [%r4], {{%rd3, %rd3}};
        {FENCE}
        bar.sync 0;
        {DESCRIPTOR}
        mov.u32 %r12, 0;
        mov.u32 %r13, 0;
        mov.u32 %r14, 0;
        mov.u32 %r15, 0;
        wgmma.fence.sync.aligned;
        wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {{%r16, %r17}}, {{%r12, %r13, %r14, %r15}}, %rd5, 0, 1, 1, 0;
        wgmma.commit_group.sync.aligned;
        +wgmma.wait_group.sync.aligned 0;
        ld.global.b32 %r12, [%rd2];
        -wgmma.wait_group.sync.aligned 0;
        add.u32 %r12, %r12, %r16;
        st.global.b32 [%rd2], %r12;""",
        "wgmma",
        block=128,
    ),
    "cp.async of one warp used by another": Bug(
        "flashinfer #3439",
        "race",
        "race uninitialised",
        """add.u64 %rd3, %a1, %rd1;
        mad.lo.u32 %r4, %r0, 4, %r1;
        cp.async.ca.shared.global [%r4], [%rd3], 4;
        cp.async.commit_group;
        cp.async.wait_group 0;
        -bar.warp.sync -1;
        +bar.sync 0;
        xor.b32 %r6, %r4, 128;
        ld.shared.b32 %r5, [%r6];
        st.global.b32 [%rd2], %r5;""",
        wanted=np.r_[np.arange(32, 64, dtype=np.uint32), np.arange(32, dtype=np.uint32)],
    ),
}

# right before and after a change that moved an acquire: both must be clean
CONTROL = Bug(
    "quack 3bb627e, FlashAttention a5856bfa",
    "control: an acquire moved earlier",
    "",
    f"""{init(1, 1)}
    @!%p3 bra CONSUMER;
    {load()}
    +{wait("%r1+8")}
    add.u64 %rd4, %a1, 512;
    -{wait("%r1+8")}
    {load("%rd4")}
    bra.uni END;
    CONSUMER: sub.u32 %r4, %r4, 512;
    {wait("%r1")}
    {READ}
    {FENCE}
    bar.warp.sync -1;
    @%p2 mbarrier.arrive.shared.b64 _, [%r1+8];
    {wait("%r1", 1)}
    ld.shared.b32 %r6, [%r4];
    add.u32 %r5, %r5, %r6;
    st.global.b32 [%rd2], %r5;
    END:""",
    wanted=TWICE,
)
