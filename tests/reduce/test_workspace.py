"""The workspace in any state: rubbish in the slots, answers of earlier launches, a launch number that wraps."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import cutesync as cs
from cutesync.runtime import device, workspace

from ..cases import bicyclic, brackets, data, fold, same


class Memory:
    """The default stream's workspace, read and written from outside."""

    def __init__(self, place) -> None:
        self.ordinal = 0 if place.name == "gpu" else device.HOST
        cs.reduce(cs.asarray(data(70_001, "int32")))  # makes it
        self.held = workspace.counters_and_slots(self.ordinal, 0)
        self.counters, self.slots = self.held.addresses
        self.slot_bytes = self.counters + self.held.size - self.slots

    def read(self, address: int, size: int) -> np.ndarray:
        found = np.empty(size, np.uint8)
        if self.ordinal == device.HOST:
            ctypes.memmove(found.ctypes.data, address, size)
        else:
            device.copy_out(found.ctypes.data, address, size, 0)
        return found.view(np.uint32)

    def write(self, address: int, what: np.ndarray) -> None:
        if self.ordinal == device.HOST:
            ctypes.memmove(address, what.ctypes.data, what.nbytes)
        else:
            device.copy_in(address, what.ctypes.data, what.nbytes, 0)
            device.synchronize(0)

    def soil(self, dirt: int) -> None:
        self.write(self.slots, np.full(self.slot_bytes, dirt, np.uint8))

    def assert_ready(self) -> None:
        words = self.read(self.counters, self.slots - self.counters)
        words[1] = 0  # the launch number, which only grows
        assert not words.any(), f"counters not zero at {np.flatnonzero(words)[:5]}"


@pytest.fixture
def memory(place):
    return Memory(place)


PROBLEMS = {
    "one row": lambda: (data(70_001, "int32"), None, "add"),
    "rows": lambda: (data((2, 40_000), "int64"), 1, "xor"),
    "columns": lambda: (data((3000, 40), "int32"), 0, "add"),
    "few columns": lambda: (data((20_000, 3), "float32"), 0, "add"),
    "order": lambda: (brackets(20_011), None, bicyclic),
    "order in columns": lambda: (brackets((2000, 33)), 0, bicyclic),
}


def expected(x, axis, op):
    if op is bicyclic:
        return fold(bicyclic, x if axis is None else np.moveaxis(x, axis, -1))
    return cs.reference.reduce(x, op, axis=axis)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_blocks_of_this_problem_share_the_workspace(memory, problem):
    """Otherwise the tests below would say nothing."""
    memory.soil(0xAB)
    x, axis, op = PROBLEMS[problem]()
    np.asarray(cs.reduce(cs.asarray(x), op, axis=axis))
    assert (memory.read(memory.slots, 4096) != 0xABABABAB).any()


@pytest.mark.parametrize("problem", PROBLEMS)
def test_slots_may_hold_anything(memory, problem):
    x, axis, op = PROBLEMS[problem]()
    array, wanted = cs.asarray(x), expected(x, axis, op)
    for dirt in (0x00, 0x7F, 0xCD, 0xFF):
        memory.soil(dirt)
        for _ in range(2):
            same(cs.reduce(array, op, axis=axis), wanted, f"slots of {dirt:#x}")
            memory.assert_ready()


def test_problems_take_turns_on_one_workspace(memory, place):
    cases = []
    for make in PROBLEMS.values():
        x, axis, op = make()
        cases.append((cs.asarray(x), axis, op, expected(x, axis, op)))
    for turn in range(30 if place.name == "gpu" else 2):
        for array, axis, op, wanted in cases[turn % 3 :]:
            same(cs.reduce(array, op, axis=axis), wanted)
    memory.assert_ready()


@pytest.mark.parametrize("problem", ["one row", "columns"])
def test_the_launch_number_wraps(memory, problem):
    """After 2**32 launches a slot of zeros, which a workspace begins with, must not pass for an answer."""
    x, axis, op = PROBLEMS[problem]()
    array, wanted = cs.asarray(x), expected(x, axis, op)
    memory.write(memory.counters + 4, np.array([2**32 - 3], np.uint32))
    for _ in range(5):
        memory.soil(0)
        same(cs.reduce(array, op, axis=axis), wanted, "around the wrap")
        memory.assert_ready()
