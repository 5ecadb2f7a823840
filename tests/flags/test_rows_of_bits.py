"""Bits of odd rows of bytes, of which a warp has one each, joined from words: they agree with the reference."""

from __future__ import annotations

import pytest

from cutesync.kernels.flags import plan, policy

from .cases import keys
from .test_vectors import check

NAMES = ("flag_heads", "flag_tails", "flag_heads_and_tails")
SLOW = pytest.mark.slow
ROWS = [((5, 371), "int8"), ((3, 129), "uint8"), ((7, 67), "bool"), ((2, 5, 1023), "int8"), ((4, 530), "uint8")]


@pytest.mark.parametrize(("shape", "dtype"), [pytest.param(*c, marks=[SLOW] * (i > 1)) for i, c in enumerate(ROWS)])
def test_bits_of_odd_rows(shape, dtype, monkeypatch, on_emulator):
    monkeypatch.setattr(policy, "MIN_ODD_ELEMENTS", 0)
    found, choose = [], plan.choose
    monkeypatch.setattr(plan, "choose", lambda *given: found.append(choose(*given)) or found[-1])
    host = keys(shape, dtype)
    check(host, lambda x: x, len(shape) - 1, NAMES, dtype="bits")
    check(host, lambda x: x, len(shape) - 1, NAMES[2:], dtype="bits", predecessor=1, successor=2)
    assert all(choice.policy.row for choice in found)
