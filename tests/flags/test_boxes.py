"""Short rows whose results lie behind each other, but whose elements lie far apart, in boxes."""

from __future__ import annotations

import cutesync as cs
from cutesync.kernels.flags import boxes_policy, plan
from cutesync.kernels.flags.strided_choice import BoxPolicy

from ..compiled import dry
from .cases import keys
from .test_vectors import check, large  # noqa: F401

ALL = ("flag_heads", "flag_tails", "flag_heads_and_tails", "adjacent_difference")


def test_short_rows_in_boxes(large, monkeypatch, on_emulator):  # noqa: F811
    """Rows that are no vectors, in arrays that are not large; rows of two or four are stored in vectors by tiles."""
    for limit in ("MIN_ELEMENTS", "MIN_ELEMENTS_OF_FEW"):
        monkeypatch.setattr(boxes_policy, limit, 0)
    for shape, dtype in (((3, 200, 20), "int32"), ((5, 150, 4), "int16"), ((4, 200, 20), "int32")):
        host = keys(shape, dtype)
        check(host, lambda x: x.T, 2, ALL[2:], successor=1)
        assert all(isinstance(choice.policy, BoxPolicy) == (shape[0] != 4) for choice in large)
        assert dtype != "int16" or {choice.policy.piece for choice in large} == {2}  # loaded in words
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


def test_boxes_in_place_of_blocks_that_would_be_almost_empty(monkeypatch):
    """Whose columns and rows, of a few elements each, fill no block that transposes."""
    found, strided = [], plan.strided_spec
    monkeypatch.setattr(plan, "strided_spec", lambda choice, *rest: found.append(choice) or strided(choice, *rest))
    for last in (6, 12):
        cs.adjacent_difference(dry((4, 15, 4055, last), "uint64").transpose(2, 1, 3, 0), axis=2)
    assert [isinstance(choice.policy, BoxPolicy) for choice in found] == [True, False]
