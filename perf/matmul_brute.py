"""Configurations of a random product: which to time, and their kernels, compiled in parallel processes.

``FORMS`` is more than the model chooses among: what ``fit.py`` chooses from."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import itertools
import multiprocessing
import os
import time
from collections import Counter
from dataclasses import replace

import numpy as np
from matmul_random import SIZES, Random

from cutesync import matmul
from cutesync.cli.warm import _FAR, _dry_array
from cutesync.dtypes import element_type
from cutesync.errors import ArgumentValueError
from cutesync.kernels.matmul.model import Access, Table, Workload, coefficients_of, cost, possible, table
from cutesync.kernels.matmul.policy import CLUSTERS, K_TILE_BYTES, SMS, MatmulPolicy
from cutesync.runtime.device_array import transposed
from cutesync.runtime.kernel import collect

WIDTHS = (16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 208, 224, 256)
FORMS = tuple(
    ((rows, columns), schedule)
    for schedule, rows, least, most in (
        ("cooperative", 128, 16, 256),
        ("cooperative", 256, 64, 208),
        ("pingpong", 64, 16, 256),
        ("pingpong", 128, 64, 208),
        ("pingpong", 192, 64, 128),
    )
    for columns in WIDTHS
    if least <= columns <= most
)
SPLITS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
MOST_PROCESSES = 16  # that compile
OTHERS = 40  # kernels of a class
FIRST = 1000  # a kernel of the model's choice counts as so many
SAME_FORM = 4  # further clusters and splits of each of the best forms


def workloads(product: Random, columns: bool = True, parts: bool = False) -> list[Workload]:
    """What the model knows of the product, and of its transpose. ``columns``: TMA stores columns of 16-bit elements, as
    it does since the first times were gathered. ``parts``: float32 operands are split in the kernel, not before."""
    m, n, k, size = product.m, product.n, product.k, SIZES[product.dtype]
    full = is_full(product)
    packs = full and not parts
    k_tiles = -(-k * size // K_TILE_BYTES) * (3 if packs else 1)

    def operand(k_major: bool, other: int) -> tuple[bool, int]:
        pitch = (k if k_major else other) * size
        packed = packs or pitch % 16 or (not k_major and size != 2)
        return (True, K_TILE_BYTES) if packed else (k_major, pitch)

    (a_major, pitch_a), (b_major, pitch_b) = operand(product.layout[0] == "N", m), operand(product.layout[1] == "T", n)
    stored = SIZES.get(product.out, 4)
    promoted, split = full or product.op == "promoted", product.op != "invariant"
    more = {"batch": max(product.batch, 1), "k_tiles": k_tiles, "out_bytes": stored}
    more |= {"promoted": promoted, "split": split, "parts": parts and full}
    rows_by_tma = n * stored % 16 == 0
    return [
        Workload(m=m, n=n, access=Access(b_major, pitch_a, pitch_b), by_tma=rows_by_tma, **more),
        Workload(
            m=n, n=m, access=Access(a_major, pitch_b, pitch_a), by_tma=columns and rows_by_tma and stored == 2, **more
        ),
    ]


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
            found[-1].decided(4)
    return tuple(found)


def ranked(product: Random, policies: tuple[MatmulPolicy, ...] | None = None) -> list[tuple[float, MatmulPolicy]]:
    """``(modelled clocks, configuration)`` of all configurations that are possible, best first."""
    found = []
    for swapped, load in enumerate(workloads(product, parts=is_full(product))):
        given = policies or all_forms(load.promoted)
        if load.parts:
            given = tuple(replace(config, parts=True) for config in given if config.splits_parts())
        of = _table(given)
        clocks = np.where(possible(of, load), cost(of, load, coefficients_of(load)), np.inf)
        found += [
            (float(of_one), replace(config, swap_ab=bool(swapped)))
            for of_one, config in zip(clocks, given)
            if of_one < np.inf
        ]
    return sorted(found, key=lambda pair: pair[0])


@functools.lru_cache(maxsize=4)
def _table(policies: tuple[MatmulPolicy, ...]) -> Table:
    return table(policies, SMS)


def configurations(product: Random, count: int) -> list[MatmulPolicy]:
    """``count`` configurations to time: half are the model's best, the rest the best of each other form, and further
    clusters and splits of the best forms."""
    order = [config for _, config in ranked(product)]
    chosen = dict.fromkeys(order[: count // 2])
    of_form: dict[tuple, list[MatmulPolicy]] = {}
    for config in order:
        of_form.setdefault((config.tile, config.schedule, config.swap_ab), []).append(config)
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


def kernels(product: Random, configs: list[MatmulPolicy | None]) -> list[list[str]]:
    """The keys of the kernels of each configuration."""
    return [[repr(key) for key in dry(product, config)] for config in configs]


def build(product: Random, config: MatmulPolicy | None) -> None:
    """Compile the kernels of a call, or find them in the cache."""
    for spec in dry(product, config).values():
        spec.kernel()


def compiled(
    work: list[tuple[Random, list[MatmulPolicy | None]]], most: dict[str, int], seconds: float
) -> tuple[list[list[bool]], Counter]:
    """Which configurations of each product have all kernels compiled after at most so many seconds, those that most
    need first, at most ``most`` (or ``OTHERS``) of a class; and how many kernels each class has."""
    until = time.monotonic() + seconds
    pool = concurrent.futures.ProcessPoolExecutor(
        min(MOST_PROCESSES, os.cpu_count() or 1), multiprocessing.get_context("spawn")
    )
    keys = list(pool.map(kernels, *zip(*work), chunksize=4))
    wanted: Counter = Counter()
    example: dict[str, tuple] = {}
    for (product, configs), of_product in zip(work, keys):
        for config, of_config in zip(configs, of_product):
            for key in of_config:
                wanted[key] += FIRST if config is None else 1
                example[key] = product, config
    taken: Counter = Counter()
    futures = {}
    for key, _ in wanted.most_common():
        group = example[key][0].group
        if taken[group] < most.get(group, OTHERS):
            taken[group] += 1
            futures[key] = pool.submit(build, *example[key])
    concurrent.futures.wait(futures.values(), max(0.0, until - time.monotonic()))
    done = {key for key, future in futures.items() if future.done() and not future.exception()}
    pool.shutdown(wait=False, cancel_futures=True)
    return [[all(key in done for key in of_config) for of_config in of_product] for of_product in keys], taken
