"""Times of products under many configurations, read from results of ``sweep.py matmul --cases random --brute``, without
those that kernels of before had otherwise than the ones of now."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import script
from matmul_brute import is_full, is_promoted, stored_by_tma, workload
from matmul_random import SIZES, Random

from cutesync.kernels.matmul.model import vector_instructions
from cutesync.kernels.matmul.overlap import MIN_STREAMED_BYTES, Stream, leave_first, lets_next_start
from cutesync.kernels.matmul.policy import MatmulPolicy

LATER_LOADS = {"words": ("words", "pairs"), "dense": ("dense",)}  # own loads that some files were gathered before
_SHORT = re.compile(r"(\d+)x(\d+)([cp]) (\d)x(\d)(?: /(\d+))?(?: in (\d+))?( T)?(?: own (a?b?))?( parts)?")


def policy_of(words: str, promoted: bool) -> MatmulPolicy:
    """The configuration that ``matmul_sweep.short`` wrote."""
    m, n, schedule, peers_m, peers_n, splits, slices, swapped, own, parts = _SHORT.fullmatch(words).groups()
    schedule = "cooperative" if schedule == "c" else "pingpong"
    return MatmulPolicy(
        (int(m), int(n)),
        schedule,
        (int(peers_m), int(peers_n)),
        promoted=promoted,
        splits=int(splits or 1),
        slices=int(slices or 1),
        swap_ab=bool(swapped),
        load_a="own" if "a" in (own or "") else "tma",
        load_b="own" if "b" in (own or "") else "tma",
        parts=bool(parts),
    )


def read(paths: Sequence[Path]) -> list[dict]:
    """The products of all files, each with the ``times`` of its configurations, as how many it counts (``count``), and
    whether TMA stored columns (``columns``)."""
    found = []
    for path, named in Counter(paths).items():
        with script.reading(path) as report:
            changed, columns = _changed(report), {"columns": report.get("columns", True)}
            for record in report["products"]:
                product = Random(*record["product"])
                if not report.get("lines", True) and not stored_by_tma(product):
                    continue  # timed before threads stored lines of results that TMA does not store
                times = {words: us for words, us in record["times"].items() if _SHORT.fullmatch(words)}  # no trials
                configs = {words: policy_of(words, is_promoted(product)) for words in times}
                times = {
                    words: us for words, us in times.items() if not any(of(product, configs[words]) for of in changed)
                }
                if is_full(product) and not report.get("packs", False):
                    times = _split_in_kernel(times)
                if len(times) > 1:
                    found.append(record | columns | {"times": times, "count": named * record.get("weight", 1)})
    return found


def _changed(report: dict) -> list[Callable[[Random, MatmulPolicy], bool]]:
    """What says of a configuration that its launch was another when these times were gathered."""
    found: list[Callable[[Random, MatmulPolicy], bool]] = []
    if not report.get("launches", True):  # all launches let the next one start at once
        found.append(lambda product, config: not lets_next_start(config, workload(product, config)))
    own = {vector_instructions(x, 2) for key, of in LATER_LOADS.items() if not report.get(key, True) for x in of}
    if own:  # threads loaded in other ways
        found.append(lambda product, config: not own.isdisjoint(workload(product, config).access[-2:]))
    if not report.get("streams", False):  # all large operands that are read once left the L2 first
        found.append(_streams_otherwise)
    return found


def _streams_otherwise(product: Random, config: MatmulPolicy) -> bool:
    """Whether a large operand that is read once stays in the L2 now."""
    load, size, items = workload(product, config), SIZES[product.dtype], max(product.batch, 1)
    extents, readers = (load.m, load.n), config.tiles(load.m, load.n)[::-1]
    pitches = load.access.pitch_a, load.access.pitch_b
    streams = [Stream(items * extent * product.k * size, *of) for extent, *of in zip(extents, readers, pitches)]
    once = [of.bytes >= MIN_STREAMED_BYTES and of.readers == 1 for of in streams]
    return leave_first(streams, items * product.m * product.n * SIZES.get(product.out, 4)) != once


def _split_in_kernel(times: dict[str, float]) -> dict[str, float]:
    """As the kernels that ran, before a configuration could say that operands are packed: those of float32 were split
    in the kernel wherever it can."""
    return {
        words if " parts" in words or not policy_of(words, True).splits_parts() else f"{words} parts": us
        for words, us in times.items()
    }
