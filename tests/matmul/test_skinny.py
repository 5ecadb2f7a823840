"""Results of few rows or columns: computed on the narrow side of wgmma, whichever way they lie."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.dtypes import BY_NAME
from cutesync.kernels.hardware import SMS
from cutesync.kernels.matmul import MatmulPolicy
from cutesync.kernels.matmul.candidates import CANDIDATES
from cutesync.kernels.matmul.coefficients import COEFFICIENTS, SUSTAINED
from cutesync.kernels.matmul.model import cost, row_cost, table
from cutesync.kernels.matmul.problem import Product, oriented
from cutesync.kernels.matmul.terms import TermsSpec
from cutesync.kernels.matmul.workload import Access, Workload
from cutesync.runtime import device
from cutesync.runtime.device_array import transposed
from cutesync.runtime.view import View

from ..cases import SCHEDULES, with_slow
from ..compiled import dry, needed
from .support import QUICK, SMALL, agrees_under_schedules, choose, integers, multiplied, operand

pytestmark = pytest.mark.usefixtures("on_emulator")  # no GPU here, whatever the machine has

# name: configuration, (M, N, K), blocks that run at a time
KERNELS = {
    "one row, several tiles a block": (MatmulPolicy((64, 16), "pingpong", stages=2, swap_ab=True), (1, 328, 136), 2),
    "activations multicast": (MatmulPolicy((64, 16), "pingpong", (2, 1), stages=3, swap_ab=True), (16, 200, 200), 2),
    "cooperative, multicast, split": (
        MatmulPolicy((128, 32), "cooperative", (2, 1), stages=2, splits=2, swap_ab=True),
        (30, 200, 264),
        4,
    ),
    "split in 3": (MatmulPolicy((64, 32), "pingpong", stages=2, splits=3, swap_ab=True), (33, 136, 264), 5),
    "one column": (MatmulPolicy((64, 16), "pingpong", stages=2, swap_ab=False), (200, 1, 136), 2),
    "few columns, split": (MatmulPolicy((128, 16), "cooperative", splits=2, swap_ab=False), (136, 13, 264), 3),
}


SLOW = set(KERNELS) - {"one row, several tiles a block", "few columns, split"}


@pytest.mark.parametrize("name", with_slow(KERNELS, SLOW))
def test_agrees_under_hostile_schedules(name, monkeypatch):
    agrees_under_schedules(monkeypatch, name, *KERNELS[name], SCHEDULES if name in SLOW else QUICK)


@pytest.mark.parametrize(
    ("m", "n", "transposed", "columns"),
    [(24, 136, (False, False), 16), (24, 136, (True, True), 32), (136, 24, (True, False), 16)],
)
def test_contiguous_rows_and_columns(m, n, transposed, columns):
    """The narrow operand's swizzle is as wide as its tile, 32 or 64 bytes, where what the tile counts is contiguous."""
    multiplied(
        operand(m, 72, transposed[0]), operand(72, n, transposed[1]), config=MatmulPolicy((64, columns), "pingpong")
    )


@pytest.mark.drawn(2)
@pytest.mark.parametrize(("m", "n"), [(3, 72), (64, 72), (1, 1)])
def test_terms_of_transposed_results(m, n):
    a, b, c = integers(m, 40), integers(40, n), integers(m, n, dtype="float32", seed=2)
    for bias in (integers(n, seed=3), integers(m, 1, seed=3))[: 1 if m == n else 2]:
        terms = {"alpha": 0.5, "beta": -2.0, "bias": bias, "activation": "relu", "out_dtype": "float32"}
        multiplied(a, b, c, **terms)


@pytest.mark.slow
def test_types_of_transposed_results():
    for dtype, out in (("float32", "float32"), ("int8", "int8")):
        multiplied(integers(5, 144, dtype=dtype), integers(72, 144, dtype=dtype).T, out_dtype=out)
    first, second = integers(5, 64, dtype="float8_e4m3fn"), integers(64, 72, dtype="float8_e5m2")
    each_a, each_b = np.exp2(integers(5, 1, dtype="float32")), np.exp2(integers(1, 72, dtype="float32"))
    scaled = {"scale_a": each_a, "scale_b": each_b, "out_dtype": "float32"}
    multiplied(first, second, **scaled)


def test_batches_of_few_rows():
    a, b = integers(3, 5, 72), integers(3, 72, 80)
    multiplied(a, b)
    multiplied(a, b[0])


def test_the_same_bits_for_any_number_of_rows():
    random = np.random.default_rng(3)
    a, b = random.standard_normal((130, 328)).astype(np.float16), random.standard_normal((328, 72)).astype(np.float16)
    many = cs.matmul(a, b, out_dtype="float32", batch_invariant=True)
    for rows in (1, 20, 65):
        assert np.array_equal(cs.matmul(a[:rows], b, out_dtype="float32", batch_invariant=True), many[:rows])


@pytest.mark.parametrize(
    ("shape", "by_columns", "swapped"),
    [
        ((1, 4096), False, True),
        ((4096, 1), False, False),
        ((16, 4096), False, True),
        ((16, 4096), True, True),
        ((4096, 16), True, False),
    ],
)
def test_which_results_are_computed_as_transposes(shape, by_columns, swapped):
    """Few rows are wgmma's narrow side."""
    (m, n), k = shape, 4096
    bfloat16 = BY_NAME["bfloat16"]

    def view(rows: int, columns: int, *steps: int) -> View:
        return View(1 << 40, (rows, columns), bfloat16, device.HOST, False, True, steps)

    out = view(m, n, *((1, m) if by_columns else (n, 1)))
    product = Product(view(m, k, k, 1), view(k, n, 1, k), None, out, TermsSpec(), (bfloat16, bfloat16))
    assert oriented(product, None)[0] is swapped
    for way in (False, True):
        assert oriented(product, MatmulPolicy((64, 16), "pingpong", swap_ab=way))[0] is way


def test_both_ways_of_computing_a_result():
    for m, n in ((5, 72), (72, 5), (40, 40)):
        for swapped in (False, True):
            config = MatmulPolicy(*SMALL, swap_ab=swapped)
            multiplied(integers(m, 72), operand(72, n, True), config=config, what=f"{m}x{n}, swap_ab={swapped}")


@pytest.mark.parametrize("columns", [64, 63], ids=["by TMA", "by threads"])
def test_a_product_and_its_transpose_have_one_kernel(columns):
    shapes = (64, 64), (columns, 64), (64, columns)
    a, b, out = (dry(shape, "bfloat16", base=i << 40) for i, shape in enumerate(shapes, 1))
    found = {
        spec.key
        for swapped in (False, True)
        for spec in needed(cs.matmul, a, transposed(b), out=out, config=MatmulPolicy(*SMALL, swap_ab=swapped))
    }
    assert len(found) == 1


def test_the_model_streams_the_large_operand_once():
    """Few columns take a narrow tile, all multiprocessors and no second reading of the large operand. (Of up to 48
    columns a k-tile takes as long as its loads.)"""
    for columns in (1, 4, 16, 64):
        chosen = choose(8192, columns, 128, 1, 2)
        tiles_m, tiles_n = chosen.tiles(8192, columns)
        assert tiles_n == 1 and chosen.tile[1] <= max(48, columns) and tiles_m * chosen.peers * chosen.splits >= 120
    narrow = [config for config in CANDIDATES if config.tile[1] <= 64]
    assert all(c.stage_bytes() * c.decided(2).stages >= 64 * 1024 for c in narrow), (
        "too little in flight for the latency of memory"
    )


def test_the_model_knows_how_operands_lie():
    """Columns that are contiguous come in boxes as wide as the swizzle: 32 bytes of 208 columns. Rows that straddle
    cache lines cost more, so they are shared among more blocks."""
    wide, even = MatmulPolicy((128, 208), "pingpong", (2, 1)), MatmulPolicy((128, 256), "cooperative", (2, 1))
    columns, load = Access(b_k_major=False), Workload(4096, 4096, 64, 1, 2)
    of_rows, of_columns = (
        cost(table([wide, even], SMS), load._replace(access=access), SUSTAINED) for access in (Access(), columns)
    )
    assert of_columns[0] > 1.2 * of_rows[0] and of_columns[1] == of_rows[1]
    assert choose(4096, 4096, 64, 1, 2, access=columns).tile[1] % 64 == 0
    assert [row_cost(stride, COEFFICIENTS) for stride in (16384, 4000, 2000)] == sorted(
        row_cost(stride, COEFFICIENTS) for stride in (16384, 4000, 2000)
    ) and row_cost(16384, COEFFICIENTS) == 1
    straddling = Access(True, 2000, 2000)
    assert choose(1000, 1000, 16, 1, 2, access=straddling).peers > choose(1024, 1024, 16, 1, 2).peers


def test_clusters_of_four_leave_room():
    """Not all multiprocessors can be filled by clusters of 4; all those of a launch must run at once, or the last would
    wait for the first."""
    four = MatmulPolicy((64, 160), "pingpong", (4, 1))
    assert [MatmulPolicy().slots(132), four.slots(132), four.slots(4)] == [132, 30, 1]
