"""The workspace in any state: rubbish in the slots, answers of earlier launches, a launch number that wraps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import cutesync as cs

from .cases import bicyclic, brackets, data, places, reduced, same, scanned
from .scan.kernels import column_tiles, force, pipeline, slabs, wave


def reduction(make: Callable):
    """``make()``: an array, an axis and an operator."""

    def prepare(monkeypatch) -> Callable:
        x, axis, op = make()
        array, wanted = cs.asarray(x), reduced(x, op, axis=axis)
        return lambda: same(cs.reduce(array, op, axis=axis), wanted)

    return prepare


def scan(choice, shape: tuple[int, ...], axis: int):
    """Of a small array, in this configuration."""

    def prepare(monkeypatch) -> Callable:
        force(monkeypatch, choice)
        x = data(shape, "int32")
        array, wanted = cs.asarray(x), scanned(x, axis=axis)
        return lambda: same(cs.scan(array, axis=axis), wanted)

    return prepare


# Each prepares a call and its comparison, for the time until another one is prepared.
PROBLEMS = {
    "one row": reduction(lambda: (data(70_001, "int32"), None, "add")),
    "wave": scan(wave(2, 1), (1003,), 0),
    "rows": reduction(lambda: (data((2, 40_000), "int64"), 1, "xor")),
    "waves of rows": scan(wave(2, 1), (2, 701), 1),
    "columns": reduction(lambda: (data((3000, 40), "int32"), 0, "add")),
    "scanned columns": scan(column_tiles(1, 16, 4, 2, 3, 2), (61, 19), 0),
    "few columns": reduction(lambda: (data((20_000, 3), "float32"), 0, "add")),
    "slabs": scan(slabs(4, 3, 2, 2, 3), (143, 5), 0),
    "order": reduction(lambda: (brackets(20_011), None, bicyclic)),
    "pipeline": scan(pipeline(4, 2, 4, 1, 2, 3), (2503,), 0),
    "order in columns": reduction(lambda: (brackets((2000, 33)), 0, bicyclic)),
}


@pytest.mark.drawn(6)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_slots_may_hold_anything(memory, problem, monkeypatch):
    check = PROBLEMS[problem](monkeypatch)
    for dirt in (0x00, 0xFF):
        memory.soil(dirt)
        check()
        assert (memory.read(memory.slots, 4096) != 0x01010101 * dirt).any(), "this problem shares no workspace"
        check()
        memory.assert_ready()


@places("turns", gpu=[30], emulator=[2])
def test_problems_and_families_take_turns_on_one_workspace(memory, turns, monkeypatch):
    """A reduction's states are no scan's, whatever slots they lie in."""
    for turn in range(turns):
        for prepare in [*PROBLEMS.values()][turn % 3 :]:
            prepare(monkeypatch)()
    memory.assert_ready()


@pytest.mark.drawn(4)
@pytest.mark.parametrize(
    "problem", ["one row", "columns", "wave", "waves of rows", "scanned columns", "slabs", "pipeline"]
)
def test_the_launch_number_wraps(memory, problem, monkeypatch):
    """After 2**32 launches a slot of zeros, which a workspace begins with, must not pass for an answer."""
    check = PROBLEMS[problem](monkeypatch)
    memory.write(memory.counters + 4, np.array([2**32 - 3], np.uint32))
    for _ in range(5):
        memory.soil(0)
        check()
        memory.assert_ready()
