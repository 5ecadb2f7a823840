"""Reductions along axes that are not neighbours, some of them in a launch of its own."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.reduce import launches as launch_policy, plan
from cutesync.runtime import call as calls

from .. import faults
from ..cases import bicyclic, brackets, data, fold, matrices, matrix, same

CASES = [
    ((40, 30, 4), (0, 2), "uint16", {}),
    ((3, 40, 30, 5), (1, 3), "int8", {"keepdims": True}),
    ((40, 6, 40, 3), (0, 2), "int8", {}),  # the last axis is kept
    ((64, 3, 5, 7, 3), (0, 2, 4), "int16", {}),
    ((2, 30, 2, 9), (0, 2, 3), "uint16", {}),  # the last ones
]


@pytest.fixture
def split(monkeypatch) -> list:
    """The calls that take two launches."""
    found: list = []
    monkeypatch.setattr(calls, "_plans", {})
    for name in ("MIN_BYTES_OF_TWO", "MIN_BYTES_OF_SMALL"):
        monkeypatch.setattr(launch_policy, name, 0)
    two = plan._in_two_launches
    monkeypatch.setattr(plan, "_in_two_launches", lambda *given: found.append(given) or two(*given))
    return found


@pytest.mark.drawn(3)
@pytest.mark.parametrize(("shape", "axes", "dtype", "options"), CASES)
def test_axes_of_one_end_are_reduced_first(split, shape, axes, dtype, options):
    x = data(shape, dtype)
    same(np.asarray(cs.sum(cs.asarray(x), axis=axes, **options)), x.sum(axes, dtype=x.sum().dtype, **options))
    assert split
    same(np.asarray(cs.any(cs.asarray(x), axis=axes, **options)), x.any(axes, **options))


def test_an_operand_that_comes_first_and_a_transform_are_applied_once(split):
    x = data((40, 30, 4), "int32")
    found = cs.reduce(cs.asarray(x), axis=(0, 2), init=7, transform=lambda v: v * v)
    same(np.asarray(found), (x * x).sum((0, 2), dtype=np.int32) + 7)
    assert len(split) == 1


def test_short_runs_are_reduced_in_the_order_of_memory(monkeypatch):
    """Results whose neighbours are few in the order of memory are brought into their own by a second launch."""
    monkeypatch.setattr(calls, "_plans", {})
    for name in ("MIN_BYTES_IN_ORDER", "MIN_PAIRS_IN_ORDER"):
        monkeypatch.setattr(launch_policy, name, 0)
    orders = []
    in_order = plan._in_order_of_memory
    monkeypatch.setattr(plan, "_in_order_of_memory", lambda *given: orders.append(in_order(*given)) or orders[-1])
    for shape, dtype in (((700, 33, 2), "bool"), ((700, 34, 2), "int32")):
        x = data(shape, dtype)
        same(np.asarray(cs.sum(cs.asarray(x).transpose(0, 2, 1), axis=0)), x.sum(0).T)
    assert [found is None for found in orders] == [False, True]  # a thread has words of the others


@pytest.mark.parametrize("dtype", ["uint16", pytest.param("float32", marks=pytest.mark.slow)])
def test_short_runs_of_a_transposed_array_are_reduced_first(dtype, monkeypatch):
    """Where results have several, also of axes that run backwards, and beside an operand that comes first."""
    monkeypatch.setattr(calls, "_plans", {})
    monkeypatch.setattr(launch_policy, "MIN_BYTES_OF_TWO", 0)
    found, two = [], plan._runs_first
    monkeypatch.setattr(plan, "_runs_first", lambda *given: found.append(two(*given)) or found[-1])
    x = data((8, 12, 6, 32), dtype)
    for axes, back in (((2, 1, 0, 3), 1), ((2, 1, 0, 3), -1), ((1, 2, 0, 3), 1)):
        host, own = x.transpose(axes)[:, :, ::back], cs.asarray(x).transpose(axes)[:, :, ::back]
        same(np.asarray(cs.max(own, axis=(2, 3))), host.max((2, 3)))
        wanted = host.sum((2, 3), keepdims=True, dtype=dtype) + np.array(3, dtype)
        same(np.asarray(cs.reduce(own, axis=(2, 3), init=3, keepdims=True)), wanted)
    assert None not in found and len(found) == 6
    own = cs.asarray(x).transpose(2, 1, 0, 3)
    cs.max(own[:, :-1], axis=(2, 3))  # gaps
    cs.reduce(own, lambda a, b: a + b, axis=(2, 3))
    cs.argmax(own, axis=(2, 3))
    assert found[6:] == [None] * 3


@pytest.mark.parametrize("dtype", ["int8", pytest.param("float32", marks=pytest.mark.slow)])
def test_runs_with_gaps_and_those_in_order_are_reduced_first(dtype, monkeypatch):
    """Where one launch would read their elements one by one; a callable gets them in order."""
    monkeypatch.setattr(calls, "_plans", {})
    for name in ("MIN_BYTES_OF_APART", "MIN_RUN_APART", "MIN_BYTES_OF_ORDERED", "MIN_ORDERED_RUN"):
        monkeypatch.setattr(launch_policy, name, 0)
    found, two = [], plan._runs_first
    monkeypatch.setattr(plan, "_runs_first", lambda *given: found.append(two(*given)) or found[-1])
    x = data((7, 4, 3, 40), dtype)
    host, own = x[:, :3, :, :35], cs.asarray(x)[:, :3, :, :35]
    for axes in ((0, 2, 3), (1, 3)):
        same(np.asarray(cs.reduce(own, axis=axes, init=3)), host.sum(axes, dtype=dtype) + np.array(3, dtype))
        same(np.asarray(cs.max(own, axis=axes, keepdims=True)), host.max(axes, keepdims=True))
    squares = {"transform": lambda v: v * v}
    same(np.asarray(cs.reduce(own, axis=(0, 3), **squares)), (host * host).sum((0, 3), dtype=dtype))
    letters = brackets((6, 5, 40))
    for part in (np.s_[:, :4, :35], np.s_[:, :, :35], np.s_[::-1, ::-1, :35], np.s_[::-2, 1:]):  # some backwards
        rows = letters[part].transpose(1, 0, 2).reshape(letters[part].shape[1], -1)
        same(np.asarray(cs.reduce(cs.asarray(letters)[part], bicyclic, axis=(0, 2))), fold(bicyclic, rows))
    same(np.asarray(cs.reduce(cs.asarray(letters)[::-1], bicyclic)), fold(bicyclic, letters[::-1].reshape(1, -1))[0])
    assert sum(each is not None for each in found) == 10  # the first of two launches asks, too
    found.clear()
    cs.argmax(own)
    assert set(found) == {None}


def test_others_take_one_launch(split):
    """Few elements become one; runs are long; the order counts; or indexes do."""
    for shape, axes in (((3, 30, 3), (0, 2)), ((40, 3, 600), (0, 2)), ((40, 6, 5, 16), (0, 2))):
        cs.max(cs.asarray(data(shape, "int8" if len(shape) > 3 else "int16")), axis=axes)
    x = cs.asarray(data((40, 30, 4), "int32"))
    cs.reduce(x, lambda a, b: a + b, axis=(0, 2))
    cs.mean(cs.asarray(data((40, 30, 4), "float32")), axis=(0, 2))
    assert split == []


@pytest.mark.slow
def test_a_second_launch_that_does_not_wait_is_found():
    x = data((40, 30, 4), "int32")

    def force(patch) -> None:
        patch.setattr(calls, "_plans", {})
        patch.setattr(launch_policy, "MIN_BYTES_OF_TWO", 0)

    def right() -> bool:
        return np.array_equal(np.asarray(cs.sum(cs.asarray(x), axis=(0, 2))), x.sum((0, 2)))

    bench = faults.of_tiles(force, right, schedules=3)
    assert len(bench.texts) == 2
    kinds = bench.finds(faults.TABLE["no wait for the launch before"][0])
    assert "race" in kinds, kinds


def test_callables_take_one_launch_where_two_would_have_many_elements_in_between(monkeypatch):
    """Neighbouring columns are combined along all axes at once, in order."""
    monkeypatch.setattr(calls, "_plans", {})
    monkeypatch.setattr(plan, "MIN_BYTES_OF_PASSES", 0)
    x = matrices((9, 5, 4, 70))
    for axes, launches in (((0, 2), 1), ((0, 1, 2), 1), ((1, 3), 2)):
        with cs.emulate(schedules=2, seed=5) as ran:
            found = np.asarray(cs.reduce(cs.asarray(x), matrix, axis=axes))
        kept = [i for i in range(4) if i not in axes]
        rows = np.transpose(x, [*kept, *axes]).reshape(*(x.shape[i] for i in kept), -1)
        same(found, fold(matrix, rows), f"{axes}")
        assert ran.launches == 2 * launches
    assert launch_policy.columns_at_once(((336, True), (162, False), (2, True), (884, False)), 4)
    assert not launch_policy.columns_at_once(((336, True), (162, False), (32, True), (884, False)), 4)
    assert not launch_policy.columns_at_once(((336, True), (162, False), (2, True), (8, False)), 4)
