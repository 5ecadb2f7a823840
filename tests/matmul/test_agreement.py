"""cs.matmul agrees with NumPy: shapes, strides, batches, types, and the terms of the epilogue."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.dtypes import element_type
from cutesync.kernels.matmul.policy import MatmulPolicy

from ..cases import with_slow
from .support import SMALL, agrees, integers, multiplied, operand

pytestmark = pytest.mark.usefixtures("on_emulator")  # no GPU here, whatever the machine has

CONFIG = MatmulPolicy(*SMALL)


SHAPES = [
    ((5,), (5,)),
    ((67, 35), (35,)),
    ((35,), (35, 66)),
    ((1, 1), (1, 1)),
    ((3, 20, 33), (33, 70)),
    ((20, 33), (3, 33, 7)),
    ((2, 1, 20, 32), (3, 32, 72)),
    ((4, 5), (2, 1, 5, 3)),
    ((65, 129), (129, 63)),
]


EMPTY = [((3, 0), (0, 8)), ((0, 3), (3, 8)), ((3, 5), (5, 0)), ((2, 3, 0), (0, 9))]
TERMS = {"alpha": 0.5, "beta": -2.0, "activation": "relu"}
# what: (a, b, what else is given)
PRODUCTS = {
    **{f"{first} and {second}": (integers(*first), integers(*second, seed=1), {}) for first, second in SHAPES},
    **{
        f"{first} and {second}": (integers(*first), integers(*second), {"bias": integers(second[-1])})
        for first, second in EMPTY
    },
    **{  # TMA reads neither operand and stores no result
        f"odd leading dimensions, {name}": (operand(71, 37, name[0] == "T"), operand(37, 67, name[1] == "T"), {})
        for name in ("TN", "NT")
    },
    **{
        f"all terms, bias of {shape}, {out}": (
            integers(66, 40),
            integers(40, 71),
            TERMS
            | {"c": integers(66, 71, dtype="float32", seed=2), "bias": integers(*shape, seed=3), "out_dtype": out},
        )
        for shape, out in (((71,), "float16"), ((66, 1), "float32"))
    },
    "c is not read where beta is zero": (
        integers(9, 16),
        integers(16, 8),
        {"c": np.full((9, 8), np.nan, np.float16), "beta": 0.0},
    ),
    # an int32 result takes no factors; scales of 1 are allowed, as they change nothing
    "scales of 1": (integers(9, 16, dtype="int8"), integers(16, 24, dtype="int8"), {"scale_a": 1.0, "scale_b": 1}),
}


SLOW = {
    "(3, 20, 33) and (33, 70)",
    "(2, 3, 0) and (0, 9)",
}


@pytest.mark.drawn(8)
@pytest.mark.parametrize("name", with_slow(PRODUCTS, SLOW))
def test_products(name):
    a, b, terms = PRODUCTS[name]
    multiplied(a, b, config=CONFIG, **terms)


@pytest.mark.parametrize("extra", [1, 8])
def test_padded_views_read_and_write_nothing_else(extra):
    """Padding is NaN, the result's surroundings are 7; bases off by ``extra`` elements."""

    def padded(values, fill):
        rows, pitch = values.shape[0] + 2, values.shape[1] + 2 * extra
        whole = np.full((rows, pitch), fill, values.dtype)
        whole[1:-1, extra:-extra] = values
        array = cs.asarray(whole)
        return array, array[1:-1, extra:-extra]

    a, b = integers(70, 40), integers(40, 66)
    whole, out = padded(np.zeros((70, 66), np.float16), 7)
    assert cs.matmul(padded(a, np.nan)[1], padded(b, np.nan)[1], out=out, config=CONFIG) is out
    got = np.asarray(whole)
    agrees(got[1:-1, extra:-extra], a, b)
    got[1:-1, extra:-extra] = 7
    assert (got == 7).all(), "something beside the result was written"


@pytest.mark.parametrize("each", ["column", pytest.param("row", marks=pytest.mark.slow)])
def test_bias_of_any_strides(each):
    """Apart, backward, and one element for all; swapped as well."""
    count = 24 if each == "column" else 40
    a, b, around = integers(40, 16), integers(16, 24), integers(2 * count, 3, dtype="float32", seed=4)
    device = cs.asarray(around)
    for swapped in (False, True):
        for part in (slice(count), slice(count - 1, None, -1), slice(1, None, 2)):
            bias, host = device[part, 1:2], around[part, 1:2]
            bias, host = (bias, host) if each == "row" else (bias[:, 0], host[:, 0])
            right = cs.asarray(b.T.copy()).T if swapped else cs.asarray(b)
            agrees(np.asarray(cs.matmul(cs.asarray(a), right, bias=bias)), a, b, bias=host)
    bias = device[:1, 0].broadcast_to((24,))
    agrees(np.asarray(cs.matmul(cs.asarray(a), cs.asarray(b), bias=bias)), a, b, bias=np.broadcast_to(around[0, 0], 24))


@pytest.mark.parametrize("rows_first", [True, False])
def test_column_major_results(rows_first):
    """Stored as the transposed product; a result with no stride of 1 is stored element by element."""
    a, b, bias = integers(72, 40), integers(40, 136), integers(136, seed=4)
    holder = cs.asarray(np.zeros((136, 72, 2), np.float16))
    out = holder.reshape(-1)[: 136 * 72].reshape(136, 72).T if rows_first else holder[..., 0].T
    in_a, in_b, in_bias = (cs.asarray(x) for x in (a, b, bias))
    cs.matmul(in_a, in_b, bias=in_bias, out=out, config=CONFIG)
    stored = np.asarray(holder).ravel()
    got = stored[: 72 * 136].reshape(136, 72).T if rows_first else stored[::2].reshape(136, 72).T
    agrees(got, a, b, bias=bias)


@pytest.mark.parametrize(
    ("element", "out"),
    [("float16", "bfloat16"), ("bfloat16", "float32")],
)
def test_types(element, out):
    multiplied(integers(70, 72, dtype=element), integers(72, 72, dtype=element), out_dtype=out, config=CONFIG)


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("first", "second", "fast"),
    [
        ("float8_e4m3fn", "float8_e4m3fn", True),
        ("float8_e4m3fn", "float8_e4m3fn", False),
        ("float8_e4m3fn", "float8_e5m2", False),
        ("float8_e5m2", "float8_e5m2", True),
    ],
)
def test_float8(first, second, fast):
    """Three k-tiles, the last ragged; small integers are exact in either way of adding up."""
    a, b = integers(66, 272, dtype=first), integers(72, 272, dtype=second).T
    agrees(cs.matmul(a, b, fast_accumulation=fast, config=CONFIG), a, b, out_dtype="bfloat16")


def test_float8_sums_are_as_exact_as_promised():
    """2048 products that a sum of 14 bits cannot hold: float32 sums of k-tiles can. (The emulator adds exactly within
    an instruction.)"""
    a, b = np.ones((8, 2048)), np.ones((2048, 8))
    a[:, 0] = 448
    b[0] = 448
    narrow = element_type("float8_e4m3fn").numpy
    got = cs.matmul(a.astype(narrow), b.astype(narrow), out_dtype="float32", config=CONFIG)
    assert (got == 448 * 448 + 2047).all()


def test_float8_scales_and_odd_strides():
    a, b = integers(66, 37, dtype="float8_e4m3fn"), integers(37, 71, dtype="float8_e5m2")
    each_a, each_b = np.exp2(integers(66, 1, dtype="float32")), np.exp2(integers(1, 71, dtype="float32"))
    for scales in (
        {"scale_a": each_a, "scale_b": each_b},
        {"scale_a": each_a[0], "scale_b": each_b[:, 0]},
        {"scale_a": each_a, "scale_b": 0.25},
    ):
        multiplied(a, b, out_dtype="float32", config=CONFIG, **scales)


@pytest.mark.parametrize(
    "scale",
    [2, 0.5, True, np.float32(0.25), np.float64(-2), np.int8(3), np.bool_(True), np.array(0.5), np.array(4, np.int64)],
    ids=repr,
)
def test_scales_that_are_numbers(scale):
    """Numbers of Python and NumPy, for arrays of NumPy and of a device. Calls with different numbers have different
    plans."""
    a, b = integers(9, 16), integers(16, 24)
    for scales in (
        {"scale_a": scale},
        {"scale_b": scale, "alpha": 2.0},
        {"scale_a": scale, "scale_b": 0.5},
        {"scale_a": 0.125, "scale_b": scale},
    ):
        multiplied(a, b, config=CONFIG, **scales)
        multiplied(cs.asarray(a), cs.asarray(b), config=CONFIG, **scales)


@pytest.mark.drawn(2)
@pytest.mark.parametrize(("first", "second"), [("int8", "int8"), ("uint8", "int8"), ("uint8", "uint8")])
def test_integers(first, second):
    """The whole range of the types, in int32."""
    random = np.random.default_rng(5)
    a, b = (
        random.integers(np.iinfo(t).min, np.iinfo(t).max, s, t, endpoint=True)
        for t, s in ((first, (66, 272)), (second, (72, 272)))
    )
    got = cs.matmul(a, b.T, config=CONFIG)
    assert got.dtype == np.int32
    agrees(got, a, b.T)
    multiplied(a, b.T, alpha=0.5, out_dtype="float32", config=CONFIG)


def test_c_is_added_when_beta_is_not_given():
    a, b, c = integers(9, 16), integers(16, 8), integers(9, 8, seed=2)
    for beta in ({}, {"beta": None}, {"beta": 0}, {"beta": 1}, {"beta": np.float32(-0.5)}):
        multiplied(a, b, c, config=CONFIG, **beta)
        multiplied(cs.asarray(a), cs.asarray(b), cs.asarray(c), config=CONFIG, **beta)
    assert np.array_equal(cs.matmul(a, b, c, config=CONFIG), a @ b + c)
    agrees(cs.matmul(a, b, beta=0.0, config=CONFIG), a, b)


def test_c_broadcasts_and_may_be_the_result():
    a, b = integers(2, 66, 40), integers(2, 40, 72)
    multiplied(a, b, integers(72, dtype="float32"), beta=2.0, out_dtype="float32", config=CONFIG)
    whole = integers(2, 66, 72, dtype="float32", seed=7)
    in_place = cs.asarray(whole)
    cs.matmul(cs.asarray(a), cs.asarray(b), in_place, beta=1.0, out=in_place, config=CONFIG)
    agrees(np.asarray(in_place), a, b, whole, beta=1.0, out_dtype="float32")


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    "activation",
    ["relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", lambda v: v * v - 1.0],
    ids=lambda f: f if isinstance(f, str) else "lambda",
)
def test_activations(activation):
    a, b = integers(40, 24), integers(24, 40)
    got = cs.matmul(a, b, alpha=0.05, activation=activation, out_dtype="float32", config=CONFIG)
    wanted = cs.reference.matmul(a, b, alpha=0.05, activation=activation, out_dtype="float32")
    np.testing.assert_allclose(got, wanted, rtol=3e-6, atol=1e-6)


def test_relu_keeps_nan():
    a, b = np.full((8, 8), np.nan, np.float16), integers(8, 8)
    assert np.isnan(cs.matmul(a, b, activation="relu", config=CONFIG)).all()


def test_out_and_the_plan_that_is_kept():
    a, b = integers(20, 16), integers(16, 24)
    out = np.empty((20, 24), np.float32)
    assert cs.matmul(a, b, out=out, config=CONFIG) is out
    agrees(out, a, b, out_dtype="float32")
    in_a, in_b, target = cs.asarray(a), cs.asarray(b), cs.empty((20, 24), "float16")
    for _ in range(2):
        assert cs.matmul(in_a, in_b, out=target, config=CONFIG) is target
        agrees(np.asarray(target), a, b)
    other = cs.asarray(a + a)
    agrees(np.asarray(cs.matmul(other, in_b, out=target, config=CONFIG)), a + a, b, what="the plan of another address")


def test_batch_invariant_results_do_not_depend_on_the_other_rows():
    """One row with a policy that splits K, and many rows with another tile: the same bits. Without ``batch_invariant``
    they differ."""
    random = np.random.default_rng(9)
    a, b = random.standard_normal((130, 512)).astype(np.float16), random.standard_normal((512, 72)).astype(np.float16)
    many = cs.matmul(a, b, out_dtype="float32", batch_invariant=True, config=MatmulPolicy((128, 64), "cooperative"))
    cut = MatmulPolicy((64, 64), "pingpong", splits=4)
    assert np.array_equal(cs.matmul(a[:1], b, out_dtype="float32", batch_invariant=True, config=cut), many[:1])
    assert not np.array_equal(cs.matmul(a[:1], b, out_dtype="float32", config=cut), many[:1])


def test_the_model_chooses_where_no_config_is_given():
    multiplied(integers(100, 64), integers(64, 80))
