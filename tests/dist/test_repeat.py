"""Calls on Sharded arrays made again do what their plans do: the same launches on each device at the same addresses, and
the same results.

Nothing is compiled and nothing runs: a launch is what the driver would be told.
"""

from __future__ import annotations

import itertools
import random

import pytest

import cutesync as cs
from cutesync.dist import Group, Sharded, repeat
from cutesync.dist.sharded import Ragged
from cutesync.dtypes import BY_NAME
from cutesync.errors import CutesyncError
from cutesync.runtime import call, compiler, emulated
from cutesync.runtime.compiler import Kernel
from cutesync.runtime.device_array import DeviceArray

RANKS, APART, GIVEN, MADE = 3, 1 << 24, 1 << 40, 1 << 50
SLOT, MASK = 256, (1 << 64) - 1
FREE = itertools.count(MADE, APART)  # never used again: some arrays are kept for later calls


class Stub:
    """What was launched, and how many calls were made again."""

    def __init__(self, group: Group) -> None:
        self.group, self.launches, self.again, self.usual = group, [], 0, False
        self.given, self.slots = itertools.count(GIVEN, APART), set()

    def allocate(self, size, ordinal, stream):
        at = next(FREE)
        if size % SLOT == 0:
            self.slots.add(at // APART)
        return at, None

    def launcher(self, kernel, ordinal, grid, make_block, claim):
        block = make_block()

        def run(addresses, stream):
            block.put(addresses, None)
            self.launches.append((kernel.ptx, ordinal, grid, block.packed(), stream))

        return run

    def sharded(self, dtype, lengths, shift=0, inner=(), whole=False):
        """A new Sharded; ``whole``: of ``lengths`` on each device."""
        kind, parts = BY_NAME[dtype], []
        for rank in range(RANKS):
            shape = (*lengths, *inner) if whole else (lengths[rank], *inner)
            at = next(self.given) + shift * kind.size
            parts.append(DeviceArray(at, shape, kind, self.group.ordinals[rank], None))
        return Sharded(self.group, parts, None if whole else 0)

    def done(self, make, usual):
        """The launches of a call, and its result with addresses in place of arrays, or its error. Memory that the call
        makes is numbered as it is used."""
        self.launches, self.usual, names = [], usual, {}

        def named(number):
            rest, number = (number >> 64, number & MASK) if isinstance(number, int) else (0, number)
            if rest:  # a tensor map, which begins with an address
                return named(number), rest
            if not isinstance(number, int) or number < MADE or number >= MADE << 8:
                return number
            block, distance = divmod(number, APART)
            slot, distance = divmod(distance, SLOT) if block in self.slots else (0, distance)
            return names.setdefault((block, slot), f"memory {len(names)}"), distance

        def placed(x):
            if isinstance(x, Sharded):
                return "Sharded", x.axis, tuple(map(placed, x.parts))
            if isinstance(x, Ragged):
                return "Ragged", placed(x.room), tuple(map(placed, x.counts)), tuple(map(placed, x.offsets))
            if isinstance(x, DeviceArray):
                return named(x.ptr), x.shape, x.dtype, x.device, x.steps
            if isinstance(x, tuple):
                return tuple(map(placed, x))
            return x if x is None else (type(x), *(placed(getattr(x, name)) for name in type(x).__slots__))

        try:
            found = make()
        except CutesyncError as error:
            return self.launches, (type(error), str(error))
        launches = [(*rest, [named(number) for number in block], stream) for *rest, block, stream in self.launches]
        return launches, placed(found)


@pytest.fixture
def stub(monkeypatch):
    with cs.emulate(devices=RANKS):
        made = Stub(Group.local())
        run, again = repeat.Prepared.run, repeat.Record.run

        def prepared(self, xs, where, outs=None, ragged=None, addresses=None):
            if not made.usual:
                return run(self, xs, where, outs, ragged, addresses)
            more = (outs,) if ragged is None else (outs, ragged)
            return self.plan.run(xs, *where[1:], *(more if outs is not None or ragged is not None else ()))

        def counted(self, *given):
            made.again += 1
            return again(self, *given)

        monkeypatch.setattr(repeat.Prepared, "run", prepared)
        monkeypatch.setattr(repeat.Record, "run", counted)
        monkeypatch.setattr(emulated._Emulator, "launcher", staticmethod(made.launcher))
        for name in ("allocate", "allocate_here"):
            monkeypatch.setattr(emulated._Emulator, name, staticmethod(made.allocate))
        monkeypatch.setattr(emulated._Emulator, "copy_in", staticmethod(lambda *given: None))
        monkeypatch.setattr(
            compiler, "get", lambda key, build, stream: Kernel("k", b"", repr(key), (128, 1, 1), 0, (), (1, 1, 1))
        )
        monkeypatch.setattr(call, "_plans", {})
        yield made


def drawn(stub, rng):
    """A call drawn at random, and what makes others like it, with other arrays and run-time numbers."""
    lengths = rng.choice([(400, 300, 500), (1, 1, 1), (300, 0, 20), (0, 7, 0), (1000, 1000, 1000)])
    shift, stream, kind = rng.choice([0, 0, 1]), rng.choice([None, None, [7, 8, 9]]), rng.choice(["int32", "float32"])
    n, op = rng.choice([None, None, 350, "there"]), rng.choice(["add", "max", lambda a, b: a * b])
    what, out, inner = rng.choice(list(CALLS)), rng.random() < 0.4, rng.choice([(), (), (6,)])

    def make():
        def new(dtype=kind, own=inner):
            return stub.sharded(dtype, lengths, shift, own)

        def whole(dtype, *shape):
            return stub.sharded(dtype, shape, whole=True)

        named = {} if stream is None else {"stream": stream}
        if n is not None and what not in WITHOUT_N:
            named["n"] = whole("int64") if n == "there" else n
        return CALLS[what](new, whole, named, (op, out, rng))

    return what, make


def chained(new, whole, named, more):
    """Calls of a Ragged."""
    op, _, _ = more
    x, mask, named = new(own=()), new("bool", ()), {k: v for k, v in named.items() if k != "n"}

    def run():
        found = cs.select(x, mask, **named)
        flags = cs.flag_heads(found.values, **named)
        return cs.sum(found.values, **named), cs.cumsum(found.values, **named), cs.select(found.values, flags, **named)

    return run


def reduced(new, whole, named, more):
    x, (op, out, _) = new(), more
    named |= {"out": whole(str(x.dtype))} if out and "n" not in named else {}
    return lambda: cs.reduce(x, op, identity=0 if callable(op) else None, **named)


def scanned(new, whole, named, more):
    x, (op, out, rng) = new(), more
    named |= {"out": rng.choice([x, new()])} if out else {}
    return lambda: cs.scan(x, op, axis=0, **named)


def with_numbers(function):
    def make(new, whole, named, more):
        x, limit = new(own=()), more[2].choice([0.0, 1.5, -2.0])
        return lambda: function(x, limit, named)

    return make


def by_key(function):
    def make(new, whole, named, more):
        keys, op = new("int32", ()), more[0]
        values = more[2].choice([keys, new(own=())])
        return lambda: function(keys, values, op, **named)

    return make


CALLS = {
    "reduce": reduced,
    "scan": scanned,
    "a Ragged": chained,
    "mean": lambda new, whole, named, more: lambda x=new(): cs.mean(x, **named),
    "rows": lambda new, whole, named, more: lambda x=new(own=(6,)): cs.sum(x, axis=1, **named),
    "columns": lambda new, whole, named, more: lambda x=new(own=(6,)): cs.max(x, axis=0, **named),
    "argmax": lambda new, whole, named, more: lambda x=new(): cs.argmax(x, **named),
    "flags": lambda new, whole, named, more: lambda x=new(): cs.flag_heads(x, **named),
    "differences": lambda new, whole, named, more: lambda x=new(): cs.adjacent_difference(x, **named),
    "select": lambda new, whole, named, more: lambda x=new(own=()), m=new("bool", ()): cs.select(x, m, **named),
    "indices": lambda new, whole, named, more: (
        lambda x=new(own=()), m=new("bool", ()): cs.select(x, m, indices=True, **named)
    ),
    "unique": lambda new, whole, named, more: lambda x=new(own=()): cs.unique_consecutive(x, **named),
    "runs": lambda new, whole, named, more: lambda x=new(own=()): cs.run_length_encode(x, **named),
    "reduce by key": by_key(cs.reduce_by_key),
    "scan by key": by_key(cs.scan_by_key),
    "segments": lambda new, whole, named, more: (
        lambda x=new(own=()), offsets=whole("int64", 11): cs.segmented_reduce(x, offsets=offsets, **named)
    ),
    "segmented scan": lambda new, whole, named, more: (
        lambda x=new(own=()), offsets=whole("int64", 11): cs.segmented_scan(x, offsets=offsets, **named)
    ),
    "heads": lambda new, whole, named, more: (
        lambda x=new(own=()), heads=new("bool", ()): cs.segmented_reduce(x, heads=heads, **named)
    ),
    "topk": lambda new, whole, named, more: lambda x=new(own=()): cs.topk(x, 1, **named),
    "bincount": lambda new, whole, named, more: lambda x=new("int32", ()): cs.bincount(x, length=9, **named),
    "histogram": lambda new, whole, named, more: lambda x=new(): cs.histogram(x, 5, range=(0.0, 1.0), **named),
    "searchsorted": lambda new, whole, named, more: (
        lambda x=new(own=()), v=whole("int32", 9): cs.searchsorted(x, v, **named)
    ),
    "rows by columns": lambda new, whole, named, more: (
        lambda a=new("float16", (8,)), b=whole("float16", 8, 16): cs.matmul(a, b, **named)
    ),
    "numbers of a selection": with_numbers(
        lambda x, limit, named: cs.select(x, lambda v, limit: v > limit, args=(limit,), **named)
    ),
    "numbers of a reduction": with_numbers(
        lambda x, limit, named: cs.reduce(x, "add", transform=lambda v, limit: v * limit, args=(limit,), **named)
    ),
    "numbers of a scan": with_numbers(
        lambda x, limit, named: cs.scan(x, "add", transform=lambda v, limit: v * limit, args=(limit,), **named)
    ),
    "numbers of flags": with_numbers(
        lambda x, limit, named: cs.flag_heads(x, lambda a, b, limit: b - a > limit, args=(limit,), **named)
    ),
}
WITHOUT_N = ("rows", "topk", "rows by columns", "argmax")


@pytest.mark.parametrize("seed", range(120))
def test_calls_drawn_at_random(stub, seed, monkeypatch):
    monkeypatch.setattr(repeat, "shares_memory", lambda ordinal: seed % 2)
    rng = random.Random(seed)
    _, make = drawn(stub, rng)
    calls = [make() for _ in range(3)]
    wanted = [stub.done(one, usual=True) for one in calls]
    for i in (0, 1, 2, 0):
        assert stub.done(calls[i], usual=False) == wanted[i]


@pytest.mark.parametrize("what", CALLS)
def test_calls_are_made_again(stub, what, monkeypatch):
    """All but those whose run-time numbers become those of another call."""
    monkeypatch.setitem(globals(), "CALLS", {what: CALLS[what]})
    count, ran = 0, 0
    for seed in range(12):
        make = drawn(stub, random.Random(seed))[1]
        stub.done(make(), usual=False)
        before = stub.again
        ran += bool(stub.done(make(), usual=False)[0])
        count += stub.again > before
    print(what, count, ran)
    assert count
