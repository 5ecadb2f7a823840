"""Barriers, scopes, early launches, and shared memory that is used again."""

import numpy as np

from .kit import FENCE, MEET, PAIR, PEER, Bug, init, load, wait

EARLY = {"programmatic": True}
FIRST = "mov.u32 %r23, 0;\nmapa.shared::cluster.u32 %r22, %r1, %r23;"
STORED = "st.global.b32 [%rd2], %r0;"


def loads_of_pair(steps: str) -> str:
    """Both blocks of a cluster wait for halves of a stage from each other, ``steps`` times."""
    return f"""{PEER}
@%p1 mbarrier.init.shared.b64 [%r1], 1;
@%p1 mbarrier.init.shared.b64 [%r1+8], 2;
@%p1 fence.mbarrier_init.release.cluster;
{MEET}
{steps}
mapa.shared::cluster.u32 %r25, %r1, %r20;
mad.lo.u32 %r26, %r20, 256, %r1;
mov.b16 %rs1, 3;
mov.u32 %r27, 0;
STEP: and.b32 %r28, %r27, 1;
@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 512;
@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
    [%r26+128], [%a1], 256, [%r1], %rs1;
{wait("%r1", "%r28")}
ld.shared.b32 %r5, [%r4];
{FENCE}
bar.warp.sync -1;
@%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r22+8];
@%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r25+8];
{wait("%r1+8", "%r28", ".acquire.cluster")}
add.u32 %r27, %r27, 1;
setp.lt.u32 %p6, %r27, %r24;
@%p6 bra STEP;
{MEET}"""


def scoped(scope: str) -> str:
    """Block 1 writes into block 0's shared memory and arrives there."""
    return f"""{FIRST}
@%p1 mbarrier.init.shared.b64 [%r1], 32;
@%p1 fence.mbarrier_init.release.cluster;
{MEET}
mad.lo.u32 %r24, %r2, 4, %r22;
@!%p4 st.shared::cluster.b32 [%r24+128], %r0;
-@!%p4 mbarrier.arrive.release.{scope}.shared::cluster.b64 _, [%r22];
+@!%p4 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r22];
@!%p4 bra END;
{wait("%r1", 0, ".acquire.cluster")}
mad.lo.u32 %r24, %r2, 4, %r1;
ld.shared.b32 %r5, [%r24+128];
st.global.b32 [%rd2], %r5;
END: {MEET}"""


def volatile_sum() -> str:
    """Each lane adds the word of the lane ``step`` further to its own. The words behind those of the warp are zero."""
    start = "mad.lo.u32 %r4, %r2, 4, %r1;\nst.volatile.shared.b32 [%r4], %r0;\nst.volatile.shared.b32 [%r4+128], 0;"
    steps = [
        f"""+bar.warp.sync -1;
ld.volatile.shared.b32 %r5, [%r4];
ld.volatile.shared.b32 %r6, [%r4+{4 * step}];
add.u32 %r5, %r5, %r6;
+bar.warp.sync -1;
st.volatile.shared.b32 [%r4], %r5;"""
        for step in (16, 8, 4, 2, 1)
    ]
    return "\n".join([start, *steps, "st.global.b32 [%rd2], %r5;"])


BUGS = {
    "a block barrier that 4 of 12 warps reach": Bug(
        "flashinfer #2996 (tinygemm2, sm_90)",
        "deadlock",
        "deadlock",
        f"""{init(1)}
        setp.lt.u32 %p6, %r0, 128;
        @!%p6 bra OTHERS;
        -bar.sync 0;
        +bar.sync 1, 128;
        @%p1 mbarrier.arrive.shared.b64 _, [%r1];
        OTHERS: {wait("%r1")}
        st.global.b32 [%rd2], %r0;""",
        "128 of 384 threads",
        block=384,
    ),
    "blocks of a pair with loops of different lengths": Bug(
        "DeepGEMM #429 (k-grouped, sm_90)",
        "deadlock",
        "deadlock transaction barrier out-of-bounds",
        loads_of_pair("-add.u32 %r24, %r20, 2;\n+mov.u32 %r24, 3;"),
        block=32,
        options=PAIR,
    ),
    "barriers that no fence follows": Bug(
        "FlashKDA #24, #25",
        "initialisation",
        "barrier",
        f"""@%p1 mbarrier.init.shared.b64 [%r1], 1;
        @%p1 mbarrier.init.shared.b64 [%r1+8], 1;
        @%p1 mbarrier.init.shared.b64 [%r1+16], 1;
        +@%p1 fence.mbarrier_init.release.cluster;
        bar.sync 0;
        {load(barrier="%r1+16")}
        {wait("%r1+16")}""",
        "fence.mbarrier_init",
    ),
    "pipelines of a cluster without a fence": Bug(
        "CUTLASS #2030 (sm_90 pipelines)",
        "initialisation",
        "barrier",
        f"""{PEER}
        @%p1 mbarrier.init.shared.b64 [%r1], 1;
        +@%p1 fence.mbarrier_init.release.cluster;
        -barrier.cluster.arrive.relaxed.aligned;
        +barrier.cluster.arrive.release.aligned;
        barrier.cluster.wait.aligned;
        @%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r22];
        {wait("%r1", 0, ".acquire.cluster")}
        {MEET}""",
        "initialis",
        options=PAIR,
    ),
    "an early launch that never waits": Bug(
        "CUTLASS #2760 (sm_90 grouped kernels)",
        "early launch",
        "race",
        """+griddepcontrol.wait;
        ld.global.b32 %r5, [%rd2];
        add.u32 %r5, %r5, 1;
        add.u64 %rd3, %a1, %rd1;
        st.global.b32 [%rd3], %r5;""",
        "wrote these bytes",
        options=EARLY,
        before=STORED,
        wanted=np.arange(64, dtype=np.uint32),
    ),
    "an early launch that waits after its reads": Bug(
        "CCCL #5297, #3131 (merge)",
        "early launch",
        "race",
        """+griddepcontrol.wait;
        ld.global.b32 %r5, [%rd2];
        -griddepcontrol.wait;
        add.u32 %r5, %r5, 1;
        st.global.b32 [%rd2], %r5;""",
        "griddepcontrol.wait",
        options=EARLY,
        before=STORED,
        wanted=np.arange(1, 65, dtype=np.uint32),
    ),
    "an operand of two groups staged again": Bug(
        "tilelang #2613 (H100)",
        "race",
        "race",
        """mad.lo.u32 %r4, %r2, 4, %r1;
        @%p3 st.shared.b32 [%r4], %r2;
        bar.sync 0;
        ld.shared.b32 %r5, [%r4];
        +bar.sync 0;
        add.u32 %r6, %r2, 7;
        @%p3 st.shared.b32 [%r4], %r6;
        bar.sync 0;
        ld.shared.b32 %r6, [%r4];
        add.u32 %r5, %r5, %r6;
        st.global.b32 [%rd2], %r5;""",
        wanted=np.tile(2 * np.arange(32, dtype=np.uint32) + 7, 2),
    ),
    "shared memory used again too early": Bug(
        "CCCL ee14babeaa (run-length encode), #2699",
        "race",
        "race",
        """mad.lo.u32 %r4, %r0, 4, %r1;
        st.shared.b32 [%r4], %r0;
        bar.sync 0;
        xor.b32 %r6, %r4, 128;
        ld.shared.b32 %r5, [%r6];
        +bar.sync 0;
        add.u32 %r7, %r0, 100;
        st.shared.b32 [%r4], %r7;
        bar.sync 0;
        ld.shared.b32 %r8, [%r6];
        add.u32 %r5, %r5, %r8;
        st.global.b32 [%rd2], %r5;""",
    ),
    "storage of a reduction used twice": Bug(
        "flashinfer #3624, #3529",
        "race",
        "race",
        """mov.u32 %r9, 0;
        ROUND: mad.lo.u32 %r4, %r3, 4, %r1;
        add.u32 %r5, %r0, %r9;
        @%p2 st.shared.b32 [%r4], %r5;
        bar.sync 0;
        ld.shared.v2.b32 {%r5, %r6}, [%r1];
        +bar.sync 0;
        add.u32 %r9, %r5, %r6;
        setp.lt.u32 %p6, %r9, 100;
        @%p6 bra ROUND;
        st.global.b32 [%rd2], %r9;""",
    ),
    "a named barrier that one side arrives at twice": Bug(
        "flashinfer #4732 (sm_12x)",
        "lapped barrier",
        "race barrier deadlock uninitialised",
        """mad.lo.u32 %r4, %r2, 4, %r1;
        @!%p3 bra CONSUMER;
        st.shared.b32 [%r4], %r0;
        bar.arrive 1, 64;
        +bar.sync 2, 64;
        st.shared.b32 [%r4+128], %r0;
        bar.arrive 1, 64;
        bra.uni END;
        CONSUMER: bar.sync 1, 64;
        ld.shared.b32 %r5, [%r4];
        +bar.arrive 2, 64;
        bar.sync 1, 64;
        ld.shared.b32 %r6, [%r4+128];
        add.u32 %r5, %r5, %r6;
        st.global.b32 [%rd2], %r5;
        END:""",
        wanted=np.r_[np.zeros(32, np.uint32), 2 * np.arange(32, dtype=np.uint32)],
    ),
    "an early exit that does not wait": Bug(
        "vLLM #26026 (sm_100)",
        "exit",
        "barrier out-of-bounds",
        f"""{PEER}
        @%p1 mbarrier.init.shared.b64 [%r1], 1;
        @%p1 fence.mbarrier_init.release.cluster;
        {MEET}
        barrier.cluster.arrive.aligned;
        -@!%p4 bra EXIT;
        +@!%p4 bra LAST;
        @%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r22];
        LAST: barrier.cluster.wait.aligned;
        +{MEET.splitlines()[0]}
        +{MEET.splitlines()[1]}
        EXIT:""",
        "exited",
        options=PAIR,
    ),
    "an arrival at a peer at block scope": Bug(
        "CUTLASS #3643, #3647 (CuTe DSL example, sm_100)", "scope", "race", scoped("cta"), block=32, options=PAIR
    ),
    "a relaxed arrival at a peer": Bug(
        "ThunderKittens 78c6c446",
        "scope",
        "race",
        scoped("cluster").replace("-@!%p4 mbarrier.arrive.release.cluster", "-@!%p4 mbarrier.arrive.relaxed.cluster"),
        block=32,
        options=PAIR,
    ),
    "volatile words of a warp added without a barrier": Bug(
        "pranjalssh/fast.cu's `sum.cu`, kernel 1 (38eb642)",
        "race",
        "mismatch",
        volatile_sum(),
        "warning: race: lanes of one warp exchange volatile words",
        block=32,
        wanted=np.array([496], np.uint32),
    ),
}
