"""float32 operands: in full precision, by 3xTF32, and rounded to tfloat32."""

from dataclasses import replace

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.matmul.policy import MatmulPolicy
from cutesync.runtime.device_array import transposed

from ..compiled import dry, needed
from .support import SMALL, few_blocks, multiplied, operand

pytestmark = pytest.mark.usefixtures("on_emulator")  # no GPU here, whatever the machine has

CONFIG = MatmulPolicy(*SMALL)
TRANSPOSED = [(False, False), (True, True)]  # each operand lies both ways


def error(got, a, b, precision=None) -> float:
    """The largest error relative to |a| |b|, which bounds what rounding can do."""
    exact, size = (
        cs.reference.matmul(*operands, precision=precision, out_dtype="float64")
        for operands in ((a, b), (np.abs(a), np.abs(b)))
    )
    return float((np.abs(got - exact) / size).max())


@pytest.mark.parametrize(
    ("m", "n", "k", "transposed"), [(*shape, of) for shape, of in zip([(70, 72, 40), (35, 67, 37)], TRANSPOSED)]
)
def test_integers_of_15_bits_are_exact(m, n, k, transposed):
    """Numbers that tfloat32 cannot hold, on either side: any difference is a fault."""
    wide, narrow = (
        operand(*shape, transpose, "float32") * np.float32(factor)
        for shape, transpose, factor in (((m, k), transposed[0], 6827), ((k, n), transposed[1], 1))
    )
    assert not np.array_equal(
        cs.reference.matmul(wide, np.eye(wide.shape[1], dtype=np.float32), precision="tf32"), wide
    )
    a, b = (wide, narrow) if k == 40 else (narrow.T, wide.T)
    multiplied(a, b, config=CONFIG)


@pytest.mark.parametrize("parts", [None, True, False])
def test_the_configuration_says_where_operands_are_split(parts):
    """In the kernel, or by launches before it; in the kernel if it does not say, and that can."""
    config = replace(CONFIG, parts=parts)
    a, b = dry((128, 64), "float32"), transposed(dry((96, 64), "float32", base=1 << 41))
    out = dry((128, 96), "float32", base=1 << 42)
    for chosen, packs in ((config, parts is False), (replace(config, parts=None, cluster=(2, 1)), True)):
        kernels = {spec.key[0] for spec in needed(cs.matmul, a, b, out=out, config=chosen)}
        assert kernels == {"matmul", *["matmul pack"] * packs}, "blocks that share loads cannot split stages"
    multiplied(operand(70, 72, False, "float32") * np.float32(6827), operand(72, 40, True, "float32"), config=config)


@pytest.mark.parametrize("positive", [True])
def test_full_precision_is_that_of_float32(positive):
    """Three products leave out 2**-22 of each at most, mostly far less; NumPy's float32 is not better than twice as
    good."""
    random = np.random.default_rng(11)
    draw = random.random if positive else random.standard_normal
    a, b = draw((33, 200)).astype(np.float32), draw((200, 20)).astype(np.float32)
    assert error(cs.matmul(a, b, config=CONFIG), a, b) < 2**-22
    assert error(cs.reference.matmul(a, b, precision="tf32"), a, b) > 2**-16, "the bound would hold without the parts"


def test_tiny_and_huge():
    """The big and small part neither overflow, where the nearest tfloat32 would be infinite, nor matter where the
    product is small."""
    a = np.float32([[3.4e38, 1e-30, 2.0**-100, -3.4028235e38]])
    np.testing.assert_allclose(cs.matmul(a, np.eye(4, dtype=np.float32), config=CONFIG), a, rtol=2**-21)


def test_infinities_and_nan_come_out_as_numpys():
    """Among them infinity times numbers whose small part has the other sign, and infinity times 0."""
    random = np.random.default_rng(5)
    a, b = random.standard_normal((20, 40)).astype(np.float32), random.standard_normal((40, 24)).astype(np.float32)
    a[2, 3], a[4, 5], a[7, 8], a[11, 0] = np.inf, -np.inf, np.nan, np.inf
    b[3, 6], b[9, 10], b[0, 13], b[30, 20] = 0.0, np.inf, -np.inf, np.nan
    got = cs.matmul(a, b, config=CONFIG)
    with np.errstate(invalid="ignore"):
        wanted = a @ b
    special = ~np.isfinite(wanted)
    assert special.sum() > 100 and np.array_equal(got[special], wanted[special], equal_nan=True)
    np.testing.assert_allclose(got[~special], wanted[~special], rtol=0, atol=1e-5)


@pytest.mark.parametrize("transposed", TRANSPOSED, ids=["NN", "TT"])
def test_tf32_rounds_the_operands(transposed):
    random = np.random.default_rng(3)
    a, b = (random.standard_normal(shape).astype(np.float32) for shape in ((70, 40), (40, 72)))
    given = [np.ascontiguousarray(x.T).T if transpose else x for x, transpose in zip((a, b), transposed)]
    got = cs.matmul(*given, precision="tf32", config=CONFIG)
    assert error(got, a, b, "tf32") < 2**-21 and error(got, a, b) > 2**-16


def test_tf32_in_tiles_of_an_odd_multiple_of_16_columns():
    """The DSL could not slice the layout of such stages. K and N have tails."""
    random = np.random.default_rng(7)
    config = MatmulPolicy((64, 48), "pingpong")
    multiplied(operand(70, 72, False, "float32"), operand(72, 80, True, "float32"), precision="tf32", config=config)
    a, b = (random.standard_normal(shape).astype(np.float32) for shape in ((70, 72), (72, 80)))
    assert error(cs.matmul(a, b, precision="tf32", config=config), a, b, "tf32") < 2**-21


@pytest.mark.slow
def test_odd_strides():
    """Also with 3xTF32 whose sums are left to the tensor cores."""
    a, b = operand(66, 37, False, "float32"), operand(37, 71, False, "float32")
    multiplied(a, b, precision="tf32", config=CONFIG)
    multiplied(a * np.float32(4097), b, fast_accumulation=True, config=CONFIG)


def test_batches_terms_and_no_k():
    a, b = operand(3 * 20, 33, False, "float32").reshape(3, 20, 33) * np.float32(4097), operand(33, 70, True, "float32")
    c, bias = operand(20, 70, False, "float32", seed=1), operand(1, 70, False, "float32", seed=2)
    terms = {"alpha": 0.5, "beta": 2.0, "bias": bias, "activation": "relu"}
    multiplied(a, b, c, config=CONFIG, **terms)
    multiplied(a[:, :, :0], b[:0], config=CONFIG)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chosen", "precision"),
    [
        (MatmulPolicy((128, 64), "cooperative", (2, 1), stages=2, splits=2), None),
        (MatmulPolicy((64, 64), "pingpong", (1, 2), stages=3), "tf32"),
    ],
)
def test_hostile_schedules(chosen, precision, monkeypatch):
    """The packing kernels, the ring and the buffers, under every policy with the sanitizer."""
    few_blocks(monkeypatch, 2)
    a, b = operand(136, 40, precision is None, "float32"), operand(40, 72, True, "float32")
    with cs.emulate(schedules=3, seed=8):
        multiplied(a, b, precision=precision, config=chosen)
