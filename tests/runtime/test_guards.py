"""Calls whose arrays a guard compares with those of the call before do what calls do that identify them.

Nothing is compiled and nothing runs: a launch is what the driver would be told. DeviceArrays stand for arrays of a
library with a guard, as torch's (test_quick_call.py).
"""

from __future__ import annotations

import itertools
import random

import pytest

import cutesync as cs
from cutesync.runtime import arrays, call, identification
from cutesync.runtime.device import HOST
from cutesync.runtime.device_array import DeviceArray

from .test_repeat import array as array, stub as stub


class Guard:
    """What makes guards of DeviceArrays, and how often; while ``off``, all of them refuse."""

    def __init__(self) -> None:
        self.made, self.identified, self.off = 0, 0, False

    def __call__(self, known):
        self.made += 1
        signatures = [x.signature for x in known]
        return lambda *given: not self.off and [x.signature for x in given] == signatures

    def identify(self, x):
        self.identified += 1
        return x.ptr, x.signature


@pytest.fixture
def guard(monkeypatch, stub):
    made, stub.free = Guard(), itertools.count(1 << 50, 1 << 24)
    for name in ("identify", "identify_strided"):
        monkeypatch.setattr(arrays._OwnArrays, name, staticmethod(made.identify))
    monkeypatch.setattr(arrays._OwnArrays, "guard", made)
    monkeypatch.setattr(call, "DeviceArray", type("Other", (), {}))  # whose calls need no guard
    return made


def drawn(rng, pool):
    x = rng.choice(pool)
    y = rng.choice([z for z in pool if z.signature == x.signature] if rng.random() < 0.7 else pool)
    total = rng.choice([z for z in pool if z.shape == ()])
    count = rng.choice([z for z in pool if z.shape == () and z.dtype.name == "int64"])
    near = DeviceArray(x.ptr + 4 * rng.choice([0, 1, 400]), x.shape, x.dtype, HOST, None)
    named = rng.choice([{}, {}, {"stream": 7}])
    return rng.choice(
        [
            (cs.sum, (x,), named),
            (cs.max, (x,), named | {"out": total}),
            (cs.sum, (x,), named | {"dtype": "float32", "axis": rng.choice([0, -1, None])}),
            (cs.cumsum, (x,), named | {"out": y}),
            (cs.cumsum, (x,), named | {"out": near}),
            (cs.cumsum, (x,), named),
            (cs.segmented_scan, (x, "add"), named | {"heads": rng.choice(pool)}),
            (cs.sum, (x,), named | {"n": count}),
            (cs.max, (x,), named | {"n": count, "out": y}),
            (cs.flag_heads, (x,), named),
        ]
    )


@pytest.mark.parametrize("seed", range(6))
def test_calls_drawn_at_random(stub, array, guard, monkeypatch, seed):
    rng = random.Random(seed)
    pool = [
        array(kind, (n,), shift) for kind in ("float32", "int32", "bool") for n in (100, 640) for shift in (0, 0, 1)
    ]
    pool += [array("float32", (100,), shift) for shift in (0, 1, 1, 2)]
    pool += [array(kind, ()) for kind in ("float32", "int32", "int64")] + [
        array("int64", (), shift) for shift in (0, 1)
    ]
    pool += [x[::2] for x in pool[:9]]
    pool += 4 * [x for x in pool if x.signature == pool[0].signature]
    launched = 0
    for _ in range(300):
        function, given, named = drawn(rng, pool)
        guard.off = rng.random() < 0.1
        found = stub.done(function, given, named)
        with monkeypatch.context() as plain:
            plain.setattr(arrays._OwnArrays, "guard", None)
            assert stub.done(function, given, named) == found
        launched += bool(found[0])
    assert launched > 50 and guard.made > 5


@pytest.mark.parametrize("place", [0, 1, 2])
def test_each_array_must_be_aligned(stub, array, guard, monkeypatch, place):
    matrices = [array("bfloat16", (64, 64)) for _ in range(3)]
    launches = []
    for shift in (0, 0, 0, 1, 0):
        matrices[place] = array("bfloat16", (64, 64), shift)
        found = stub.done(cs.matmul, matrices[:2], {"out": matrices[2]})
        with monkeypatch.context() as plain:
            plain.setattr(arrays._OwnArrays, "guard", None)
            assert stub.done(cs.matmul, matrices[:2], {"out": matrices[2]}) == found
        launches.append(found[0][0][0])
    assert guard.made == 1 and launches[3] != launches[0] == launches[4]


def test_a_later_call_identifies_nothing(stub, array, guard):
    pairs = [(array("float32", (n,)), array("float32", (n,))) for n in (100, 200)]
    for _ in range(3):
        for x, y in pairs:
            cs.cumsum(x, out=y)
            cs.sum(x)
    guard.identified = 0
    for x, y in pairs:
        cs.cumsum(y, out=x)
        cs.cumsum(x, out=x)
        cs.sum(y)
    assert guard.identified == 0 and guard.made == 4


def test_guards_that_refuse_are_replaced_a_few_times_only(stub, array, guard):
    x, y, halves = array("float32", (100,)), array("int32", (100,)), array("float32", (200,))[::2]
    for _ in range(40):
        for a in (x, y, halves):
            cs.max(a)
    assert guard.made == identification.MOST_GUARDS
    assert [stub.done(cs.max, (a,), {})[0][0][0] for a in (x, y, halves)] == [
        stub.done(cs.max, (a,), {})[0][0][0] for a in (x, y, halves)
    ]


def test_plans_that_were_forgotten_are_made_again(stub, array, guard, monkeypatch):
    x = array("float32", (100,))
    for _ in range(3):
        cs.sum(x)
    monkeypatch.setattr(call, "_plans", {})
    guard.identified = 0
    cs.sum(x)
    assert guard.identified == 1


def test_arguments_that_cannot_be_kept_are_made_each_time(stub, array, guard):
    import numpy as np

    x = array("float32", (100,))
    for start in (1.0, 2.0):
        first = stub.done(cs.reduce, (x,), {"init": np.array(start, np.float32)})
        assert stub.done(cs.reduce, (x,), {"init": np.array(start, np.float32)})[0] == first[0] != []
    assert guard.made == 0
