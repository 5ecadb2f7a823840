"""The types of a result: rounded once, to the nearest, and saturated where they have 8 bits."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.matmul.policy import MatmulPolicy

from .support import SMALL, agrees, few_blocks, integers, multiplied, operand

pytestmark = pytest.mark.usefixtures("on_emulator")  # no GPU here, whatever the machine has

CONFIG = MatmulPolicy(*SMALL)


def operands(out: str, m: int, n: int, k: int):
    """Products beyond the range of ``out`` and within, and for float8 between its numbers."""
    if "int" in out:
        return integers(m, k, dtype="int8") * np.int8(2), integers(k, n, dtype="int8", seed=1) * np.int8(2)
    return integers(m, k) * np.float16(7 if out == "float8_e4m3fn" else 1500), integers(k, n, seed=1)


@pytest.mark.drawn(2)
@pytest.mark.parametrize(("out", "columns"), [("int8", 67), ("float8_e4m3fn", 80), ("float8_e5m2", 67), ("uint8", 80)])
def test_eight_bits_saturate(out, columns):
    """Stored by TMA, and by threads where rows are no multiples of 16 bytes."""
    a, b = operands(out, 70, columns, 72)
    wanted = cs.reference.matmul(a, b, out_dtype=out).astype(np.float64)
    assert (np.abs(wanted) == np.abs(wanted).max()).sum() > 5 and len(np.unique(wanted)) > 20, (
        "nothing saturates, or all does"
    )
    multiplied(a, b, out_dtype=out, config=CONFIG)


def test_sub_tiles_of_16_bytes():
    """The least that TMA stores. These sub-tiles are not swizzled."""
    multiplied(*operands("int8", 70, 176, 40), out_dtype="int8", config=MatmulPolicy((64, 112), "pingpong"))


@pytest.mark.parametrize("out", ["float8_e4m3fn", "float8_e5m2"])
def test_special_values_in_float8(out):
    """An infinity is the largest finite number, NaN stays, a small product keeps its sign."""
    a = np.float16([[np.inf], [-np.inf], [np.nan], [1e-7], [-1e-7], [448.0], [464.0], [480.0]])
    got = cs.matmul(a, np.ones((1, 16), np.float16), out_dtype=out, config=CONFIG)[:, 0]
    wanted = cs.reference.matmul(a, np.ones((1, 1), np.float16), out_dtype=out)[:, 0]
    assert got.tobytes()[3:] == wanted.tobytes()[3:] and np.array_equal(
        got.astype(float), wanted.astype(float), equal_nan=True
    )
    assert np.isnan(got[2].astype(float)) and not np.isinf(got.astype(float)).any()


def test_requantised_integers():
    """Scales, bias and activation in float32, then rounded to the nearest even and saturated; NaN is 0."""
    a, b = integers(66, 40, dtype="int8"), integers(40, 80, dtype="int8", seed=1)
    scale, bias = np.full((1, 80), 0.5, np.float32), integers(80, dtype="float32")
    terms = {"scale_b": scale, "bias": bias, "out_dtype": "int8"}
    multiplied(a, b, config=CONFIG, **terms)
    assert (np.abs((a.astype(int) @ b.astype(int)) % 2) == 1).sum() > 100, "no ties"
    bias[3], bias[4], bias[5] = np.nan, np.inf, -np.inf
    multiplied(a, b, config=CONFIG, **terms)
    assert cs.matmul(a[:1], b, config=CONFIG, **terms)[0, 3:6].tolist() == [0, 127, -128]


def test_the_type_of_out_decides():
    a, b = operands("int8", 40, 80, 24)
    out = np.empty((40, 80), np.int8)
    assert cs.matmul(a, b, out=out, config=CONFIG) is out
    agrees(out, a, b, out_dtype="int8")


def test_hostile_schedules(monkeypatch):
    few_blocks(monkeypatch, 2)
    with cs.emulate(schedules=6, seed=3):
        multiplied(
            *operands("float8_e4m3fn", 136, 144, 40),
            out_dtype="float8_e4m3fn",
            config=MatmulPolicy((128, 64), "cooperative", (2, 1)),
        )


def test_integers_in_floats():
    multiplied(
        operand(70, 40, True, "int8"),
        operand(40, 72, False, "uint8") & np.uint8(3),
        out_dtype="float8_e5m2",
        config=CONFIG,
    )
