"""128-bit loads, stores and atomics are single accesses: descriptors of 16 bytes are whole or not there."""

import numpy as np
import pytest

from cutesync.emulator import POLICIES, Settings

from ..compiled import check
from .cases import described
from .support import kernel_text, launch, reported

SCHEDULES = 2 * len(POLICIES)


def test_scan_with_torn_descriptors():
    """The compiler makes one vector access of the two words, but each keeps its own time."""
    function, arguments, _ = described(1000, "two words")
    reported("mismatch", "", check, function, *arguments, schedules=SCHEDULES)


def wide(body: str, memory: np.ndarray, policy: str | None = None, blocks: int = 2, threads: int = 32) -> None:
    declared = "\t.reg .b128 %q<4>;"
    launch(
        kernel_text("\tmov.u32 %r0, %tid.x;\n\tmov.u32 %r1, %ctaid.x;" + body, 1, declared),
        memory,
        grid=(blocks, 1, 1),
        block=(threads, 1, 1),
        settings=Settings(policy, schedules=1 if policy else SCHEDULES),
    )


def cells(*numbers: int) -> np.ndarray:
    """16-byte numbers at an address that is a multiple of 16."""
    spare = np.zeros(2 * len(numbers) + 1, np.uint64)
    memory = spare[spare.ctypes.data // 8 % 2 :][: 2 * len(numbers)]
    memory[:] = [half for n in numbers for half in (n & (1 << 64) - 1, n >> 64)]
    return memory


COUNT = """
\tld.relaxed.gpu.global.b128 %q0, [%a0];
AGAIN:
\tmov.b128 {%rd1, %rd2}, %q0;
\tadd.u64 %rd3, %rd1, 1;
\tsub.u64 %rd4, %rd2, 1;
\tmov.b128 %q1, {%rd3, %rd4};
\tatom.acq_rel.gpu.global.cas.b128 %q2, [%a0], %q0, %q1;
\tmov.b128 {%rd5, %rd6}, %q2;
\tmov.b128 %q0, %q2;
\tsetp.ne.u64 %p1, %rd5, %rd1;
\tsetp.ne.u64 %p2, %rd6, %rd2;
\tor.pred %p1, %p1, %p2;
\t@%p1 bra AGAIN;"""


def test_both_halves_change_together():
    start = (
        0x7FF4000000000000 << 64 | 0xFFF4000000000001
    )  # what no arithmetic would leave alone: the bits of signalling NaNs
    memory = cells(start)
    wide(COUNT, memory)
    assert memory.tolist() == [((start & (1 << 64) - 1) + 64) % (1 << 64), ((start >> 64) - 64) % (1 << 64)]


@pytest.mark.parametrize("policy", POLICIES)
def test_exchanged_words_come_back_once(policy):
    memory = cells(0, *[0] * 128)
    body = """
\tshl.b32 %r2, %r1, 5;
\tadd.u32 %r2, %r2, %r0;
\tcvt.u64.u32 %rd1, %r2;
\tadd.u64 %rd1, %rd1, 1;
\tneg.s64 %rd2, %rd1;
\tmov.b128 %q0, {%rd1, %rd2};
\tatom.relaxed.gpu.global.exch.b128 %q1, [%a0], %q0;
\tshl.b64 %rd3, %rd1, 4;
\tadd.u64 %rd3, %rd3, %a0;
\tst.global.b128 [%rd3], %q1;"""
    wide(body, memory, policy, blocks=4)
    low = memory[::2].astype(np.int64)
    assert np.array_equal(memory[1::2].astype(np.int64), -low)
    assert sorted(low.tolist()) == list(range(129))


def test_a_spin_on_a_wide_word_nobody_writes():
    body = (
        COUNT.replace("[%a0], %q0, %q1", "[%a0], %q1, %q1")
        .replace("\tmov.b128 %q0, %q2;", "")
        .replace("setp.ne.u64 %p1", "setp.eq.u64 %p1")
    )
    reported("deadlock", "nobody changes", wide, body, cells(0x7FF8 << 112), "random")


@pytest.mark.parametrize(
    "access",
    (
        "ld.relaxed.gpu.global.b128 %q0, [%rd1]",
        "st.release.gpu.global.b128 [%rd1], %q0",
        "atom.relaxed.gpu.global.exch.b128 %q0, [%rd1], %q1",
    ),
)
def test_wide_words_are_aligned(access):
    reported("misaligned", "multiple of 16", wide, f"\n\tadd.u64 %rd1, %a0, 8;\n\t{access};", cells(0, 0), "random")


def test_a_wide_word_written_by_plain_stores_races():
    body = "\n\tmov.u32 %r9, %ctaid.x;\n\tcvt.u64.u32 %rd1, %r9;\n\tmov.b128 %q0, {%rd1, %rd1};"
    body += "\n\tst.global.b128 [%a0], %q0;"
    reported("race", "", wide, body, cells(0), "random")
