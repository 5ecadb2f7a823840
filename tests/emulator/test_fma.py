"""fma where rounding twice, or the range of what is computed in between, would show."""

from fractions import Fraction

import numpy as np
import pytest

from cutesync.emulator.instructions.arithmetic import operation

from . import exact
from .test_arithmetic import MODES, UNSIGNED, check


def near_ties(kind: str, seed: int, count: int) -> list[np.ndarray]:
    """fma operands whose product is a tie of the type and whose addend is a sliver: what rounding twice gets wrong."""
    spec, rng = exact.SPECS[kind], np.random.default_rng(seed)
    half_ulp = Fraction(1, 1 << (spec.fraction_bits + 1))
    a, b, c = [], [], []
    while len(a) < count:
        x = exact.decode(
            kind, int(rng.integers(spec.bias << spec.fraction_bits, (spec.bias + 1) << spec.fraction_bits))
        )
        target = (1 + 2 * half_ulp * int(rng.integers(0, 1 << spec.fraction_bits))) + half_ulp
        y_code = exact.encode(kind, target / x)
        x_code = exact.encode(kind, x)
        product = x * exact.decode(kind, y_code)
        gap = exact.decode(kind, exact.encode(kind, target - product))
        sliver = Fraction(1, 1 << int(rng.integers(2 * spec.fraction_bits, 60))) * int(rng.choice([-1, 1]))
        rest = exact.encode(kind, (gap + sliver) if gap else sliver)
        a.append(x_code), b.append(y_code), c.append(rest)
    return [np.array(v, np.uint64).astype(UNSIGNED[kind]) for v in (a, b, c)]


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
def test_fma_near_ties(kind):
    sources = near_ties(kind, 0, 200)
    check("fma", kind, "rn", sources, operation(f"fma.rn.{kind}")(*sources))


def test_fma_where_float64_would_round_twice():
    """(1 + 2**-12)**2 lies on a tie of float32 once a sliver below float64's reach is dropped."""
    a = np.array([1 + 2.0**-12], np.float32).view(np.uint32)
    for sliver, want in ((2.0**-60, 1 + 2.0**-11 + 2.0**-23), (-(2.0**-60), 1 + 2.0**-11)):
        c = np.array([sliver], np.float32).view(np.uint32)
        naive = np.float32(float(a.view(np.float32)[0]) ** 2 + sliver)
        got = operation("fma.rn.f32")(a, a, c).view(np.float32)[0]
        assert got == np.float32(want)
        assert sliver < 0 or naive != got, "the case no longer shows the fault it is for"


def test_f64_fma_over_the_whole_range():
    rng = np.random.default_rng(5)
    near = [(rng.standard_normal(300) * np.exp2(rng.integers(-30, 30, 300))).view(np.uint64) for _ in range(3)]
    near[2][::2] = (-(near[0].view(np.float64) * near[1].view(np.float64)))[::2].view(np.uint64)
    check("fma", "f64", "rn", near, operation("fma.rn.f64")(*near))


@pytest.mark.parametrize("seed", range(3))
def test_f64_fma_of_zeros_subnormals_and_the_largest_beside_others(seed):
    random = np.random.default_rng(seed)
    special = np.array([0.0, -0.0, 1.0, -1.0, 5e-324, 2.0**-1022, 1.7e308, -1.7e308, 1e200, -1e-200])
    spread = [random.standard_normal(300) * np.exp2(random.integers(-300, 300, 300)) for _ in range(3)]
    mixed = [np.where(random.random(300) < 0.3, random.choice(special, 300), v).view(np.uint64) for v in spread]
    check("fma", "f64", "rn", mixed, operation("fma.rn.f64")(*mixed))


def test_no_finite_product_moves_an_infinite_addend():
    large, infinite = (np.array([v, -v]).view(np.uint64) for v in (1e300, np.inf))
    for mode in MODES:
        np.testing.assert_array_equal(
            operation(f"fma.{mode}.f64")(large, large[:1].repeat(2), infinite[::-1]), infinite[::-1]
        )
