"""Which tiles of columns are copied in vectors of 16 bytes by warps."""

from __future__ import annotations

from ..hardware import LANES
from .problem import Problem

# Of arrays of whose rows vectors hold what lies beside them, too, not elements one by one (H200, off by one: int32
# (65536, 512): 95.8 us, so 82.8 us; reverse uint32 (44, 1361, 428): 87.6 and 66.7 us; max float64 (10290, 172): 14.9 us
# both; of two bytes, as ragged columns, reverse bfloat16 (32768, 1024): 51.2 and 48.1 us).
MIN_SKEWED_BYTES = 1 << 20


def skew_of_tiles(problem: Problem) -> int:
    """Return how many elements rows begin behind a boundary of a vector if all do so, and vectors that hold elements
    of others may be copied; else 0."""
    items, plain = problem.items, problem.source == problem.wide and not (problem.several or problem.counted)
    large = problem.size_of_results >= MIN_SKEWED_BYTES
    if not (plain and large and problem.apart and problem.view != "backward"):
        return 0
    return 0 if any(n % items for n in (problem.inner, *problem.pitches[0])) else problem.first % items


def in_vectors(problem: Problem, width: int, lanes: int, groups: int, height: int, skew: int = 0) -> bool:
    """Return whether the elements that a warp has of each row are whole vectors of 16 bytes on their boundaries, or
    ``skew`` elements behind them, those of each row of the array too."""
    whole = problem.source == problem.wide and not problem.several and lanes * width % problem.items == 0
    whole = whole and (skew > 0 or problem.vector(problem.inner)[0] == problem.items)
    rows = LANES // min(LANES, LANES * width // problem.items)  # that a warp copies at once
    return whole and LANES % lanes == 0 and lanes * groups % LANES == 0 and height % rows == 0
