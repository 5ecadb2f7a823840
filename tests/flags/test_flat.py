"""Flags and differences whose results are one run of memory, where vectors lie in one slice, or all elements of a slice
are equal: they agree with the reference, under schedules too; planted faults are found."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync import reference
from cutesync.kernels.flags import plan, singles_policy, strided_policy
from cutesync.runtime import call as calls

from ..cases import same
from ..faults import RESULT, Bench, each
from .cases import keys

# name: shape, view, axis. Slices lie backwards or have gaps; of half a vector each, or begin anywhere.
VIEWS = {
    "half vectors": ((3, 7, 33, 24), lambda x: x[:, ::-1], 2),
    "slices backwards": ((2, 4, 103, 5), lambda x: x[:, ::-1], 2),
    "long slices": ((5, 3, 1501), lambda x: x[::2], 1),
}
NAMES = ("flag_heads", "flag_tails", "flag_heads_and_tails", "adjacent_difference")


@pytest.fixture
def large(monkeypatch):
    """Vectors as large arrays have them; the list gets the policies."""
    found = []
    vectors_of_large_arrays(monkeypatch)
    choose = plan.choose_strided

    def chosen(*given):
        found.append(choose(*given))
        return found[-1]

    monkeypatch.setattr(plan, "choose_strided", chosen)
    return found


def vectors_of_large_arrays(patch) -> None:
    for name, value in (("ONE_VECTOR_THREADS", 0), ("FEW_ELEMENTS", (0, 0)), ("FEW_APART", (0, 0)), ("MAX_EQUAL", 0)):
        patch.setattr(strided_policy, name, value)
    patch.setattr(strided_policy, "MIN_KNOWN", 0)
    for name in ("MIN_FOUR", "MAX_SMALL"):
        patch.setattr(singles_policy, name, 0)
    patch.setattr(calls, "_plans", {})


def as_all(found) -> tuple:
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.drawn(3)
@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("dtype", ["int8", "uint16", pytest.param("float16", marks=pytest.mark.slow)])
def test_vectors_of_small_elements(name, dtype, large, on_emulator):
    shape, view, axis = VIEWS[name]
    host = keys(shape, dtype)
    for call in NAMES[len(name) % 2 :: 2]:
        found = getattr(cs, call)(view(cs.asarray(host)), axis=axis)
        for one, other in zip(as_all(found), as_all(getattr(reference, call)(view(host), axis=axis))):
            same(np.asarray(one), other, f"{call} {name}")
    given = {"predecessor": 1, "op": lambda a, b, index: (a != b) & (index % 3 != 1)}
    same(
        np.asarray(cs.flag_heads(view(cs.asarray(host)), axis=axis, **given)),
        reference.flag_heads(view(host), axis=axis, **given),
    )
    if name == "half vectors":
        assert all(choice.policy.piece == 8 for choice in large)


@pytest.mark.parametrize("dtype", ["bool", pytest.param("float32", marks=pytest.mark.slow)])
def test_equal_elements(dtype, large, on_emulator):
    """Along a repeated axis all neighbours are equal, also where rows end within vectors."""
    host = keys((60, 9), dtype)
    for extent in (29, 7):
        view = np.broadcast_to(host[..., None], (60, 9, extent))
        device = cs.asarray(host).as_strided(view.shape, (9, 1, 0))
        for call, options in (("flag_heads_and_tails", {}), ("flag_tails", {"successor": 1}), ("flag_heads", {})):
            found = getattr(cs, call)(device, **options)
            for one, other in zip(as_all(found), as_all(getattr(reference, call)(view, **options))):
                same(np.asarray(one), other)
    assert any(getattr(choice.policy, "equal", False) and choice.policy.vector > 1 for choice in large)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("dtype", ["int16", *(pytest.param(d, marks=pytest.mark.slow) for d in ("uint8", "float64"))])
def test_elements_backwards(dtype, large, on_emulator):
    """Vectors of memory whose elements are taken backwards: of a slice, of a tile, and of several short rows."""
    given = {"predecessor": 1, "op": lambda a, b, index: (a != b) & (index % 3 != 1)}
    for shape, axis in (((3, 301, 2), 2), ((40, 7, 8), 2), ((5, 4, 64), 1), ((1008,), 0), ((3, 96), 1), ((3, 99), 1)):
        host = keys(shape, dtype)
        view, ours = host[..., ::-1], cs.asarray(host)[..., ::-1]
        for call in NAMES[2:]:
            found = getattr(cs, call)(ours, axis=axis)
            for one, other in zip(as_all(found), as_all(getattr(reference, call)(view, axis=axis))):
                same(np.asarray(one), other, f"{call} {shape}")
        same(np.asarray(cs.flag_heads(ours, axis=axis, **given)), reference.flag_heads(view, axis=axis, **given))
    kinds = [getattr(choice.policy, name, False) for choice in large for name in ("row", "back")]
    assert kinds.count(2) and kinds.count(True) and any(getattr(c.policy, "loads", "") == "back" for c in large)


@pytest.mark.parametrize("step", [1, 3])
def test_short_rows_of_equal_elements(step, large, on_emulator):
    """A thread has several, whose elements it loads as vectors if they are neighbours."""
    for extent, dtype in ((4, "int32"), (2, "uint8"), (8, "int16"), (2, "float64")):
        host = keys((203 * step,), dtype)
        view = np.broadcast_to(host[::step, None], (203, extent))
        ours = cs.asarray(host)[::step].as_strided((203, extent), (step, 0))
        found, wanted = (made.flag_heads_and_tails(x, successor=1) for made, x in ((cs, ours), (reference, view)))
        for one, other in zip(found, wanted):
            same(np.asarray(one), other, f"{extent} {dtype}")
        same(np.asarray(cs.adjacent_difference(ours)), reference.adjacent_difference(view))
    assert any(getattr(choice.policy, "row", 0) == 4 for choice in large)


def equal_elements_are_right(schedules: int) -> bool:
    host = keys((90, 1), "int8")
    with pytest.MonkeyPatch.context() as patch, cs.emulate(schedules=schedules, seed=3) as ran:
        vectors_of_large_arrays(patch)
        found = cs.adjacent_difference(cs.asarray(host).broadcast_to((90, 29)))
    assert ran.launches == schedules
    same(np.asarray(found), reference.adjacent_difference(np.broadcast_to(host, (90, 29))))
    return True


def test_equal_elements_agree_under_schedules():
    assert equal_elements_are_right(5)


@functools.cache
def bench() -> Bench:
    return Bench(lambda: equal_elements_are_right(2))


FAULTS = {
    "the element of the slice before": (
        each(r"selp\.b(16|32)( \t[^,]*), ([^,]*), ([^,]*), ", r"selp.b\1\2, \4, \3, "),
        {RESULT},
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_planted_fault_is_found(fault):
    bench().check(*FAULTS[fault])
