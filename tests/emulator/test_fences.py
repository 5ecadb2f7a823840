"""``fence.sc`` and ``membar``: they order what other threads have fenced, where that order is certain."""

import numpy as np
import pytest

from cutesync.emulator.settings import Settings

from .support import kernel_text, launch, reported

# Block 1 writes, each thread fences, and thread 0 sets a flag. Block 0 waits for it; FENCES before and after it.
HANDOVER = """
\tmov.u32 %r0, %tid.x;
\tmov.u32 %r1, %ctaid.x;
\tmul.wide.u32 %rd1, %r0, 4;
\tadd.u64 %rd2, %a0, %rd1;
\tadd.u64 %rd3, %a1, %rd1;
\tsetp.eq.u32 %p1, %r0, 0;
\tsetp.eq.u32 %p2, %r1, 0;
\t@%p2 bra READER;
\tst.global.b32 [%rd2], %r0;
\tEACH
\tbar.sync 0;
\t@%p1 st.SET.global.b32 [%a2], 1;
\tret;
READER:
\t@!%p1 bra MEET;
AGAIN:
\tld.SET.global.b32 %r2, [%a2];
\tsetp.eq.u32 %p3, %r2, 0;
\t@%p3 bra AGAIN;
\tTHEN
MEET:
\tbar.sync 0;
\tld.global.b32 %r3, [%rd2];
\tst.global.b32 [%rd3], %r3;"""


def hand_over(each: str, then: str, access: str = "relaxed.gpu") -> None:
    text = HANDOVER.replace("EACH", each).replace("THEN", then).replace("SET", access)
    x, y, flag = np.zeros(64, np.uint32), np.zeros(64, np.uint32), np.zeros(1, np.uint32)
    how = {"grid": (2, 1, 1), "block": (64, 1, 1), "cooperative": True, "settings": Settings(schedules=9)}
    launch(kernel_text(text, 3), x, y, flag, **how)
    assert np.array_equal(y, np.arange(64))


@pytest.mark.parametrize("access", ["relaxed.gpu", "volatile"])
@pytest.mark.parametrize("fence", ["membar.gl;", "membar.sys;", "fence.sc.gpu;"])
def test_each_thread_fences_before_the_barrier(fence, access):
    hand_over(fence, fence, access)


@pytest.mark.parametrize(
    ("each", "then"),
    [
        ("fence.acq_rel.gpu;", "membar.gl;"),
        ("membar.gl;", "fence.acq_rel.gpu;"),
        ("membar.gl;", ""),
        ("", "membar.gl;"),
        ("membar.cta;", "membar.cta;"),
        ("@%p1 membar.gl;", "membar.gl;"),
    ],
)
def test_weaker_fences_are_not_enough(each, then):
    reported("race", "", hand_over, each, then)


def test_a_fence_behind_the_flag_orders_nothing():
    """All blocks count up, and fence behind that: the last one must not read what the others wrote."""
    body = """
\tmov.u32 %r0, %ctaid.x;
\tmul.wide.u32 %rd1, %r0, 4;
\tadd.u64 %rd2, %a0, %rd1;
\tst.global.b32 [%rd2], 5;
\tBEFORE
\tatom.relaxed.gpu.global.add.u32 %r1, [%a1], 1;
\tmembar.gl;
\tsetp.ne.u32 %p1, %r1, 2;
\t@%p1 ret;
\tld.global.b32 %r2, [%a0];
\tld.global.b32 %r3, [%a0+4];
\tld.global.b32 %r4, [%a0+8];
\tadd.u32 %r2, %r2, %r3;
\tadd.u32 %r2, %r2, %r4;
\tst.global.b32 [%a2], %r2;"""

    def run(before: str) -> np.ndarray:
        x, count, total = np.zeros(3, np.uint32), np.zeros(1, np.uint32), np.zeros(1, np.uint32)
        text = kernel_text(body.replace("BEFORE", before), 3)
        launch(text, x, count, total, grid=(3, 1, 1), block=(1, 1, 1), settings=Settings(schedules=9))
        return total

    assert run("membar.gl;") == [15]
    reported("race", "", run, "")


def test_a_wait_for_blocks_that_have_not_started():
    """Not a cooperative launch: one block may run at a time, and waits for the next one in vain."""
    body = HANDOVER.replace("EACH", "membar.gl;").replace("THEN", "membar.gl;").replace("SET", "relaxed.gpu")
    arrays = np.zeros(64, np.uint32), np.zeros(64, np.uint32), np.zeros(1, np.uint32)
    how = {"grid": (2, 1, 1), "block": (64, 1, 1), "settings": Settings(policy="one_block")}
    reported("deadlock", "1 blocks or clusters have not started", launch, kernel_text(body, 3), *arrays, **how)
