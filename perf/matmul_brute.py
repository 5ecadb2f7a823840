"""Configurations of a random product: which to time, and their kernels, compiled in parallel processes.

``FORMS`` is more than the model chooses among: what ``fit.py`` chooses from."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Sequence

from matmul_random import SIZES, Random

from cutesync import matmul
from cutesync.cli.warm import _FAR, _dry_array
from cutesync.dtypes import element_type
from cutesync.errors import ArgumentValueError
from cutesync.kernels.matmul.model import Access, Workload, _splits, cost, row_cost
from cutesync.kernels.matmul.policy import K_TILE_BYTES, MatmulPolicy
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
CLUSTERS = ((1, 1), (2, 1), (1, 2), (4, 1))
MOST_PROCESSES = 16  # that compile
OTHERS = 40  # kernels of a class
FIRST = 1000  # a kernel of the model's choice counts as so many
SAME_FORM = 4  # further clusters and splits of each of the best forms


def workloads(product: Random) -> list[Workload]:
    """What the model knows of the product, and of its transpose."""
    m, n, k, size = product.m, product.n, product.k, SIZES[product.dtype]
    full = product.dtype == "float32" and product.op != "tf32"
    k_tiles = -(-k * size // K_TILE_BYTES) * (3 if full else 1)

    def row(k_major: bool, other: int) -> tuple[bool, float]:
        pitch = (k if k_major else other) * size
        packed = full or pitch % 16 or (not k_major and size != 2)
        return (True, 1.0) if packed else (k_major, row_cost(pitch))

    (a_major, row_a), (b_major, row_b) = row(product.layout[0] == "N", m), row(product.layout[1] == "T", n)
    stored = SIZES.get(product.out, 4)
    promoted, split = full or product.op == "promoted", product.op != "invariant"
    by_tma = n * stored % 16 == 0
    more = {"batch": max(product.batch, 1), "k_tiles": k_tiles, "out_bytes": stored}
    more |= {"promoted": promoted, "split": split}
    return [
        Workload(m=m, n=n, access=Access(b_major, row_a, row_b), by_tma=by_tma, **more),
        Workload(m=n, n=m, access=Access(a_major, row_b, row_a), by_tma=m == 1, **more),
    ]


def ranked(product: Random, forms: Sequence = FORMS) -> list[tuple[float, MatmulPolicy]]:
    """``(modelled clocks, configuration)`` of all configurations of these forms, best first."""
    found = []
    for swapped, load in enumerate(workloads(product)):
        for tile, schedule in forms:
            for cluster in CLUSTERS:
                try:
                    config = MatmulPolicy(tile, schedule, cluster, promoted=load.promoted, swap_ab=bool(swapped))
                    config.decided(load.out_bytes)
                except ArgumentValueError:
                    continue
                for splits in (1, *(_splits(config, load) if load.split else ())):
                    one = MatmulPolicy(
                        tile, schedule, cluster, promoted=load.promoted, splits=splits, swap_ab=bool(swapped)
                    )
                    found.append((cost(one, load), one))
    return sorted(found, key=lambda pair: pair[0])


def configurations(product: Random, count: int, forms: Sequence = FORMS) -> list[MatmulPolicy]:
    """``count`` configurations to time: half are the model's best, the rest the best of each other form, and further
    clusters and splits of the best forms."""
    order = [config for _, config in ranked(product, forms)]
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
