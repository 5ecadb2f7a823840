"""Short rows of which threads have several whole ones, whose elements and results are runs of memory: they agree with
NumPy, under schedules too."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync import reference
from cutesync.kernels.flags import plan, runs_policy, tile_policy
from cutesync.runtime import call

from ..cases import SCHEDULES, same
from ..compiled import dry, needed, verify
from .cases import keys

NAMES = "flag_heads", "flag_tails", "flag_heads_and_tails", "adjacent_difference"
INDEXED = lambda a, b, index: (a != b) & (index % 3 != 1)  # noqa: E731
SLOW = pytest.mark.slow
# type, shape in memory, view, axis
CASES = {
    "backwards": ("uint16", (702, 3), lambda x: x[:, ::-1], 0),
    "gaps": ("bool", (701, 8), lambda x: x[:, :5], 0),
    "slices": ("int8", (3, 300, 7), lambda x: x[:, :, :5], 1),
    "one column less": ("bfloat16", (903, 4), lambda x: x[:, :3], 0),
}


@pytest.fixture
def chosen(monkeypatch) -> list:
    monkeypatch.setattr(runs_policy, "MIN_ELEMENTS", 0)
    for name in ("FEWEST_THREADS", "FEW_THREADS"):
        monkeypatch.setattr(tile_policy, name, 0)
    monkeypatch.setattr(tile_policy, "is_gathered", lambda *_: False)
    monkeypatch.setattr(call, "_plans", {})
    found, strided = [], plan.strided_spec
    monkeypatch.setattr(plan, "strided_spec", lambda choice, *rest: found.append(choice) or strided(choice, *rest))
    return found


def check(name: str, called: str, *given, **options) -> None:
    dtype, shape, view, axis = CASES[name]
    host = keys(shape, dtype)
    found = getattr(cs, called)(view(cs.asarray(host)), *given, axis=axis, **options)
    wanted = getattr(reference, called)(view(host), *given, axis=axis, **options)
    for ours, each in zip(found, wanted) if isinstance(wanted, tuple) else ((found, wanted),):
        same(np.asarray(ours), each)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[SLOW] * (k > 2)) for k, name in enumerate(CASES)])
def test_short_rows(chosen, name):
    for called in NAMES[: 3 if CASES[name][0] == "bool" else 4]:
        check(name, called)
    check(name, "flag_heads_and_tails", predecessor=1, successor=2)
    check(name, "flag_tails", INDEXED)
    assert {getattr(choice.policy, "pitch", 0) for choice in chosen} == {CASES[name][1][-1]}


def test_short_rows_under_schedules(chosen):
    with cs.emulate(schedules=SCHEDULES, seed=3) as ran:
        check("gaps", "flag_heads_and_tails")
    assert ran.launches == SCHEDULES and chosen[-1].policy.pitch == 8


def test_other_rows(chosen):
    """Those whose addresses divide by less than a word, few, long, and those of which tiles have vectors."""
    for x, axis in (
        (dry((700, 3), "uint16", 2)[:, ::-1], 0),
        (dry((3, 40, 7), "int8")[:, :, :5], 1),
        (dry((700, 7), "uint16")[:, ::-1], 0),
        (dry((700, 8), "uint8")[:, :4], 0),
    ):
        needed(cs.flag_heads, x, axis=axis)
        assert not hasattr(chosen[-1].policy, "pitch")


def test_short_rows_are_loaded_and_stored_in_vectors(chosen, allocated, fresh_compiler):
    (spec,) = needed(cs.flag_heads, dry((1 << 20, 3), "uint16")[:, ::-1], axis=0)
    verify(spec, allocated)
    ptx = spec.kernel().ptx
    assert chosen[-1].policy.piece == 4 and "ld.global.v4.b16" in ptx and "st.global.b32" in ptx
