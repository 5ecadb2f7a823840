"""Configurations of a random product: which to time, and their kernels, compiled in parallel processes.

``FORMS`` is more than the model chooses among: what ``fit.py`` chooses from."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import itertools
import math
import multiprocessing
import os
import time
from collections import Counter, namedtuple
from dataclasses import replace

import numpy as np
from matmul_random import SIZES, Random

from cutesync import matmul
from cutesync.cli.warm import _FAR, _dry_array
from cutesync.dtypes import element_type
from cutesync.errors import ArgumentValueError
from cutesync.kernels.hardware import SMS
from cutesync.kernels.matmul.invariant import slices_of_any_rows
from cutesync.kernels.matmul.model import Table, corrected, possible, table, vector_instructions
from cutesync.kernels.matmul.pack_job import MAX_DENSE_PITCH
from cutesync.kernels.matmul.policy import CLUSTERS, K_TILE_BYTES, MatmulPolicy
from cutesync.kernels.matmul.workload import Access, Workload
from cutesync.runtime.device_array import transposed
from cutesync.runtime.kernel import collect

WIDTHS = range(16, 257, 8)
FORMS = tuple(
    ((rows, columns), schedule)
    for schedule, rows, least, most in (
        ("cooperative", 128, 16, 256),
        ("cooperative", 256, 64, 208),
        ("cooperative", 64, 32, 256),
        ("cooperative", 192, 32, 256),
        ("pingpong", 64, 16, 256),
        ("pingpong", 128, 64, 208),
        ("pingpong", 192, 64, 128),
    )
    for columns in WIDTHS
    if least <= columns <= most
)
SPLITS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
MOST_PROCESSES = 16  # that compile
FIRST = 1000  # a kernel of the model's choice counts as so many
SAME_FORM = 4  # further clusters and splits of each of the best forms


def workload(product: Random, config: MatmulPolicy, columns: bool = True) -> Workload:
    """What the model knows of the product, or with ``swap_ab`` of its transpose, with the loads and the parts of this
    configuration. ``columns``: TMA stores columns of 16-bit elements, as it does since the first times were gathered.
    """
    swapped, size = bool(config.swap_ab), SIZES[product.dtype]
    packs = is_full(product) and not config.parts
    k_tiles = -(-product.k * size // K_TILE_BYTES) * (3 if packs else 1)
    loads = (config.load_a, config.load_b)[:: -1 if swapped else 1]
    sides = [
        _operand(product, *side, packs)
        for side in ((product.layout[0] == "N", product.m, loads[0]), (product.layout[1] == "T", product.n, loads[1]))
    ]
    a, b = sides[::-1] if swapped else sides
    stored = SIZES.get(product.out, 4)
    m, n = (product.n, product.m) if swapped else (product.m, product.n)
    own = a.instructions + b.instructions > 0
    return Workload(
        m=m,
        n=n,
        k_tiles=k_tiles,
        batch=max(product.batch, 1),
        out_bytes=stored,
        promoted=is_promoted(product),
        slices=slices_of_any_rows(product.n, k_tiles, stored, is_promoted(product), is_full(product) and config.parts)
        if product.op == "invariant"
        else 0,
        access=Access(b.k_major, a.pitch, b.pitch, a.instructions, b.instructions),
        by_tma=not own and stored_by_tma(product) and (not swapped or (columns and stored == 2)),
        parts=is_full(product) and config.parts,
        copies=a.copies + b.copies,
        copied=a.copied + b.copied,
        activation="gelu" in product.op,
        by_elements=swapped and stored != 2,
        by_columns=swapped,
        odd=stored == 2 and b.k_major,
    )


class Side(namedtuple("Side", "k_major pitch instructions copies copied")):
    """An operand: whether K is contiguous and the pitch, as it is loaded; ``Access.own_a``; whether it is packed
    before, and the bytes that this reads and writes."""


def _operand(product: Random, k_major: bool, rows: int, load: str | None, packs: bool) -> Side:
    """``packs``: float32 is packed for three products."""
    k, size = product.k, SIZES[product.dtype]
    pitch = (k if k_major else rows) * size
    items, refused = max(product.batch, 1), pitch % 16 > 0 or (not k_major and size != 2)
    if packs or (refused and load != "own"):
        row = -(-k * size // K_TILE_BYTES) * K_TILE_BYTES * (3 if packs else 1)
        return Side(True, K_TILE_BYTES, 0, 1, items * rows * (k * size + row))
    if refused:
        by_vectors = k_major or size == 2
        short = "dense" if k_major and pitch <= MAX_DENSE_PITCH else "vectors"
        lines = {4: "words", 8: "pairs"}.get(math.gcd(pitch, 8) if k_major and product.op != "tf32" else 0, short)
        return Side(k_major or size != 2, pitch, vector_instructions(lines if by_vectors else "elements", size), 0, 0)
    return Side(k_major, pitch, 0, 0, 0)


def stored_by_tma(product: Random) -> bool:
    """Whether TMA stores rows of the result."""
    return product.n * SIZES.get(product.out, 4) % 16 == 0


def is_promoted(product: Random) -> bool:
    """Whether sums are promoted to float32."""
    return is_full(product) or product.op == "promoted"


def is_full(product: Random) -> bool:
    """Whether it is one of float32 in full precision."""
    return product.dtype == "float32" and product.op != "tf32"


@functools.lru_cache(maxsize=2)
def all_forms(promoted: bool) -> tuple[MatmulPolicy, ...]:
    """Every configuration of ``FORMS``."""
    found = []
    for (tile, schedule), cluster, splits in itertools.product(FORMS, CLUSTERS, (1, *SPLITS)):
        with contextlib.suppress(ArgumentValueError):
            found.append(MatmulPolicy(tile, schedule, cluster, promoted=promoted, splits=splits))
            found[-1].decided(2 if found[-1].odd else 4)
    return tuple(found)


def ranked(product: Random, policies: tuple[MatmulPolicy, ...] | None = None) -> list[tuple[float, MatmulPolicy]]:
    """``(modelled clocks, configuration)`` of all configurations that are possible, best first."""
    found = []
    ways = (("tma", "tma"), ("tma", "own"), ("own", "tma"), ("own", "own"))
    ways = [(*loads, False) for loads in ways] if not is_full(product) else [(*ways[0], False), (*ways[0], True)]
    for swapped, (load_a, load_b, parts) in itertools.product((False, True), ways):
        form = MatmulPolicy((64, 64), "pingpong", parts=parts, swap_ab=swapped, load_a=load_a, load_b=load_b)
        load = workload(product, form)
        own = (load.access.own_a > 0, load.access.own_b > 0)
        if own != (load_a == "own", load_b == "own"):
            continue  # TMA takes it as it lies
        given = policies or all_forms(load.promoted)
        if parts:
            given = tuple(replace(config, parts=True) for config in given if config.splits_parts())
        elif is_full(product):
            given = tuple(replace(config, parts=False) for config in given if not config.parts)
        if not given:
            continue
        if load.own:
            given = tuple(config for config in given if config.can_load_own())
        of = _table(given)
        clocks = np.where(possible(of, load), corrected(of, load), np.inf)
        found += [
            (float(of_one), replace(config, swap_ab=swapped, load_a=load_a, load_b=load_b))
            for of_one, config in zip(clocks, given)
            if of_one < np.inf
        ]
    return sorted(found, key=lambda pair: pair[0])


@functools.lru_cache(maxsize=16)
def _table(policies: tuple[MatmulPolicy, ...]) -> Table:
    return table(policies, SMS)


def configurations(product: Random, count: int) -> list[MatmulPolicy]:
    """``count`` configurations to time: half are the model's best, the rest the best of each other form, and further
    clusters and splits of the best forms."""
    order = [config for _, config in ranked(product)]
    chosen = dict.fromkeys(order[: count // 2])
    of_form: dict[tuple, list[MatmulPolicy]] = {}
    for config in order:
        of_form.setdefault((config.tile, config.schedule, config.swap_ab, config.own, config.parts), []).append(config)
    groups = list(of_form.values())
    chosen |= dict.fromkeys(config for group in groups[:3] for config in group[:SAME_FORM])
    chosen |= dict.fromkeys(group[0] for group in groups)
    return list(chosen)[:count]


def dry(product: Random, config: MatmulPolicy | None) -> dict:
    """The kernels of a call, by key."""
    batch = (product.batch,) if product.batch else ()
    m, n, k, element = product.m, product.n, product.k, element_type(product.dtype)
    with collect() as found:
        a = _dry_array((*batch, *((k, m) if product.layout[0] == "T" else (m, k))), element)
        b = _dry_array((*batch, *((n, k) if product.layout[1] == "T" else (k, n))), element, _FAR)
        a, b = transposed(a) if product.layout[0] == "T" else a, transposed(b) if product.layout[1] == "T" else b
        out = _dry_array((*batch, m, n), element_type(product.out), 2 * _FAR)
        more: dict = {"fast": {"fast_accumulation": True}, "tf32": {"precision": "tf32"}}.get(product.op, {})
        if product.op == "bias gelu":
            more = {"bias": _dry_array((n,), element, 3 * _FAR), "activation": "gelu"}
        matmul(a, b, out=out, config=config, batch_invariant=product.op == "invariant", **more)
    return found


def planned(product: Random, count: int) -> tuple[list[MatmulPolicy | None], list[list[str]]]:
    """The model's choice (None) and ``count`` configurations to time, and the keys of the kernels of each."""
    configs = [None, *(configurations(product, count) if count else ())]
    return configs, [[repr(key) for key in dry(product, config)] for config in configs]


def build(product: Random, config: MatmulPolicy | None) -> None:
    """Compile the kernels of a call, or find them in the cache."""
    for spec in dry(product, config).values():
        spec.kernel()


def compiled(drawn: list[Random], count: int, seconds: float) -> tuple[list[list[MatmulPolicy | None]], int]:
    """Of the configurations of each product (see ``planned``) those whose kernels are compiled after so many seconds,
    what most products need first; and how many kernels that are."""
    until = time.monotonic() + seconds
    pool = concurrent.futures.ProcessPoolExecutor(
        min(MOST_PROCESSES, os.cpu_count() or 1), multiprocessing.get_context("spawn")
    )
    plans = list(pool.map(planned, drawn, itertools.repeat(count), chunksize=4))
    wanted: Counter = Counter()
    example: dict[str, tuple] = {}
    for product, (configs, keys) in zip(drawn, plans):
        for config, of_config in zip(configs, keys):
            for key in of_config:
                wanted[key] += FIRST if config is None else 1
                example[key] = product, config
    futures = {key: pool.submit(build, *example[key]) for key, _ in wanted.most_common()}
    concurrent.futures.wait(futures.values(), max(0.0, until - time.monotonic()))
    pool.shutdown(wait=False, cancel_futures=True)
    done = {key for key, of in futures.items() if of.done() and not of.cancelled() and not of.exception()}
    ready = [[config for config, of_config in zip(*plan) if done.issuperset(of_config)] for plan in plans]
    return ready, len(done)
