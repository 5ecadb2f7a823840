"""Callables are identified by value: equal meanings are one, changes are detected, and other values are refused."""

from __future__ import annotations

import enum
import functools
import importlib
import math
import operator
import os
import random
import subprocess
import sys
import time
import types
from dataclasses import dataclass

import cutlass.cute as cute
import numpy as np
import pytest

from cutesync import identity
from cutesync.errors import OperatorError
from cutesync.identity import identify

FACTOR = 3
TABLE = [1, 2, 3]


def scaled(v):
    return v * FACTOR


@cute.jit
def larger(a, b):
    if a < b:
        a = b
    return a * FACTOR


class Scaled:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, a, b):
        return self.combine(a, b)

    def combine(self, a, b):
        return a + b * self.factor


@dataclass(frozen=True)
class Weights:
    left: float
    right: float


class Slotted:
    __slots__ = ("factor",)

    def __init__(self, factor):
        self.factor = factor


class Mode(enum.Enum):
    LOW, HIGH = 1, 2


def capturing(value):
    return lambda a, b: a + b * value


def defaulting(value):
    return lambda a, b, value=value: a + b * value


def keyword(value):
    def op(a, b, *, value=value):
        return a + b * value

    return op


PAIRS = {
    "an int": (1, 2),
    "an int and a float": (1, 1.0),
    "an int and a bool": (1, True),
    "a zero and its negative": (0.0, -0.0),
    "texts": ("a", "b"),
    "tuples": ((1, 2), (1, 3)),
    "lists": ([1, 2], [2, 1]),
    "dicts": ({"a": 1}, {"a": 2}),
    "sets": ({1, 2}, {1, 3}),
    "arrays": (np.arange(3), np.arange(1, 4)),
    "arrays of other types": (np.zeros(2, np.int32), np.zeros(2, np.float32)),
    "NumPy numbers": (np.float32(1), np.float64(1)),
    "functions": (lambda v: v, lambda v: v + 1),
    "partials": (functools.partial(pow, 2), functools.partial(pow, 3)),
    "methods": (Scaled(1).combine, Scaled(2).combine),
    "objects": (Scaled(1), Scaled(2)),
    "objects with slots": (Slotted(1), Slotted(2)),
    "data classes": (Weights(1, 2), Weights(1, 3)),
    "members": (Mode.LOW, Mode.HIGH),
    "classes": (type("One", (), {"k": 1}), type("Two", (), {"k": 2})),
    "types": (np.float32, np.float64),
    "built-ins": (max, min),
    "ufuncs": (np.add, np.multiply),
    "namespaces": (types.SimpleNamespace(k=1), types.SimpleNamespace(k=2)),
    "None": (None, 0),
    "ranges": (range(3), range(4)),
    "jit functions": (larger, cute.jit(scaled)),
}


@pytest.mark.parametrize(
    "make",
    [capturing, defaulting, keyword, lambda value: functools.partial(scaled, value)],
    ids=["cell", "default", "keyword", "partial"],
)
@pytest.mark.parametrize("pair", PAIRS)
def test_what_is_captured_counts_by_value(pair, make):
    one, other = PAIRS[pair]
    assert identify(make(one)) is identify(make(one))
    assert identify(make(one)).key != identify(make(other)).key
    assert identify(make(one)) is identify(make(one))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Scaled(2),
        lambda: Weights(0.5, 2.0),
        lambda: [1, (2.0, "x")],
        lambda: {"k": np.arange(4)},
        lambda: {3, 1, 2},
        lambda: Slotted(4),
    ],
)
def test_equal_objects_are_one(make):
    assert identify(capturing(make())) is identify(capturing(make()))


def test_callables_of_any_kind():
    assert identify(Scaled(2)) is identify(Scaled(2)) and identify(Scaled(2)) is not identify(Scaled(3))
    assert identify(Scaled(2).combine) is identify(Scaled(2).combine)
    assert identify(functools.partial(Scaled.combine, Scaled(2))) is identify(
        functools.partial(Scaled.combine, Scaled(2))
    )
    assert (
        len({identify(fn).key for fn in (operator.add, operator.mul, np.add, np.multiply, max, min, Scaled, larger)})
        == 8
    )


def test_names_and_nothing_come_back_as_they_are():
    for given in ("add", None, 3, identify(max)):
        assert identify(given) is given


OTHER_CODE = [
    lambda a, b: a + b * 4,
    lambda a, b: b + a * 2,
    lambda a, b: a - b * 2,
    lambda a, b: a + b * 2.0,
    lambda a, b, c=1: a + b * 2,
    lambda a, b: a + b * FACTOR,
]


@pytest.mark.parametrize("other", OTHER_CODE)
def test_other_code_is_another_meaning(other):
    assert identify(other) is not identify(lambda a, b: a + b * 2)
    assert identify(lambda a, b: a + b * 2) is identify(lambda a, b: a + b * 2)


# fmt: off
CHANGES = {
    "a global number": (lambda a, b: a + b * FACTOR, "FACTOR", 4),
    "a global that an inner function reads": (lambda a, b: (lambda v: v * FACTOR)(a) + b, "FACTOR", 4),
    "a global that a called function reads": (lambda a, b: scaled(a) + b, "FACTOR", 4),
    "a global that a jit function reads": (lambda a, b: larger(a, b), "FACTOR", 4),
    "a called function": (lambda a, b: scaled(a) + b, "scaled", lambda v: v - 1),
    "a global object": (lambda a, b: a + b * TABLE[0], "TABLE", [2, 2, 3]),
    "a global that hides a built-in": (lambda a, b: max(a, b), "max", lambda a, b: b),
    "a class": (lambda a, b: Scaled(2)(a, b), "Scaled", type("Scaled", (Scaled,), {"combine": lambda self, a, b: b})),
}
# fmt: on


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen_and_its_return_too(monkeypatch, change):
    op, name, value = CHANGES[change]
    before = identify(op)
    assert identify(op) is before
    with monkeypatch.context() as patch:
        patch.setitem(globals(), name, value)
        assert identify(op) is not before
    assert identify(op) is before


def test_changes_in_place_are_seen(monkeypatch):
    table, array, weights, state = [1], np.zeros(2), Scaled(1), {"k": 1}
    op = lambda a, b: a + b * table[0] * array[0] * weights.factor * state["k"]  # noqa: E731
    keys = [identify(op).key]
    for change in (
        lambda: table.append(1),
        lambda: array.fill(2),
        lambda: setattr(weights, "factor", 2),
        lambda: state.update(k=2),
    ):
        change()
        keys.append(identify(op).key)
    assert len(set(keys)) == 5
    shared = Scaled(1)
    before = identify(shared)
    shared.factor = 2
    assert identify(shared) is identify(Scaled(2)) and identify(shared) is not before
    monkeypatch.setattr(Scaled, "combine", lambda self, a, b: a - b)
    assert identify(shared) is not identify(Scaled(1)) and identify(Scaled(1)) is not before


def test_a_cell_and_a_default_that_change_are_seen():
    k = 1
    op = lambda a, b: a + b * k  # noqa: E731
    before = identify(op)
    k = 2
    assert identify(op) is not before
    with_default = defaulting(1)
    before = identify(with_default)
    with_default.__defaults__ = (2,)
    assert identify(with_default) is identify(defaulting(2)) is not before
    plain = lambda a, b: a + b  # noqa: E731
    before = identify(plain)
    plain.__code__ = (lambda a, b: a - b).__code__
    assert identify(plain) is not before
    plain.__defaults__ = (1,)
    assert identify(plain) is not identify(lambda a, b: a - b)


def test_a_cell_that_is_not_filled_yet():
    def outer():
        op = lambda a, b: a + later  # noqa: E731
        before = identify(op)
        later = 3
        return before, identify(op), later

    before, after, _ = outer()
    assert before is not after


def test_attributes_of_modules_and_imports_inside(tmp_path, monkeypatch):
    (tmp_path / "settings_of_test.py").write_text("SCALE = 2\ndef combine(a, b):\n    return a + b * SCALE\n")
    monkeypatch.syspath_prepend(tmp_path)
    settings = importlib.import_module("settings_of_test")

    def importing(a, b):
        from settings_of_test import SCALE

        return a + b * SCALE

    ops = [
        lambda a, b: a + b * settings.SCALE,
        lambda a, b: settings.combine(a, b),
        importing,
        lambda a, b: a + b * settings.SCALE,
    ]
    before = [identify(op) for op in ops]
    assert [identify(op) for op in ops] == before
    settings.SCALE = 3
    assert all(identify(op) is not old for op, old in zip(ops, before))
    settings.SCALE = 2
    assert [identify(op) for op in ops] == before
    settings.combine = lambda a, b: b
    assert identify(ops[1]) is not before[1]


REFUSED = {
    "a clock": lambda a, b: a + b * time.time(),
    "random numbers": lambda a, b: a + b * random.random(),
    "NumPy's": lambda a, b: a + b * np.random.rand(),
    "the environment": lambda a, b: a + b * int(os.environ["SCALE"]),
    "eval": lambda a, b: eval("a + b"),
    "globals()": lambda a, b: a + b * globals()["FACTOR"],
    "modules by name": lambda a, b: a + b * sys.modules["settings"].SCALE,
    "a module's dictionary": lambda a, b: a + b * math.__dict__["pi"],
    "a generator": capturing(x for x in TABLE),
    "a file": capturing(sys.stdout),
    "a lock": capturing(__import__("threading").Lock()),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_identified_is_refused(what):
    with pytest.raises(OperatorError, match=r"cannot be identified by value.* capture that"):
        identify(REFUSED[what])


def test_endless_and_broken_objects_are_refused():
    nested: list = []
    for _ in range(10_000):
        nested = [nested]
    with pytest.raises(OperatorError, match="cannot be identified"):
        identify(capturing(nested))
    with pytest.raises(OperatorError, match="so many values"):
        identify(capturing([(i,) for i in range(30_000)]))
    loop: list = []
    loop.append(loop)
    assert identify(capturing(loop)) is identify(capturing(loop))


def test_a_callable_that_calls_itself():
    def op(a, b):
        return op(b, a) if FACTOR == 0 else a

    assert identify(op) is identify(op)


def test_nobody_counts_what_an_object_says_of_itself():
    class Liar(Scaled):
        __hash__ = object.__hash__

        def __eq__(self, other):
            return True

    assert identify(Liar(1)) is not identify(Liar(2))
    assert identify(capturing(Liar(1))) is not identify(capturing(Liar(2)))


def test_a_callable_written_in_a_loop_costs_no_memory():
    assert len({identify(lambda a, b: a + b) for _ in range(1000)}) == 1
    sizes = len(identity._readings), len(identity._identities)
    for i in range(10_000):
        identify(eval(f"lambda a, b: a + b * {i}"))
    assert len(identity._readings) <= max(sizes[0], identity._MOST) and len(identity._identities) <= max(
        sizes[1], identity._MOST
    )


def test_the_digest_is_the_same_in_another_process():
    script = (
        "import math, functools\nfrom cutesync.identity import identify\nK = 5\nclass C:\n"
        "    k = {1, 2, 3}\n    def __call__(self, a, b): return a * math.pi + b % K\n"
        "print(identify(lambda a, b: (a + b) % K).key, identify(C()).key, identify(functools.partial(max, 'abc')).key)"
    )
    keys = {
        subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(keys) == 1
