"""Short rows whose results lie behind each other, but whose elements lie far apart: they agree with the reference, in
strips of a thread and in boxes."""

from __future__ import annotations

import pytest

from cutesync.kernels.flags import boxes_policy, strips_policy
from cutesync.kernels.flags.strided_choice import BoxPolicy, StripPolicy

from .cases import keys
from .test_vectors import INDEXED, check, large  # noqa: F401

SLOW = pytest.mark.slow
ALL = ("flag_heads", "flag_tails", "flag_heads_and_tails", "adjacent_difference")
TURNED = [
    ((6, 34, 5), "float64", (2, 1, 0)),
    ((5, 40, 6), "int16", (2, 1, 0)),
    ((3, 5, 36, 4), "int8", (3, 1, 2, 0)),
    ((7, 40, 3), "bfloat16", (2, 1, 0)),
]


@pytest.mark.parametrize(
    ("shape", "dtype", "order"), [pytest.param(*c, marks=[SLOW] * (i > 1)) for i, c in enumerate(TURNED)]
)
def test_short_rows_far_apart(shape, dtype, order, large, monkeypatch, on_emulator):  # noqa: F811
    monkeypatch.setattr(strips_policy, "MIN_STRIP_BYTES", 0)
    host = keys(shape, dtype)
    for options in ({}, {"successor": 1}, {"op": INDEXED}):
        check(host, lambda x: x.transpose(order), len(shape) - 1, ALL[: 3 + (dtype != "float64")], **options)
    assert all(isinstance(choice.policy, StripPolicy) for choice in large)


def test_short_rows_in_boxes(large, monkeypatch, on_emulator):  # noqa: F811
    """Rows that are no vectors, in arrays that are not large; rows of two or four are stored in vectors by tiles."""
    for limit in ("MIN_ELEMENTS", "MIN_ELEMENTS_OF_FEW"):
        monkeypatch.setattr(boxes_policy, limit, 0)
    for shape, dtype in (((3, 200, 20), "int32"), ((5, 150, 4), "int16"), ((4, 200, 20), "int32")):
        host = keys(shape, dtype)
        check(host, lambda x: x.T, 2, ALL[2:], successor=1)
        assert all(isinstance(choice.policy, BoxPolicy) == (shape[0] != 4) for choice in large)
        large.clear()


def test_differences_of_short_rows_in_boxes(large, monkeypatch, on_emulator):  # noqa: F811
    """Differences of words beside short runs, and in longer rows; flags of such arrays are stored by tiles."""
    for limit in ("MIN_ELEMENTS", "MIN_ELEMENTS_OF_FEW", "MIN_DIFFERENCES"):
        monkeypatch.setattr(boxes_policy, limit, 0)
    for shape, dtype in (((5, 200, 3), "int32"), ((6, 150, 2), "float64"), ((10, 100, 4), "uint16")):
        host = keys(shape, dtype)
        check(host, lambda x: x.T, 2, ("adjacent_difference", "flag_tails"))
        assert [isinstance(choice.policy, BoxPolicy) for choice in large] == [True, False]
        large.clear()
