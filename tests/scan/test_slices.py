"""Scans in whole outer slices of arrays that begin anywhere."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync.dtypes import dtype as element_type
from cutesync.kernels.policy import Policy
from cutesync.kernels.scan import plan, slice_policy
from cutesync.kernels.scan.problem import Problem
from cutesync.kernels.scan.slice_policy import SinglePolicy, SlicePolicy
from cutesync.runtime.device import DRY
from cutesync.runtime.device_array import DeviceArray

from ..cases import data, same, scanned
from ..compiled import needed
from .kernels import force, outer_slices

SHAPES = {  # (shape, axis): with bytes between slices in shared memory, and without
    "padded": ((19, 8, 8), 1),
    "rows": ((5, 262), 1),
    "odd": ((17, 21, 3), 1),
}
slow = pytest.mark.slow


@pytest.fixture
def policies(monkeypatch):
    """The policies of the launches of a test, which are all of outer slices."""
    found = []
    launch = plan.launch

    def watched(choice, *more):
        assert isinstance(choice.policy, SlicePolicy)
        found.append(choice.policy)
        return launch(choice, *more)

    monkeypatch.setattr(plan, "launch", watched)
    monkeypatch.setattr(slice_policy, "MAX_WORDS_BYTES", 0)
    return found


def aligned(policy: SlicePolicy) -> tuple[bool, bool]:
    """Whether tiles begin on boundaries: those of the inputs, and those of the outputs."""
    return policy.aligned, policy.aligned_out


def from_element(x: np.ndarray, first: int):
    """An array of the values of ``x`` that begins at element ``first`` of its memory and ends with it."""
    return cs.asarray(np.concatenate([np.ones(first, x.dtype), x.reshape(-1)]))[first:].reshape(x.shape)


@pytest.mark.drawn(3)
@pytest.mark.parametrize("case", SHAPES)
@pytest.mark.parametrize("dtype", ["int8", *(pytest.param(each, marks=slow) for each in ("int16", "uint32"))])
def test_every_first_element_of_a_vector(case, dtype, on_emulator, policies):
    (shape, axis), size = SHAPES[case], np.dtype(dtype).itemsize
    x = data(shape, dtype)
    for first in {1, 10 // size | 1, 16 // size - 1}:
        same(np.asarray(cs.scan(from_element(x, first), axis=axis)), scanned(x, axis=axis), f"from {first}")
    assert {aligned(policy) for policy in policies} == {(False, True)}


@slow
def test_slices_backwards_of_eight_bytes(on_emulator, policies):
    """Each of their elements is stored whole, wherever vectors would begin."""
    x = data((1000, 40, 10), "float64")
    same(np.asarray(cs.scan(cs.asarray(x)[:, ::-1], axis=1)), scanned(x[:, ::-1], axis=1))
    assert policies


def test_results_of_other_places(on_emulator, policies):
    """Results in place, results that begin elsewhere, and wider ones, which have memory of their own in a tile."""
    x = data((19, 8, 8), "int16")
    view = from_element(x, 3)
    wanted = scanned(x, axis=1, reverse=True)
    out = from_element(np.zeros_like(x), 5)
    same(np.asarray(cs.scan(view, axis=1, reverse=True, out=out)), wanted)
    assert aligned(policies.pop()) == (False, False)
    same(np.asarray(cs.scan(view, axis=1, dtype="int64")), np.cumsum(x, 1, dtype=np.int64))
    assert aligned(policies.pop()) == (False, True)
    same(np.asarray(cs.scan(view, axis=1, reverse=True, out=view)), wanted)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("segments", [1, pytest.param(8, marks=slow)])
@pytest.mark.parametrize("dtype", ["uint8", *(pytest.param(each, marks=slow) for each in ("float32",))])
def test_tiles_that_begin_anywhere(dtype, segments, on_emulator, monkeypatch, policies):
    """Neither tiles of inputs nor those of results begin on boundaries, wherever their arrays do."""
    force(monkeypatch, outer_slices(segments, 3, anywhere=True))
    x = data((11, 19 * segments, 5), dtype)
    wanted = {reverse: scanned(x, axis=1, reverse=reverse) for reverse in (False, True)}
    for first in (0, 1, 16 // x.itemsize - 1):
        out = from_element(np.zeros_like(x), first)
        cs.scan(from_element(x, 1), axis=1, reverse=first > 1, out=out)
        same(np.asarray(out), wanted[first > 1], f"from {first}")
    assert {aligned(policy) for policy in policies} == {(False, False)}


# what: (shape of the memory, index of the view, axis, whether slices run backwards)
VIEWS = {
    "rows of groups": ((3, 27, 35), np.s_[:, :26], 2, False),
    "rows of groups on boundaries": ((3, 48, 7), np.s_[:, :41], 2, False),
    "columns of groups": ((3, 9, 21, 3), np.s_[:, 1:8], 2, False),
    "backward columns": ((7, 43, 5), np.s_[:, ::-1], 1, True),
    "backward rows": ((30, 33), np.s_[:, ::-1], 1, True),
    "backward rows of groups": ((3, 10, 39), np.s_[:, 3:, ::-1], 2, True),
    "rows with gaps": ((31, 43), np.s_[:, 4:37], 1, False),
    "rows with gaps in shared memory": ((30, 77), np.s_[:, 3:67], 1, False),
    "backward rows with gaps, in groups": ((3, 12, 43), np.s_[:, 1:, 33::-1], 2, True),
    "rows in the opposite order": ((31, 35), np.s_[::-1], 1, False),
    "positions apart": ((7, 67, 4), np.s_[:, :, 1:], 1, False),
    "positions apart backward, in groups": ((2, 4, 67, 5), np.s_[:, :, ::-1, :3], 2, True),
    "short columns, positions apart": ((31, 5, 9), np.s_[:, :, 2:], 1, False),
    "positions apart, rows in lines": ((9, 21, 20), np.s_[:, :, 3:10], 1, False),
    "columns apart": ((9, 21, 5), np.s_[::-1, :20, ::-2], 1, False),
    "odd columns with gaps": ((7, 21, 31), np.s_[:, 1:, 3:28], 1, False),
}


# Slices of words with gaps are copied with them where rows are short
WORDS = [*list(VIEWS)[:6], "rows in the opposite order", "positions apart", "positions apart, rows in lines"]


@pytest.mark.drawn(5)
@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        *(("int8", name) if i % 2 else pytest.param("int8", name, marks=slow) for i, name in enumerate(VIEWS)),
        *(pytest.param("uint16", name, marks=slow) for name in list(VIEWS)[:-1:5]),
        *(pytest.param("float32", name, marks=slow) for name in [*WORDS[:6:3], *WORDS[6:]]),
    ],
)
def test_groups_of_slices(name, dtype, on_emulator, monkeypatch, policies):
    """Slices of strided arrays of which those of a group are one run of memory, into results that begin anywhere."""
    monkeypatch.setattr(slice_policy, "MIN_RUN_BYTES", 1)
    monkeypatch.setattr(slice_policy, "MIN_STRIDED_BYTES", 1)
    monkeypatch.setattr(Problem, "skewed", False)
    monkeypatch.setattr(slice_policy, "SMS", 2)
    monkeypatch.setattr(slice_policy, "MIN_SLICES", 2)
    monkeypatch.setattr(slice_policy, "MIN_RAGGED_SLICES", 2)
    monkeypatch.setattr(slice_policy, "MIN_SHORT_BYTES", 1)
    shape, index, axis, mirrored = VIEWS[name]
    x = data(shape, dtype)
    ways = {}, {"reverse": True, "exclusive": True}, {"init": 3}
    for how in ways[list(VIEWS).index(name) % 3 :][:1]:
        wanted = scanned(x[index], axis=axis, **how)
        same(np.asarray(cs.scan(cs.asarray(x)[index], axis=axis, **how)), wanted, f"{name} {how}")
        around = cs.asarray(np.full(wanted.size + 8, 7, dtype))
        cs.scan(cs.asarray(x)[index], axis=axis, out=around[3:-5].reshape(wanted.shape), **how)
        same(np.asarray(around)[3:-5].reshape(wanted.shape), wanted, f"{name} {how} into others")
        assert (np.asarray(around)[[0, 1, 2, -5, -4, -3, -2, -1]] == 7).all()
    assert {policy.mirrored for policy in policies} == {mirrored}


# Type, slices of a group, positions and columns, and the elements of a thread
SINGLE = (("int8", 104, 10, 1, 40), ("uint8", 352, 3, 1, 24), ("bool", 180, 3, 2, 24), ("uint16", 112, 5, 1, 20))


@pytest.mark.drawn(2)
@pytest.mark.parametrize(("dtype", "group", "length", "inner", "width"), SINGLE)
def test_short_slices_of_groups_that_lie_apart(dtype, group, length, inner, width, on_emulator, monkeypatch):
    """Threads have whole slices in a few vectors; not where a group has no whole number of vectors, nor where first
    operands are an array."""
    found, launch = [], plan.launch
    monkeypatch.setattr(plan, "launch", lambda choice, *more: found.append(choice.policy) or launch(choice, *more))
    monkeypatch.setattr(slice_policy, "MIN_STRIDED_BYTES", 1)

    def policy_of(group: int, **ways) -> Policy:
        x = data((3, 2, group, length, inner), dtype)
        got = np.asarray(cs.scan(cs.asarray(x)[::-1, 1], axis=2, **ways))
        same(got, scanned(x[::-1, 1], axis=2, **ways), f"{dtype} {group} {ways}")
        return found[-1]

    for ways in ({}, {"reverse": True}, {"exclusive": True, "init": 1}):
        policy = policy_of(group, **ways)
        assert isinstance(policy, SinglePolicy) and policy.width == width
    assert not isinstance(policy_of(group - 1), SinglePolicy)
    x, firsts = data((3, 2, group, length, inner), dtype), data((3, group, inner), dtype)
    got = np.asarray(cs.scan(cs.asarray(x)[:, 1], "max", axis=2, init=cs.asarray(firsts)))
    same(got, np.maximum(scanned(x[:, 1], "max", axis=2), firsts[:, :, None]), "first operands")
    assert not isinstance(found[-1], SinglePolicy)


@pytest.mark.parametrize(
    ("length", "inner", "pitch", "dtype", "expected"),
    [
        (20, 15, 17, "int16", True),
        (20, 41, 44, "uint8", True),
        (7, 15, 17, "int16", False),
        (7, 45, 57, "int16", True),
        (20, 129, 131, "int8", True),
        (20, 513, 515, "int8", False),
        (20, 15, 40, "int16", True),
        (20, 15, 70, "int16", False),
        (20, 16, 20, "int16", False),
        (20, 5, 7, "int32", True),
        (20, 15, 17, "int32", False),
        (7, 5, 7, "float64", False),
    ],
)
def test_which_odd_columns_with_gaps_are_slices(length, inner, pitch, dtype, expected):
    """Narrow ones of small elements that no words hold whole, unless arrays are small; narrower ones of words, unless
    an axis is short."""
    kind = element_type(dtype)
    x = DeviceArray(1 << 40, (9000, length, inner), kind, DRY, None, (length * pitch, pitch, 1))
    (spec,) = needed(cs.scan, x, axis=1)
    assert isinstance(spec.key[1], SlicePolicy) == expected
