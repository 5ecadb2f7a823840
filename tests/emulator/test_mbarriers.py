"""mbarriers and edited tensor maps in handwritten PTX: what must work, and how each misuse is reported."""

import numpy as np
import pytest

from cutesync.emulator import Settings
from cutesync.emulator.tensor_map import TensorMap, encode

from .support import INIT, PROLOGUE, WAIT, kernel_text, launch, reported


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


RUNS = {  # body, threads, %r5 of every thread
    "tokens": (
        (
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
        ),
        64,
        [5] * 64,
    ),
    # thread 0 drops after the first phase; the others go on without it
    "dropping out": (
        (
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
        ),
        64,
        [0] + [4] * 63,
    ),
    "lanes of one instruction may complete several phases": (
        INIT.replace("COUNT", "16")
        + "\n\tsetp.gt.u32 %p4, %r0, 31;\n\t@!%p4 mbarrier.arrive.shared.b64 _, [%r1];\n\tbar.sync 0;"
        + WAIT.replace("%p2, [%r1], 0", "%p2, [%r1], 1")
        + "\n\tmov.u32 %r5, 1;",
        64,
        [1] * 64,
    ),
    "an invalidated barrier may be made anew": (
        (
            INIT.replace("COUNT", "1")
            + """
\t@%p1 mbarrier.inval.shared.b64 [%r1];
\t@%p1 mbarrier.init.shared.b64 [%r1], 32;
\tbar.sync 0;
\tmbarrier.arrive.shared.b64 %rd4, [%r1];"""
            + WAIT
            + "\n\tmov.u32 %r5, 1;"
        ),
        32,
        [1] * 32,
    ),
    "bytes may land before they are expected": (
        (
            INIT.replace("COUNT", "1")
            + """
\tmov.u32 %r5, 0;
\t@%p1 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 64;
\tbar.sync 0;
\t@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 64;"""
            + WAIT
            + "\n\tmov.u32 %r5, 1;"
        ),
        32,
        [1] * 32,
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_runs(name):
    body, threads, want = RUNS[name]
    assert run(body, threads).tolist() == want


def test_an_early_exit_without_dropping_out_hangs():
    body = (
        INIT.replace("COUNT", "64")
        + "\n\tmov.u32 %r5, 0;\n\t@%p1 ret;\n\tmbarrier.arrive.shared.b64 %rd4, [%r1];"
        + WAIT
    )
    reported("deadlock", "1 of 64", run, body, 64)


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
    reported("barrier transaction misaligned", message, run, "\n\tmov.u32 %r5, 0;" + body)


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
    reported("barrier", "only the running and the last phase", run, body)


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


ALL_INIT = """
\tmov.u32 %r1, smem;
\tmov.u32 %r0, %tid.x;
\tmov.u32 %r6, 64;
CHANGE
\tmbarrier.init.shared.b64 [%r1], %r6;
USE
\tbar.sync 0;
\tmbarrier.arrive.shared.b64 %rd4, [%r1];
WAIT: mbarrier.test_wait.shared.b64 %p2, [%r1], %rd4;
\t@!%p2 bra WAIT;
\tst.global.b32 [%a0], %r6;"""


def all_init(change: str = "", use: str = "") -> Settings:
    settings = Settings(schedules=9)
    text = ALL_INIT.replace("CHANGE", change).replace("USE", use)
    launch(kernel_text(text, 1, shared=64), np.zeros(4, np.uint32), block=(64, 1, 1), settings=settings)
    return settings


def test_threads_that_initialise_alike_are_a_warning():
    """ThunderKittens has a whole warp run the initialisation."""
    found = [f for f in all_init().findings if f.kind == "barrier"]
    assert found and all(f.severity == "warning" and "several threads initialise one" in f.title for f in found)
    reported("barrier", "initialised again", all_init, "\tadd.u32 %r6, %r6, %r0;")
    used = "\tmbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 0;"
    reported("barrier", "initialised again|without being ordered", all_init, "", used)
