"""Divergence, loops, calls, traps, and what the machine says about kernels that go wrong without any race. All in
handwritten PTX.
"""

from functools import partial

import numpy as np
import pytest

from cutesync.emulator import Settings, launch as launch_text
from cutesync.emulator.run import DEVICE

from .support import HEADER, kernel_text, lanes, launch, reported

STORE = """
\tmul.wide.u32 %rd1, %r0, 4;
\tadd.u64 %rd1, %rd1, %a0;
\tst.global.b32 [%rd1], %r5;"""
POLICIES = ("round_robin", "random", "lagging_lane")
POISONED = "\tmov.u32 %r1, smem;\n\tld.shared.b32 %r5, [%r1];"


def out_of(body: str, *, settings=None, shared=0, block=(32, 1, 1)) -> np.ndarray:
    """%r5 of every thread after ``body``; %r0 is the thread's number."""
    result = np.zeros(block[0], np.uint32)
    launch(
        kernel_text("\tmov.u32 %r0, %tid.x;\n" + body + STORE, 1, shared=shared), result, settings=settings, block=block
    )
    return result


RUNS = {  # body, %r5 of every thread, options of ``out_of``
    "lanes loop as often as each wants": (
        """
\tmov.u32 %r5, 0;
\tmov.u32 %r1, 0;
AGAIN:
\tadd.u32 %r5, %r5, %r1;
\tadd.u32 %r1, %r1, 1;
\tsetp.le.u32 %p1, %r1, %r0;
\t@%p1 bra AGAIN;""",
        [n * (n + 1) // 2 for n in range(32)],
        {},
    ),
    "nested branches meet again": (
        """
\tand.b32 %r1, %r0, 1;
\tsetp.eq.u32 %p1, %r1, 0;
\t@%p1 bra EVEN;
\tsetp.gt.u32 %p2, %r0, 15;
\tmov.u32 %r5, 100;
\t@%p2 mov.u32 %r5, 200;
\tbra.uni DONE;
EVEN:
\tmov.u32 %r5, 300;
DONE:
\tshfl.sync.idx.b32 %r6, %r5, 0, 31, -1;
\tadd.u32 %r5, %r5, %r6;""",
        [300 + (300 if n % 2 == 0 else 200 if n > 15 else 100) for n in range(32)],
        {},
    ),
    "a branch table": (
        """
\tand.b32 %r1, %r0, 3;
TABLE: .branchtargets L0, L1, L2, L3;
\tbrx.idx %r1, TABLE;
L0: mov.u32 %r5, 10; bra DONE;
L1: mov.u32 %r5, 11; bra DONE;
L2: mov.u32 %r5, 12; bra DONE;
L3: mov.u32 %r5, 13;
DONE:""",
        [10 + n % 4 for n in range(32)],
        {},
    ),
    "lanes that have left are not waited for": (
        """
\tmov.u32 %r5, 7;
\tsetp.gt.u32 %p1, %r0, 40;
\t@%p1 ret;
\tbar.sync 0;
\tbar.warp.sync -1;""",
        [7] * 41 + [0] * 23,
        {"block": (64, 1, 1)},
    ),
    "a block that is no multiple of a warp": (
        """
\tvote.sync.ballot.b32 %r5, 1, -1;
\tbar.sync 0;""",
        [0xFFFFFFFF] * 32 + [(1 << 18) - 1] * 18,
        {"block": (50, 1, 1)},
    ),
    "128 bit registers move whole": (
        """
\t{ .reg .b128 %q; .reg .b64 lo, hi;
\tcvt.u64.u32 lo, %r0;
\tneg.s64 hi, lo;
\tmov.b128 %q, {lo, hi};
\tmov.u32 %r1, smem;
\tshl.b32 %r2, %r0, 4;
\tadd.u32 %r1, %r1, %r2;
\tst.shared.b128 [%r1], %q;
\tld.shared.b128 %q, [%r1];
\tmov.b128 {lo, hi}, %q;
\tadd.u64 lo, lo, hi;
\tcvt.u32.u64 %r5, lo; }""",
        [0] * 32,
        {"shared": 512},
    ),
    "local memory is each threads own": (
        """
\t{ .local .align 4 .b8 depot[16]; .reg .b64 l;
\tmov.b64 l, depot;
\tst.local.b32 [l+4], %r0;
\tcvta.local.u64 l, l;
\tld.b32 %r5, [l+4]; }""",
        list(range(32)),
        {},
    ),
    "a bounded spin comes to its end": (
        """
\tmov.u32 %r1, 0;
SPIN:
\tld.acquire.gpu.global.b32 %r5, [%a0];
\tadd.u32 %r1, %r1, 1;
\tsetp.lt.u32 %p1, %r1, 20;
\t@%p1 bra SPIN;
\tmov.u32 %r5, %r1;
\tbar.sync 0;""",
        [20] * 32,
        {},
    ),
    "a spin bounded by the clock comes to its end": (
        """
\tmov.u64 %rd4, %globaltimer;
SPIN:
\tld.relaxed.gpu.global.b32 %r5, [%a0];
\tmov.u64 %rd5, %globaltimer;
\tsub.u64 %rd5, %rd5, %rd4;
\tsetp.lt.u64 %p1, %rd5, 5000000000;
\t@%p1 bra SPIN;
\tmov.u32 %r5, 3;
\tbar.sync 0;""",
        [3] * 32,
        {},
    ),
    "lanes of one store may agree": (
        "\tmov.u32 %r1, smem;\n\tmov.u32 %r5, 9;\n\tst.shared.b32 [%r1], %r5;",
        [9] * 32,
        {"shared": 16},
    ),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", RUNS)
def test_runs(name, policy):
    body, want, options = RUNS[name]
    assert out_of(body, settings=Settings(policy), **options).tolist() == want


def test_special_registers():
    assert lanes("mov.u32 $0, %lanemask_lt;", out="uint32").tolist() == [(1 << n) - 1 for n in range(32)]
    assert lanes("mov.u32 $0, %lanemask_ge;", out="uint32").tolist() == [
        0xFFFFFFFF & ~((1 << n) - 1) for n in range(32)
    ]
    assert set(lanes("mov.u32 $0, %ntid.x;", out="uint32").tolist()) == {32}
    first, second = (lanes("mov.u64 $0, %globaltimer;", out="uint64") for _ in range(2))
    assert np.all(first == second)  # virtual time: the same in every run


def test_printf(capsys):
    text = (
        HEADER
        + """
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.global .align 1 .b8 format[22] = {108, 97, 110, 101, 32, 37, 100, 58, 32, 37, 46, 50, 102, 32, 37, 117, 10};
.visible .entry k(.param .u64 p0)
{
	.local .align 8 .b8 depot[24];
	.reg .b64 %SP, %rd<8>; .reg .b32 %r<8>; .reg .pred %p1;
	mov.b64 %rd1, depot;
	cvta.local.u64 %SP, %rd1;
	mov.u32 %r1, %tid.x;
	setp.gt.u32 %p1, %r1, 1;
	@%p1 ret;
	st.local.b32 [%rd1], %r1;
	mov.b64 %rd2, 0d3FF8000000000000;
	st.local.b64 [%rd1+8], %rd2;
	st.local.b32 [%rd1+16], 4000000000;
	{
	.param .b64 param0; .param .b64 param1; .param .b32 retval0;
	st.param.b64 [param1], %SP;
	mov.b64 %rd3, format;
	cvta.global.u64 %rd4, %rd3;
	st.param.b64 [param0], %rd4;
	call.uni (retval0), vprintf, (param0, param1);
	ld.param.b32 %r2, [retval0];
	}
	ret;
}
"""
    )
    launch_text(text, (1, 1, 1), (32, 1, 1), [0])
    assert capsys.readouterr().out == "lane 0: 1.50 4000000000\nlane 1: 1.50 4000000000\n"


# --- faults -----------------------------------------------------------------------------------------------------------

REPORTED = {  # body, options of ``out_of``, kind, a part of the report
    "a trap names its lanes": (
        "\tsetp.gt.u32 %p1, %r0, 29;\n\t@%p1 trap;\n\tmov.u32 %r5, 1;",
        {},
        "trap",
        "lanes 30-31",
    ),
    "a misaligned access": ("\tadd.u64 %rd2, %a0, 2;\n\tld.global.b32 %r5, [%rd2];", {}, "misaligned", "multiple of 4"),
    "a null pointer": ("\tmov.u64 %rd2, 0;\n\tld.global.b32 %r5, [%rd2];", {}, "out-of-bounds", ""),
    "a spin on memory nobody writes": (
        "SPIN:\n\tld.acquire.gpu.global.b32 %r5, [%a0];\n\tsetp.eq.u32 %p1, %r5, 0;\n\t@%p1 bra SPIN;",
        {},
        "deadlock",
        "nobody changes",
    ),
    "two parts of a warp wait for each other": (
        """
\tsetp.gt.u32 %p1, %r0, 15;
\t@%p1 bra HIGH;
\tshfl.sync.idx.b32 %r5, %r0, 3, 31, -1;
\tbra.uni DONE;
HIGH:
\tvote.sync.ballot.b32 %r5, 1, -1;
DONE:""",
        {},
        "convergence",
        "lanes 16-31",
    ),
    "lanes of one store that disagree": (
        "\tmov.u32 %r1, smem;\n\tst.shared.b32 [%r1], %r0;\n\tmov.u32 %r5, 0;",
        {"shared": 16},
        "race",
        "different values",
    ),
    "shared memory is poisoned": (POISONED, {"shared": 16}, "uninitialised", ""),
}


@pytest.mark.parametrize("name", REPORTED)
def test_is_reported(name):
    body, options, kind, words = REPORTED[name]
    reported(kind, words, out_of, body, **options)


def test_poison_is_seen_without_the_sanitizer():
    """Each schedule finds other bits in unwritten shared memory."""
    found = {out_of(POISONED, shared=16, settings=Settings(sanitize=False, seed=seed)).tobytes() for seed in range(3)}
    assert len(found) == 3


def test_a_write_to_read_only_memory():
    x = np.arange(32, dtype=np.uint32)
    x.flags.writeable = False
    reported(
        "out-of-bounds", "read-only", launch, kernel_text("\tmov.u32 %r0, %tid.x;\n\tmov.u32 %r5, 1;" + STORE, 1), x
    )


def test_nothing_stays_registered():
    """The arrays of a launch are memory only while it runs; workspaces of other tests may stay."""
    before, out = [*DEVICE.memory.regions], np.zeros(32, np.int32)
    launch(kernel_text("\tst.global.b32 [%a0], 7;", 1), out)
    assert out[0] == 7
    reported("out-of-bounds", "4096", launch, kernel_text("\tst.global.b32 [%a0+4096], 7;", 1), out)
    assert [*DEVICE.memory.regions] == before


@pytest.mark.parametrize("dtype", ("uint8", "uint16", "uint32", "uint64"))
@pytest.mark.parametrize("offset", (0, 1, 3))
def test_bounds_of_arrays_that_start_anywhere(dtype, offset):
    whole = np.arange(64, dtype=dtype)
    part, out = whole[offset : offset + 32], np.zeros(32, dtype)
    size = part.itemsize
    body = f"""
\tmov.u32 %r0, %tid.x;
\tmul.wide.u32 %rd1, %r0, {size};
\tadd.u64 %rd2, %rd1, %a1;
\tadd.u64 %rd3, %rd1, %a0;
\t{{ .reg .b{max(8 * size, 16)} v;
\tld.global.b{8 * size} v, [%rd2+MOVE];
\tst.global.b{8 * size} [%rd3], v; }}"""
    launch(kernel_text(body.replace("MOVE", "0"), 2), out, part)
    assert np.array_equal(out, part)
    for move, lane in ((size, 31), (-size, 0)):
        text = kernel_text(body.replace("MOVE", str(move)), 2)
        reported("out-of-bounds", f"lane {lane}", launch, text, out, part)


@pytest.mark.parametrize("first, second", (("ld", "ld"), ("st", "ld"), ("ld", "st"), ("st", "st")))
@pytest.mark.parametrize("ordered", (True, False))
def test_accesses_of_different_widths_are_judged_by_the_byte(first, second, ordered):
    """Warp 0 works on words, then warp 1 on their third bytes: a race of each with a store unless the block barrier is
    between them.
    """
    body = f"""
\tmov.u32 %r0, %tid.x;
\tmov.u32 %r1, smem;
\tand.b32 %r2, %r0, 31;
\tshl.b32 %r2, %r2, 2;
\tadd.u32 %r1, %r1, %r2;
\tsetp.gt.u32 %p1, %r0, 31;
\t@!%p1 st.shared.b32 [%r1], %r0;
\tbar.sync 0;
\t@!%p1 {"ld.shared.b32 %r3, [%r1]" if first == "ld" else "st.shared.b32 [%r1], 4"};
\t{"bar.sync 0;" if ordered else ""}
\t@%p1 {"ld.shared.b8 %rs1, [%r1+2]" if second == "ld" else "st.shared.b8 [%r1+2], 1"};"""
    text = kernel_text(body, 1, shared=128)
    run = partial(launch, text, np.zeros(1, np.uint64), block=(64, 1, 1))
    if ordered or (first, second) == ("ld", "ld"):
        run()
    else:
        reported("race", "", run)


def test_vector_registers():
    body = """
    .reg .v4 .b32 v;
    .reg .v2 .b64 w;
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd1, %r0, 16;
    add.u64 %rd2, %a0, %rd1;
    ld.global.v4.b32 v, [%rd2];
    add.u32 v.x, v.y, v.w;
    mov.b64 w.x, {v.x, v.b};
    mov.b64 w.y, w.r;
    st.global.v2.b64 [%rd2], w;"""
    x = np.arange(128, dtype=np.uint32).reshape(32, 4)
    before = x.copy()
    launch(kernel_text(body, 1), x)
    assert np.array_equal(x, np.tile(np.stack((before[:, 1] + before[:, 3], before[:, 2]), 1), 2))
