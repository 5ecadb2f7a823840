"""``batch_invariant``: a row of the result has the same bits whatever the number of rows."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

import cutesync as cs
from cutesync.dtypes import TFLOAT32, element_type
from cutesync.kernels.hardware import SMS
from cutesync.kernels.matmul.model import shortlist
from cutesync.kernels.matmul.policy import MatmulPolicy
from cutesync.kernels.matmul.problem import Product, oriented
from cutesync.kernels.matmul.terms import TermsSpec
from cutesync.kernels.matmul.workload import Workload
from cutesync.runtime import device
from cutesync.runtime.view import View

from ..compiled import dry, needed

pytestmark = pytest.mark.usefixtures("on_emulator")  # no GPU here, whatever the machine has

ROWS = (1, 2, 7, 16, 33, 64, 65, 127, 192, 300, 512, 1000, 1024, 2048, 4096)


def order_of(m: int, n: int, k: int, dtype: str, fast: bool, aligned: bool) -> tuple:
    """All that the order of additions in a row follows from: slices of K, k-tiles in promoted sums, parts, and which of
    the products of parts comes first."""
    full = dtype == "float32"
    element, pad = element_type(dtype), 0 if aligned else 1

    def view(rows: int, columns: int, *steps: int) -> View:
        return View(1 << 40, (rows, columns), element, device.HOST, False, True, steps)

    arrays = view(m, k, k + pad, 1), view(k, n, 1, k + pad), None, view(m, n, n, 1)
    types = (TFLOAT32 if full else element,) * 2
    promoted = (full or element.size == 1) and not fast
    swapped, (step,) = oriented(Product(*arrays, TermsSpec(), types, full, promoted, False), None)
    problem = step.problem
    packed = bool(step.packs[0]) and full and not problem.parts
    three = (problem.parts, packed, swapped) if full else ()
    chosen = problem.shortlist()[0]
    return chosen.splits * chosen.slices, problem.promoted, problem.k, *three


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float32"])
def test_no_number_of_rows_changes_the_order_of_additions(dtype):
    """Random N and K, M from 1 to 4096, aligned or not, with fast accumulation and without."""
    random, seen = np.random.default_rng(7), set()
    slices = set()
    for _ in range(12):
        n, k = (int(2 ** random.uniform(3, 13)) // 16 * 16 + 16 for _ in "nk")
        for fast, aligned in ((False, True), (False, False), (True, True)):
            orders = {order_of(m, n, k, dtype, fast, aligned) for m in ROWS}
            assert len(orders) == 1, (n, k, fast, aligned, orders)
            seen |= {order[3:] for order in orders}
            slices.add(orders.pop()[0])
    assert len(slices) > 1, "K is never cut, or always: a case for each is missing"
    if dtype == "float32":
        assert len(seen) > 1, "parts are always made in the same place: a case for each is missing"


def test_slices_of_many_rows_follow_each_other_in_a_block():
    """Split-K where all slices run at once; else a block has them one behind the other, in a large tile if rows are
    many."""
    taken = set()
    for m, n, slices in itertools.product((16, 128, 1024, 4096, 8192), (576, 1024, 2048), (2, 3, 4)):
        (_, config), *_ = shortlist(Workload(m, n, 112, 1, 2, False, slices))
        assert config.splits * config.slices == slices
        if config.slices > 1:
            assert m < 4096 or config.tile[0] * config.tile[1] >= 128 * 112, (m, n, slices, config)
        else:
            tiles = math.prod(config.tiles(m, n)) * config.peers
            assert tiles * slices <= SMS, (m, n, slices, config)
        taken.add(config.slices > 1)
    assert taken == {False, True}


TYPES = {"float16": {}, "float8_e4m3fn": {"out_dtype": "float32"}, "float32": {}, "float32, fast": {}}


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("name", "n", "k"),
    [
        pytest.param(name, *((24, 840), (300, 72))[i % 2], marks=() if name == "float32, fast" else pytest.mark.slow)
        for i, name in enumerate(TYPES)
    ],
)
def test_the_same_bits(name, n, k):
    """K whole, and in slices. Each instruction of the tensor cores has one product that is not 0: within one, the order
    of additions is not specified, and the emulator's depends on the columns of a tile."""
    dtype, _, fast = name.partition(", ")
    options = {"batch_invariant": True, "fast_accumulation": bool(fast), "out_dtype": "float32"}
    random = np.random.default_rng(3)
    a, b = (random.standard_normal(shape).astype(np.float32) for shape in ((140, k), (k, n)))
    a[:, np.arange(k) % (32 // element_type(dtype).size) > 0] = 0
    a, b = (x.astype(element_type(dtype).numpy) for x in (a, b))
    many = cs.matmul(a, b, **options)
    for rows in (1, 20, 65):
        assert np.array_equal(cs.matmul(a[:rows], b, **options), many[:rows]), rows


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        MatmulPolicy((64, 64), "pingpong", (2, 1), stages=3),
        MatmulPolicy((128, 64), "cooperative", (1, 2), stages=2),
        MatmulPolicy((128, 88), "cooperative", (1, 4), stages=4),
    ],
    ids=lambda config: f"{config.tile} {config.cluster}",
)
def test_slices_of_one_block_have_the_bits_of_slices_of_several(config):
    """One behind the other, of blocks of a cluster, and of blocks that share nothing."""
    random, out = np.random.default_rng(5), "float16" if config.odd else "float32"
    a, b = (random.standard_normal(shape).astype(np.float16) for shape in ((150, 1000), (72, 1000)))
    cuts = ((config.cluster, {"slices": 3}), (config.cluster, {"splits": 3}), ((1, 1), {"splits": 3}))
    ways = (replace(config, cluster=of, swap_ab=False, **cut) for of, cut in cuts)
    one, *several = (cs.matmul(a, b.T, out_dtype=out, config=way) for way in ways)
    assert all(np.array_equal(one, other) for other in several)


def test_a_given_configuration_keeps_the_slices_of_k():
    a, b = dry((8, 5840), "float16"), dry((5840, 32), "float16", base=2 << 40)
    out = dry((8, 32), "float16", base=3 << 40)
    kernels = [
        needed(cs.matmul, a, b, out=out, batch_invariant=True, config=MatmulPolicy((64, 64), "pingpong", **cut))
        for cut in ({}, {"splits": 3}, {"slices": 2}, {"slices": 3})
    ]
    assert len({spec.key for found in kernels[:2] for spec in found}) == 1
    assert len({spec.key for found in kernels[2:] for spec in found}) == 1


def test_tiles_that_slices_of_k_refuse():
    a, b = np.ones((8, 5840), np.float16), np.ones((5840, 32), np.float16)
    with pytest.raises(cs.errors.ArgumentValueError, match=r"batch_invariant, which cuts this K in \d slices"):
        cs.matmul(a, b, batch_invariant=True, config=MatmulPolicy((256, 144)))
