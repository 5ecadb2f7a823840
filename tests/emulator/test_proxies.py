"""Asynchronous operations overwrite what ordinary loads have read: racy programs in PTX, and their repaired twins."""

from dataclasses import replace

import numpy as np
import pytest

from cutesync.emulator import POLICIES, EmulationError, Settings

from .bugs import BUGS
from .bugs.kit import wait
from .support import kernel_text, launch, reported

FENCE = "fence.proxy.async.shared::cta;"


def kind_of(body: str, *arrays, **options) -> tuple[str, str]:
    """``(kind, report)`` of what is found, ("", "") if nothing is."""
    try:
        text = kernel_text(body, len(arrays), shared=640)
        launch(text, *arrays, settings=Settings(schedules=len(POLICIES)), **options)
    except EmulationError as found:
        return found.kind, str(found)
    return "", ""


# --- one block: warp 1 reads a stage, and warp 0 has a copy fill it again ---------------------------------------------

READ = "ld.shared.b32 %r5, [%r4];"
STAGE = """
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    and.b32 %r2, %r0, 31;
    shl.b32 %r3, %r2, 4;
    add.u32 %r4, %r1, 128;
    add.u32 %r4, %r4, %r3;
    setp.eq.u32 %p1, %r0, 0;
    setp.eq.u32 %p3, %r2, 1;
    setp.eq.u32 %p4, %r2, 0;
    @%p1 mbarrier.init.shared.b64 [%r1], 1;
    @%p1 mbarrier.init.shared.b64 [%r1+8], 1;
    @%p1 fence.mbarrier_init.release.cluster;
    bar.sync 0;
    setp.lt.u32 %p2, %r0, 32;
    @!%p2 bra CONSUMER;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 512;
    @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+128], [%a1], 512, [%r1];
    {early}
EMPTY:
    mbarrier.try_wait.parity.shared.b64 %p5, [%r1+8], 0;
    @!%p5 bra EMPTY;
    {issuer}
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 512;
    @%p1 {write}
    bra.uni END;
CONSUMER:
    {before}
FULL:
    mbarrier.try_wait.parity.shared.b64 %p5, [%r1], 0;
    @!%p5 bra FULL;
    {read}
    {reader}
    bar.warp.sync -1;
    {met}
    @%p4 mbarrier.arrive.shared.b64 _, [%r1+8];
    {after}
AGAIN:
    mbarrier.try_wait.parity.shared.b64 %p5, [%r1], 1;
    @!%p5 bra AGAIN;
    ld.shared.b32 %r6, [%r4];
    add.u32 %r6, %r5, %r6;
    mul.wide.u32 %rd1, %r2, 4;
    add.u64 %rd1, %rd1, %a0;
    st.global.b32 [%rd1], %r6;
END:"""
COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+128], [%a1+512], 512, [%r1];"
PARTS = ("early", "issuer", "before", "reader", "met", "after")


def stage(read: str = READ, write: str = COPY, **parts: str) -> tuple[str, str]:
    x, out = np.arange(256, dtype=np.uint32), np.zeros(32, np.uint32)
    text = STAGE.format(**{**dict.fromkeys(PARTS, ""), **parts, "read": read, "write": write})
    found = kind_of(text, out, x, block=(64, 1, 1))
    if not found[0] and read == READ and write == COPY:
        assert np.array_equal(out, 8 * np.arange(32) + 128)
    return found


FENCED = (
    {"reader": FENCE},
    {"issuer": FENCE},
    {"met": "@%p4 " + FENCE},
    {"issuer": "@%p1 " + FENCE},
    {"reader": "fence.proxy.async;"},
    {"reader": "fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;"},
)
NOT_FENCED = (
    {},
    {"before": FENCE},
    {"after": FENCE},
    {"early": FENCE},
    {"reader": "@%p4 " + FENCE},
    {"issuer": "@%p3 " + FENCE},
    {"reader": "fence.proxy.async.global;"},
    {"reader": "fence.acq_rel.cluster;"},
    {"issuer": "fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;"},
)


@pytest.mark.parametrize("where", FENCED, ids=str)
def test_a_fence_on_the_way_from_the_read_to_the_copy(where):
    assert stage(**where) == ("", "")


@pytest.mark.parametrize("where", NOT_FENCED, ids=str)
def test_no_fence_on_the_way_from_the_read_to_the_copy(where):
    kind, text = stage(**where)
    assert kind == "proxy-read", text
    for word in ("an ordinary load read", "cp.async.bulk", "ld.shared.b32", "fence.proxy.async must stand"):
        assert word in text


def test_every_generic_read_counts():
    matrix = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r5, %r7, %r8, %r9}, [%r4];"
    atomic = "atom.shared.add.u32 %r5, [%r4], 0;"
    vector = "ld.shared.v4.b32 {%r5, %r7, %r8, %r9}, [%r4];"
    for read, kind in ((matrix, "proxy-read"), (vector, "proxy-read"), (atomic, "proxy")):
        assert stage(read)[0] == kind
        assert stage(read, reader=FENCE)[0] == ""


def test_what_a_copy_has_read_needs_no_fence():
    """Its completion is enough: read and write are of one proxy."""
    store = """@%p4 cp.async.bulk.global.shared::cta.bulk_group [%a1+512], [%r1+128], 512;
    @%p4 cp.async.bulk.commit_group;"""
    again = COPY.replace("[%a1+512]", "[%a1]")
    assert stage(store + "\n@%p4 cp.async.bulk.wait_group.read 0;", again)[0] == ""
    assert stage(store, again)[0] == "race"


# --- a cluster: block 1 reads its stage and arrives at block 0, which starts a copy to both ---------------------------

CAST = """
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    mov.u32 %r2, %cluster_ctarank;
    shl.b32 %r3, %r0, 4;
    add.u32 %r4, %r1, 128;
    add.u32 %r4, %r4, %r3;
    setp.eq.u32 %p1, %r0, 0;
    setp.eq.u32 %p2, %r2, 0;
    and.pred %p3, %p1, %p2;
    mov.u32 %r9, 0;
    mapa.shared::cluster.u32 %r8, %r1, %r9;
    @%p1 mbarrier.init.shared.b64 [%r1], 1;
    @%p1 mbarrier.init.shared.b64 [%r1+8], 2;
    @%p1 fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    mov.b16 %rs1, 3;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 512;
    @%p3 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
        [%r1+128], [%a1], 512, [%r1], %rs1;
FULL:
    mbarrier.try_wait.parity.shared.b64 %p5, [%r1], 0;
    @!%p5 bra FULL;
    ld.shared.b32 %r5, [%r4];
    {reader}
    bar.warp.sync -1;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 512;
    {release}
    @!%p2 bra AGAIN;
    {wait}
    {issuer}
    @%p3 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
        [%r1+128], [%a1+512], 512, [%r1], %rs1;
AGAIN:
    mbarrier.try_wait.parity.shared.b64 %p5, [%r1], 1;
    @!%p5 bra AGAIN;
    ld.shared.b32 %r6, [%r4];
    add.u32 %r6, %r5, %r6;
    shl.b32 %r7, %r2, 5;
    add.u32 %r7, %r7, %r0;
    mul.wide.u32 %rd1, %r7, 4;
    add.u64 %rd1, %rd1, %a0;
    st.global.b32 [%rd1], %r6;"""
ARRIVALS = {
    scope: (
        f"@%p1 mbarrier.arrive.release.{scope}.shared::cluster.b64 _, [%r8+8];",
        "EMPTY:\n    mbarrier.try_wait.parity.shared.b64 %p5, [%r1+8], 0;\n    @!%p5 bra EMPTY;",
    )
    for scope in ("cta", "cluster")
} | {
    order: (f"barrier.cluster.arrive{order}.aligned;\n    barrier.cluster.wait.aligned;", "")
    for order in (".relaxed", ".release")
}


@pytest.mark.parametrize("how", ARRIVALS)
def test_a_stage_of_a_cluster(how):
    """An arrival at block scope (or a relaxed one at the cluster barrier) from another block says only that its reads
    are over: what they read may be overwritten, if a fence has stood on either side."""
    release, wait = ARRIVALS[how]
    for places, kind in (({}, "proxy-read"), ({"reader": FENCE}, ""), ({"issuer": FENCE}, "")):
        x, out = np.arange(256, dtype=np.uint32), np.zeros(64, np.uint32)
        text = CAST.format(**{"reader": "", "issuer": "", **places}, release=release, wait=wait)
        assert kind_of(text, out, x, grid=(2, 1, 1), cluster=(2, 1, 1))[0] == kind, (how, places)
        if not kind:
            assert np.array_equal(out, np.tile(8 * np.arange(32) + 128, 2))


# --- global memory ----------------------------------------------------------------------------------------------------

IN_PLACE = """
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    shl.b32 %r3, %r0, 2;
    add.u32 %r4, %r1, %r3;
    cvt.u64.u32 %rd1, %r3;
    add.u64 %rd1, %rd1, %a0;
    setp.eq.u32 %p1, %r0, 0;
    ld.global.b32 %r5, [%rd1];
    add.u32 %r5, %r5, 1;
    st.shared.b32 [%r4], %r5;
    {fence}
    bar.sync 0;
    @%p1 cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r1], 128;
    @%p1 cp.async.bulk.commit_group;
    @%p1 cp.async.bulk.wait_group 0;"""


@pytest.mark.parametrize(
    "fence, kind",
    (
        ("fence.proxy.async;", ""),
        (FENCE + " fence.proxy.async.global;", ""),
        (FENCE, "proxy-read"),
        ("fence.proxy.async.global;", "proxy"),
    ),
)
def test_a_fence_counts_for_the_memory_that_it_names(fence, kind):
    x = np.arange(32, dtype=np.uint32)
    found, text = kind_of(IN_PLACE.format(fence=fence), x)
    assert found == kind, text
    assert kind or np.array_equal(x, np.arange(1, 33))


def test_a_buffer_of_a_peer_is_written_again_once_its_reader_has_arrived_at_any_scope():
    """The second write follows the first through the reader, who waited for it; so does it follow the read."""
    bug = BUGS["a buffer of st.async read and released"]
    near = bug.body.replace(".release.cluster.shared", ".release.cta.shared").replace(".acquire.cluster", "")
    assert near != bug.body
    replace(bug, body=near).run(True)
    reported("proxy-read", "fence", replace(bug, body=near).run, False)
    (release,) = (line for line in near.split("\n") if "[%r22+8];" in line)
    hasty = near.replace(release + "\n", "", 1).replace(wait("%r1"), f"{release}\n{wait('%r1')}", 1)
    text = reported("race", "st.async", replace(bug, body=hasty).run, True)
    assert "write and write" in text or "write and read" in text
