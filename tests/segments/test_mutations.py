"""Faults planted in the compiled kernel of segments are found; the kernel as it is runs clean."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cutesync as cs

from .. import faults
from .kernels import force
from .reference import heads_of, keys_of, reduced

pytestmark = pytest.mark.slow


@functools.cache
def bench() -> faults.Bench:
    """Two filled reductions."""
    keys, x = keys_of(2003, 9), np.arange(2003, dtype=np.int32)
    heads = heads_of(keys)
    (sums,) = reduced(heads, [x])
    wanted = np.append(sums, np.full(700 - len(sums), 7, np.int32))

    def right() -> bool:
        arrays = cs.asarray(keys), cs.asarray(x)
        found = [cs.reduce_by_key(*arrays, size=700, fill_value=7) for _ in range(2)]
        return all(np.array_equal(s.values, wanted) and int(s.count) == len(sums) for s in found)

    return faults.of_tiles(force, right)


def test_no_mutant_survives():
    assert bench().survivors(faults.TILES) == faults.ONE_FENCE


@pytest.mark.parametrize("fault", faults.OF_TILES)
def test_own_faults_are_found(fault):
    bench().check(*faults.OF_TILES[fault])
