"""``cp.reduce.async.bulk`` into the shared memory of a block of the cluster: both blocks add to block 0's array."""

import numpy as np
import pytest

from cutesync.emulator import POLICIES, Settings

from .support import kernel_text, launch, reported

BODY = """
\tmov.u32 %r0, %tid.x;
\tmov.u32 %r1, %cluster_ctarank;
\tmov.u32 %r2, smem;
\tshl.b32 %r3, %r0, 2;
\tadd.u32 %r4, %r2, %r3;
\tsetp.eq.u32 %p1, %r0, 0;
\tsetp.eq.u32 %p2, %r1, 0;
\tmad.lo.u32 %r5, %r1, 100, %r0;
\tst.shared.b32 [%r4+128], %r5;
\tst.shared.b32 [%r4+256], 7;
\t@%p1 mbarrier.init.shared.b64 [%r2], 1;
\t@%p1 fence.mbarrier_init.release.cluster;
\tfence.proxy.async;
\tbarrier.cluster.arrive.aligned;
\tbarrier.cluster.wait.aligned;
\tand.pred %p3, %p1, %p2;
\t@%p3 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 256;
\tadd.u32 %r6, %r2, 128;
\tadd.u32 %r7, %r2, 256;
\tmapa.shared::cluster.u32 %r8, %r7, 0;
\tmapa.shared::cluster.u32 %r9, %r2, 0;
\t@%p1 cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.OPERATION [%r8], [%r6], 128, [%r9];
\t@!%p2 bra OVER;
WAIT:
\tmbarrier.try_wait.parity.shared.b64 %p4, [%r2], 0;
\t@!%p4 bra WAIT;
\tld.shared.b32 %r10, [%r4+256];
\tcvt.u64.u32 %rd1, %r3;
\tadd.u64 %rd1, %rd1, %a0;
\tst.global.b32 [%rd1], %r10;
OVER:
\tbarrier.cluster.arrive.aligned;
\tbarrier.cluster.wait.aligned;"""
LANES = np.arange(32)
ALONE = """
	mov.u32 %r0, %tid.x;
	mov.u32 %r2, smem;
	shl.b32 %r3, %r0, 2;
	add.u32 %r4, %r2, %r3;
	add.u32 %r5, %r0, 100;
	st.shared.b32 [%r4+128], %r5;
	st.shared.b32 [%r4+256], 7;
	setp.eq.u32 %p1, %r0, 0;
	@%p1 mbarrier.init.shared.b64 [%r2], 1;
	fence.proxy.async;
	bar.sync 0;
	@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r2], 128;
	add.u32 %r6, %r2, 128;
	add.u32 %r7, %r2, 256;
	@%p1 fence.mbarrier_init.release.cluster;
	@%p1 INSTRUCTION [%r7], [%r6], 128, [%r2];
WAIT:
	mbarrier.try_wait.parity.shared.b64 %p4, [%r2], 0;
	@!%p4 bra WAIT;
	ld.shared.b32 %r10, [%r4+256];
	cvt.u64.u32 %rd1, %r3;
	add.u64 %rd1, %rd1, %a0;
	st.global.b32 [%rd1], %r10;"""
COPY, REDUCE = (
    f"cp.{way}.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes" for way in ("async", "reduce.async")
)


def alone(instruction: str, clustered: bool) -> np.ndarray:
    """What one block makes of 7s and 100, 101, ... in its own shared memory; ``clustered``: launched as a cluster of
    one.
    """
    out = np.zeros(32, np.uint32)
    launch(kernel_text(ALONE.replace("INSTRUCTION", instruction), 1, shared=384), out, clustered=clustered)
    return out


@pytest.mark.parametrize(
    "instruction, want",
    (
        (COPY, 100 + LANES),
        (REDUCE + ".add.u32", 107 + LANES),
        (REDUCE + ".add.u64", 107 + LANES),
        (REDUCE + ".inc.u32", np.full(32, 8)),
        (REDUCE + ".and.b32", 7 & 100 + LANES),
    ),
)
def test_a_launch_has_bulk_copies_between_shared_memories_only_as_clusters(instruction, want):
    """As on an H200: an illegal instruction, unless the launch has the cluster attribute, if only of one block. The
    values are its own.
    """
    assert np.array_equal(alone(instruction, True), want)
    reported("launch", "without clusters", alone, instruction, False)


def reduce(operation: str, body: str = BODY) -> np.ndarray:
    out = np.zeros(32, np.uint32)
    launch(
        kernel_text(body.replace("OPERATION", operation), 1, shared=384),
        out,
        grid=(2, 1, 1),
        cluster=(2, 1, 1),
        settings=Settings(schedules=2 * len(POLICIES)),
    )
    return out


@pytest.mark.parametrize(
    "operation, want",
    (
        ("add.u32", 107 + 2 * LANES),
        ("max.s32", 100 + LANES),
        ("min.u32", np.minimum(LANES, 7)),
        ("or.b32", 7 | LANES | (100 + LANES)),
    ),
)
def test_two_blocks_reduce_into_one(operation, want):
    assert np.array_equal(reduce(operation), want)


@pytest.mark.parametrize(
    "old, new, kinds",
    (
        ("\tfence.proxy.async;", "", "proxy"),
        ("\tfence.proxy.async;", "\tfence.proxy.async;\n\tld.shared.b32 %r11, [%r4+256];", "proxy-read"),
        ("\tst.shared.b32 [%r4+256], 7;", "", "uninitialised"),
        ("_, [%r2], 256", "_, [%r2], 272", "transaction"),
        ("128, [%r9]", "120, [%r9]", "misaligned"),
    ),
)
def test_a_reduction_gone_wrong(old, new, kinds):
    assert old in BODY
    reported(kinds, "", reduce, "add.u32", BODY.replace(old, new))
