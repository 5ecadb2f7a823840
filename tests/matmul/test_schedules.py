"""Every schedule, cluster and layout of the matmul agrees with NumPy under hostile warp schedules, the sanitizer
watching."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.matmul.policy import MatmulPolicy

from ..cases import SCHEDULES, with_slow
from .support import QUICK, agrees_under_schedules, few_blocks, integers, multiplied, operand

pytestmark = pytest.mark.usefixtures("on_emulator")  # no GPU here, whatever the machine has

# name: configuration, (M, N, K), blocks that run at a time
KERNELS = {
    "pingpong, one block": (MatmulPolicy((64, 64), "pingpong"), (150, 136, 136), 1),
    "pingpong, blocks of 128 rows": (MatmulPolicy((128, 64), "pingpong", stages=2), (200, 72, 200), 1),
    "cooperative, blocks of 256 rows": (MatmulPolicy((256, 64), "cooperative", stages=3), (300, 72, 72), 1),
    "deferred, fewer k-tiles than sub-tiles": (MatmulPolicy((256, 128), "cooperative", stages=2), (300, 136, 40), 1),
    "deferred, clusters at two edges": (
        MatmulPolicy((128, 128), "cooperative", (1, 2), stages=2),
        (130, 300, 200),
        2,
    ),
    "cooperative, not deferred": (MatmulPolicy((128, 64), "cooperative", stages=2, deferred=False), (200, 72, 136), 1),
    "cooperative, A multicast": (MatmulPolicy((128, 64), "cooperative", (1, 2), stages=2), (136, 200, 136), 2),
    "pingpong, B multicast to 4": (MatmulPolicy((64, 96), "pingpong", (4, 1), stages=2), (300, 104, 136), 4),
    "pingpong, B in turns": (MatmulPolicy((64, 16), "pingpong", (4, 1), stages=3), (300, 24, 264), 4),
    "pingpong, B in turns, A multicast": (MatmulPolicy((64, 48), "pingpong", (4, 2), stages=2), (300, 100, 136), 8),
    "cooperative, columns shared": (MatmulPolicy((64, 64), "cooperative", stages=2), (130, 72, 136), 1),
    "cooperative, columns shared, deferred": (MatmulPolicy((192, 64), "cooperative", (1, 2)), (200, 136, 136), 2),
    "cluster split in 4, two warpgroups": (
        MatmulPolicy((128, 32), "cooperative", stages=2, splits=4),
        (130, 40, 264),
        8,
    ),
    "cluster split in 3, multicast": (MatmulPolicy((64, 64), "pingpong", (2, 1), stages=2, splits=3), (72, 72, 264), 6),
    "cluster split in 4, multicast, in the stages": (
        MatmulPolicy((128, 128), "cooperative", (1, 2), stages=3, splits=4),
        (130, 264, 328),
        8,
    ),
    "split in 9, pingpong": (MatmulPolicy((64, 32), "pingpong", splits=9), (70, 40, 584), 5),
    "split in 5, multicast": (MatmulPolicy((128, 64), "cooperative", (2, 1), stages=2, splits=5), (200, 72, 584), 2),
    "split in 5, more units than blocks": (
        MatmulPolicy((128, 64), "cooperative", (1, 2), stages=2, splits=5),
        (130, 200, 584),
        2,
    ),
    "slices in one block, multicast": (
        MatmulPolicy((64, 64), "pingpong", (2, 1), stages=2, slices=3),
        (140, 72, 392),
        2,
    ),
    "cooperative, B multicast": (MatmulPolicy((128, 64), "cooperative", (2, 1), stages=2), (264, 72, 200), 2),
}


SLOW = {
    "pingpong, B in turns, A multicast",
    "cooperative, columns shared, deferred",
    "cluster split in 3, multicast",
    "deferred, fewer k-tiles than sub-tiles",
    "cooperative, not deferred",
    "split in 5, more units than blocks",
    "cluster split in 4, multicast, in the stages",
    "cooperative, B multicast",
    "pingpong, B multicast to 4",
    "deferred, clusters at two edges",
    "split in 5, multicast",
    "cluster split in 4, two warpgroups",
    "cooperative, A multicast",
    "cooperative, blocks of 256 rows",
    "split in 9, pingpong",
    "pingpong, blocks of 128 rows",
}


@pytest.mark.drawn(4)
@pytest.mark.parametrize("name", with_slow(KERNELS, SLOW))
def test_agrees_under_hostile_schedules(name, monkeypatch):
    """Tails in M, N and K; several tiles a block, so that the ring and the buffers go round."""
    agrees_under_schedules(monkeypatch, name, *KERNELS[name], SCHEDULES if name in SLOW else QUICK)


EXCHANGES = {
    "cluster split": MatmulPolicy((64, 64), "pingpong", splits=4),
    "cluster split, two warpgroups": MatmulPolicy((128, 32), "cooperative", splits=2),
    "deferred": MatmulPolicy((128, 64), "cooperative"),
    "not deferred": MatmulPolicy((128, 64), "cooperative", deferred=False),
}


WIDTHS = [
    ("float16", "float16"),
    ("float16", "float32"),
    ("bfloat16", "float8_e4m3fn"),
    ("float8_e4m3fn", "bfloat16"),
    ("int8", "int32"),
    ("int8", "uint8"),
    ("float32", "float32"),
]


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    "dtype, out, name",
    [
        pytest.param(*types, name, marks=[] if (i + j) % 6 == 0 and i in (1, 3, 5) else [pytest.mark.slow])
        for i, types in enumerate(WIDTHS)
        for j, name in enumerate(EXCHANGES)
        if (i + j) % 2 == 0 and (i < 5 or j < 2) and (i + j) % 6 in (0, 2)
    ],
)
def test_every_width_of_elements_and_results(dtype, out, name, monkeypatch):
    """Accumulators of both types, results of 1, 2 and 4 bytes, a batch, ends beside every tile."""
    few_blocks(monkeypatch, 2)
    multiplied(
        integers(2, 129, 264, dtype=dtype),
        integers(2, 264, 65, dtype=dtype, seed=1),
        out_dtype=out,
        config=EXCHANGES[name],
    )


@pytest.mark.drawn(2)
@pytest.mark.parametrize("name", with_slow(EXCHANGES, set(list(EXCHANGES)[1:])))
@pytest.mark.parametrize("columns", [65, 72], ids=["stored by threads", "stored by TMA"])
def test_c_may_be_the_result(name, columns, monkeypatch):
    """Each element of C is read before its place is written, also where a tile is stored late (deferred epilogue) or by
    another block (split-K)."""
    few_blocks(monkeypatch, 2)
    a, b, c = operand(129, 264, False), operand(264, columns, True), integers(129, columns, seed=2)
    wanted, place = cs.reference.matmul(a, b, c, beta=2.0), cs.asarray(c)  # of NumPy's arrays each one would be copied
    cs.matmul(cs.asarray(a), cs.asarray(b), place, beta=2.0, out=place, config=EXCHANGES[name])
    assert np.array_equal(np.asarray(place), wanted)


def test_slices_that_lie_outside_k():
    """K of one k-tile, cut in 4: three of the cluster's blocks bring zeros."""
    multiplied(operand(70, 40, False), operand(40, 72, False), config=MatmulPolicy((64, 64), "pingpong", splits=4))


LAYOUTS, CLUSTERS = ("NN", "TN", "NT", "TT"), ((1, 1), (2, 1), (1, 2), (2, 1))


@pytest.mark.drawn(2)
@pytest.mark.parametrize(("layout", "cluster"), list(zip(LAYOUTS, CLUSTERS)))
def test_all_transposes(layout, cluster, monkeypatch):
    few_blocks(monkeypatch, 2)
    multiplied(
        operand(136, 72, layout[0] == "T"),
        operand(72, 200, layout[1] == "T"),
        config=MatmulPolicy((128, 64), "cooperative", cluster),
    )


@pytest.mark.parametrize(
    ("out", "rows", "columns", "beside"),
    [
        ("float16", 64, 80, 8),
        *(
            pytest.param(*of, marks=pytest.mark.slow)
            for of in (
                ("float16", 64, 96, 7),
                ("float16", 64, 128, 8),
                ("float16", 64, 48, 8),
                ("float16", 128, 80, 8),
                ("float16", 128, 144, 7),
                ("float32", 64, 96, 8),
            )
        ),
    ],
)
def test_narrow_sub_tiles(rows, columns, out, beside):
    """The columns of a sub-tile follow from the tile's: 32 or 64 of 16 bits, half or all, in one buffer if there are
    many, 16 or 32 of 32 bits; the B tile's swizzle from its rows. Also stored by threads."""
    multiplied(
        operand(70, 72, False),
        operand(72, columns + beside, False),
        config=MatmulPolicy((rows, columns), "pingpong"),
        out_dtype=out,
    )


def test_the_workspace_of_split_k_serves_many_calls():
    """Counters are left at zero, old partial sums are not trusted; different sizes take turns."""
    chosen = MatmulPolicy((64, 64), "pingpong", (1, 2), splits=5)
    for rows in (70, 30, 70):
        multiplied(operand(rows, 264, False, seed=rows), operand(264, 136, True), config=chosen)


def test_the_same_bits_under_every_policy():
    """Random floats: the order of additions does not depend on the schedule. ``emulate`` refuses runs that differ."""
    random = np.random.default_rng(3)
    a, b = random.standard_normal((40, 200)).astype(np.float16), random.standard_normal((200, 72)).astype(np.float16)
    with cs.emulate(schedules=9, seed=1):
        got = cs.matmul(a, b, out_dtype="float32", config=MatmulPolicy((64, 64), "pingpong", (2, 1), splits=2))
    np.testing.assert_allclose(got, cs.reference.matmul(a, b, out_dtype="float32"), rtol=0, atol=200 * 2**-20)


def test_a_batch_goes_round_the_ring(monkeypatch):
    few_blocks(monkeypatch, 2)
    with cs.emulate(schedules=3, seed=2):
        multiplied(integers(3, 70, 72), integers(3, 72, 72), config=MatmulPolicy((64, 64), "pingpong", (2, 1)))
