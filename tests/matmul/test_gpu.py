"""What only a GPU can show of cs.matmul: every configuration at size, guard bands, repeats, graphs, streams, and more
than 2**31 elements."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import cutesync as cs
from cutesync.errors import ArgumentValueError
from cutesync.kernels.matmul.candidates import CANDIDATES, OWN
from cutesync.kernels.matmul.policy import MAX_SPLIT_ACCUMULATORS, MatmulPolicy

from ..concurrency import in_threads
from ..libraries import MAKERS, RESULTS, host

pytestmark = pytest.mark.gpu

torch = pytest.importorskip("torch")

EVERY = CANDIDATES
FEW = [
    MatmulPolicy((128, 256), "cooperative", (2, 1)),
    MatmulPolicy((128, 192), "pingpong", (2, 1)),
    MatmulPolicy((64, 64), "pingpong", (1, 2)),
    MatmulPolicy((128, 128), "cooperative", splits=3),
    MatmulPolicy((64, 64), "pingpong", splits=4),
    MatmulPolicy((128, 32), "cooperative", splits=8),
    MatmulPolicy((128, 256), "cooperative", splits=3),
    MatmulPolicy((128, 128), "cooperative", (2, 1), splits=4),
    MatmulPolicy((64, 128), "pingpong", (4, 1), splits=2),
]
RAGGED = [(1, 1, 1), (129, 257, 65), (1000, 1000, 1000), (777, 3336, 1224), (5000, 136, 8), (136, 2000, 4096)]


LAYOUTS = [(False, False), (True, False), (False, True), (True, True)]


def label(one: MatmulPolicy) -> str:
    return f"{one.tile[0]}x{one.tile[1]}-{one.schedule[:4]}-{one.cluster[0]}{one.cluster[1]}-s{one.splits}"


def integers(*shape: int, dtype="float16", transposed: bool = False):
    """Small integers, whose products are exact in every type and order: any difference is a fault."""
    shape = (*shape[:-2], shape[-1], shape[-2]) if transposed else shape
    made = torch.randint(-3, 4, shape, device="cuda").to(getattr(torch, dtype))
    return made.mT if transposed else made


def agrees(got, a, b, what="") -> None:
    wanted = torch.matmul(a.double(), b.double()).to(got.dtype)
    assert got.shape == wanted.shape and torch.equal(got, wanted), what


@pytest.mark.parametrize("chosen", EVERY, ids=label)
def test_every_configuration_is_exact(chosen):
    for m, n, k in RAGGED:
        a, b = integers(m, k), integers(n, k).T
        agrees(cs.matmul(a, b, config=chosen), a, b, (m, n, k))


@pytest.mark.parametrize(
    ("dtype", "transposed"),
    [("float16", layout) for layout in LAYOUTS] + [("bfloat16", (False, True))],
)
def test_majors_odd_shapes_and_batches(dtype, transposed):
    shapes = [(1000, 1032, 328), (257, 136, 1000), (1023, 517, 259), (33, 1, 77)]
    for chosen, ((m, n, k), batch) in product(FEW, zip(shapes, [(), (), (3,), ()])):
        a = integers(*batch, m, k, dtype=dtype, transposed=transposed[0])
        b = integers(*batch, k, n, dtype=dtype, transposed=transposed[1])
        agrees(cs.matmul(a, b, config=chosen, out_dtype="float32"), a, b, (chosen, m, n, k, batch))


@pytest.mark.parametrize(
    ("dtype", "transposed"),
    [
        (dtype, layout)
        for dtype, layouts in (
            ("float16", LAYOUTS),
            ("bfloat16", LAYOUTS[1:2]),
            ("int8", LAYOUTS[:2]),
            ("float32", LAYOUTS[2:]),
        )
        for layout in layouts
    ],
)
def test_own_loads(dtype, transposed):
    """Odd strides and bases, of one operand or both; every form that the model chooses among."""
    options = {"int8": {"out_dtype": "int32"}, "float32": {"precision": "tf32"}}.get(dtype, {"out_dtype": "float32"})
    shapes = [(1001, 777, 131), (257, 33, 1001), (5695, 333, 39), (33, 1, 77)]
    for chosen, ((m, n, k), batch) in product(OWN, zip(shapes, [(), (3,), (), (3,)])):
        a, b = (integers(*batch, *of, dtype=dtype, transposed=t) for of, t in zip(((m, k), (k, n)), transposed))
        ways = ("tma", "own"), ("own", "tma"), ("own", "own")
        for load_a, load_b in ways if chosen is OWN[0] else ways[2:]:
            config = replace(chosen, load_a=load_a, load_b=load_b)
            agrees(cs.matmul(a, b, config=config, **options), a, b, (config, m, n, k, batch))
    a, b = integers(1000, 264, dtype=dtype)[1:, 3:], integers(270, 300, dtype=dtype)[3:264, 5:]
    agrees(cs.matmul(a, b, config=replace(OWN[3], load_a="own", load_b="own"), **options), a, b, "views")


EXACT = [
    ("float32", "float32", "float32", {}),
    ("float32", "float32", "float16", {"fast_accumulation": True}),
    ("float32", "float32", "float32", {"precision": "tf32"}),
    ("float8_e4m3fn", "float8_e4m3fn", "float32", {}),
    ("float8_e4m3fn", "float8_e5m2", "bfloat16", {"fast_accumulation": True}),
    ("float16", "float16", "float8_e4m3fn", {}),
    ("int8", "int8", "int32", {}),
    ("uint8", "int8", "int8", {}),
    ("int8", "int8", "float32", {}),
]


@pytest.mark.parametrize("transposed", LAYOUTS[:3:2], ids=["NN", "NT"])
@pytest.mark.parametrize(
    ("first", "second", "out", "options"), EXACT, ids=lambda v: "-".join(v) if isinstance(v, dict) else v
)
def test_types(first, second, out, options, transposed):
    """Results of 8 bits saturate."""
    for m, n, k in [(256, 384, 512), (130, 200, 264), (257, 65, 101), (1, 640, 300), (700, 3, 128)]:
        a, b = (integers(*shape, dtype="float32", transposed=t) for shape, t in zip(((m, k), (k, n)), transposed))
        a, b = (value.abs() if name == "uint8" else value for value, name in ((a, first), (b, second)))
        got = cs.matmul(a.to(getattr(torch, first)), b.to(getattr(torch, second)), out_dtype=out, **options)
        limits = {"float8_e4m3fn": (-448, 448), "int8": (-128, 127)}.get(out, (-1e9, 1e9))
        wanted = torch.matmul(a.double(), b.double()).clamp(*limits).to(got.dtype)
        assert got.dtype == getattr(torch, out) and torch.equal(got.double(), wanted.double()), (m, n, k)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float32"])
def test_batch_invariant_rows_have_the_same_bits(dtype):
    """Random N and K, M from 1 to 4096; and every configuration of 16 bits, for one of them each."""
    random = np.random.default_rng(11)

    def drawn(*shape: int):
        return torch.randn(*shape, device="cuda").to(getattr(torch, dtype))

    for turn in range(4):
        n, k = (int(2 ** random.uniform(5, 12)) // 16 * 16 for _ in "nk")
        a, b = drawn(4096, k), drawn(n, k).T
        options = {"batch_invariant": True, "out_dtype": "float32"}
        many = cs.matmul(a, b, **options)
        for rows in (1, 3, 16, 64, 65, 200, 512, 1000, 2048):
            assert torch.equal(cs.matmul(a[:rows], b, **options), many[:rows]), (n, k, rows)
        for chosen in [one for one in EVERY if not one.odd][turn::4] if dtype == "bfloat16" else ():
            try:
                found = cs.matmul(a[:300], b, config=chosen, **options)
            except ArgumentValueError as error:  # K is in slices, whose tiles are smaller
                assert "batch_invariant" in str(error) and chosen.accumulators > MAX_SPLIT_ACCUMULATORS
                continue
            assert torch.equal(found, many[:300]), (n, k, chosen)


def test_float32_is_as_exact_as_float32():
    for k in (64, 1024, 8192):
        a, b = torch.randn(300, k, device="cuda"), torch.randn(k, 200, device="cuda")
        error = (cs.matmul(a, b).double() - a.double() @ b.double()).abs() / (a.double().abs() @ b.double().abs())
        assert error.max().item() < 2.0**-20, k


def test_tuning_measures_and_keeps_its_answer():
    a, b = integers(520, 264), integers(264, 392)
    for _ in range(2):
        agrees(cs.matmul(a, b, config="tune"), a, b)


def test_the_model_chooses_well_enough_to_be_right():
    for m, n, k in [
        (1, 4096, 4096),
        (16, 8192, 1024),
        (64, 64, 16384),
        (4096, 4096, 64),
        (2048, 2056, 520),
        (3000, 1, 3000),
        (4097, 1023, 511),
    ]:
        a, b = integers(m, k, dtype="bfloat16"), integers(n, k, dtype="bfloat16").T
        agrees(cs.matmul(a, b, out_dtype="float32"), a, b, (m, n, k))


@pytest.mark.parametrize("extra", [1, 8])
def test_padding_is_not_read_and_nothing_beside_the_result_is_written(extra):
    m, n, k = 1001, 777, 130

    def padded(rows, columns, fill, dtype="float16"):
        whole = torch.full((rows + 2, columns + 2 * extra), fill, device="cuda", dtype=getattr(torch, dtype))
        return whole, whole[1:-1, extra:-extra]

    (_, a), (_, b), (whole, out) = padded(m, k, float("nan")), padded(k, n, float("nan")), padded(m, n, 7.0, "float32")
    a.copy_(integers(m, k))
    b.copy_(integers(k, n))
    for chosen in (None, *FEW):
        cs.matmul(a, b, out=out, config=chosen)
        agrees(out, a, b, chosen)
        out.fill_(7.0)
        assert bool((whole == 7.0).all()), chosen


@pytest.mark.parametrize("chosen", FEW, ids=label)
def test_a_thousand_repeats_are_bitwise_equal(chosen):
    a, b = (
        torch.randn(1024, 2048, device="cuda", dtype=torch.bfloat16),
        torch.randn(1024, 2048, device="cuda", dtype=torch.bfloat16).T,
    )
    first, out = cs.matmul(a, b, out_dtype="float32", config=chosen), torch.empty(1024, 1024, device="cuda")
    different = torch.zeros((), device="cuda", dtype=torch.int64)
    for _ in range(1000):
        cs.matmul(a, b, out=out, config=chosen)
        different += (out != first).sum()
    assert different.item() == 0


@pytest.mark.parametrize("size", [8192, 16384])
def test_large_products_by_samples(size):
    """Random normal data; 256 elements summed in float64."""
    a, b = (
        torch.randn(size, size, device="cuda", dtype=torch.bfloat16),
        torch.randn(size, size, device="cuda", dtype=torch.bfloat16).T,
    )
    got = cs.matmul(a, b, out_dtype="float32")
    rows, columns = torch.randint(0, size, (2, 256), device="cuda")
    wanted = (a[rows].double() * b[:, columns].T.double()).sum(1)
    assert (got[rows, columns].double() - wanted).abs().max().item() < 1e-3 * size**0.5


@pytest.mark.slow
def test_more_than_2_to_the_31_elements():
    m, n, k = 65_600, 40_000, 24
    a, b = integers(m, k), integers(n, k).T
    got = cs.matmul(a, b)
    assert got.numel() > 1 << 31
    for rows in (slice(0, 300), slice(m // 2, m // 2 + 300), slice(m - 300, m)):
        agrees(got[rows], a[rows], b)


def test_a_graph_of_matmuls():
    a, b = integers(500, 264), integers(72, 264).T
    bias, out = integers(1, 72)[0], torch.empty(500, 72, device="cuda", dtype=torch.float16)
    for chosen in (
        None,
        MatmulPolicy((64, 64), "pingpong", splits=2),
        MatmulPolicy((64, 64), "pingpong", (1, 2), splits=2),
        MatmulPolicy((64, 64), "pingpong", (1, 2), splits=5),
    ):
        cs.matmul(a, b, bias=bias, activation="relu", out=out, config=chosen)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            cs.matmul(a, b, bias=bias, activation="relu", out=out, config=chosen)
        for _ in range(3):
            a.copy_(integers(500, 264))
            graph.replay()
            assert torch.equal(out, torch.relu(a.double() @ b.double() + bias.double()).to(out.dtype)), chosen


@pytest.mark.parametrize("chosen", FEW, ids=label)
def test_several_results(chosen):
    """A gate of another type, what was before it, and the largest magnitude, which is that of each call alone."""
    options = {"activation": lambda v, c: v * c, "out_dtype": ("float16", "float32"), "config": chosen}
    for m, n, k in RAGGED[1:]:
        a, b, gate = integers(m, k), integers(n, k).T, integers(m, n, dtype="int8")
        y, before, largest = cs.matmul(a, b, gate, pre_activation=True, amax=True, **options)
        wanted = a.double() @ b.double()
        assert torch.equal(before, wanted.float()), (m, n, k)
        assert torch.equal(y, (wanted * gate).half()) and largest == (wanted * gate).abs().max(), (m, n, k)


@pytest.mark.parametrize(("cluster", "splits"), [((1, 1), 4), ((1, 2), 4), ((1, 2), 5)])
def test_eight_streams(cluster, splits):
    """Split-K through a cluster, and through a workspace: one a stream."""
    chosen = MatmulPolicy((64, 64), "pingpong", cluster, splits=splits)

    def work(seed: int) -> bool:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            a, b = integers(300, 512), integers(200, 512).T
            right = [
                torch.equal(cs.matmul(a, b, out_dtype="float32", config=chosen), (a.double() @ b.double()).float())
                for _ in range(50)
            ]
            stream.synchronize()
        return all(right)

    assert all(in_threads(work, 8))


@pytest.mark.parametrize("library", ["cupy", "numpy", "own"])
def test_other_libraries(library):
    a, b = (
        np.random.default_rng(3).integers(-3, 4, (70, 90)).astype(np.float16),
        np.random.default_rng(4).integers(-3, 4, (90, 50)).astype(np.float16),
    )
    wanted = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)
    got = cs.matmul(MAKERS[library](a), MAKERS[library](b))
    assert type(got).__module__.partition(".")[0] == RESULTS.get(library, "cutesync")
    assert np.array_equal(host(got), wanted)
