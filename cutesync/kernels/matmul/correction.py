"""What times say beyond the model's clocks: a factor, by small trees of questions about a problem and a policy.

Each tree of ``trees.json`` (features, limits, leaves) asks ``DEPTH`` questions, whether a feature is above a limit; the
answers are the bits of the number of its leaf. The leaves of all trees add up to the logarithm of the factor.
``python perf/fit.py`` makes them, by gradient boosting (Friedman, 2001) with the same question at a level (as in
CatBoost).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..hardware import SMS

DEPTH = 4
_BITS = (1 << np.arange(DEPTH, dtype=np.uint8))[:, None, None]  # of the number of a leaf, one a level
UNIT = 1000  # of a leaf: its number is a logarithm in thousandths
OF_POLICY = (
    "tile_m",
    "tile_n",
    "peers_m",
    "peers_n",
    "splits",
    "cooperative",
    "cluster_split",
    "cluster_size",
    "stages",
    "loaded",
    "box",
    "odd_columns",
    "accumulators",
)
OF_BOTH = (
    "clocks",
    "k_tiles",
    "full",
    "active",
    "idle",
    "clusters",
    "memory",
    "padding_m",
    "padding_n",
    "passes",
    "l2",
    "tiles_m",
    "tiles_n",
    "last",
    "demand",
)
OF_PROBLEM = (
    "m",
    "n",
    "results",
    "batch",
    "all_k_tiles",
    "pitch_a",
    "pitch_b",
    "b_k_major",
    "out_bytes",
    "by_tma",
    "by_columns",
    "activation",
    "promoted",
    "own",
    "parts",
)
FEATURES = OF_POLICY + OF_BOTH + OF_PROBLEM


class Trees(NamedTuple):
    """Trees as arrays: features and limits (levels, trees); leaves, a tree behind the other, and where each begins."""

    questions: np.ndarray
    limits: np.ndarray
    leaves: np.ndarray
    first: np.ndarray


def arrays(trees: Sequence) -> Trees:
    """Of (features, limits, leaves in ``UNIT``)."""
    questions, limits, leaves = (np.array([tree[i] for tree in trees]) for i in range(3))
    first = np.arange(len(trees))[:, None] << DEPTH
    leaves = (leaves.ravel() / UNIT).astype(np.float32)
    return Trees(questions.T, limits.T[:, :, None].astype(np.float32), leaves, first)


TREES_FILE = Path(__file__).with_name("trees.json")
TREES = json.loads(TREES_FILE.read_text(encoding="utf-8"))
_TREES = arrays(TREES)


def features(of: Any, load: Any, clocks: np.ndarray, known: Any, problem: np.ndarray | None = None) -> np.ndarray:
    """(``FEATURES``, policies): numbers of a ``model.Table`` and a ``Workload`` (or one whose fields are arrays), the
    model's clocks and ``known``, its ``Fixed``; extents as logarithms of base 2; ``passes``: how often the L2 is asked
    for the larger operand, ``l2``: for how many bytes a clock, ``demand``: for how many if multiplications never
    waited; ``last``: how full the last wave is. ``problem`` is ``of_problem`` of each policy, where known."""
    tiles_m, tiles_n = np.ceil(load.m / of.rows), np.ceil(load.n / of.columns)
    blocks = tiles_m * tiles_n * load.batch * of.blocks
    full, active = blocks / of.places, np.minimum(blocks, of.places)
    found = np.empty((len(FEATURES), len(clocks)), np.float32)
    found[: len(OF_POLICY)] = of[: len(OF_POLICY)]
    found[len(OF_POLICY) : -len(OF_PROBLEM)] = (
        *np.log2((clocks, np.maximum(np.ceil(load.k_tiles / of.splits), 1))),
        *(full, active / SMS, 1 - full / np.ceil(full), active / of.cluster_size, load.moved / clocks),
        *(tiles_m * of.rows / load.m, tiles_n * of.columns / load.n),
        np.where(load.m > load.n, tiles_n, tiles_m),
        blocks * np.ceil(load.k_tiles / of.splits) * known.loaded / clocks,
        *np.log2((tiles_m, tiles_n)),
        *(full - np.floor(full), known.loaded / known.compute * active),
    )
    found[-len(OF_PROBLEM) :] = of_problem(load) if problem is None else problem
    return found


def of_problem(load: Any) -> np.ndarray:
    """(``OF_PROBLEM``, 1), or a column for each element of fields that are arrays."""
    extents = np.log2((load.m, load.n, load.batch * load.m * load.n, load.batch, np.maximum(load.k_tiles, 1)))
    operands = (load.grain_a, load.grain_b, load.b_k_major, load.out_bytes)
    rest = (*operands, load.by_tma, load.by_columns, load.activation, load.promoted, load.instructions, load.parts)
    return np.concatenate((extents, np.array(rest))).reshape(len(OF_PROBLEM), -1)


def factor(of: Any, load: Any, clocks: np.ndarray, known: Any, problem: np.ndarray | None = None) -> np.ndarray:
    """By how much the clocks of each policy are to be multiplied."""
    return np.exp(answered(features(of, load, clocks, known, problem), _TREES))


def answered(numbers: np.ndarray, trees: Trees) -> np.ndarray:
    """The sum of the leaves that each column of features reaches."""
    above = (numbers.take(trees.questions, 0) > trees.limits).view(np.uint8)
    leaf = (above * _BITS).sum(0, dtype=np.uint8)
    return trees.leaves.take(leaf + trees.first).sum(0)
