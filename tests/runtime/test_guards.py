"""Calls whose arrays a guard compares with those of the call before do what calls do that identify them.

Nothing is compiled and nothing runs: a launch is what the driver would be told. DeviceArrays stand for arrays of a
library with a guard, as torch's (test_quick_call.py).
"""

from __future__ import annotations

import itertools
import random

import pytest

import cutesync as cs
from cutesync.errors import ArgumentValueError
from cutesync.runtime import arrays, call, identification, repeat
from cutesync.runtime.device import HOST
from cutesync.runtime.device_array import DeviceArray

from .test_repeat import array as array, calls, same, stub as stub


class Guard:
    """What makes guards of DeviceArrays, and how often; while ``off``, all of them refuse."""

    def __init__(self) -> None:
        self.made, self.identified, self.off = 0, 0, False

    def __call__(self, known):
        self.made += 1
        signatures = [x.signature for x in known]
        return lambda *given: not self.off and [x.signature for x in given] == signatures

    def identify(self, x):
        if not x.ptr:
            raise ArgumentValueError("no memory")
        self.identified += 1
        return x.ptr, x.signature


def forget_calls() -> None:
    """What is known of calls of public functions, as other tests made them of arrays without guards."""
    for function in vars(cs).values():
        names = getattr(getattr(function, "__code__", None), "co_freevars", ())
        if "forms" in names:
            function.__closure__[names.index("forms")].cell_contents.clear()


@pytest.fixture
def guard(monkeypatch, stub):
    forget_calls()
    made, stub.free = Guard(), itertools.count(1 << 50, 1 << 24)
    for name in ("identify", "identify_strided"):
        monkeypatch.setattr(arrays._OwnArrays, name, staticmethod(made.identify))
    monkeypatch.setattr(arrays._OwnArrays, "guard", made)
    monkeypatch.setattr(call, "DeviceArray", type("Other", (), {}))  # whose calls need no guard
    yield made
    forget_calls()


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


@pytest.mark.parametrize("seed", range(30))
def test_calls_made_again(stub, array, guard, seed):
    rng = random.Random(seed)
    (function, *first), (_, *second) = calls(array, rng)
    same(stub, function, *first, again=False)
    for _ in range(4):
        guard.off = rng.random() < 0.3
        same(stub, function, *rng.choice([first, second]), again=True)


def test_calls_made_again_of_signatures_that_take_turns(stub, array, guard):
    """Other types of one shape, other strides, other shapes, and arrays that are not aligned; shapes of no other test,
    as there are so many guards for the calls of one shape."""
    keys = [array("int32", (1007,)), array("int64", (1007,)), array("int32", (2014,))[::2], array("int32", (607,))]
    keys += [array("int32", (1007,), 1), array("int32", (1007,), 2)]
    values = {n: [array("float32", (n,)), array("float32", (n,), 1)] for n in (607, 1007)}
    rng, seen = random.Random(1), set()
    for _ in range(200):
        x = rng.choice(keys)
        y = rng.choice(values[x.shape[0]])
        signature = x.signature, y.signature, *((x.ptr & 15, y.ptr & 15) if (x.ptr | y.ptr) & 15 else ())
        same(stub, cs.reduce_by_key, (x, y), {}, again=signature in seen)
        seen.add(signature)
    guard.identified = 0
    cs.reduce_by_key(keys[3], values[607][0])
    assert guard.identified == 0 and 4 <= guard.made <= 2 * identification.MOST_GUARDS + 2 * len(seen)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_arrays_without_memory_are_refused_as_the_first_would_be(stub, array, guard, place):
    """They have the signatures of arrays with memory, and address 0."""
    for function, shape in ((cs.matmul, (8, 8)), (cs.cumsum, (64,)), (cs.sum, (64,)), (cs.select, (64,))):
        xs = [array("bool" if function is cs.select and i else "float32", shape) for i in range(3)]
        last = {cs.matmul: 2, cs.cumsum: 1, cs.sum: 0, cs.select: 1}[function]
        for missing in (False, False, False, True):
            if missing:
                x = xs[min(place, last)]
                xs[min(place, last)] = DeviceArray(0, x.shape, x.dtype, HOST, None)
            given, named = (
                (xs[:2], {"out": xs[2]}) if last == 2 else (xs[:2], {}) if function is cs.select else (xs[:1], {})
            )
            named |= {"out": xs[1]} if function is cs.cumsum else {}
            launches, found = stub.done(function, given, named)
            assert (launches == [] and found == (ArgumentValueError, "no memory")) == missing


@pytest.mark.parametrize("first", [0, 1])
def test_arrays_of_a_library_without_a_guard_are_identified(stub, array, guard, monkeypatch, first):
    class Foreign:
        pass

    monkeypatch.setitem(arrays.ADAPTERS, Foreign, arrays._Cupy.__new__(arrays._Cupy))
    form, kinds = repeat.Form(), [Foreign, DeviceArray]
    for place in (0, 1):
        assert form.add(place, kinds[place ^ first], "x")
    assert form.guards is None
