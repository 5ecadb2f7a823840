"""Policies refuse nonsense and fit into shared memory; the model and the order of tiles do what they say."""

import math
from dataclasses import replace

import numpy as np
import pytest

import cutesync as cs
from cutesync.errors import ArgumentValueError
from cutesync.kernels.hardware import SMS
from cutesync.kernels.matmul.candidates import CANDIDATES, OWN, PROMOTED, PROMOTED_OWN, rarity
from cutesync.kernels.matmul.coefficients import COEFFICIENTS
from cutesync.kernels.matmul.correction import FEATURES, TREES, UNIT, factor, features
from cutesync.kernels.matmul.model import (
    LESS_RARE,
    LESS_RARE_IN_BATCHES,
    RARE_BY_THREADS,
    RARE_COSTS,
    RARER,
    SHORT_K_TILES,
    coefficients_of,
    copy_cost,
    corrected,
    cost,
    fixed,
    preferred,
    raster,
    table,
)
from cutesync.kernels.matmul.policy import MAX_SPLIT_ACCUMULATORS, SMEM_BYTES, MatmulPolicy
from cutesync.kernels.matmul.workload import Access, Workload

from ..compiled import dry, needed
from .kernels_order import tiles_in_order
from .support import choose


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tile": (192, 104), "schedule": "cooperative"}, "twice that"),
        ({"tile": (128, 100)}, "N of 8"),
        ({"tile": (512, 64)}, "up to 256"),
        ({"schedule": "round"}, "'pingpong'"),
        ({"tile": (256, 224)}, "accumulators"),
        ({"cluster": (3, 1)}, "(4, 1)"),
        ({"splits": 0}, "1 to 64"),
        ({"tile": (256, 192), "splits": 2}, "at most 128"),
        ({"stages": 1}, "2 stages"),
        ({"group": -1}, "group"),
    ],
)
def test_configs_that_cannot_be(change, words):
    with pytest.raises(ArgumentValueError) as refused:
        MatmulPolicy(**change)
    assert words in str(refused.value)


@pytest.mark.parametrize("out_bytes", [2, 4])
def test_all_configs_fit(out_bytes):
    for config in CANDIDATES:
        if config.odd and out_bytes != 2:
            with pytest.raises(ArgumentValueError, match="multiple of 16"):
                config.decided(out_bytes)
            continue
        full = config.decided(out_bytes)
        assert full.stages >= 3 and full.smem(out_bytes) <= SMEM_BYTES
        columns = config.sub_tile_columns(out_bytes)
        assert config.columns % columns == 0
        assert columns % 16 == 8 if config.odd else columns * out_bytes in (32, 64, 128)
        with pytest.raises(ArgumentValueError, match="at most"):
            MatmulPolicy(config.tile, config.schedule, config.cluster, stages=40).decided(out_bytes)


def test_more_columns_are_stored_at_a_time_where_the_result_allows_it():
    for config in CANDIDATES:
        full = config.decided(2, wide=True)
        assert full.stages >= 3 and full.smem(2) <= SMEM_BYTES and full.wide
        assert config.decided(2).stages - full.stages <= 1
        assert full.columns % full.sub_tile_columns(2) == 0
    of = {n: MatmulPolicy((128, n)).decided(2, wide=True).sub_tile_columns(2) for n in (48, 72, 80, 96, 144, 160, 176)}
    assert of == {48: 16, 72: 72, 80: 40, 96: 32, 144: 72, 160: 32, 176: 88}
    low = {n: MatmulPolicy((64, n)).decided(2, wide=True).sub_tile_columns(2) for n in (32, 80, 160, 192, 256)}
    assert low == {32: 16, 80: 40, 160: 80, 192: 96, 256: 64}  # a warpgroup has half of them
    low = {
        n: MatmulPolicy((64, n), "pingpong").decided(2, wide=True).sub_tile_columns(2) for n in (32, 48, 120, 160, 192)
    }
    assert low == {32: 32, 48: 48, 120: 120, 160: 160, 192: 64}
    split = [MatmulPolicy((128, n), splits=4).decided(2, wide=True).sub_tile_columns(2) for n in (72, 80)]
    assert split == [24, 16]  # equally many for each block of the cluster
    assert MatmulPolicy((128, 80), wide=False).decided(2, wide=True).sub_tile_columns(2) == 16


@pytest.mark.parametrize(
    ("config", "out_bytes", "may"),
    [
        (MatmulPolicy((128, 256)), 2, True),
        (MatmulPolicy((128, 256)), 4, False),
        (MatmulPolicy((128, 128)), 4, True),
        (MatmulPolicy((128, 128)), 1, False),
        (MatmulPolicy((256, 160)), 2, False),
        (MatmulPolicy((128, 128), "pingpong"), 2, False),
        (MatmulPolicy((128, 128), splits=2), 2, False),
        (MatmulPolicy((128, 128), promoted=True), 2, True),
        (MatmulPolicy((128, 160), promoted=True), 2, False),
        (MatmulPolicy((128, 192), promoted=True), 2, False),
    ],
)
def test_the_epilogue_is_deferred_where_registers_and_tiles_are_enough(config, out_bytes, may):
    assert config.decided(out_bytes, True).deferred is may and config.decided(out_bytes, False).deferred is False
    assert replace(config, deferred=False).decided(out_bytes, True).deferred is False
    if may:
        assert replace(config, deferred=True).decided(out_bytes, False).deferred is True
    else:
        with pytest.raises(ArgumentValueError, match=r"config\.deferred"):
            replace(config, deferred=True).decided(out_bytes)


@pytest.mark.parametrize("out_bytes", [1, 2, 4])
def test_few_splits_go_through_a_cluster(out_bytes):
    """Each block of a cluster split has room for what it receives: the others' partial sums of its sub-tiles. No block
    has many more sub-tiles than it must."""
    forms = [
        replace(config, splits=splits)
        for config in CANDIDATES
        for splits in range(1, 13)
        if splits == 1 or config.accumulators <= MAX_SPLIT_ACCUMULATORS
        if not config.odd or (out_bytes == 2 and splits == config.splits)
    ]
    for config in forms:
        splits, full = config.splits, config.decided(out_bytes)
        assert config.cluster_split is (1 < splits <= 8 // config.peers)
        assert config.cluster_size == config.peers * (splits if config.cluster_split else 1) <= 8
        assert full.stages >= 3 and full.smem(out_bytes) <= SMEM_BYTES
        columns = config.sub_tile_columns(out_bytes)
        assert config.columns % columns == 0 and (columns % 16 == 0 or config.odd)
        if not config.cluster_split:
            continue
        sub_tiles = config.rows // 64 * config.columns // columns
        mine = config.sub_tiles_of_block(out_bytes)
        assert mine * splits >= sub_tiles > (mine - 1) * splits
        assert config.odd or columns == 16 or columns % 32 or mine * splits < 2 * sub_tiles
        received = 4 * 64 * columns * mine * (splits - 1) * config.warpgroups_per_tile
        assert received == config.exchange_bytes(out_bytes)
        room = (
            full.stages * full.stage_bytes()
            if config.exchange_in_stages(out_bytes)
            else config.exchange_beside(out_bytes)
        )
        assert received <= room
    with pytest.raises(ArgumentValueError, match="hold the partial sums"):
        MatmulPolicy((128, 256), stages=2, splits=8).decided(out_bytes)


def test_the_model_prefers_full_waves():
    assert choose(8192, 8192, 128, 1, 2).accumulators >= 128
    assert math.prod(choose(256, 256, 64, 1, 2).tile) <= 64 * 128
    assert choose(256, 256, 1024, 1, 2).splits > 4 and choose(256, 256, 1024, 1, 2, slices=1).splits == 1
    for m, n, k_tiles in (
        (1, 1, 1),
        (1, 8192, 128),
        (8192, 1, 128),
        (4096, 4096, 1),
        (10**6, 64, 4),
        (64, 10**6, 4),
        (100000, 100000, 1000),
    ):
        assert choose(m, n, k_tiles, 1, 2) in CANDIDATES


def test_the_correction_adds_up_the_leaves_that_the_answers_lead_to():
    load = Workload(300, 500, 70, 1, 2)
    of = table(CANDIDATES, SMS)
    clocks, known = cost(of, load, COEFFICIENTS), fixed(of, load, COEFFICIENTS)
    numbers, found = features(of, load, clocks, known), factor(of, load, clocks, known)
    assert numbers.shape == (len(FEATURES), len(CANDIDATES)) and np.isfinite(numbers).all()
    for i, value in enumerate(found):
        log = 0
        for questions, limits, leaves in TREES:
            answers = [numbers[q, i] > np.float32(limit) for q, limit in zip(questions, limits)]
            log += leaves[sum(yes << level for level, yes in enumerate(answers))]
        assert math.isclose(value, math.exp(log / UNIT), rel_tol=1e-5)
    assert np.isfinite(features(of, load._replace(k_tiles=0), clocks, known)).all(), "no K"
    for some in (load, Workload(8192, 8192, 128, 1, 2), load._replace(copies=1, copied=10**6)):
        known = fixed(of, some, coefficients_of(some))
        clocks = cost(of, some, coefficients_of(some))
        expected = clocks * factor(of, some, clocks, known) + copy_cost(some.copies, some.copied)
        assert np.array_equal(corrected(of, some), expected), some


def test_rarity_is_that_of_the_kernel():
    """All policies of a kernel cost the same."""
    for config in CANDIDATES + PROMOTED:
        assert 0 <= rarity(config) < len(RARE_COSTS)
        assert rarity(replace(config, swap_ab=True)) == rarity(config)
    assert {rarity(config) for config in CANDIDATES} == set(range(len(RARE_COSTS)))
    assert not any(rarity(config) for config in OWN + PROMOTED_OWN)
    assert np.array_equal(table(CANDIDATES, SMS).rare, [RARE_COSTS[rarity(config)] for config in CANDIDATES])


def test_what_is_rare_where_threads_load_or_store():
    """Marks of their own: for operands that TMA takes, for one that threads load, and for both."""
    packed, owned, promoted = (table(configs, SMS) for configs in (CANDIDATES, OWN, PROMOTED + PROMOTED_OWN))
    assert set(packed.rare_by_threads) == set(owned.rare_by_threads) == {0, RARE_BY_THREADS}
    assert set(owned.rare_one_own) <= {0, RARE_BY_THREADS}
    assert not promoted.rare_by_threads.any() and not promoted.rare_one_own.any()
    load = Workload(512, 512, 16, 1, 2)
    costs = {
        "TMA": (packed, load, packed.rare),
        "stores": (packed, load._replace(by_tma=False), packed.rare_by_threads),
        "one operand": (owned, load._replace(access=Access(own_a=20)), owned.rare_one_own),
        "both": (owned, load._replace(access=Access(own_a=20, own_b=20)), owned.rare_by_threads),
        "slices": (packed, load._replace(by_tma=False, slices=2), RARER * packed.rare),
        "activation": (packed, load._replace(activation=True), RARER * packed.rare),
        "batches": (packed, load._replace(batch=2), LESS_RARE_IN_BATCHES * packed.rare),
        "batches stored by threads": (packed, load._replace(batch=2, by_tma=False), packed.rare_by_threads),
    }
    for name, (of, one, rare) in costs.items():
        assert np.array_equal(preferred(of, one), 1 + rare), name
    short = load._replace(by_tma=False, k_tiles=SHORT_K_TILES)
    assert np.array_equal(preferred(packed, short), 1 + LESS_RARE * packed.rare_by_threads)


def test_products_that_share_a_kernel():
    """Rows of words and of pairs of them; where threads load, results that TMA could store and others; one tile a block
    and several, but with an activation, which takes longer where the only tile of a block is deferred."""

    def kernel(m: int, n: int, k: int, config: MatmulPolicy, offset: int = 0, **more) -> tuple:
        places = (((m, k), 0), ((k, n), 0), ((m, n), offset))
        a, b, out = (dry(shape, "float16", at, i << 40) for i, (shape, at) in enumerate(places, 1))
        (spec,) = needed(cs.matmul, a, b, out=out, config=config, **more)
        return spec.key

    own = MatmulPolicy((64, 64), "pingpong", load_a="own", load_b="tma", swap_ab=False)
    assert kernel(70, 72, 100, own) == kernel(70, 72, 98, own) == kernel(70, 72, 100, own, 2)
    assert kernel(70, 72, 97, own) != kernel(70, 72, 98, own), "lines that begin anywhere"
    several = MatmulPolicy((128, 64), "cooperative", swap_ab=False)
    one, many = (128, 64, 64), (128 * 20, 64 * 20, 64)
    assert kernel(*one, several) == kernel(*many, several)
    assert kernel(*one, several, activation="gelu") != kernel(*many, several, activation="gelu")


def order(tiles_m: int, tiles_n: int, batch: int, cluster, along_n: bool, group: int):
    """What ``TileOrder`` says, in Python: the same arithmetic on plain integers."""
    clusters_m, clusters_n = -(-tiles_m // cluster[0]), -(-tiles_n // cluster[1])
    side, length = (clusters_m, clusters_n) if along_n else (clusters_n, clusters_m)
    for unit in range(clusters_m * clusters_n * batch):
        item, within = divmod(unit, side * length)
        band, place = divmod(within, group * length)
        width = min(group, side - band * group)
        step, across = divmod(place, width)
        step = length - 1 - step if band % 2 else step
        yield item, *((band * group + across, step) if along_n else (step, band * group + across))


@pytest.mark.parametrize(
    ("tiles", "cluster", "group"),
    [((5, 7), (1, 1), 2), ((5, 7), (2, 1), 3), ((1, 9), (1, 2), 1), ((8, 3), (2, 1), 4), ((6, 6), (1, 1), 6)],
)
@pytest.mark.parametrize("along_n", [False, True])
def test_the_device_counts_through_all_tiles_once(tiles, cluster, group, along_n, on_emulator):
    """The order of tiles as the device computes it: every cluster tile once, neighbours one after the other."""
    found = tiles_in_order(*tiles, 2, cluster, along_n, group)
    wanted = np.array(
        [(m * cluster[0], n * cluster[1], item) for item, m, n in order(*tiles, 2, cluster, along_n, group)]
    )
    assert np.array_equal(found, wanted)
    places = {tuple(row) for row in found}
    assert (
        len(places)
        == len(found)
        == math.prod(MatmulPolicy((64, 64), "pingpong", cluster).tiles(tiles[0] * 64, tiles[1] * 64)) * 2
    )
    half = found[: len(found) // 2, :2] // np.array(cluster)
    steps = np.abs(np.diff(half, axis=0)).max(axis=1)
    assert (steps <= max(group, 1)).all(), "a jump longer than a band is wide"


def test_the_patch_in_flight_is_square():
    along_n, group = raster(MatmulPolicy((128, 256), "cooperative", (2, 1)), 8192, 8192)
    high, wide = group * 256, 66 / group * 256
    assert 0.5 <= high / wide <= 2 and isinstance(along_n, bool)
    assert raster(MatmulPolicy(), 128, 10**6) == (True, 1)
    assert raster(MatmulPolicy(group=3), 8192, 8192)[1] == 3


def test_the_multiprocessors_are_those_of_an_h200():
    assert SMS == 132


def test_integers_have_the_columns_that_their_instruction_has():
    """``wgmma`` of 8-bit integers has 8, 16, 24 or 32 columns, or a multiple of 16."""
    random = np.random.default_rng(0)
    for out in ("int8", "float16", "float32") * 50:
        m, n, k = (int(2 ** (random.random() * 11)) for _ in range(3))
        operands = dry((m, k), "int8"), dry((n, k), "uint8", base=2 << 40).T
        for spec in needed(cs.matmul, *operands, out_dtype=out):
            if spec.key[0] == "matmul":
                rows, columns = spec.key[1]
                columns //= 2 if spec.key[2] == "cooperative" and rows % 128 else 1
                assert columns in (8, 24) or columns % 16 == 0, spec.label
