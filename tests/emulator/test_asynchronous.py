"""Small and bulk copies in handwritten PTX: what must work, and what each omission is reported as."""

import numpy as np
import pytest

from cutesync.emulator import POLICIES, Settings

from .support import INIT, PROLOGUE, WAIT, kernel_text, launch, reported

NEIGHBOUR = """
\txor.b32 %r4, %r2, 16;
\tadd.u32 %r4, %r4, %r1;
\tld.shared.b32 %r5, [%r4+64];
\tshr.u32 %r6, %r2, 2;
\tmul.wide.u32 %rd3, %r0, 4;
\tadd.u64 %rd3, %rd3, %a0;
\tst.global.b32 [%rd3], %r5;"""


def exchange(body: str, threads: int = 64, **options) -> None:
    """Each thread copies 16 bytes into shared memory by ``body`` and reads its neighbour's: right under every policy,
    or reported.
    """
    x, out = np.arange(4 * threads, dtype=np.uint32), np.zeros(threads, np.uint32)
    launch(
        kernel_text(PROLOGUE + body + NEIGHBOUR, 2, shared=64 + 16 * threads),
        out,
        x,
        block=(threads, 1, 1),
        settings=Settings(schedules=2 * len(POLICIES)),
        **options,
    )
    assert np.array_equal(out, 4 * (np.arange(threads) ^ 1))


COPY = "\n\tcp.async.cg.shared.global [%r3], [%rd2], 16;"


def test_small_copies_with_groups():
    exchange(COPY + "\n\tcp.async.commit_group;\n\tcp.async.wait_group 0;\n\tbar.sync 0;")
    exchange(COPY + "\n\tcp.async.wait_all;\n\tbar.sync 0;")
    allowed = COPY + 3 * "\n\tcp.async.commit_group;" + "\n\tcp.async.wait_group 5;\n\tbar.sync 0;"
    reported("race uninitialised", "", exchange, allowed)  # fewer groups than may be pending: it waits for none


@pytest.mark.parametrize("left_out", ("\n\tcp.async.commit_group;", "\n\tcp.async.wait_group 0;", "\n\tbar.sync 0;"))
def test_small_copies_with_a_step_left_out(left_out):
    whole = COPY + "\n\tcp.async.commit_group;\n\tcp.async.wait_group 0;\n\tbar.sync 0;"
    reported("race uninitialised", "", exchange, whole.replace(left_out, ""))


def test_small_copies_that_arrive_on_an_mbarrier():
    whole = INIT.replace("COUNT", "64") + COPY + "\n\tcp.async.mbarrier.arrive.noinc.shared.b64 [%r1];" + WAIT
    exchange(whole)
    reported("race uninitialised", "", exchange, whole.replace(WAIT, ""))


def test_small_copies_count_from_the_first_arrival_that_covers_them():
    """Warp 0 copies for two barriers; warp 1, which waits for the first, may read the first copy whenever the second
    lands.
    """
    body = (
        """
\tmov.u32 %r0, %tid.x;
\tmov.u32 %r1, smem;
\tand.b32 %r2, %r0, 31;
\tshl.b32 %r2, %r2, 4;
\tadd.u32 %r3, %r1, %r2;
\tcvt.u64.u32 %rd1, %r2;
\tadd.u64 %rd2, %a1, %rd1;
\tsetp.eq.u32 %p1, %r0, 0;
\t@%p1 mbarrier.init.shared.b64 [%r1], 32;
\t@%p1 mbarrier.init.shared.b64 [%r1+8], 32;
\tbar.sync 0;
\tsetp.gt.u32 %p3, %r0, 31;
\t@%p3 bra READ;
\tcp.async.cg.shared.global [%r3+64], [%rd2], 16;
\tcp.async.mbarrier.arrive.noinc.shared.b64 [%r1];
\tcp.async.cg.shared.global [%r3+576], [%rd2+512], 16;
\tcp.async.mbarrier.arrive.noinc.shared.b64 [%r1+8];
\tbra.uni OVER;
READ:"""
        + WAIT
        + """
\tld.shared.b32 %r5, [%r3+64];
\tmul.wide.u32 %rd3, %r0, 4;
\tadd.u64 %rd3, %rd3, %a0;
\tst.global.b32 [%rd3+-128], %r5;
OVER:
\tbar.sync 0;
"""
        + WAIT.replace("[%r1]", "[%r1+8]").replace("WAIT", "LAST")
        + "\n\tld.shared.b32 %r6, [%r3+576];"
    )
    x, out = np.arange(256, dtype=np.uint32), np.zeros(32, np.uint32)
    launch(
        kernel_text(body, 2, shared=64 + 1024), out, x, block=(64, 1, 1), settings=Settings(schedules=4 * len(POLICIES))
    )
    assert np.array_equal(out, 4 * np.arange(32))


def test_small_copies_fill_what_they_do_not_read_with_zero():
    x, out = np.full(128, 7, np.uint32), np.zeros(32, np.uint32)
    body = (
        PROLOGUE + "\n\tcp.async.cg.shared.global [%r3], [%rd2], 16, 4;\n\tcp.async.wait_all;\n"
        "\tld.shared.v2.b32 {%r5, %r6}, [%r3];"
        "\n\tsub.u32 %r5, %r5, %r6;" + NEIGHBOUR[NEIGHBOUR.index("\n\tshr") :]
    )
    launch(kernel_text(body, 2, shared=64 + 16 * 32), out, x)
    assert set(out.tolist()) == {7}


def test_small_copies_of_lanes_that_differ():
    """Lanes of one instruction copy from two buffers, in units of 4, 8 and 16 bytes, some only a part or nothing."""
    for size, instruction in ((4, "ca"), (8, "ca"), (16, "cg")):
        x, y, out = np.arange(1, 129, dtype=np.uint32), np.arange(501, 629, dtype=np.uint32), np.zeros(128, np.uint32)
        body = f"""{PROLOGUE}
\tsetp.gt.u32 %p2, %r0, 15;
\tadd.u64 %rd3, %a2, %rd1;
\t@%p2 mov.u64 %rd2, %rd3;
\tmov.u32 %r4, 7;
\tst.shared.v4.b32 [%r3], {{%r4, %r4, %r4, %r4}};
\tmul.lo.u32 %r5, %r0, 3;
\tand.b32 %r5, %r5, 31;
\tsetp.ne.u32 %p3, %r0, 9;
\t@%p3 cp.async.{instruction}.shared.global [%r3], [%rd2], {size}, %r5;
\tcp.async.wait_all;
\tld.shared.v4.b32 {{%r4, %r5, %r6, %r7}}, [%r3];
\tadd.u64 %rd3, %a0, %rd1;
\tst.global.v4.b32 [%rd3], {{%r4, %r5, %r6, %r7}};"""
        launch(kernel_text(body, 3, shared=64 + 512), out, x, y, settings=Settings(schedules=len(POLICIES)))
        wanted = np.full((32, 4), 7, np.uint32).view(np.uint8).reshape(32, 16)
        source = np.where(np.arange(128) < 64, x, y).view(np.uint8).reshape(32, 16)
        for lane in range(32):
            kept = min(3 * lane & 31, size)
            if lane != 9:
                wanted[lane, :size] = 0
                wanted[lane, :kept] = source[lane, :kept]
        assert np.array_equal(out.view(np.uint8).reshape(32, 16), wanted)


@pytest.mark.parametrize(
    "change, kinds, words",
    (
        ("@%p4 sub.u32 %r3, %r3, 16", "race", "lane 5"),  # to the place of the lane before
        ("@%p4 add.u32 %r3, %r3, 4", "misaligned", "lane 5"),
        ("@%p4 add.u32 %r3, %r3, 4096", "out-of-bounds", "lane 5"),
        ("@%p4 add.u64 %rd2, %rd2, 8", "misaligned", "lane 5"),
        ("@%p4 add.u64 %rd2, %rd2, 4096", "out-of-bounds", "lane 5"),
        ("xor.b32 %r8, %r2, 16;\n\tadd.u32 %r8, %r8, %r1;\n\tst.shared.b32 [%r8+64], %r0", "race", "st.shared"),
        ("xor.b32 %r8, %r2, 16;\n\tadd.u32 %r8, %r8, %r1;\n\tld.shared.b32 %r9, [%r8+64]", "race", "ld.shared"),
    ),
)
def test_small_copies_of_which_one_is_wrong(change, kinds, words):
    """What one lane of an instruction does wrong is reported for this lane; so is what the copies overwrite."""
    rest = COPY + "\n\tcp.async.wait_all;\n\tbar.sync 0;"
    before = "\n\tst.shared.v4.b32 [%r3], {%r0, %r0, %r0, %r0};\n\tbar.sync 0;" if "ld.shared" in change else ""
    reported(kinds, words, exchange, f"{before}\n\tsetp.eq.u32 %p4, %r0, 5;\n\t{change};{rest}", threads=32)


BULK = """
\t@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 1024;
\tadd.u32 %r8, %r1, 64;
\t@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r8], [%a1], 1024, [%r1];"""


def test_a_bulk_copy():
    exchange(INIT.replace("COUNT", "1") + BULK + WAIT)


@pytest.mark.parametrize(
    "old, new, kinds",
    (
        ("expect_tx.shared.b64 _, [%r1], 1024", "expect_tx.shared.b64 _, [%r1], 1040", "transaction"),
        ("[%a1], 1024", "[%a1], 1000", "misaligned"),
        ("[%a1], 1024", "[%a1], 2048", "out-of-bounds"),
        (WAIT, "", "race uninitialised"),
        ("\t@%p1 fence.mbarrier_init.release.cluster;", "", "barrier"),
        ("\tbar.sync 0;", "", "barrier"),
    ),
)
def test_a_bulk_copy_gone_wrong(old, new, kinds):
    whole = INIT.replace("COUNT", "1") + BULK + WAIT
    assert old in whole
    reported(kinds, "", exchange, whole.replace(old, new))


def test_a_bulk_copy_left_in_flight_at_the_end():
    body = PROLOGUE + INIT.replace("COUNT", "1") + BULK
    x, out = np.zeros(256, np.uint32), np.zeros(64, np.uint32)
    how = {"block": (64, 1, 1), "settings": Settings("copies_late")}
    reported(
        "barrier", "an asynchronous operation under way", launch, kernel_text(body, 2, shared=64 + 1024), out, x, **how
    )


STORE = """
\tst.shared.b32 [%r3], %r0;
\tst.shared.b32 [%r3+4], %r0;
\tst.shared.b64 [%r3+8], %rd1;
\tfence.proxy.async.shared::cta;
\tbar.sync 0;
\tadd.u32 %r8, %r1, 64;
\t@%p1 cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r8], 512;
\t@%p1 cp.async.bulk.commit_group;"""


@pytest.mark.parametrize(
    "wait, fine",
    (("\n\t@%p1 cp.async.bulk.wait_group.read 0;", True), ("\n\t@%p1 cp.async.bulk.wait_group 0;", True), ("", False)),
)
def test_a_block_may_exit_once_its_shared_memory_has_been_read(wait, fine):
    def go():
        out = np.zeros(128, np.uint32)
        body = PROLOGUE.replace("\n\tadd.u64 %rd2, %a1, %rd1;", "") + STORE + wait
        launch(kernel_text(body, 1, shared=64 + 512), out, settings=Settings("copies_late"))
        assert np.array_equal(out[::4], np.arange(32))

    go() if fine else reported("barrier", "has exited", go)


def test_equal_copies_to_the_same_bytes_are_a_warning():
    """Two warps store their tiles to the same place: a race, which does no harm where both hold the same."""

    def run(value: str) -> Settings:
        body = f"""
\tmov.u32 %r0, %tid.x;
\tmov.u32 %r1, smem;
\tand.b32 %r9, %r0, 31;
\tmad.lo.u32 %r3, %r0, 16, %r1;
\tmov.u32 %r8, 0x7FF80000;  // with it, the upper 8 bytes are a NaN
\tst.shared.v4.b32 [%r3], {{%r9, {value}, %r9, %r8}};
\tfence.proxy.async.shared::cta;
\tbar.warp.sync -1;
\tsetp.eq.u32 %p1, %r9, 0;
\t@%p1 cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r3], 512;
\t@%p1 cp.async.bulk.commit_group;
\t@%p1 cp.async.bulk.wait_group 0;"""
        settings, out = Settings(schedules=2 * len(POLICIES)), np.zeros(128, np.uint32)
        launch(kernel_text(body, 1, shared=1024), out, block=(64, 1, 1), settings=settings)
        assert np.array_equal(out[::4], np.arange(32))
        return settings

    (found,) = (f for f in run("%r9").findings if "warp 0" in str(f.lines[0]))
    assert (found.severity, found.kind) == ("warning", "race") and "writes of the same value" in found.title
    reported("race", "write and write of the same bytes", run, "%r0")


def test_a_bulk_reduction_adds_to_global_memory():
    body = (
        PROLOGUE
        + """
\tmul.lo.u32 %r5, %r0, 3;
\tshl.b32 %r6, %r0, 2;
\tadd.u32 %r6, %r6, %r1;
\tst.shared.b32 [%r6], %r5;
\tfence.proxy.async.shared::cta;
\tbar.sync 0;
\t@%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%a0], [%r1], 256;
\t@%p1 cp.async.bulk.commit_group;
\t@%p1 cp.async.bulk.wait_group 0;"""
    )
    out = np.full(64, 5, np.uint32)
    launch(
        kernel_text(body, 2, shared=256),
        out,
        out.copy(),
        grid=(3, 1, 1),
        block=(64, 1, 1),
        settings=Settings(schedules=9),
    )
    assert np.array_equal(out, 5 + 9 * np.arange(64))
