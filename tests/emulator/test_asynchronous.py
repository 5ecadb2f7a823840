"""mbarriers and small and bulk copies in handwritten PTX: what must work, and what each omission is reported as."""

import numpy as np
import pytest

from cutesync.emulator import POLICIES, EmulationError, Settings
from cutesync.emulator.tensor_map import TensorMap, encode

from .support import kernel_text, launch

PROLOGUE = """
\tmov.u32 %r0, %tid.x;
\tmov.u32 %r1, smem;
\tshl.b32 %r2, %r0, 4;
\tadd.u32 %r3, %r1, %r2;
\tadd.u32 %r3, %r3, 64;
\tcvt.u64.u32 %rd1, %r2;
\tadd.u64 %rd2, %a1, %rd1;
\tsetp.eq.u32 %p1, %r0, 0;"""
NEIGHBOUR = """
\txor.b32 %r4, %r2, 16;
\tadd.u32 %r4, %r4, %r1;
\tld.shared.b32 %r5, [%r4+64];
\tshr.u32 %r6, %r2, 2;
\tmul.wide.u32 %rd3, %r0, 4;
\tadd.u64 %rd3, %rd3, %a0;
\tst.global.b32 [%rd3], %r5;"""
INIT = """
\t@%p1 mbarrier.init.shared.b64 [%r1], COUNT;
\t@%p1 fence.mbarrier_init.release.cluster;
\tbar.sync 0;"""
WAIT = """
WAIT:
\tmbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0;
\t@!%p2 bra WAIT;"""


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


def fault(body: str, **options) -> EmulationError:
    with pytest.raises(EmulationError) as found:
        exchange(body, **options)
    return found.value


COPY = "\n\tcp.async.cg.shared.global [%r3], [%rd2], 16;"


def test_small_copies_with_groups():
    exchange(COPY + "\n\tcp.async.commit_group;\n\tcp.async.wait_group 0;\n\tbar.sync 0;")
    exchange(COPY + "\n\tcp.async.wait_all;\n\tbar.sync 0;")
    allowed = COPY + 3 * "\n\tcp.async.commit_group;" + "\n\tcp.async.wait_group 5;\n\tbar.sync 0;"
    assert fault(allowed).kind in ("race", "uninitialised")  # fewer groups than may be pending: it waits for none


@pytest.mark.parametrize("left_out", ("\n\tcp.async.commit_group;", "\n\tcp.async.wait_group 0;", "\n\tbar.sync 0;"))
def test_small_copies_with_a_step_left_out(left_out):
    whole = COPY + "\n\tcp.async.commit_group;\n\tcp.async.wait_group 0;\n\tbar.sync 0;"
    assert fault(whole.replace(left_out, "")).kind in ("race", "uninitialised")


def test_small_copies_that_arrive_on_an_mbarrier():
    whole = INIT.replace("COUNT", "64") + COPY + "\n\tcp.async.mbarrier.arrive.noinc.shared.b64 [%r1];" + WAIT
    exchange(whole)
    assert fault(whole.replace(WAIT, "")).kind in ("race", "uninitialised")


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


BULK = """
\t@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 1024;
\tadd.u32 %r8, %r1, 64;
\t@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r8], [%a1], 1024, [%r1];"""


def test_a_bulk_copy():
    exchange(INIT.replace("COUNT", "1") + BULK + WAIT)


@pytest.mark.parametrize(
    "change, kinds",
    (
        (
            lambda s: s.replace("expect_tx.shared.b64 _, [%r1], 1024", "expect_tx.shared.b64 _, [%r1], 1040"),
            {"deadlock"},
        ),
        (lambda s: s.replace("[%a1], 1024", "[%a1], 1000"), {"misaligned"}),
        (lambda s: s.replace("[%a1], 1024", "[%a1], 2048"), {"out-of-bounds"}),
        (lambda s: s.replace(WAIT, ""), {"race", "uninitialised"}),
        (lambda s: s.replace("\t@%p1 fence.mbarrier_init.release.cluster;", ""), {"barrier"}),
        (lambda s: s.replace("\tbar.sync 0;", ""), {"barrier"}),
    ),
)
def test_a_bulk_copy_gone_wrong(change, kinds):
    whole = INIT.replace("COUNT", "1") + BULK + WAIT
    changed = change(whole)
    assert changed != whole
    assert fault(changed).kind in kinds


def test_a_bulk_copy_left_in_flight_at_the_end():
    body = PROLOGUE + INIT.replace("COUNT", "1") + BULK
    x, out = np.zeros(256, np.uint32), np.zeros(64, np.uint32)
    with pytest.raises(EmulationError, match="has exited with an asynchronous operation under way"):
        launch(kernel_text(body, 2, shared=64 + 1024), out, x, block=(64, 1, 1), settings=Settings("copies_late"))


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

    if fine:
        go()
    else:
        with pytest.raises(EmulationError, match="has exited"):
            go()


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


# --- mbarriers by themselves ------------------------------------------------------------------------------------------


def run(body: str, threads: int = 32, policy: str | None = None, schedules: int = 9) -> np.ndarray:
    """%r5 of every thread; %r1 is the barrier's address."""
    out = np.zeros(threads, np.uint32)
    end = "\n\tmul.wide.u32 %rd3, %r0, 4;\n\tadd.u64 %rd3, %rd3, %a0;\n\tst.global.b32 [%rd3], %r5;"
    launch(
        kernel_text(PROLOGUE.replace("\n\tadd.u64 %rd2, %a1, %rd1;", "") + body + end, 1, shared=256),
        out,
        block=(threads, 1, 1),
        settings=Settings(policy, schedules=1 if policy else schedules),
    )
    return out


def test_tokens():
    body = (
        INIT.replace("COUNT", "64")
        + """
\tmov.u32 %r5, 0;
ROUND:
\tmbarrier.arrive.shared.b64 %rd4, [%r1];
WAIT:
\tmbarrier.test_wait.shared.b64 %p2, [%r1], %rd4;
\t@!%p2 bra WAIT;
\tadd.u32 %r5, %r5, 1;
\tsetp.lt.u32 %p3, %r5, 5;
\t@%p3 bra ROUND;"""
    )
    assert set(run(body, 64).tolist()) == {5}


def test_dropping_out():
    """Thread 0 drops after the first phase; the others go on without it."""
    body = (
        INIT.replace("COUNT", "64")
        + """
\tmov.u32 %r5, 0;
\t@%p1 mbarrier.arrive_drop.shared.b64 %rd4, [%r1];
\t@%p1 bra DONE;
ROUND:
\tmbarrier.arrive.shared.b64 %rd4, [%r1];
WAIT:
\tmbarrier.try_wait.shared.b64 %p2, [%r1], %rd4;
\t@!%p2 bra WAIT;
\tadd.u32 %r5, %r5, 1;
\tsetp.lt.u32 %p3, %r5, 4;
\t@%p3 bra ROUND;
DONE:"""
    )
    assert run(body, 64).tolist() == [0] + [4] * 63


def test_an_early_exit_without_dropping_out_hangs():
    body = (
        INIT.replace("COUNT", "64")
        + "\n\tmov.u32 %r5, 0;\n\t@%p1 ret;\n\tmbarrier.arrive.shared.b64 %rd4, [%r1];"
        + WAIT
    )
    with pytest.raises(EmulationError) as found:
        run(body, 64)
    assert found.value.kind == "deadlock" and "1 of 64" in str(found.value)


@pytest.mark.parametrize(
    "body, message",
    (
        ("\n\tmbarrier.arrive.shared.b64 %rd4, [%r1];", "no mbarrier has been initialised"),
        (INIT.replace("COUNT", "1") + "\n\t@%p1 mbarrier.init.shared.b64 [%r1], 1;", "initialised again"),
        (
            INIT.replace("COUNT", "1").replace("\n\t@%p1 fence.mbarrier_init.release.cluster;\n\tbar.sync 0;", "")
            + "\n\tmbarrier.arrive.noComplete.shared.b64 %rd4, [%r1], 1;",
            "without being ordered after its initialisation",
        ),
        (
            INIT.replace("COUNT", "3") + "\n\t@%p1 mbarrier.arrive.noComplete.shared.b64 %rd4, [%r1], 4;",
            "4 arrivals where 3",
        ),
        (
            INIT.replace("COUNT", "1") + "\n\t@%p1 mbarrier.expect_tx.relaxed.cta.shared.b64 [%r1], 1048576;",
            "out of range",
        ),
        ("\n\tadd.u32 %r1, %r1, 4;" + INIT.replace("COUNT", "1"), "8 aligned bytes"),
        ("\n\tmov.u32 %r5, 0;" + INIT.replace("COUNT", "0"), "cannot expect 0"),
        ("\n\tmov.u32 %r5, 0;\n\tbar.sync 16;", "no named barrier 16"),
    ),
)
def test_misuse(body, message):
    with pytest.raises(EmulationError, match=message):
        run("\n\tmov.u32 %r5, 0;" + body)


def test_waiting_for_a_phase_long_past():
    body = (
        INIT.replace("COUNT", "1")
        + """
\t@!%p1 bra DONE;
\tmbarrier.arrive.shared.b64 %rd4, [%r1];
\tmbarrier.arrive.shared.b64 %rd5, [%r1];
\tmbarrier.test_wait.shared.b64 %p2, [%r1], %rd4;
DONE:
\tmov.u32 %r5, 0;"""
    )
    with pytest.raises(EmulationError, match="only the running and the last phase"):
        run(body)


def test_lanes_of_one_instruction_may_complete_several_phases():
    arrive = "\n\tsetp.gt.u32 %p4, %r0, 31;\n\t@!%p4 mbarrier.arrive.shared.b64 _, [%r1];\n\tbar.sync 0;"
    body = INIT.replace("COUNT", "16") + arrive + WAIT.replace("%p2, [%r1], 0", "%p2, [%r1], 1")
    assert set(run(body + "\n\tmov.u32 %r5, 1;", 64).tolist()) == {1}


def test_an_invalidated_barrier_may_be_made_anew():
    body = (
        INIT.replace("COUNT", "1")
        + """
\t@%p1 mbarrier.inval.shared.b64 [%r1];
\t@%p1 mbarrier.init.shared.b64 [%r1], 32;
\tbar.sync 0;
\tmbarrier.arrive.shared.b64 %rd4, [%r1];"""
        + WAIT
        + "\n\tmov.u32 %r5, 1;"
    )
    assert set(run(body).tolist()) == {1}


def test_bytes_may_land_before_they_are_expected():
    body = (
        INIT.replace("COUNT", "1")
        + """
\tmov.u32 %r5, 0;
\t@%p1 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 64;
\tbar.sync 0;
\t@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 64;"""
        + WAIT
        + "\n\tmov.u32 %r5, 1;"
    )
    assert set(run(body).tolist()) == {1}


def test_a_kernel_edits_its_tensor_map():
    """The map's address and extent are replaced in shared memory, then in global memory, and the copy uses them."""
    x = np.zeros(1024 + 64, np.float32)
    x = x[(-x.ctypes.data % 256) // 4 :][:1024]
    x[:] = np.arange(1024)
    described = TensorMap("f32", x.ctypes.data, (16,), (), (16,))
    table = np.zeros(64, np.uint32)
    table = table[(-table.ctypes.data % 128) // 4 :][:32]
    table[:] = np.frombuffer(encode(described), np.uint32)
    body = (
        PROLOGUE.replace("\n\tadd.u64 %rd2, %a1, %rd1;", "")
        + INIT.replace("COUNT", "1")
        + """
\tmov.u32 %r7, smem;
\tadd.u32 %r7, %r7, 256;
\tmul.wide.u32 %rd4, %r0, 4;
\tadd.u64 %rd5, %a2, %rd4;
\tld.global.b32 %r8, [%rd5];
\tcvt.u32.u64 %r9, %rd4;
\tadd.u32 %r9, %r9, %r7;
\tst.shared.b32 [%r9], %r8;
\tbar.sync 0;
\tadd.u64 %rd6, %a1, 1024;
\t@%p1 tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r7], %rd6;
\t@%p1 tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r7], 0, 12;
\tbar.sync 0;
\ttensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%a2], [%r7], 128;
\tfence.proxy.tensormap::generic.acquire.gpu [%a2], 128;
\tfence.proxy.async;
\tbar.sync 0;
\t@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 64;
\tadd.u32 %r10, %r1, 128;
\tmov.u32 %r11, 4;
\t@%p1 cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r10], [%a2, {%r11}], [%r1];"""
        + WAIT
        + """
\tshl.b32 %r6, %r0, 2;
\tadd.u32 %r6, %r6, %r10;
\tmov.u32 %r5, 0;
\tsetp.lt.u32 %p3, %r0, 16;
\t@%p3 ld.shared.b32 %r5, [%r6];
\tmul.wide.u32 %rd3, %r0, 4;
\tadd.u64 %rd3, %rd3, %a0;
\tst.global.b32 [%rd3], %r5;"""
    )
    out = np.zeros(32, np.float32)
    launch(kernel_text(body, 3, shared=512), out, x, table)
    assert out.tolist() == [256.0 + 4 + n if n < 8 else 0.0 for n in range(32)]
