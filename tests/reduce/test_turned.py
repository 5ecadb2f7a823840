"""Reductions of few positions whose results lie in another order than elements: tiles of results in shared memory."""

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.reduce import strided_loads, turned_policy
from cutesync.kernels.reduce.turned_policy import TurnedPolicy
from cutesync.runtime import device

from ..cases import bicyclic, brackets, data, fold, same
from ..compiled import dry, needed, verify
from ..faults import RESULT, Bench, every, first, op
from .strided_cases import recorded


def force(patch) -> list:
    """The choices that calls make, for which no array is too small."""
    for name, value in (("MIN_BYTES", 0), ("MIN_BYTES_OF_FEW", 0), ("MIN_SIDE", 1)):
        patch.setattr(turned_policy, name, value)
    patch.setattr(strided_loads, "MIN_ROWS", 1)
    found = recorded(patch)
    return found


@pytest.fixture
def chosen(monkeypatch) -> list:
    return force(monkeypatch)


# what: (shape of memory, order of axes, axis that is reduced, type, function, how elements are loaded, its bytes)
CASES = {
    "vectors": ((70, 2, 132), (2, 1, 0), 1, "int32", "sum", "vector", 16),
    "narrow vectors": ((66, 3, 66), (2, 1, 0), 1, "float32", "argmax", "vector", 8),
    "bytes": ((67, 2, 96), (2, 1, 0), 1, "int8", "max", "vector", 16),
    "sums of bytes": ((66, 5, 64), (2, 1, 0), 1, "uint8", "sum", "vector", 4),
    "elements": ((77, 3, 18, 5), (2, 1, 3, 0), 1, "uint64", "any", "vector", 16),
    "rows": ((37, 90, 4), (1, 0, 2), 2, "int16", "max", "row", 8),
    "rows of elements": ((65, 9, 3), (1, 0, 2), 2, "float64", "argmin", "element", 8),
    "sixteen positions": ((65, 16, 40), (2, 1, 0), 1, "float16", "argmax", "vector", 8),
    "one position": ((40, 1, 72), (2, 1, 0), 1, "uint16", "sum", "vector", 8),
    "whole tiles": ((128, 8, 64), (2, 1, 0), 1, "bool", "any", "vector", 16),
}


@pytest.mark.drawn(5)
@pytest.mark.parametrize("what", CASES)
def test_agrees_with_numpy(what, on_emulator, chosen):
    shape, order, axis, dtype, name, load, size = CASES[what]
    x = data(shape, dtype, "max" if dtype[0] == "f" else "add")
    with cs.emulate(schedules=2, seed=5):
        found = np.asarray(getattr(cs, name)(cs.asarray(x).transpose(order), axis=axis))
    same(found, getattr(np, name)(x.transpose(order), axis=axis).astype(found.dtype))
    (choice,) = chosen
    assert isinstance(choice.policy, TurnedPolicy) and (choice.policy.load, choice.policy.bytes) == (load, size)


# what: (shape of memory, type, function, neighbours in a tile)
NARROW = {
    "three": ((3, 1, 201), "float16", "any", 4),
    "pairs of vectors": ((2, 5, 128), "uint8", "sum", 2),
    "many": ((21, 2, 72), "int32", "max", 32),
    "indexes": ((5, 3, 90), "float32", "argmax", 8),
}


@pytest.mark.drawn(2)
@pytest.mark.parametrize("what", NARROW)
def test_few_neighbours_in_the_output_are_whole_in_a_tile(what, on_emulator, chosen, monkeypatch):
    for name, value in (("MIN_SIDE", 32), ("MIN_APART_BYTES", 0), ("MAX_FEW_HIGH", 31)):
        monkeypatch.setattr(turned_policy, name, value)
    shape, dtype, name, down = NARROW[what]
    x = data((2, *shape), dtype, "max" if dtype[0] == "f" else "add")
    order = (0, 3, 2, 1)  # the last is first
    found = np.asarray(getattr(cs, name)(cs.asarray(x).transpose(order), axis=2))
    same(found, getattr(np, name)(x.transpose(order), axis=2).astype(found.dtype))
    assert [(type(choice.policy), choice.policy.down) for choice in chosen] == [(TurnedPolicy, down)]


@pytest.mark.drawn(2)
@pytest.mark.parametrize("steps", [(1, 1), (-1, 1), (1, -1), (-1, -1)])
def test_results_beside_others_and_backwards(steps, on_emulator, chosen):
    """With an operand that comes first and an operator that keeps the order; nothing beside the results is written."""
    x = brackets((50, 3, 40))
    around = np.full((40, 80), 77, x.dtype)
    out = cs.asarray(around)
    view = (slice(None, None, steps[0]), slice(5, 55) if steps[1] > 0 else slice(54, 4, -1))
    given, init = cs.asarray(x).transpose(2, 1, 0), int(x.ravel()[3])
    cs.reduce(given, bicyclic, axis=1, out=out[view], init=init)
    wanted = fold(bicyclic, x.transpose(2, 0, 1))
    around[view] = bicyclic(np.full_like(wanted, init), wanted)
    same(np.asarray(out), around)
    assert isinstance(chosen[0].policy, TurnedPolicy)


def test_results_that_are_copied_and_elements_that_repeat(on_emulator, chosen):
    x = data((70, 3, 64), "int32")
    turned = cs.asarray(x).transpose(2, 1, 0)
    same(np.asarray(cs.sum(turned.as_strided((5, 64, 3, 70), (0, *turned.steps)), axis=2))[3], x.sum(1).T)
    found = np.asarray(cs.sum(turned.as_strided((64, 9, 3, 70), (1, 0, *turned.steps[1:])), axis=(1, 2)))
    same(found, (9 * x.sum(1).T).astype(found.dtype))
    assert any(isinstance(choice.policy, TurnedPolicy) for choice in chosen)


def test_others_are_left_to_other_kernels(on_emulator, monkeypatch):
    chosen = force(monkeypatch)
    x = cs.asarray(data((70, 17, 64), "int32"))
    cs.sum(x, axis=1)  # in the order of elements
    cs.sum(x.transpose(2, 1, 0), axis=1)  # too many positions
    cs.sum(cs.asarray(data((70, 2, 64), "int32")).transpose(2, 1, 0), axis=1, n=1)
    monkeypatch.setattr(turned_policy, "MIN_BYTES_OF_FEW", 1 << 20)
    cs.max(cs.asarray(data((70, 2, 64), "int32")).transpose(2, 1, 0), axis=1)
    assert not any(isinstance(choice.policy, TurnedPolicy) for choice in chosen)


def test_results_of_small_arrays_are_numbered_as_they_are_stored(on_emulator, monkeypatch):
    """Of few elements that are near each other; of elements that repeat, and by a callable in order, too."""
    chosen = recorded(monkeypatch)
    x, y = data((70, 2, 64), "int16"), brackets((40, 3, 45))
    same(np.asarray(cs.sum(cs.asarray(x).transpose(2, 1, 0), axis=1)), x.sum(1).T)
    same(np.asarray(cs.argmax(cs.asarray(x).transpose(2, 1, 0), axis=1)), x.argmax(1).T)
    given = cs.asarray(y).as_strided((3, 40, 45, 50), (45, 135, 1, 0))
    same(
        np.asarray(cs.reduce(given.transpose(0, 3, 2, 1), bicyclic, axis=0)),
        np.stack([fold(bicyclic, y.transpose(2, 0, 1))] * 50),
    )
    assert [(choice.kept[-1].steps[1], choice.kept[-1].extent) for choice in chosen] == [(1, 70), (1, 70), (1, 40)]
    cs.sum(cs.asarray(data((70, 17, 64), "int16")).transpose(2, 1, 0), axis=1)  # more elements
    assert chosen[-1].kept[-1].steps[1] != 1


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("dtype, name", [("float32", "sum"), ("uint8", "sum"), ("float64", "argmax")])
def test_compiled_kernels_keep_nothing_in_memory(dtype, name, allocated):
    result = {"float32": "float32", "uint8": "uint64", "float64": "int64"}[dtype]
    x, out = dry((4096, 3, 1280), dtype), dry((1280, 4096), result, 0, 1 << 60)
    (spec,) = needed(getattr(cs, name), x.transpose(2, 1, 0), axis=1, out=out)
    assert isinstance(spec.key[1], TurnedPolicy)
    verify(spec, allocated)


@functools.cache
def bench() -> Bench:
    x = data((70, 2, 132), "int32")

    def right() -> bool:
        with pytest.MonkeyPatch.context() as patch, device.forced("emulator"), cs.emulate(schedules=5, seed=3):
            force(patch)
            return np.array_equal(np.asarray(cs.max(cs.asarray(x).transpose(2, 1, 0), axis=1)), x.max(1).T)

    return Bench(right)


FAULTS = {
    "no barrier before results are stored": (first(op(r"bar\.sync"), after=r"st\.shared"), {"race", "uninitialised"}),
    "reads beyond the last unit and row": (
        every(r"min\.s32 ([^,]*), ([^,]*), [^;]*;", r"mov.b32 \1, \2;"),
        {RESULT, "out-of-bounds"},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(fault):
    bench().check(*FAULTS[fault])
