"""The model of an H200 that chooses a policy: the clocks that a problem takes with each candidate.

The coefficients are fitted to times of random products on an H200 (see ``coefficients``). All candidates are computed
at a time: a ``Table`` has an array for each of their numbers.
"""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from .. import hardware
from . import candidates, policy
from .coefficients import COEFFICIENTS, SUSTAINED, Coefficients
from .correction import factor, of_problem
from .policy import K_TILE_BYTES, MAX_DEFERRED_REGISTERS, MAX_STAGES, MatmulPolicy
from .workload import Access, Each, Workload

TENSOR_RATE = 2048  # multiply-adds of 16 bits that an SM does a clock; rows of 128 bytes of narrower types take as long
LONG = 4e8  # results times k-tiles: a product of more, some 40 us, runs at the clock that the power limit leaves, but
# with a second set of accumulators, whose additions leave the tensor cores idle
L2_BYTES = 30e6  # operands of repeated products stay in the L2, at the fitted memory rate; larger ones do not
STREAM_RATE = 2400  # bytes a clock that memory gives to others, of the whole GPU (4.2 TB/s)
SPLIT_CLOCKS, SPLIT_RATE = 200, 16  # of a stage that is split into parts: clocks, and bytes a clock beside them
MOST_RANKINGS = 4096  # that are kept
BEST = 16  # policies of the least clocks that the correction chooses among
FEW_STAGES = 8  # more take time at the start
RARE_COSTS = 0.0, 0.04, 0.1  # what a policy must gain, by ``candidates.rarity``
RARE_BY_THREADS = 0.4  # those that are not ``candidates.usual_by_threads``, where threads load or store
LESS_RARE = 0.4  # of that for long products, whose clocks are more certain, and by threads for a short K,
SHORT_K_TILES = 2  # where others take little longer;
LESS_RARE_IN_BATCHES = 0.2  # of batches, which need few kernels anyway,
RARER = 1.6  # of those that need most: slices for any number of rows, activations, two sets of accumulators
MIN_K_TILES = 4  # of a slice of K: fewer are not worth a block of their own
IN_TURN_COST, SLICE_COST = 0.06, 0.02  # of slices of K that a block has one behind the other, and of each but the
# first: the pipeline runs dry between them


class Table(
    namedtuple(
        "Table",
        "tile_m tile_n peers_m peers_n splits cooperative cluster_split cluster_size stages loaded box odd_columns "
        "accumulators promoted stage_bytes exchange_bytes share room parts sure rows columns blocks places rare slices "
        "rare_by_threads rare_one_own",
    )
):
    """The numbers of some policies, an array each; first those that ``correction`` asks about. ``loaded`` are the rows
    that a block loads itself of those of its tile; ``box`` is how many boxes a row of B that is contiguous along N
    takes (as wide as the swizzle that divides the tile); ``room`` how many cluster tiles run at a time with K whole;
    ``share`` the part of a tile that a block stores; ``stages`` those of 16-bit results; ``rows`` and ``columns`` those
    of a cluster tile, and ``blocks`` its blocks, all slices of K included; ``places`` how many blocks run at a time,
    and ``sure`` how many do on every H200; ``rare`` what it must gain, ``rare_by_threads`` where threads load or
    store, but ``rare_one_own`` if they load one operand; ``slices`` those of K that a block has in turn;
    ``odd_columns`` those of a sub-tile if the tile is ``odd``, else 0. Sub-tiles are those that are not ``wide``, as in
    most times that the model is fitted to."""


def table(policies: Sequence[MatmulPolicy], multiprocessors: int) -> Table:
    """The numbers of these policies."""
    rows = [
        (
            *config.tile,
            *config.cluster,
            config.splits,
            config.schedule == "cooperative",
            config.cluster_split,
            config.cluster_size,
            config.stages or min(config.fitting_stages(2), MAX_STAGES),
            config.tile[0] / config.cluster[1] + config.tile[1] / config.cluster[0],
            128 // math.gcd(2 * config.columns, 128),
            config.sub_tile_columns(2) * config.odd,
            config.accumulators,
            config.promoted,
            config.stage_bytes(),
            config.exchange_bytes(2) if config.cluster_split else 0,
            config.stored_share(2),
            replace(config, splits=1).slots(multiprocessors),
            bool(config.parts),
            policy.SURE_SLOTS[config.cluster_size] * config.cluster_size,
            config.tile[0] * config.cluster[0],
            config.tile[1] * config.cluster[1],
            config.splits * config.peers,
            config.slots(multiprocessors) * config.cluster_size,
            RARE_COSTS[candidates.rarity(config)],
            config.slices,
            RARE_BY_THREADS * (not candidates.usual_by_threads(config, 2 * config.own)),
            RARE_BY_THREADS * (not candidates.usual_by_threads(config, 1)),
        )
        for config in policies
    ]
    return Table(*np.array(rows, np.float64).T)


Ranking = tuple[tuple[float, MatmulPolicy], ...]
_rankings: dict[tuple[Workload, int], Ranking] = {}


class Fixed(namedtuple("Fixed", "loaded compute store deferred hidden start")):
    """What of the cost does not depend on the extents, for each policy: bytes that a k-tile loads, in whole cache
    lines; clocks of a k-tile without its loads; of storing a tile; whether the epilogue may be deferred; whether the
    other warpgroup hides it; clocks before the first k-tile and after the last store."""


def fixed(of: Table, load: Any, by: Coefficients) -> Fixed:
    """``Fixed`` for a ``Workload``'s types and strides."""
    rate = np.where(load.by_tma, by.epilogue_rate, by.line_epilogue_rate)
    store = of.tile_m * of.tile_n * load.out_bytes / np.where(load.by_elements, by.direct_epilogue_rate, rate)
    columns = (of.tile_n / (1 + _across(of))).astype(int)
    columns = np.where(of.odd_columns > 0, of.odd_columns, np.gcd(columns, 128 // load.out_bytes))
    store = store + by.sub_tile * of.tile_m / 64 * of.tile_n / columns
    store = store + by.activation * load.activation * of.tile_m * of.tile_n
    partial = 4 * of.tile_m * of.tile_n * (1 + of.splits) / by.turnstile_rate
    exchange = np.where(of.cluster_split > 0, of.exchange_bytes / by.cluster_split_rate, by.turnstile + partial)
    store = store * of.share + np.where(of.splits > 1, exchange, 0.0)
    compute = np.maximum(_multiply(of, by), of.stage_bytes / by.arrival_rate)
    compute = compute + by.peer * (of.peers_m + of.peers_n - 2)
    own = load.access.own_a * of.tile_m + load.access.own_b * of.tile_n  # each of 128 threads has a vector of 16 rows
    compute = np.maximum(compute, np.where(own > 0, by.own_k_tile + by.own_instruction / 16 * own, 0.0))
    deferred = defers(of, load.out_bytes) & (own == 0)
    one_way = (of.peers_m == 1) | (of.peers_n == 1)
    start = by.start + by.cluster * (of.cluster_size > 1) + by.stage * one_way * np.maximum(of.stages - FEW_STAGES, 0)
    return Fixed(_loaded(of, load.access, by), compute, store, deferred, of.cooperative == 0, start)


def cost(of: Table, load: Any, by: Coefficients, known: Fixed | None = None) -> np.ndarray:
    """Clocks that a problem is expected to take with each policy: waves of tiles, each as slow as its slowest resource,
    but no faster than memory gives the operands. ``load`` is a ``Workload``, or one whose fields are arrays; ``known``
    is its ``fixed``."""
    known = known or fixed(of, load, by)
    k_tiles = np.ceil(load.k_tiles / of.splits)
    blocks = np.ceil(load.m / of.rows) * np.ceil(load.n / of.columns) * load.batch * of.blocks
    full, active = blocks / of.places, np.minimum(blocks, of.places)
    waves = np.ceil(full)
    deferred = known.deferred & (waves > 1)
    waves = waves - by.ragged * (waves - np.maximum(full, 1))
    loads = known.loaded * np.maximum(1 / by.l2_rate, active / by.l2_total_rate)
    mainloop = k_tiles * (np.maximum(known.compute, loads) + by.unhidden * loads)
    memory = load.moved / np.where(load.moved > L2_BYTES, min(by.dram_rate, STREAM_RATE), by.dram_rate)
    memory = memory * np.maximum(1 + by.few_blocks - (by.few_blocks / hardware.SMS) * active, 1)
    # while both warpgroups of a cooperative block store, its tensor cores idle
    between = np.where(deferred | known.hidden, np.maximum(known.store - mainloop, 0), known.store)
    between = between + np.where(deferred, by.deferred_tile, by.tile)
    work = waves * mainloop + (waves - 1) * between
    memory_bound = memory + (by.l2_share / by.dram_rate) * blocks * k_tiles * known.loaded
    found = np.maximum(work, memory_bound) + by.unhidden_memory * np.minimum(work, memory)
    crowded = active > of.sure
    return found + known.store + known.start + by.crowded * crowded * mainloop


def corrected(of: Table, load: Workload) -> np.ndarray:
    """The clocks with what times of random products say beyond them, and those of the copies before."""
    by = coefficients_of(load)
    known = fixed(of, load, by)
    clocks = cost(of, load, by, known)
    return clocks * factor(of, load, clocks, known) + copy_cost(load.copies, load.copied)


def preferred(of: Table, load: Any) -> np.ndarray:
    """What clocks are multiplied by where policies are compared."""
    by_threads = np.where(load.owned == 1, of.rare_one_own, of.rare_by_threads)
    rare = np.where(is_by_threads(load), by_threads, of.rare)
    return 1 + rare * paid(load) + IN_TURN_COST * (of.slices > 1) + SLICE_COST * (of.slices - 1)


def paid(load: Any) -> Any:
    """The part of what rare policies cost."""
    by_threads = is_by_threads(load)
    part = np.where(is_long(load) | (by_threads & (load.k_tiles <= SHORT_K_TILES)), LESS_RARE, 1)
    part = part * np.where(load.slices + load.activation + load.promoted > 0, RARER, 1)
    return part * np.where((load.batch > 1) & np.logical_not(by_threads), LESS_RARE_IN_BATCHES, 1)


def is_by_threads(load: Any) -> Any:
    """Whether threads load an operand or store the results, with one set of accumulators and K cut as suits."""
    return ((load.owned > 0) | (load.by_tma == 0)) & (load.slices == 0) & (load.promoted == 0)


def defers(of: Table, out_bytes: Any) -> np.ndarray:
    """``MatmulPolicy.can_defer`` of each policy."""
    registers = of.accumulators * (1 + of.promoted) + of.accumulators * out_bytes // 4
    fits = (out_bytes > 1) & (registers <= MAX_DEFERRED_REGISTERS)
    return (of.cooperative > 0) & (of.splits * of.slices == 1) & (of.parts == 0) & fits


def _loaded(of: Table, access: Any, by: Coefficients) -> np.ndarray:
    """What a block's loads of a k-tile are worth, in bytes of whole cache lines."""
    boxes = np.where(access.b_k_major, 1.0, of.box)
    rows_a = row_cost(access.pitch_a, by) * of.tile_m / of.peers_n
    rows_b = row_cost(access.pitch_b, by) * boxes * of.tile_n / of.peers_m
    return K_TILE_BYTES * (rows_a + rows_b)


def row_cost(pitch: Any, by: Coefficients) -> Any:
    """Of rows ``pitch`` bytes apart: 1 if all are cache lines, more if they straddle two, yet more if also the sectors
    of lines."""
    return np.where(pitch % 128 == 0, 1.0, np.where(pitch % 32 == 0, by.row_of_two_lines, by.row_of_half_sectors))


def _multiply(of: Table, by: Coefficients) -> np.ndarray:
    """Clocks of the multiplications of a k-tile."""
    tensor = of.tile_m * of.tile_n * 64 / TENSOR_RATE
    shared = of.tile_m / 64 * (64 * (1 + _across(of)) + of.tile_n) * K_TILE_BYTES / by.shared_rate
    products = 1 + 2 * of.parts
    multiply = np.maximum(products * np.maximum(tensor, shared) + by.k_tile, by.min_k_tile)
    multiply = np.maximum(multiply, of.parts * (SPLIT_CLOCKS + of.stage_bytes / SPLIT_RATE))
    # the additions of float32: in a cooperative block the other warpgroup hides most
    return multiply + of.promoted * np.where(of.cooperative > 0, by.promotion, by.promotion_pingpong)


def _across(of: Table) -> np.ndarray:
    """``MatmulPolicy.across`` of each policy: both warpgroups read all rows of A."""
    return (of.cooperative > 0) & (of.tile_m % (64 * policy.CONSUMERS) > 0)


def coefficients_of(load: Workload) -> Coefficients:
    """Those of long products, or of all others."""
    return SUSTAINED if is_long(load) else COEFFICIENTS


def is_long(load: Any) -> Any:
    """Whether it is a long product: of a ``Workload``, or one whose fields are arrays."""
    return (load.batch * load.m * load.n * load.k_tiles >= LONG) & (load.promoted == 0)


def vector_instructions(load: str, size: int) -> int:
    """Of the producer's threads for 16 bytes of elements of ``size`` (counted in the PTX); 0 for TMA."""
    return {"tma": 0, "words": 20, "pairs": 14, "dense": 25, "vectors": 45, "elements": 10 + 7 * 16 // size}[load]


def least_own(load: Workload, instructions: int) -> float:
    """Clocks that loads of an operand by the producer's threads take at least: in the largest of their tiles, of which
    they load one side, on all multiprocessors."""
    tiles, side = load.batch * load.m * load.n / 128**2, 128 / 16
    by = coefficients_of(load)
    return tiles * load.k_tiles * (by.own_k_tile + by.own_instruction * side * instructions) / hardware.SMS


def copy_cost(copies: Any, moved: Any, by: Coefficients = COEFFICIENTS) -> Any:
    """Clocks of so many copies of operands before the product, which read and write so many bytes in all."""
    return by.copy * copies + moved / STREAM_RATE


# --- the choice ----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _candidates(kinds: tuple[tuple[bool, bool, bool, int], ...], multiprocessors: int) -> tuple:
    """All candidates of each kind (promoted, parts, own, slices), one kind behind the other: the policies, their
    numbers as a table and in one array, and how many each kind has."""
    found = [candidates.of_kind(*kind) for kind in kinds]
    policies = tuple(config for each in found for config in each)
    of = table(policies, multiprocessors)
    return policies, of, np.array(of), tuple(map(len, found))


def _kind(load: Workload) -> tuple[bool, bool, bool, int]:
    return load.promoted, load.parts, load.own, load.slices


def possible(of: Table, load: Any) -> np.ndarray:
    """Which policies may be chosen: all slices of all tiles run at once, and each has some k-tiles. (Of clusters a few
    less may run at once.) Of a given number of slices that holds where a block may have them one behind the other."""
    slices = np.ceil(load.m / of.rows) * np.ceil(load.n / of.columns) * (load.batch * of.splits)
    fits = (of.splits == 1) | ((slices <= of.room) & (of.splits * MIN_K_TILES <= load.k_tiles))
    given = of.splits * of.slices == load.slices
    in_turn = np.logical_not(load.promoted) & np.logical_not(load.parts) & (load.owned == 0)  # may be chosen instead
    fits = np.where(load.slices == 0, fits, given & (fits | np.logical_not(in_turn)))
    fits = fits & ((load.odd > 0) | (of.odd_columns == 0))
    return fits & (of.accumulators <= load.accumulators)


@lru_cache(maxsize=1024)
def _fixed(loads: tuple[Workload, ...], by: Coefficients, multiprocessors: int) -> Fixed:
    """``fixed`` of the candidates of workloads without their extents, one workload behind the other."""
    tables = (_candidates((_kind(load),), multiprocessors)[1] for load in loads)
    return Fixed(*map(np.concatenate, zip(*(fixed(of, load, by) for of, load in zip(tables, loads)))))


def _without_extents(load: Workload) -> Workload:
    a = load.access
    access = Access(a.b_k_major, load.grain_a, load.grain_b, a.own_a, a.own_b)  # rows of such pitches cost as much
    return load._replace(m=0, n=0, k_tiles=0, batch=0, access=access, copies=0, copied=0)


def shortlist(load: Workload, count: int = 1) -> Ranking:
    """``(clocks, policy)`` of the ``count`` policies with the least modelled cost, best first; of equal ones those that
    are listed first."""
    return shortlists((load,), count)[0]


def shortlists(loads: Sequence[Workload], count: int = 1) -> list[Ranking]:
    """``shortlist`` of each of several workloads, computed together: NumPy takes little longer for all than for one."""
    found: dict[Workload, Any] = {load: _rankings.get((load, count)) for load in loads}
    for long in (False, True):
        missing = [load for load, ranking in found.items() if ranking is None and is_long(load) == long]
        if missing:
            found.update(zip(missing, _ranked(missing, count)))
    if len(_rankings) >= MOST_RANKINGS:
        _rankings.clear()
    _rankings.update(((load, count), ranking) for load, ranking in found.items())
    return [found[load] for load in loads]


def _ranked(loads: Sequence[Workload], count: int) -> list[Ranking]:
    """The shortlists of workloads that are all long, or none."""
    kinds = tuple(map(_kind, loads))
    policies, of, numbers, counts = _candidates(kinds, hardware.SMS)
    by, rows = coefficients_of(loads[0]), Each.rows(loads)
    load = Each(*rows.repeat(counts, 1))
    known = _fixed(tuple(map(_without_extents, loads)), by, hardware.SMS)
    clocks = np.where(possible(of, load), cost(of, load, by, known), np.inf)
    preferences = preferred(of, load)
    best, first = [], 0
    for number in counts:
        of_load = slice(first, first + number)
        least = (clocks[of_load] * preferences[of_load]).argsort(kind="stable")[: max(BEST, count)] + first
        best.append(least[clocks[least] < np.inf])
        first += number
    which = np.concatenate(best)
    clocks = clocks[which]
    taken, each = tuple(map(len, best)), Each(*rows)
    of, load, known = Table(*numbers.take(which, 1)), Each(*rows.repeat(taken, 1)), Fixed(*(x[which] for x in known))
    clocks = clocks * factor(of, load, clocks, known, of_problem(each).repeat(taken, 1)) * preferences[which]
    clocks = clocks + copy_cost(load.copies, load.copied)
    found, first = [], 0
    for least in best:
        of_load = clocks[first : first + len(least)]
        order = of_load.argsort(kind="stable")[:count].tolist()
        found.append(tuple((float(of_load[i]), policies[least[i]]) for i in order))
        first += len(least)
    return found


def raster(config: MatmulPolicy, m: int, n: int) -> tuple[bool, int]:
    """``(along_n, group)``: the order of tiles walks ``group`` cluster tiles side by side along the longer way. Those
    that run at the same time then form the squarest patch of the result, and read the fewest bytes of A and B."""
    tiles_m, tiles_n = config.tiles(m, n)
    high, wide = config.tile[0] * config.cluster[0], config.tile[1] * config.cluster[1]
    along_n = tiles_n * wide >= tiles_m * high
    side, other, most = (high, wide, tiles_m) if along_n else (wide, high, tiles_n)
    group = config.group or round(math.sqrt(config.slots(hardware.SMS) * other / side))
    return along_n, max(1, min(group, most))
