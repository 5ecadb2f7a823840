"""Views that select each kernel of strided arrays, and each way in which it shares work, on small arrays."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

from cutesync.kernels.reduce import plan, policy, strided_policy
from cutesync.kernels.reduce.normal import Normal
from cutesync.runtime import call as calls

# name: (shape, index of the view, axis, the class of the kernel, groups, blocks that share a result)
VIEWS = {
    "columns": ((60, 50), np.s_[:, ::2], 0, "StridedReduce", 4, 1),
    "columns, split": ((900, 50), np.s_[:, ::2], 0, "StridedReduce", 4, 4),
    "columns of vectors": ((101, 68), np.s_[::2, :64], 0, "StridedReduce", 4, 1),
    "positions of a warp": ((9, 500), np.s_[:, ::3], 1, "StridedReduce", 32, 1),
    "positions of a block": ((3, 2100), np.s_[:, ::2], 1, "StridedReduce", 256, 1),
    "positions, split": ((9000,), np.s_[::2], 0, "StridedReduce", 256, 2),
    "short runs": ((200, 60), np.s_[:, 1:50], 1, "RunReduce", 8, 1),
    "runs of a warp": ((70, 200), np.s_[:, 1:190], 1, "RunReduce", 32, 1),
    "runs of a block": ((3, 1500), np.s_[:, 1:1490], 1, "RunReduce", 256, 1),
    "runs, split": ((2, 9000), np.s_[:, 3:8990], 1, "RunReduce", 256, 2),
}


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
        patch.setattr(strided_policy, "SMS", 1)
        patch.setattr(strided_policy, "PIECE_BYTES", (512, 768))
        patch.setattr(Normal, "contiguous", lambda form, inputs: None)
        patch.setattr("cutesync.kernels.reduce.strided_plan.choose", chosen)
        yield seen
    *_, kernel, groups, splits = VIEWS[name]
    for choice in seen:
        assert choice.policy.kernel.endswith(kernel)
        assert (choice.policy.groups, choice.splits) == (groups, splits), choice


def rows(x: np.ndarray, axis: int) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(x, axis, -1))


# name: (shape, axis)
SLICES = {
    "slices of three columns": ((14, 67, 3), 1),
    "slices of eight columns": ((9, 64, 8), 1),
    "odd rows": ((19, 131), 1),
}


@contextmanager
def slices():
    """Policies that hold outer slices in shared memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calls, "_plans", {})
        patch.setattr(policy, "SMS", 1)
        patch.setattr(plan, "choose", policy.slices)
        yield
