"""Gradient boosting of the trees of ``cutesync.kernels.matmul.correction``: the same question for all of a level."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np

from cutesync.kernels.matmul.correction import DEPTH, TREES_FILE, UNIT, answered, arrays

COUNT, RATE = 600, 0.2
BINS = 40  # limits that are tried for a feature
SMOOTH = 0.4  # weight of 0 in a leaf: a product weighs 1 in all

Tree = tuple[tuple[int, ...], tuple[float, ...], tuple[int, ...]]


def grown(numbers: np.ndarray, drawn: Callable[[np.ndarray], np.ndarray], weight: np.ndarray) -> tuple[Tree, ...]:
    """Trees whose sums have little loss. ``numbers``: (features, rows). ``drawn(sums)`` is by how much the loss falls
    with the sum of each row, and ``weight`` how fast that changes."""
    limits = [_limits(column) for column in numbers]
    bins = [np.searchsorted(of, column, side="left") for of, column in zip(limits, numbers)]
    sums, found = np.zeros(len(weight)), []
    for _ in range(COUNT):
        leaf, questions, slope = np.zeros(len(weight), np.intp), [], drawn(sums)
        for level in range(DEPTH):
            question = _best(bins, limits, leaf, 1 << level, slope, weight)
            questions.append(question)
            leaf = leaf + ((bins[question[0]] > question[1]) << level)
        total, of_leaf = (np.bincount(leaf, of, 1 << DEPTH) for of in (weight, slope))
        leaves = np.round(UNIT * RATE * of_leaf / (total + SMOOTH))
        sums += leaves[leaf] / UNIT
        its_limits = tuple(float(f"{limits[feature][at]:.4g}") for feature, at in questions)
        found.append((tuple(feature for feature, _ in questions), its_limits, tuple(int(of) for of in leaves)))
    return tuple(found)


def _limits(column: np.ndarray) -> np.ndarray:
    """What a feature is compared with: quantiles, in three digits."""
    of = np.unique(np.quantile(column, np.linspace(0, 1, BINS + 2)[1:-1], method="lower"))
    return np.unique(np.float32([float(f"{limit:.4g}") for limit in of]))


def _best(bins, limits, leaf: np.ndarray, leaves: int, sums: np.ndarray, weight: np.ndarray) -> tuple[int, int]:
    """The feature and the number of the limit that lessen the squares most."""
    best, most = (0, 0), -1.0
    for feature, (of, values) in enumerate(zip(bins, limits)):
        width = len(values) + 1
        place, shape = leaf * width + of, (leaves, width)
        low_s, low_w = (np.bincount(place, x, leaves * width).reshape(shape).cumsum(1) for x in (sums, weight))
        high_s, high_w = low_s[:, -1:] - low_s, low_w[:, -1:] - low_w
        gain = (low_s**2 / (low_w + SMOOTH) + high_s**2 / (high_w + SMOOTH)).sum(0)[:-1]
        if len(gain) and gain.max() > most:
            best, most = (feature, int(gain.argmax())), float(gain.max())
    return best


def sums(found: tuple[Tree, ...], numbers: np.ndarray) -> np.ndarray:
    """Of the leaves that each column of features reaches, in parts that fit memory."""
    if not found:
        return np.zeros(numbers.shape[1])
    parts = np.array_split(numbers, max(1, numbers.shape[1] // 4096), 1)
    return np.concatenate([answered(part, arrays(found)) for part in parts])


def written(found: tuple[Tree, ...]) -> None:
    """Put the trees into the package, one a line."""
    rows = ",\n".join(json.dumps(tree, separators=(",", ":")) for tree in found)
    TREES_FILE.write_text(f"[\n{rows}\n]\n", encoding="utf-8")
