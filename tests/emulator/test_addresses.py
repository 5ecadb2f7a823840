"""Addresses that count from one register, at the edges of memory; NaNs that are moved; granules of shadow memory."""

import numpy as np
import pytest

from .support import kernel_text, launch, reported

START = """
\tmov.u32 %r0, %tid.x;
\tmul.wide.u32 %rd1, %r0, 4;
\tadd.u64 %rd2, %a0, %rd1;
\tadd.u64 %rd3, %a1, %rd1;
\tmov.u32 %r9, smem;
\tcvt.u64.u32 %rd4, %r9;
\tadd.u64 %rd4, %rd4, %rd1;"""


def run(body: str, x: np.ndarray, shared: int = 0, block: int = 32) -> np.ndarray:
    out = np.zeros(32, x.dtype)
    text = START if shared else START.split("\tmov.u32 %r9")[0]
    launch(kernel_text(text + body, 2, shared=shared), x, out, block=(block, 1, 1))
    return out


def test_offsets_count_from_a_register_in_and_before_memory():
    x = np.arange(34, dtype=np.uint32) + 7
    before = run(
        """
\tsub.u64 %rd5, %rd2, 4096;
\tld.global.b32 %r1, [%rd5+4096];
\tld.global.b32 %r2, [%rd5+4104];
\tadd.u64 %rd6, %rd2, 8;
\tld.global.b32 %r3, [%rd6+-4];
\tld.global.b32 %r4, [%rd6];
\tmad.lo.u32 %r1, %r2, 100, %r1;
\tmad.lo.u32 %r3, %r4, 100, %r3;
\tmad.lo.u32 %r1, %r3, 10000, %r1;
\tst.global.b32 [%rd3], %r1;""",
        x,
    )
    a, b, c = x[:32], x[1:33], x[2:]
    assert np.array_equal(before, (c * 100 + b) * 10000 + c * 100 + a)


@pytest.mark.parametrize(
    ("kind", "first", "then"),
    [
        ("out-of-bounds", "ld.global.b32 %r1, [%rd2];", "ld.global.b32 %r1, [%rd2+-4];"),
        ("out-of-bounds", "ld.global.b32 %r1, [%rd2];", "ld.global.b32 %r1, [%rd2+4];"),
        ("out-of-bounds", "ld.global.b32 %r1, [%rd2];", "st.global.b32 [%rd2+-4], %r0;"),
        ("misaligned", "ld.global.b32 %r1, [%rd2];", "ld.global.b32 %r1, [%rd2+2];"),
        ("misaligned", "ld.global.b16 %rs1, [%rd2+2];", "ld.global.b64 %rd9, [%rd2];"),
        ("out-of-bounds", "st.shared.b32 [%rd4], %r0;", "st.shared.b32 [%rd4+256], %r0;"),
        ("out-of-bounds", "st.shared.b32 [%rd4], %r0;", "st.shared.b32 [%rd4+-4], %r0;"),
        ("out-of-bounds", "mov.u64 %rd8, -16;", "st.shared.b32 [%rd8], %r0;"),
        ("misaligned", "add.u32 %r9, %r9, 2;", "st.shared.b32 [%r9], %r0;"),
    ],
)
def test_wrong_addresses_beside_right_ones(kind, first, then):
    reported(kind, "", run, f"\n\t{first}\n\t{then}", np.zeros(32, np.uint32), shared=128)


def test_lanes_that_do_not_run_may_hold_any_address():
    x = np.arange(32, dtype=np.uint32)
    out = run(
        """
\tsetp.lt.u32 %p1, %r0, 16;
\tmov.u64 %rd5, 3;
\tselp.b64 %rd6, %rd2, %rd5, %p1;
\t@%p1 ld.global.b32 %r1, [%rd6];
\t@%p1 ld.global.b32 %r2, [%rd6+64];
\t@%p1 st.global.b32 [%rd3], %r2;""",
        x,
    )
    assert np.array_equal(out, np.where(x < 16, x + 16, 0))


def test_a_moved_nan_keeps_its_bits_and_a_computed_one_is_canonical():
    x = np.full(32, 0x7FC00001, np.uint32)
    out = run(
        """
\tld.global.b32 %r1, [%rd2];
\tadd.f32 %r2, %r1, %r1;
\tsetp.lt.u32 %p1, %r0, 8;
\tselp.f32 %r3, %r2, %r1, %p1;
\tmov.b32 %r4, %r1;
\tsetp.lt.u32 %p2, %r0, 16;
\t@%p2 add.f32 %r4, %r1, %r1;
\tsetp.lt.u32 %p3, %r0, 12;
\tselp.f32 %r5, %r3, %r4, %p3;
\tst.global.b32 [%rd3], %r5;""",
        x,
    )
    lane = np.arange(32)
    computed = (lane < 8) | ((lane >= 12) & (lane < 16))
    assert np.array_equal(out, np.where(computed, 0x7FFFFFFF, 0x7FC00001))


STORES = """
\tsetp.lt.u32 %p1, %r0, 32;
\tmul.wide.u32 %rd5, %r0, 16;
\tadd.u64 %rd6, %a0, %rd5;
\t@%p1 st.global.v4.b32 [%rd6], {%r0, %r0, %r0, %r0};
\tsub.u32 %r1, %r0, 32;
\tmul.wide.u32 %rd7, %r1, 4;
\tadd.u64 %rd8, %a0, %rd7;
\t@!%p1 st.global.b32 [%rd8+OFFSET], %r0;"""


@pytest.mark.parametrize("offset", [512, 508])
def test_stores_of_other_sizes_beside_each_other(offset):
    """A warp stores 16 bytes a lane, another one 4 bytes a lane behind them, or from the last word on."""
    body, x = STORES.replace("OFFSET", str(offset)), np.zeros(160, np.uint32)
    if offset == 512:
        run(body, x, block=64)
    else:
        assert "byte 508 of" in reported("race", "", run, body, x, block=64)
