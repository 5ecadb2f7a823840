"""Sums, products, fma, division and the rest, against rounding by definition on fractions."""

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from cutesync.emulator.instructions.arithmetic import compare, operation, select_truth
from cutesync.emulator.instructions.special import operation as special
from cutesync.errors import ArgumentValueError

from . import exact

MODES = ("rn", "rz", "rm", "rp")
UNSIGNED = {"f16": np.uint16, "bf16": np.uint16, "f32": np.uint32, "f64": np.uint64}
NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0xFFF8000000000000}
EXACT = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "fma": lambda x, y, z: x * y + z,
}


def finite_codes(kind: str, seed: int, count: int) -> np.ndarray:
    """Any finite numbers, with neighbours of powers of two, zeros and subnormals among them."""
    rng = np.random.default_rng(seed)
    spec = exact.SPECS[kind]
    anything = rng.integers(0, spec.top + 1, count, dtype=np.uint64)
    middle = np.uint64(spec.bias << spec.fraction_bits)
    near = (
        middle
        + rng.integers(0, 1 << (spec.fraction_bits + 3), count, dtype=np.uint64)
        - np.uint64(1 << (spec.fraction_bits + 1))
    )
    edges = (
        middle
        + rng.integers(-20, 20, count).astype(np.uint64) * np.uint64(1 << spec.fraction_bits)
        + rng.integers(0, 3, count).astype(np.uint64)
    )
    small = rng.integers(0, 1 << (spec.fraction_bits + 1), count, dtype=np.uint64)
    chosen = np.where(
        rng.random(count) < 0.4,
        near,
        np.where(rng.random(count) < 0.5, edges, np.where(rng.random(count) < 0.6, anything, small)),
    )
    chosen = np.minimum(chosen, np.uint64(spec.top))
    chosen[:2] = 0
    signs = rng.integers(0, 2, count).astype(np.uint64) * np.uint64(spec.sign)
    return (chosen | signs).astype(UNSIGNED[kind])


def check(name: str, kind: str, mode: str, sources: list[np.ndarray], got: np.ndarray) -> None:
    sign = exact.SPECS[kind].sign
    for lane, codes in enumerate(zip(*(s.tolist() for s in sources))):
        value = EXACT[name](*(exact.decode(kind, c) for c in codes))
        assert int(got[lane]) & (sign - 1 if value == 0 else 2 * sign - 1) == exact.encode(kind, value, mode), (
            name,
            kind,
            mode,
            [hex(c) for c in codes],
        )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma"])
def test_rounded_once(name, kind, mode):
    count = 3 if name == "fma" else 2
    sources = [finite_codes(kind, seed, 300) for seed in range(count)]
    check(name, kind, mode, sources, operation(f"{name}.{mode}.{kind}")(*sources))


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


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_signs_of_zero(kind, mode):
    sign = exact.SPECS[kind].sign
    zero, one = 0, exact.encode(kind, Fraction(1))
    a = np.array([zero, sign, zero, sign, one, one | sign], UNSIGNED[kind])
    b = np.array([zero, sign, sign, zero, one | sign, one], UNSIGNED[kind])
    cancelled = sign if mode == "rm" else 0
    want = [0, sign, cancelled, cancelled, cancelled, cancelled]
    assert operation(f"add.{mode}.{kind}")(a, b).tolist() == want
    assert operation(f"sub.{mode}.{kind}")(a, b ^ UNSIGNED[kind](sign)).tolist() == want
    ones = np.full(6, one, UNSIGNED[kind])
    assert operation(f"fma.{mode}.{kind}")(a, ones, b).tolist() == want


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_specials_give_the_canonical_nan(kind):
    spec = exact.SPECS[kind]
    infinity = spec.top + 1
    a = np.array([infinity, infinity, infinity + 1, 0, spec.top], UNSIGNED[kind])
    b = np.array([infinity | spec.sign, infinity, 1, infinity, spec.top], UNSIGNED[kind])
    kept = infinity + 1 | 1 << 51 if kind == "f64" else NAN[kind]  # f64 keeps the NaN that it is given
    assert operation(f"add.{kind}")(a, b).tolist() == [NAN[kind], infinity, kept, infinity, infinity]
    assert operation(f"mul.{kind}")(a, b).tolist() == [infinity | spec.sign, infinity, kept, NAN[kind], infinity]
    assert operation(f"fma.rn.{kind}")(a, a, b).tolist() == [NAN[kind], infinity, kept, infinity, infinity]


def test_pairs_work_half_by_half():
    rng = np.random.default_rng(1)
    a, b, c = (rng.integers(0, 1 << 32, 64, dtype=np.uint64).astype(np.uint32) for _ in range(3))
    for kind in ("f16", "bf16"):
        pair, single = operation(f"fma.rn.{kind}x2")(a, b, c), operation(f"fma.rn.{kind}")
        low = single(*(v.astype(np.uint16) for v in (a, b, c)))
        high = single(*((v >> 16).astype(np.uint16) for v in (a, b, c)))
        assert pair.dtype == np.uint32 and np.array_equal(pair, high.astype(np.uint32) << 16 | low)


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_min_and_max(kind):
    spec = exact.SPECS[kind]
    codes = [
        *finite_codes(kind, 3, 40).tolist(),
        0,
        spec.sign,
        spec.top + 1,
        spec.top + 1 | spec.sign,
        spec.top + 2,
        spec.top + 2 | spec.sign,
    ]
    a = np.repeat(np.array(codes, np.uint64), len(codes)).astype(UNSIGNED[kind])
    b = np.tile(np.array(codes, np.uint64), len(codes)).astype(UNSIGNED[kind])
    forms = ("min", "max") + (("min.NaN", "max.NaN", "min.xorsign.abs", "max.NaN.xorsign.abs") if kind != "f64" else ())
    results = {n: operation(f"{n}.{kind}")(a, b).tolist() for n in forms}

    def key(code):
        value = exact.decode(kind, code)
        return (value, 0 if code & spec.sign else 1)

    def want(name, x, y):
        nans = [math.isnan(exact.decode(kind, v)) for v in (x, y)]
        if all(nans) or (any(nans) and "NaN" in name):
            return y | 1 << 51 if kind == "f64" else NAN[kind]
        sign = (x ^ y) & spec.sign
        if "xorsign" in name:
            x, y = x & ~spec.sign, y & ~spec.sign
        kept = y if nans[0] else x if nans[1] else (min if name.startswith("min") else max)(x, y, key=key)
        return kept | sign if "xorsign" in name else kept

    for name, got in results.items():
        assert got == [want(name, x, y) for x, y in zip(a.tolist(), b.tolist())], name


RELATIONS = {
    "eq": lambda o: o == 0,
    "ne": lambda o: o != 0,
    "lt": lambda o: o < 0,
    "le": lambda o: o <= 0,
    "gt": lambda o: o > 0,
    "ge": lambda o: o >= 0,
}


def test_comparisons():
    values = [-1.0, -0.0, 0.0, 1.0, math.inf, math.nan]
    a = np.array([x for x in values for _ in values], np.float16)
    b = np.array([y for _ in values for y in values], np.float16)
    unordered = [math.isnan(x) or math.isnan(y) for x, y in zip(a.tolist(), b.tolist())]
    order = [(x > y) - (x < y) for x, y in zip(a.tolist(), b.tolist())]
    for name, test in RELATIONS.items():
        ordered = [not u and test(o) for u, o in zip(unordered, order)]
        assert compare(name, "f16", a.view(np.uint16), b.view(np.uint16)).tolist() == ordered
        assert compare(name + "u", "f16", a.view(np.uint16), b.view(np.uint16)).tolist() == [
            u or o for u, o in zip(unordered, ordered)
        ]
    assert compare("nan", "f16", a.view(np.uint16), b.view(np.uint16)).tolist() == unordered
    assert compare("num", "f16", a.view(np.uint16), b.view(np.uint16)).tolist() == [not u for u in unordered]


def test_pair_comparisons_and_set():
    a, b = np.array([0x3C000000], np.uint32), np.array([0x00003C00], np.uint32)
    truth = compare("gt", "f16x2", a, b)
    assert truth.tolist() == [[False, True]]
    assert select_truth(truth, "f16x2").tolist() == [0x3C000000] and select_truth(truth, "bf16x2").tolist() == [
        0x3F800000
    ]
    assert select_truth(truth[:, 1], "u32").tolist() == [0xFFFFFFFF] and select_truth(truth[:, 1], "f32").tolist() == [
        0x3F800000
    ]
    assert not compare("lt", "f16", np.array([1], np.uint16), np.array([2], np.uint16), ftz=True).any()


# --- division, roots, approximations ----------------------------------------------------------------------------------


def rounded_root(value: Fraction, mode: str) -> int:
    """The float32 code of the square root: the floor, then one step by exact comparison of squares."""
    spec = exact.SPECS["f32"]
    low, high = 0, spec.top + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if spec.value(middle) ** 2 <= value else (low, middle)
    if spec.value(low) ** 2 == value or mode in ("rz", "rm"):
        return low
    tie = (spec.value(low) + spec.value(low + 1)) / 2
    return low + 1 if mode == "rp" or tie**2 < value else low


@pytest.mark.parametrize("mode", MODES)
def test_division_and_roots_round_once(mode):
    a, b = finite_codes("f32", 11, 300), finite_codes("f32", 12, 300)
    b = np.where(b & np.uint32(0x7FFFFFFF), b, np.uint32(0x40400000))
    values = [exact.decode("f32", c) for c in a.tolist()], [exact.decode("f32", c) for c in b.tolist()]
    got = special(f"div.{mode}.f32")(a, b)
    for lane, (x, y) in enumerate(zip(*values)):
        assert int(got[lane]) & (0x7FFFFFFF if x / y == 0 else 0xFFFFFFFF) == exact.encode("f32", x / y, mode), (
            hex(a[lane]),
            hex(b[lane]),
        )
    assert special(f"rcp.{mode}.f32")(b).tolist() == [exact.encode("f32", 1 / y, mode) for y in values[1]]
    positive = a & np.uint32(0x7FFFFFFF)
    assert special(f"sqrt.{mode}.f32")(positive).tolist() == [rounded_root(abs(x), mode) for x in values[0]]


@pytest.mark.parametrize("mode", MODES)
def test_f64_division_and_root(mode):
    a, b = finite_codes("f64", 13, 100), finite_codes("f64", 14, 100)
    b |= np.uint64(1)
    got = special(f"div.{mode}.f64")(a, b)
    for lane, (x, y) in enumerate(zip(a.tolist(), b.tolist())):
        quotient = exact.decode("f64", x) / exact.decode("f64", y)
        assert int(got[lane]) & (2**63 - 1 if quotient == 0 else 2**64 - 1) == exact.encode("f64", quotient, mode)
    positive = a & np.uint64(2**63 - 1)
    roots = special(f"sqrt.{mode}.f64")(positive)
    for code, root in zip(positive.tolist(), roots.tolist()):
        value = exact.decode("f64", code)
        below, above = (exact.decode("f64", root + d) for d in ((-1 if root else 0), 1))
        this = exact.decode("f64", root)
        if mode == "rn":
            assert ((below + this) / 2) ** 2 <= value <= ((above + this) / 2) ** 2
        else:
            assert (below**2 < value <= this**2 or value == 0) if mode == "rp" else this**2 <= value < above**2


def bits(kind: str, *values: float) -> np.ndarray:
    """The codes of values, NaN as the canonical one."""
    floats, unsigned = np.array(values, f"float{kind[1:]}"), UNSIGNED[kind]
    return np.where(np.isnan(floats), unsigned(NAN[kind]), floats.view(unsigned))


f16, f32 = partial(bits, "f16"), partial(bits, "f32")


def u32(*codes: int) -> np.ndarray:
    return np.array(codes, np.uint32)


def u64(*codes: int) -> np.ndarray:
    return np.array(codes, np.uint64)


TINY = 2.0**-24
INF, NONE = math.inf, math.nan
EVERY = f32(0.0, -0.0, 1.0, -1.0, INF, -INF, NONE)
# of doubles: an infinity, -1, NaNs given and made
INFINITY, MINUS_ONE, QUIET, SIGNALLING = 0x7FF0000000000000, 0xBFF0000000000000, 0x7FF8000000000123, 0xFFF0000000000001
MADE, QUIETED = 0xFFF8000000000000, SIGNALLING | 1 << 51
PAIRS = u32(0x3C008000, 0xFFFF0001, 0x7C01FC01, 0x7FC0FF81)
LARGEST = u32(0x7F7FFFFF, 0x7F7FFFFF, 0x7F7FFFFF, 0x7F7FFFFF, 0x7E800000)
LARGE = u32(0x3F800000, 0xBF800000, 0x7F7FFFFF, 0x7F800000, 0x3F800000)
VALUES = [  # opcode, sources, result
    ("add.sat.f16", f16(0.5, -3, 0.25), f16(2, 1, 0.25), f16(1, 0, 0.5)),
    ("fma.rn.relu.f16", f16(2, -2), f16(3, 3), f16(1, 1), f16(7, 0)),
    ("add.ftz.f16", f16(TINY, 2.0**-14), f16(TINY, -(2.0**-15)), f16(0, 2.0**-14)),
    ("mul.ftz.f16", f16(2.0**-10), f16(2.0**-10), f16(0)),
    ("mul.f16", f16(2.0**-10), f16(2.0**-10), f16(2.0**-20)),
    # all but NaN change their sign
    ("neg.f16x2", PAIRS, u32(0xBC000000, 0x7FFF8001, 0x7FFF7FFF, 0x7FFF7FFF)),
    ("abs.bf16x2", PAIRS, u32(0x3C000000, 0x7FFF0001, 0x7C017C01, 0x7FFF7FFF)),
    ("neg.ftz.f32", u32(0x7FC00000, 0x7F800001, 0x3F800000), u32(0x7FFFFFFF, 0x7FFFFFFF, 0xBF800000)),
    ("neg.f64", u64(QUIET, SIGNALLING, MINUS_ONE), u64(QUIET, QUIETED, 0x3FF0000000000000)),
    ("abs.f64", u64(QUIET, SIGNALLING, MINUS_ONE), u64(QUIET, QUIETED, 0x3FF0000000000000)),
    *(
        (f"{name}.{mode}.f64", *map(u64, codes))
        for mode in MODES
        for name, *codes in (
            # a NaN that is made is negative
            ("mul", INFINITY, 0, MADE),
            ("fma", INFINITY, 0, 0, MADE),
            ("div", 0, 0, MADE),
            ("sqrt", MINUS_ONE, MADE),
            ("sub", INFINITY, INFINITY, MADE),
            # one that is given is kept, and made quiet
            ("sub", 0, QUIET, QUIET),
            ("add", QUIET, 0, QUIET),
            ("rcp", QUIET, QUIET),
            ("sqrt", QUIET, QUIET),
            *((name, SIGNALLING, 0, QUIETED) for name in ("add", "sub", "mul", "div")),
            ("fma", 0, INFINITY, SIGNALLING, QUIETED),
            ("rcp", SIGNALLING, QUIETED),
            ("sqrt", SIGNALLING, QUIETED),
        )
    ),
    ("rcp.approx.f32", EVERY, f32(INF, -INF, 1.0, -1.0, 0.0, -0.0, NONE)),
    ("rsqrt.approx.f32", EVERY, f32(INF, -INF, 1.0, NONE, 0.0, NONE, NONE)),
    ("lg2.approx.f32", EVERY, f32(-INF, -INF, 0.0, NONE, INF, NONE, NONE)),
    ("ex2.approx.f32", EVERY, f32(1.0, 1.0, 2.0, 0.5, INF, 0.0, NONE)),
    ("sqrt.approx.f32", EVERY, f32(0.0, -0.0, 1.0, NONE, INF, NONE, NONE)),
    ("rcp.approx.ftz.f32", u32(1), f32(INF)),
    # as on an H200: divisors above 2**126 give zero, bf16 powers and f64 reciprocals flush, only .ftz.f64 cuts
    ("div.approx.f32", LARGE, LARGEST, u32(0, 0x80000000, 0, 0x7FFFFFFF, 0x00800000)),
    ("div.full.f32", LARGE, LARGEST, u32(0x200000, 0x80200000, 0x3F800000, 0x7F800000, 0x00800000)),
    ("ex2.approx.ftz.bf16x2", u32(0xC3003F80), u32(0x00004000)),
    ("rcp.approx.ftz.f64", u64(SIGNALLING, QUIET, MINUS_ONE), u64(1 << 63, 0x7FFFFFFF00000000, MINUS_ONE)),
    ("rsqrt.approx.ftz.f64", u64(SIGNALLING, QUIET, MINUS_ONE), u64(*[0x7FFFFFFF00000000] * 3)),
    ("rsqrt.approx.f64", u64(SIGNALLING, QUIET, MINUS_ONE), u64(QUIETED, QUIET, MADE)),
]


@pytest.mark.parametrize("opcode, sources, want", [(opcode, values[:-1], values[-1]) for opcode, *values in VALUES])
def test_values(opcode, sources, want):
    door = operation if opcode.split(".")[0] in ("add", "sub", "mul", "fma", "neg", "abs") else special
    assert door(opcode)(*sources).tolist() == want.tolist()


def test_edges_of_approximate_doubles():
    assert special("rcp.approx.ftz.f64")(np.array([3.0]).view(np.uint64))[0] & np.uint64(0xFFFFFFFF) == 0
    roots = special("rsqrt.approx.f64")(u64(1, 0xFFFFFFFFFFFFF)).tolist()
    assert roots in ([0x6180000000000000, 0x5FE0000000000001], [0x6180000000000000, 0x5FE0000000000000])


def test_approximations_round_the_true_value():
    x = np.linspace(0.01, 8, 200)
    bits = x.astype(np.float32).view(np.uint32)
    true = x.astype(np.float32).astype(np.float64)
    for name, function in {"ex2": np.exp2, "lg2": np.log2, "sin": np.sin, "cos": np.cos, "tanh": np.tanh}.items():
        got = special(f"{name}.approx.f32")(bits).view(np.float32).astype(np.float64)
        assert np.abs(got - function(true)).max() <= 2.0**-24 * max(1, np.abs(function(true)).max())
    halves = x.astype(np.float16)
    pairs = np.ascontiguousarray(halves).view(np.uint32)
    want = np.tanh(halves.astype(np.float64)).astype(np.float16)
    assert np.array_equal(special("tanh.approx.f16x2")(pairs).view(np.float16), want)


@pytest.mark.parametrize(
    "door,opcode",
    [
        (operation, "add.f8"),
        (operation, "div.f32"),
        (operation, "add.rn.rz.f32"),
        (operation, "add.f32x2"),
        (special, "sin.approx.f16"),
        (special, "rsqrt.rn.f32"),
        (special, "sin.approx.f64"),
    ],
)
def test_unknown_spellings_are_refused(door, opcode):
    with pytest.raises(ArgumentValueError):
        door(opcode)
