"""Views that select each kernel of strided arrays, and each way in which it shares work, on small arrays."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

from cutesync.kernels.reduce import lone_policy, slice_policy, strided_plan, strided_policy
from cutesync.kernels.reduce.normal import Normal
from cutesync.runtime import call as calls

POSITIONS = "StridedReduce", "OrderedReduce"  # the second of operators that keep the order
# name: (shape, index of the view, axis, class of the kernel, its groups (0: several), whether blocks share a result)
VIEWS = {
    "columns": ((60, 50), np.s_[:, ::2], 0, "StridedReduce", 0, False),
    "columns, split": ((900, 50), np.s_[:, ::2], 0, "StridedReduce", 0, True),
    "columns of vectors": ((101, 68), np.s_[::2, :64], 0, "StridedReduce", 0, False),
    "positions of a warp": ((9, 500), np.s_[:, ::3], 1, POSITIONS, 32, False),
    "positions of a block": ((3, 2100), np.s_[:, ::2], 1, POSITIONS, 256, False),
    "positions, split": ((9000,), np.s_[::2], 0, POSITIONS, 256, True),
    "short runs": ((200, 60), np.s_[:, 1:50], 1, "RunReduce", 8, False),
    "runs of a warp": ((70, 600), np.s_[:, 1:590], 1, "RunReduce", 32, False),
    "runs of a block": ((3, 1500), np.s_[:, 1:1490], 1, "RunReduce", 256, False),
    "runs, split": ((2, 9000), np.s_[:, 3:8990], 1, "RunReduce", 256, True),
}


def recorded(patch: pytest.MonkeyPatch) -> list:
    """The choices for strided arrays that calls make from now on; none is remembered."""
    found: list = []
    patch.setattr(strided_plan, "choose", lambda p: found.append(strided_policy.choose(p)) or found[-1])
    patch.setattr(calls, "_plans", {})
    return found


@contextmanager
def kernels_of(name: str):
    """Policies for small arrays: the view ``name`` selects its kernel, also where a contiguous array has one of its
    own."""
    seen = []
    choose = strided_policy.choose

    def chosen(problem):
        seen.append(choose(problem))
        return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calls, "_plans", {})
        patch.setattr(strided_policy, "SMS", 4)
        patch.setattr(lone_policy, "MAX_WIDE_BYTES", 0)
        patch.setattr(strided_policy, "PIECE_BYTES", (512, 2048))
        patch.setattr(slice_policy, "ORDERED_ROW_BYTES", 0)
        patch.setattr(Normal, "contiguous", lambda form, inputs: None)
        patch.setattr("cutesync.kernels.reduce.strided_plan.choose", chosen)
        yield seen
    *_, kernel, groups, split = VIEWS[name]
    for choice in seen:
        assert choice.policy.kernel.endswith(kernel)
        assert choice.policy.groups == (groups or choice.policy.groups) > 1, choice
        assert (choice.splits > 1) == split, choice


def rows(x: np.ndarray, axis: int) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(x, axis, -1))


# name: (shape, index of the view, axis)
SLICES = {
    "slices of three columns": ((14, 67, 3), np.s_[:], 1),
    "slices of eight columns": ((9, 64, 8), np.s_[:], 1),
    "slices of short rows with gaps": ((5, 90, 11), np.s_[::-1, :, 1:10], 2),
}


@contextmanager
def slices():
    """Policies that hold slices in shared memory."""
    seen = []
    choose = slice_policy.choose

    def chosen(problem):
        seen.append(choose(problem))
        return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calls, "_plans", {})
        for name, value in (("SMS", 1), ("MAX_SIZE", 8), ("MIN_BYTES", 0), ("MIN_SLICES", 1), ("MIN_BLOCK_BYTES", 0)):
            patch.setattr(slice_policy, name, value)
        patch.setattr(strided_policy, "load_of", lambda problem, columns: ("element", problem.size, 1))
        patch.setattr(slice_policy, "choose", chosen)
        yield
    assert seen and all(isinstance(choice.policy, slice_policy.SlicePolicy) for choice in seen)
