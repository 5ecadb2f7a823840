"""Scans in whole outer slices of arrays that begin anywhere."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.scan import plan
from cutesync.kernels.scan.slice_policy import SlicePolicy

from ..cases import data, same, scanned

SHAPES = {  # (shape, axis): with bytes between slices in shared memory, and without
    "padded": ((19, 8, 8), 1),
    "rows": ((5, 264), 1),
    "odd": ((17, 21, 3), 1),
}
slow = pytest.mark.slow


@pytest.fixture
def aligned(monkeypatch):
    """Whether the tiles of the launches of a test begin on boundaries: (inputs, outputs). All are of outer slices."""
    found = []
    launch = plan.launch

    def watched(choice, *more):
        assert isinstance(choice.policy, SlicePolicy)
        found.append((choice.policy.aligned, choice.policy.aligned_out))
        return launch(choice, *more)

    monkeypatch.setattr(plan, "launch", watched)
    return found


def from_element(x: np.ndarray, first: int):
    """An array of the values of ``x`` that begins at element ``first`` of its memory and ends with it."""
    return cs.asarray(np.concatenate([np.ones(first, x.dtype), x.reshape(-1)]))[first:].reshape(x.shape)


@pytest.mark.parametrize("case", SHAPES)
@pytest.mark.parametrize(
    "dtype", ["int8", *(pytest.param(each, marks=slow) for each in ("bool", "int16", "float16", "uint32"))]
)
def test_every_first_element_of_a_vector(case, dtype, on_emulator, aligned):
    (shape, axis), size = SHAPES[case], np.dtype(dtype).itemsize
    x = data(shape, dtype)
    for first in {1, 10 // size | 1, 16 // size - 1}:
        same(np.asarray(cs.scan(from_element(x, first), axis=axis)), scanned(x, axis=axis), f"from {first}")
    assert set(aligned) == {(False, True)}


def test_results_of_other_places(on_emulator, aligned):
    """Results in place, results that begin elsewhere, and wider ones, which have memory of their own in a tile."""
    x = data((19, 8, 8), "int16")
    view = from_element(x, 3)
    wanted = scanned(x, axis=1, reverse=True)
    out = from_element(np.zeros_like(x), 5)
    same(np.asarray(cs.scan(view, axis=1, reverse=True, out=out)), wanted)
    assert aligned.pop() == (False, False)
    same(np.asarray(cs.scan(view, axis=1, dtype="int64")), np.cumsum(x, 1, dtype=np.int64))
    assert aligned.pop() == (False, True)
    same(np.asarray(cs.scan(view, axis=1, reverse=True, out=view)), wanted)
