"""Faults that something right beside them could hide."""

import numpy as np
import pytest

from .support import INIT, PROLOGUE, WAIT, kernel_text, launch, reported

PLACES = PROLOGUE.replace("\n\tadd.u64 %rd2, %a1, %rd1;", "")
START = PLACES + INIT.replace("COUNT", "1")

# Each lane reads its neighbour's number, then its own, and writes their sum in place of its own.
SUMS = """
\tmov.u32 %r0, %tid.x;
\tmov.u32 %r1, smem;
\tshl.b32 %r2, %r0, 2;
\tadd.u32 %r3, %r1, %r2;
\txor.b32 %r4, %r2, 4;
\tadd.u32 %r4, %r4, %r1;
\tst.shared.b32 [%r3], %r0;
\tbar.warp.sync -1;
\tld.shared.b32 %r5, [%r4];
\tld.shared.b32 %r6, [%r3];
\tBETWEEN
\tadd.u32 %r5, %r5, %r6;
\tst.shared.b32 [%r3], %r5;
\tmul.wide.u32 %rd1, %r0, 4;
\tadd.u64 %rd2, %a0, %rd1;
\tst.global.b32 [%rd2], %r5;"""


def sums(between: str) -> np.ndarray:
    out = np.zeros(32, np.uint32)
    launch(kernel_text(SUMS.replace("BETWEEN", between), 1, shared=128), out)
    return out


def test_a_lane_that_writes_what_it_and_another_lane_have_read():
    lane = np.arange(32, dtype=np.uint32)
    assert np.array_equal(sums("bar.warp.sync -1;"), lane + (lane ^ 1))
    assert "lanes of one warp" in reported("race", "write and read", sums, "")


@pytest.mark.parametrize(
    "write",
    [
        "st.shared.b32 [%r9+4], %r0;",
        "st.shared.v4.b32 [%r9], {%r0, %r0, %r0, %r0};",
        "st.shared.b8 [%r9+7], %rs1;",
        "atom.shared.add.u32 %r10, [%r9], 1;",
    ],
)
def test_an_mbarrier_whose_bytes_are_overwritten(write):
    def text(at: int) -> str:
        body = f"\n\tadd.u32 %r9, %r1, {at};\n\t@%p1 st.shared.b64 [%r1+16], 0;\n\t@%p1 {write}\n\tbar.sync 0;"
        return kernel_text(START + body + "\n\t@%p1 mbarrier.arrive.shared.b64 _, [%r1];" + WAIT, 0, shared=1024)

    launch(text(16))
    assert write.split(" ")[0] in reported("barrier", "has been overwritten", launch, text(0))


def test_an_mbarrier_that_is_invalidated_may_be_overwritten():
    body = START + "\n\t@%p1 mbarrier.arrive.shared.b64 _, [%r1];" + WAIT
    body += """
\tbar.sync 0;
\t@%p1 mbarrier.inval.shared.b64 [%r1];
\t@%p1 st.shared.b64 [%r1], %rd1;
\t@%p1 mbarrier.init.shared.b64 [%r1], 1;
\t@%p1 mbarrier.arrive.shared.b64 _, [%r1];"""
    launch(kernel_text(body, 0, shared=1024))


PAIR = """
\tmov.u32 %r20, %cluster_ctarank;
\txor.b32 %r21, %r20, 1;
\tmapa.shared::cluster.u32 %r22, %r1, %r21;
\tst.shared.v4.b32 [%r3], {%r0, %r0, %r0, %r0};
\tfence.proxy.async.shared::cta;
\t@%p1 mbarrier.init.shared.b64 [%r1], 1;
\t@%p1 fence.mbarrier_init.release.cluster;
\t@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 512;
\tbarrier.cluster.arrive.aligned;
\tbarrier.cluster.wait.aligned;
\tadd.u32 %r23, %r22, 1024;
\tadd.u32 %r24, %r1, 64;
\t@%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r23], [%r24], 512, [%r22];"""
MEET = "\n\tbarrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;"


def test_a_block_that_exits_while_its_copy_to_a_peer_still_reads():
    """Each block waits for what comes, but not until what it sends has left."""
    how = {"grid": (2, 1, 1), "cluster": (2, 1, 1), "clustered": True}
    body = PAIR + WAIT
    right, wrong = (kernel_text(PLACES + text, 0, shared=2048) for text in (body + MEET, body))
    launch(right, **how)
    reported("barrier", "exited with an asynchronous operation under way", launch, wrong, **how)
