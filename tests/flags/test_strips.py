"""Short rows whose results lie behind each other, but whose elements lie far apart: they agree with the reference."""

from __future__ import annotations

import pytest

from cutesync.kernels.flags import strips_policy
from cutesync.kernels.flags.strided_choice import StripPolicy

from .cases import keys
from .test_vectors import INDEXED, check, large  # noqa: F401

SLOW = pytest.mark.slow
ALL = ("flag_heads", "flag_tails", "flag_heads_and_tails", "adjacent_difference")
TURNED = [
    ((6, 34, 5), "float64", (2, 1, 0)),
    ((5, 38, 6), "int16", (2, 1, 0)),
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
        check(host, lambda x: x.transpose(order), len(shape) - 1, ALL, **options)
    assert all(isinstance(choice.policy, StripPolicy) for choice in large)
