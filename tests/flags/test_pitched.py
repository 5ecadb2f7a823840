"""Flags and differences of bytes between rows that lie apart and begin anywhere: they agree with the reference, and
nothing outside of the array is read."""

from __future__ import annotations

import pytest

import cutesync as cs
from cutesync.kernels.flags import pitched_policy
from cutesync.kernels.flags.strided_choice import PitchedPolicy
from cutesync.kernels.policy import Policy

from ..compiled import dry, needed
from .cases import keys
from .test_vectors import check, large  # noqa: F401

SLOW = pytest.mark.slow
ALL = ("flag_heads", "flag_tails", "flag_heads_and_tails", "adjacent_difference")
VIEWS = [
    ((9, 101), "int8", lambda x: x[:, 3:82]),
    ((7, 97), "uint8", lambda x: x[:, :67]),
    ((3, 5, 90), "bool", lambda x: x[:, 1:, 5:71]),
    ((5, 203), "int8", lambda x: x[::2, 1:]),
]


@pytest.mark.parametrize(
    ("shape", "dtype", "view"), [pytest.param(*c, marks=[SLOW] * (i > 1)) for i, c in enumerate(VIEWS)]
)
def test_bytes_of_rows_apart(shape, dtype, view, large, monkeypatch, on_emulator):  # noqa: F811
    for limit in ("MIN_PITCHED", "MIN_ROW"):
        monkeypatch.setattr(pitched_policy, limit, 0)
    host = keys(shape, dtype)
    names = ALL[: 3 + (dtype != "bool")]
    for options in ({}, {"successor": 1}):
        check(host, view, len(shape) - 2, names, **options)
    assert all(isinstance(choice.policy, PitchedPolicy) for choice in large)


@pytest.mark.parametrize(("columns", "may"), [((1 << 31) - 1, True), (1 << 31, False)])
def test_columns_are_counted_in_32_bits(columns, may):
    """Rows of more are no pitched ones: a thread would take the last column for nearer than it is."""
    x = dry((2, columns + 100), "int8")[:, 3 : columns + 3]
    found = [policy for spec in needed(cs.flag_heads, x, axis=0) for policy in spec.key if isinstance(policy, Policy)]
    assert [isinstance(policy, PitchedPolicy) for policy in found] == [may]
