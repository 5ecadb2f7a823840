"""Reductions of short axes in rows that begin anywhere: vectors of columns, whose results neighbouring threads store in
common vectors; and few columns of rows that lie apart, in words."""

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.reduce import strided_loads, strided_policy
from cutesync.kernels.reduce.strided_problem import JoinedPolicy, StridedPolicy
from cutesync.runtime import device

from ..cases import data, same
from ..compiled import dry, needed, verify
from ..faults import RESULT, Bench, swap
from .strided_cases import recorded


def force(patch) -> list:
    """The choices that calls make, for which no array is too small."""
    for name in ("MIN_WIDE_UNITS", "MIN_WORDS_BYTES", "MIN_FEW_BYTES", "MIN_FEW_INDEXED"):
        patch.setattr(strided_loads, name, 0)
    patch.setattr("cutesync.kernels.reduce.plan.strided_is_faster", lambda problem: True)
    found = recorded(patch)
    return found


@pytest.fixture
def chosen(monkeypatch) -> list:
    return force(monkeypatch)


def behind(x: np.ndarray, before: int):
    """The array behind ``before`` elements of memory that ends with it."""
    return cs.asarray(np.concatenate([np.zeros(before, x.dtype), x.ravel()]))[before:].reshape(x.shape)


# shape, type, function, elements before it, and positions of a thread in flight
CASES = {
    "flags of halves": ((3, 5, 601), "float16", "any", 0, 5),
    "halves off by one": ((3, 5, 603), "float16", "max", 1, 5),
    "bytes": ((2, 3, 1013), "int8", "max", 3, 4),
    "seven positions": ((2, 7, 1009), "uint8", "any", 0, 7),
    "eight positions": ((2, 8, 277), "uint8", "min", 0, 4),
    "more positions": ((3, 13, 515), "uint8", "min", 5, 4),
    "rows of a vector and one": ((9, 2, 17), "uint8", "max", 0, 4),
    "one row of a warp and one": ((2, 2, 16 * 32 + 3), "int8", "min", 0, 4),
    "bools": ((2, 4, 333), "bool", "max", 2, 4),
}


@pytest.mark.drawn(5)
@pytest.mark.parametrize("what", CASES)
def test_agrees_with_numpy(what, on_emulator, chosen):
    shape, dtype, name, before, unroll = CASES[what]
    x = data(shape, dtype, "max" if dtype[0] == "f" else "add")
    with cs.emulate(schedules=2, seed=5):
        found = np.asarray(getattr(cs, name)(behind(x, before), axis=1))
    same(found, getattr(np, name)(x, axis=1).astype(found.dtype))
    (choice,) = chosen
    assert isinstance(choice.policy, JoinedPolicy) and (choice.policy.bytes, choice.policy.unroll) == (16, unroll)


def last(a, b):
    """The last of two that is not zero."""
    return b if b != 0 else a


def test_results_beside_others_of_an_operator_that_keeps_the_order(on_emulator, chosen):
    x = (data((3, 5, 93), "int16", "add") * (data((3, 5, 93), "int8", "add") % 3 == 0)).astype(np.int16)
    around = np.full((3, 103), 77, x.dtype)
    out = cs.asarray(around)
    cs.reduce(cs.asarray(x), last, axis=1, out=out[:, 5:98], init=9)
    wanted = np.full((3, 93), 9, x.dtype)
    for row in np.moveaxis(x, 1, 0):
        wanted = np.where(row != 0, row, wanted)
    around[:, 5:98] = wanted
    same(np.asarray(out), around)
    assert isinstance(chosen[0].policy, JoinedPolicy)


def test_copies_and_fewer_positions(on_emulator, chosen):
    x = data((3, 5, 203), "int8")
    given = cs.asarray(x)
    repeated = given.as_strided((3, 5, 203, 4), (1015, 203, 1, 0))
    same(np.asarray(cs.max(repeated, axis=1)), np.repeat(x.max(1)[..., None], 4, 2))
    same(np.asarray(cs.max(given, axis=1, n=2)), x[:, :2].max(1))
    assert any(isinstance(choice.policy, JoinedPolicy) for choice in chosen)


def test_others_store_their_results_alone(chosen):
    with device.forced("dry"):
        cs.max(cs.empty((3, 5, 608), "int8"), axis=1)  # whole vectors
        cs.max(cs.empty((3, 6, 302), "uint16"), axis=1)  # of 4 bytes
        cs.sum(cs.empty((3, 5, 601), "int8"), axis=1)  # results of eight bytes
        cs.max(cs.empty((3, 5, 601), "int32"), axis=1)
        cs.max(cs.empty((2, 9000, 33), "int8"), axis=1)  # which groups share
    assert len(chosen) == 5 and not any(isinstance(choice.policy, JoinedPolicy) for choice in chosen)


# shape, steps, type, function, elements before the first
FEW = {
    "bools with gaps": ((999, 14), (26, 1), "bool", "argmax", 0),
    "bytes without": ((999, 5), (5, 1), "uint8", "argmax", 0),
    "five bytes of six": ((777, 5), (6, 1), "uint8", "max", 3),
    "slices": ((3, 6007, 7), (6007 * 9 + 2, 9, 1), "int8", "sum", 1),
}


@pytest.mark.drawn(3)
@pytest.mark.parametrize("what", FEW)
def test_few_columns_in_words(what, on_emulator, chosen):
    shape, steps, dtype, name, before = FEW[what]
    memory = data((before + 1 + sum((n - 1) * step for n, step in zip(shape, steps)),), dtype, "max")
    x = np.lib.stride_tricks.as_strided(memory[before:], shape, [step * memory.itemsize for step in steps])
    with cs.emulate(schedules=2, seed=5):
        found = np.asarray(getattr(cs, name)(cs.asarray(memory)[before:].as_strided(shape, steps), axis=len(shape) - 2))
    same(found, getattr(np, name)(x, axis=len(shape) - 2).astype(found.dtype))
    assert [(choice.policy.load, choice.policy.bytes) for choice in chosen] == [("words", 4)]


def test_fewer_columns_and_positions_are_read_by_others(chosen):
    with device.forced("dry"):
        cs.max(cs.empty((9000, 4), "int8"), axis=0)
        cs.max(cs.empty((3, 200, 7), "int8"), axis=1)
        cs.argmax(cs.empty((9000, 7), "int16"), axis=0)
        cs.max(cs.empty((9000, 7), "int32"), axis=0)
    assert len(chosen) == 4 and not any(choice.policy.load == "words" for choice in chosen)


@pytest.mark.parametrize(("dtype", "length", "unroll"), [("uint16", 6, 6), ("int8", 7, 7), ("float16", 6, 8)])
def test_all_of_a_few_aligned_vectors_of_integers_are_in_flight(
    dtype, length, unroll, on_emulator, chosen, monkeypatch
):
    monkeypatch.setattr(strided_policy, "MIN_AT_ONCE", 0)
    x = data((length, 604 // np.dtype(dtype).itemsize), dtype, "max")
    same(np.asarray(cs.max(cs.asarray(x), axis=0)), x.max(0))
    (choice,) = chosen
    assert (choice.policy.load, choice.policy.bytes, choice.policy.unroll) == ("vector", 4, unroll)


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize(
    ("shape", "dtype", "name"),
    [((216, 5, 59675), "float16", "any"), ((216, 8, 59675), "uint8", "max"), ((216, 12, 59675), "float16", "sum")],
)
def test_compiled_kernels_keep_nothing_in_memory(shape, dtype, name, allocated):
    result = "bool" if name == "any" else dtype
    (spec,) = needed(getattr(cs, name), dry(shape, dtype), axis=1, out=dry((216, 59675), result, 0, 1 << 60))
    assert isinstance(spec.key[1], JoinedPolicy)
    verify(spec, allocated)


@functools.cache
def bench() -> Bench:
    x = data((6, 2, 601), "int8")

    def right() -> bool:
        with pytest.MonkeyPatch.context() as patch, device.forced("emulator"), cs.emulate(schedules=3, seed=3):
            found = force(patch)
            right = np.array_equal(np.asarray(cs.max(cs.asarray(x), axis=1)), x.max(1))
            assert isinstance(found[0].policy, StridedPolicy)
            return right

    return Bench(right)


@pytest.mark.slow
def test_results_of_the_wrong_neighbour_are_found():
    bench().check(swap(r"shfl\.sync\.up", ", 1, ", ", 2, "), {RESULT})


# shape, pitch of rows, type, function, bytes of a vector
BOUNDARIES = {
    "halves": ((300, 51), 54, "uint16", "sum", 4),
    "halves of which vectors are wide": ((200, 29), 32, "float16", "max", 16),
    "bytes of which vectors are wide": ((200, 61), 64, "uint8", "any", 16),
    "indexes": ((200, 31), 32, "int8", "argmax", 4),
}


@pytest.mark.drawn(2)
@pytest.mark.parametrize("what", BOUNDARIES)
def test_rows_on_boundaries_end_between_others(what, on_emulator, monkeypatch):
    """The last vector of a row holds what lies behind it; that of the array, nothing that does not belong to it."""
    shape, pitch, dtype, name, size = BOUNDARIES[what]
    found = recorded(monkeypatch)
    monkeypatch.setattr(strided_loads, "MIN_WORDS_BYTES", 0)
    if size == 16:
        monkeypatch.setattr(strided_loads, "MIN_WIDE_UNITS", 0)
    memory = data(((shape[0] - 1) * pitch + shape[1],), dtype, "max" if dtype[0] == "f" else "add")
    x = np.lib.stride_tricks.as_strided(memory, shape, (pitch * memory.itemsize, memory.itemsize))
    got = np.asarray(getattr(cs, name)(cs.asarray(memory).as_strided(shape, (pitch, 1)), axis=0))
    same(got, getattr(np, name)(x, axis=0).astype(got.dtype))
    (choice,) = found
    assert (choice.policy.load, choice.policy.bytes, choice.policy.boundary) == ("words", size, True)
