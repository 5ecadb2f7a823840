"""Registers that the tensor cores work on: touched too early, or without a fence, is reported; handed on as PTX allows,
is not.
"""

import linecache
import re
from dataclasses import replace

import numpy as np
import pytest

from cutesync.emulator import POLICIES, Settings

from .. import faults
from ..compiled import check
from . import kernels_matmul as kernels
from .cases import KERNELS
from .litmus import emulated
from .litmus.warpgroup import early_wait
from .support import kernel_text, launch, reported


def test_one_fence_is_enough_for_accumulators():
    (_, (a, b, c, steps, *_), wanted) = KERNELS["product"]
    faults.of_function(kernels.product, (a, b, c, steps, False, "one fence"), wanted, 2 * len(POLICIES))


@pytest.mark.parametrize(
    "from_registers, fault, line, role",
    (
        (False, "accumulators scaled", "* Float32(0.5)", "an accumulator"),
        (False, "read before the wait", "tcc[i] = accumulators[i]", "an accumulator"),
        (True, "read before the wait", "tcc[i] = accumulators[i]", "an accumulator"),
        (True, "fragment overwritten", "tca[i] = tcsa", "part of the A fragment"),
        (False, "no fence", "cute.gemm", "the first wgmma"),
        (True, "one fence", "cute.gemm", "no wgmma.fence between"),
    ),
)
def test_fault_is_reported_at_its_line(from_registers, fault, line, role):
    arguments = *KERNELS["product"][1][:4], from_registers, fault
    text = reported("registers", role, check, kernels.product, *arguments, schedules=len(POLICIES))
    assert re.search(r"kernel \S+\n  block \(0, 0, 0\) warp \d", text) and "seed=" in text
    path, number = re.search(r"at (\S+kernels_matmul\.py):(\d+)", text).groups()
    assert line in linecache.getline(path, int(number))


# --- forms the DSL does not emit --------------------------------------------------------------------------------------

DESCRIPTOR = "\tmov.b64 %rd1, 64;"  # 8 x 8 pieces at shared byte 1024, no swizzle


def multiply(d: str, n: int = 8, a: str = "%rd1", k_type: str = "k16.f16.f16.f16") -> str:
    transposes = "0, 0" if a == "%rd1" else "0"
    return f"\twgmma.mma_async.sync.aligned.m64n{n}{k_type} {{{d}}}, {a}, %rd1, 1, 1, 1, {transposes};"


def run(*body: str) -> None:
    fill = [
        "\tmov.u32 %r0, %tid.x;",
        "\tshl.b32 %r1, %r0, 4;",
        "\tadd.u32 %r1, %r1, 1024;",
        "\tmov.u64 %rd2, 0;",
        "\tst.shared.v2.b64 [%r1], {%rd2, %rd2};",
        "\tfence.proxy.async;",
        "\tbar.sync 0;",
        "\tsetp.gt.u32 %p1, %r0, 999;",
        DESCRIPTOR,
    ]
    launch(kernel_text("\n".join([*fill, *body]), 1, shared=4096), np.zeros(1, np.uint64), block=(128, 1, 1))


FENCE, COMMIT, WAIT = (
    "\twgmma.fence.sync.aligned;",
    "\twgmma.commit_group.sync.aligned;",
    "\twgmma.wait_group.sync.aligned 0;",
)
SMALL, LARGE, CHAIN = (
    multiply("%r10, %r11"),
    multiply("%r10, %r11, %r12, %r13", 16),
    multiply("%r20, %r21", a="{%r10, %r11, %r12, %r13}"),
)


@pytest.mark.parametrize(
    "body",
    (
        (FENCE, SMALL, SMALL, COMMIT, WAIT),
        (FENCE, SMALL, FENCE, LARGE, COMMIT, WAIT),
        (FENCE, LARGE, COMMIT, WAIT, FENCE, CHAIN, COMMIT, WAIT),
        (FENCE, CHAIN, CHAIN, COMMIT, WAIT),
        (
            FENCE,
            SMALL,
            "\t@%p1 mov.b32 %r10, 1;",
            COMMIT,
            WAIT,
            "\tmov.b32 %r10, 2;",
            FENCE,
            SMALL,
            COMMIT,
            WAIT,
            "\tadd.u32 %r5, %r10, %r11;",
        ),
    ),
    ids=("same shape", "fence between shapes", "result becomes A", "A shared", "no lane touches"),
)
def test_registers_may_be_handed_on(body):
    run(*body)


@pytest.mark.parametrize(
    "body, word",
    (
        ((FENCE, SMALL, LARGE, COMMIT, WAIT), "of the same shape"),
        ((FENCE, LARGE, FENCE, CHAIN, COMMIT, WAIT), "used by the wgmma"),
        ((FENCE, CHAIN, FENCE, SMALL, COMMIT, WAIT), "used by the wgmma"),
        ((FENCE, SMALL, COMMIT, "\tadd.u32 %r5, %r11, 1;", WAIT), "%r11 is an accumulator"),
        ((FENCE, SMALL, COMMIT, "\t@!%p1 mov.b32 %r10, 1;", WAIT), "%r10 is an accumulator"),
        ((FENCE, SMALL, COMMIT, WAIT, "\tadd.u32 %r5, %r10, 1;", SMALL, COMMIT, WAIT), "no wgmma.fence between"),
    ),
    ids=(
        "two shapes",
        "result becomes A",
        "A becomes result",
        "read",
        "written where a lane is",
        "read and used again without a fence",
    ),
)
def test_registers_in_flight_are_not_touched(body, word):
    reported("registers", word, run, *body)


@pytest.mark.parametrize("end", ((), (COMMIT,), (COMMIT, WAIT.replace(" 0;", " 1;"))))
def test_products_in_flight_at_exit(end):
    reported("barrier", "exited with a wgmma under way", run, FENCE, SMALL, *end)


def test_the_wait_of_one_warp_serves_its_warpgroup():
    """One warp overwrites an operand once it has waited; the others have not yet. Without its wait it is a race."""
    case = early_wait(2)
    assert np.array_equal(emulated.run(case, Settings(schedules=len(POLICIES))), case.expected())
    hasty = replace(case, ptx=case.ptx.replace("wgmma.wait_group.sync.aligned 0;", "", 1))
    text = reported("race", "st.shared", emulated.run, hasty)
    assert "wgmma.mma_async" in text and "hint: wgmma.wait_group must come before" in text


OWN_ROWS = """
    mov.u32 %r0, %tid.x;
    add.u32 %r1, %r0, SHIFT;
    and.b32 %r1, %r1, 127;
    shl.b32 %r2, %r0, 4;
    shl.b32 %r1, %r1, 4;
    add.u32 %r1, %r1, 1024;
    mov.u64 %rd4, 0x3c003c003c003c00;
    setp.lt.u32 %p1, %r0, 16;
    @%p1 st.shared.v2.b64 [%r2+3072], {%rd4, %rd4};
    fence.proxy.async;
    bar.sync 0;
    st.shared.v2.b64 [%r1], {%rd4, %rd4};
    FENCE
    bar.warp.sync -1;
    mov.b64 %rd2, 68720001088;
    mov.b64 %rd3, 68720001216;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {%r3, %r4}, %rd2, %rd3, 0, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    cvt.u64.u32 %rd5, %r2;
    add.u64 %rd5, %rd5, %a0;
    st.global.v2.b32 [%rd5], {%r3, %r4};"""  # A at shared byte 0, B at 2048: pieces of 8 x 8, two along k


def test_each_warp_stores_the_rows_of_a_that_it_multiplies():
    """The other warps need not know of them: a note. Rows of another warp, or no fence, are errors."""
    out = np.zeros(512, np.uint32)

    def run_with(shift: int, fence: str) -> Settings:
        text = OWN_ROWS.replace("SHIFT", str(shift)).replace("FENCE", fence)
        return launch(kernel_text(text, 1, shared=4096), out, block=(128, 1, 1), settings=Settings(schedules=9))

    used = run_with(0, "fence.proxy.async;")
    assert set(out.reshape(-1, 4)[:, :2].view(np.float16).ravel()) == {np.float16(16)}
    (note,) = used.findings
    assert (note.severity, note.kind) == ("note", "race") and "rows of A that another warp" in note.title
    reported("race", "wgmma.mma_async", run_with, 32, "fence.proxy.async;")
    reported("proxy", "wgmma.mma_async", run_with, 0, "")
