"""The workspace in any state: rubbish in the slots, answers of earlier launches, a launch number that wraps."""

import numpy as np
import pytest

import cutesync as cs

from ..cases import bicyclic, brackets, data, fold, places, same

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


@places("turns", gpu=[30], emulator=[2])
def test_problems_take_turns_on_one_workspace(memory, turns):
    cases = []
    for make in PROBLEMS.values():
        x, axis, op = make()
        cases.append((cs.asarray(x), axis, op, expected(x, axis, op)))
    for turn in range(turns):
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
