"""Elements a few apart are loaded as vectors of memory, of which a thread takes what it needs; planted faults are
found.

The memory of each array ends with its last element, so that nothing behind it may be read."""

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.reduce import strided_loads, strided_plan, strided_policy
from cutesync.runtime import call as calls, device

from ..cases import data, fold, same
from ..faults import RESULT, Bench, every

# name: shape of the elements, their step along the last axis, axis
VIEWS = {
    "columns": ((300, 32), 2, 0),
    "columns of slices": ((5, 30, 64), 2, 1),
    "rows of a thread": ((70, 16), 2, 1),
    "rows of a warp": ((5, 1200), 2, 1),
    "one row": ((20_000,), 2, 0),
    "whole chunks": ((8192,), 2, 0),
    "one short row": ((24,), 2, 0),
    "one row and a rest": ((20_003,), 2, 0),
    "one short row and a rest": ((27,), 2, 0),
}


def affine(a, b):
    """Maps x -> m * x + c of bytes, (c, m) in the halves of a number, one after the other: their order counts."""
    return (((a >> 8) * b + (b >> 8)) << 8) | ((a * b) & 0xFF)


def stepped(shape: tuple, step: int, dtype: str) -> tuple[cs.DeviceArray, np.ndarray]:
    """An array whose memory ends with its last element, and the elements."""
    memory = data((int(np.prod(shape)) * step - (step - 1),), dtype)
    steps, pace = [], step
    for extent in reversed(shape):
        steps.insert(0, pace)
        pace *= extent
    elements = np.lib.stride_tricks.as_strided(memory, shape, [each * memory.itemsize for each in steps])
    return cs.asarray(memory).as_strided(shape, tuple(steps)), elements


@pytest.fixture
def chosen(monkeypatch):
    found = []
    monkeypatch.setattr(strided_plan, "choose", lambda p: found.append(strided_policy.choose(p)) or found[-1])
    for name, value in (("MIN_APART_BYTES", 0), ("MIN_ODD_VECTORS", 1)):
        monkeypatch.setattr(strided_loads, name, value)
    monkeypatch.setattr(calls, "_plans", {})
    return found


@pytest.mark.drawn(4)
@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("multiprocessors", [132, pytest.param(4, marks=pytest.mark.slow)])
def test_elements_apart(name, multiprocessors, chosen, monkeypatch):
    monkeypatch.setattr(strided_policy, "SMS", multiprocessors)
    shape, step, axis = VIEWS[name]
    for dtype in ("int16", "uint8"):
        x, elements = stepped(shape, step if dtype == "int16" else 2 * step, dtype)
        same(np.asarray(cs.sum(x, axis=axis)), np.sum(elements, axis))
        same(np.asarray(cs.argmax(x, axis=axis)), np.argmax(elements, axis))
        same(np.asarray(cs.reduce(x, lambda a, b: a + b, axis=axis)), np.sum(elements, axis, dtype=dtype))
        same(np.asarray(cs.any(x, axis=axis)), np.any(elements, axis))
        if dtype == "int16":
            rows = np.ascontiguousarray(np.moveaxis(elements, axis, -1))
            same(np.asarray(cs.reduce(x, affine, axis=axis)), fold(affine, rows).astype(dtype))
    singly = sum(choice.policy.pace == 1 for choice in chosen)
    assert singly == (5 if name.endswith("rest") else 0)  # indexes, and bytes 4 apart, of no whole vectors


def test_elements_far_apart_or_wide_are_loaded_one_by_one(chosen):
    for dtype, step in (("int16", 4), ("int16", 3), ("float32", 2), ("uint8", 8)):
        x, elements = stepped((300, 32), step, dtype)
        same(np.asarray(cs.max(x, axis=0)), np.max(elements, 0))
    once = cs.asarray(np.array([3], np.int16)).broadcast_to((1000,))  # of which one is loaded
    assert int(np.asarray(cs.sum(once))) == 3000
    assert all(choice.policy.pace == 1 for choice in chosen)


def right(name: str) -> bool:
    shape, step, axis = VIEWS[name]
    with pytest.MonkeyPatch.context() as patch, device.forced("emulator"), cs.emulate(schedules=3, seed=3):
        patch.setattr(strided_loads, "MIN_APART_BYTES", 0)
        patch.setattr(calls, "_plans", {})
        x, elements = stepped(shape, step, "int16")
        found = np.asarray(cs.reduce(x, lambda a, b: a + b, axis=axis))
    return np.array_equal(found, elements.sum(axis, dtype=np.int16))


@functools.cache
def bench(name: str) -> Bench:
    return Bench(lambda: right(name))


BETWEEN = every(r"mov\.b32( \t)\{(%rs\d+), _\}", r"mov.b32\1{_, \2}"), {RESULT}
FAULTS = {
    "what lies between the elements of columns": ("columns", *BETWEEN),
    "what lies between the elements of a row": ("one row", *BETWEEN),
    "the last vector is loaded whole": (
        "whole chunks",
        every(r"(selp\.b32 [^;]*)257", r"\g<1>256"),
        {"out-of-bounds"},
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_planted_fault_is_found(fault):
    name, edit, kinds = FAULTS[fault]
    bench(name).check(edit, kinds)
