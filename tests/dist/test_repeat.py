"""Calls on Sharded arrays made again do what their plans do: the same launches on each device at the same addresses,
and the same results.

Nothing is compiled and nothing runs: a launch is what the driver would be told.
"""

from __future__ import annotations

import functools
import gc
import random
import weakref

import pytest

import cutesync as cs
from cutesync.dist import Group, Sharded, repeat
from cutesync.errors import ArgumentTypeError, LaunchError
from cutesync.runtime import call, compiler, emulated
from cutesync.runtime.compiler import Kernel
from cutesync.runtime.device_array import DeviceArray

from .recorded import RANKS, Stub


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


def drawn(stub, rng, what=None):
    """What makes calls that are alike, drawn at random: with other arrays and run-time numbers."""
    lengths = rng.choice([(400, 300, 500), (1, 1, 1), (300, 0, 20), (0, 7, 0), (1000, 1000, 1000)])
    shift, stream, kind = rng.choice([0, 0, 1]), rng.choice([None, None, [7, 8, 9]]), rng.choice(["int32", "float32"])
    n, op = rng.choice([None, None, 350, "there"]), rng.choice(["add", "max", lambda a, b: a * b])
    what, out, inner = what or rng.choice(list(CALLS)), rng.random() < 0.4, rng.choice([(), (), (6,)])

    def make():
        def new(dtype=kind, own=()):
            return stub.sharded(dtype, lengths, shift, inner if own is ANY else own)

        def whole(dtype, *shape):
            return stub.sharded(dtype, shape, whole=True)

        function, given, named = CALLS[what](new, whole, (op, out, rng))
        named |= {} if stream is None else {"stream": stream}
        if n is not None and what not in WITHOUT_N:
            named["n"] = whole("int64") if n == "there" else n
        return lambda: function(*given, **named)

    return make


def chained(x, mask, n=None, **named):
    """Calls of a Ragged."""
    found = cs.select(x, mask, n=n, **named)
    flags = cs.flag_heads(found.values, **named)
    return cs.sum(found.values, **named), cs.cumsum(found.values, **named), cs.select(found.values, flags, **named)


def reduced(new, whole, more):
    x, (op, out, _) = new(own=ANY), more
    named = {"out": whole(str(x.dtype))} if out else {}
    return cs.reduce, (x, op), named | {"identity": 0 if callable(op) else None}


def scanned(new, whole, more):
    x, (op, out, rng) = new(own=ANY), more
    return cs.scan, (x, op), {"axis": 0} | ({"out": rng.choice([x, new(own=x.shape[1:])])} if out else {})


def by_key(function):
    def make(new, whole, more):
        keys, (op, _, rng) = new("int32"), more
        return function, (keys, rng.choice([keys, new()]), op), {}

    return make


def with_number(function, *given, **named):
    """A call with one run-time number."""
    return lambda new, whole, more: (function, (new(), *given), {"args": (more[2].choice([0.0, 1.5, -2.0]),)} | named)


def of(function, *given, **named):
    """A call of arrays, each of a type or whole and of a shape, of which the first may have two axes; and others."""

    def make(new, whole, more):
        made = [x(new, whole) if callable(x) else x for x in given]
        return function, tuple(made), {k: v(new, whole) if callable(v) else v for k, v in named.items()}

    return make


def a(*own):
    """An array that is sharded, of these types and further axes."""
    return lambda new, whole: new(*own)


def each(*own):
    """An array that is whole on each device."""
    return lambda new, whole: whole(*own)


ANY = object()
WITHOUT_N = ("rows", "topk", "rows by columns", "argmax")
VARIED = ("scan", "reduce by key", "scan by key", "a number by key")  # calls draw which arrays are the same
VARIED += ("a first operand of a scan by key", "a number of a scan by key")  # or have numbers of their own
SCALED = {"transform": lambda v, limit: v * limit}
CALLS = {
    "reduce": reduced,
    "scan": scanned,
    "a Ragged": of(chained, a(), a("bool")),
    "mean": of(cs.mean, lambda new, whole: new(own=ANY)),
    "rows": of(cs.sum, lambda new, whole: new(own=(6,)), axis=1),
    "columns": of(cs.max, lambda new, whole: new(own=(6,)), axis=0),
    "argmax": of(cs.argmax, lambda new, whole: new(own=ANY)),
    "flags": of(cs.flag_heads, lambda new, whole: new(own=ANY)),
    "differences": of(cs.adjacent_difference, lambda new, whole: new(own=ANY)),
    "select": of(cs.select, a(), a("bool")),
    "several": lambda new, whole, more: (cs.select, ((new(), new("int32")), new("bool")), {}),
    "indices": of(cs.select, a(), a("bool"), indices=True),
    "unique": of(cs.unique_consecutive, a()),
    "runs": of(cs.run_length_encode, a()),
    "reduce by key": by_key(cs.reduce_by_key),
    "scan by key": by_key(cs.scan_by_key),
    "segments": of(cs.segmented_reduce, a(), offsets=each("int64", 11)),
    "segmented scan": of(cs.segmented_scan, a(), offsets=each("int64", 11)),
    "heads": of(cs.segmented_reduce, a(), heads=a("bool")),
    "topk": of(cs.topk, a(), 1),
    "bincount": of(cs.bincount, a("int32"), length=9),
    "histogram": of(cs.histogram, a(), 5, range=(0.0, 1.0)),
    "searchsorted": of(cs.searchsorted, a("int32"), each("int32", 9)),
    "rows by columns": of(cs.matmul, a("float16", (8,)), each("float16", 8, 16)),
    "a number of a selection": with_number(cs.select, lambda v, limit: v > limit),
    "a number of a reduction": with_number(cs.reduce, "add", **SCALED),
    "a number of a scan": with_number(cs.scan, "add", **SCALED),
    "a number of flags": with_number(cs.flag_heads, lambda a, b, limit: b - a > limit),
    "a number of a scan by key": lambda new, whole, more: (
        cs.scan_by_key,
        (new("int32"), new(), "add"),
        SCALED | {"args": (more[2].choice([0.0, 1.5, -2.0]),)},
    ),
    "a first operand of a scan by key": lambda new, whole, more: (
        cs.scan_by_key,
        (new("int32"), new(), "add"),
        {"init": more[2].choice([0, 2])},
    ),
    "a number by key": lambda new, whole, more: (
        cs.reduce_by_key,
        (new("int32"), new(), "add"),
        {"init": more[2].choice([0, 2])},
    ),
}


@pytest.mark.parametrize("seed", range(60))
def test_calls_drawn_at_random(stub, seed, monkeypatch):
    monkeypatch.setattr(repeat, "shares_memory", lambda ordinal: seed % 2)
    make = drawn(stub, random.Random(seed))
    calls = [make() for _ in range(3)]
    wanted = [stub.done(one, usual=True) for one in calls]
    for i in (0, 1, 2, 0):
        assert stub.done(calls[i], usual=False) == wanted[i]


@pytest.mark.parametrize("what", CALLS)
def test_calls_are_made_again(stub, what):
    """Unless nothing is launched."""
    for seed in range(8):
        make = drawn(stub, random.Random(seed), what)
        for _ in range(2):
            stub.done(make(), usual=False)
        before = stub.again
        assert not stub.done(make(), usual=False)[0] or stub.again > before or what in VARIED
    assert stub.again or "number of a scan by key" in what


@pytest.mark.parametrize("seed", range(12))
def test_sequences_of_calls(stub, seed):
    """Calls in any order, on arrays that others have written, and one after an error."""
    rng = random.Random(1000 + seed)
    makers = [drawn(stub, rng) for _ in range(5)]
    known = [make() for make in makers]
    for _ in range(25):
        which = rng.randrange(5)
        one = known[which] if rng.random() < 0.3 else makers[which]()
        wanted = stub.done(one, usual=True)
        assert stub.done(one, usual=False) == wanted
        if rng.random() < 0.1:
            with pytest.raises(ArgumentTypeError):
                cs.sum(stub.sharded("float32", (4, 4, 4)), stream=7)
    assert stub.again


LIMIT = 0.25


def test_a_callable_is_what_it_means_now(stub, monkeypatch):
    x, captured = stub.sharded("float32", (40, 50, 60)), [1.0]
    calls = [
        lambda: cs.select(x, lambda v: v > LIMIT),
        lambda: cs.scan_by_key(x, x, lambda a, b: a * LIMIT + b),
        lambda: cs.reduce(x, "add", transform=lambda v, factor=captured[0]: v * factor + LIMIT),
    ]
    for call_ in calls:
        texts = []
        for limit in (0.25, 0.25, 0.75, 0.25):
            monkeypatch.setitem(globals(), "LIMIT", limit)
            before = stub.again
            texts.append([kernel for kernel, *_ in stub.done(call_, usual=False)[0]])
        assert texts[0] == texts[1] == texts[3] != texts[2] and stub.again > before
        captured[0] += 1
    again = stub.again
    assert [kernel for kernel, *_ in stub.done(calls[2], usual=False)[0]] != texts[0] and stub.again == again


def test_arrays_that_overlap_are_told_apart(stub):
    """Values that begin within the keys are at no distance of their own; equal ones are another call than others."""
    lengths = (40, 50, 60)
    keys, values = stub.sharded("int32", lengths), stub.sharded("int32", lengths)
    shifted = [
        DeviceArray(part.ptr + 16, part.shape, part.dtype, rank, None)
        for part, rank in zip(keys.parts, stub.group.ordinals)
    ]
    pairs = [(keys, Sharded(stub.group, shifted)), (keys, keys), (keys, values), (values, keys), (values, values)]
    for one, other in pairs * 2:
        make = functools.partial(cs.reduce_by_key, one, other)
        wanted = stub.done(make, usual=True)
        assert stub.done(make, usual=False) == wanted
    assert stub.again


def test_outputs_that_overlap_are_refused_in_every_call(stub):
    x, y = (stub.sharded("float32", (40, 50, 60)) for _ in range(2))
    inside = [
        DeviceArray(part.ptr + 16, part.shape, part.dtype, rank, None)
        for part, rank in zip(x.parts, stub.group.ordinals)
    ]
    for out in (y, y, x, Sharded(stub.group, inside), y, Sharded(stub.group, inside)):
        make = functools.partial(cs.cumsum, x, out=out)
        wanted = stub.done(make, usual=True)
        assert stub.done(make, usual=False) == wanted
        assert bool(wanted[0]) == (out is x or out is y)
    assert stub.again == 3


@pytest.mark.parametrize(("length", "held"), [(4000, True), (40_000, False)])
def test_only_small_temporaries_are_held(stub, length, held):
    """The flags of runs in the first elements, of a byte each."""
    x, seen = stub.sharded("int32", (length,) * RANKS), set()
    for _ in range(3):
        cs.unique_consecutive(x, n=x.size)
    for _ in range(2):
        stub.launches = []
        cs.unique_consecutive(x, n=x.size)
        seen |= {block[1] for kernel, _, _, block, _ in stub.launches if "flag_heads" in kernel}
    assert len(seen) == RANKS * (1 if held else 2)


def test_groups_have_records_of_their_own(stub):
    groups = [stub.group, Group.local()]
    xs = []
    for stub.group in groups:
        xs.append(stub.sharded("float32", (40, 50, 60)))
    for x in xs * 3:
        for function in (cs.unique_consecutive, cs.cumsum):
            make = functools.partial(function, x)
            wanted = stub.done(make, usual=True)
            assert stub.done(make, usual=False) == wanted
    assert stub.again == 8


def test_a_launch_that_fails_lets_the_next_calls_begin_anew(stub, monkeypatch):
    x = stub.sharded("float32", (40, 50, 60))

    def one():
        return cs.unique_consecutive(x)

    for _ in range(3):
        stub.done(one, usual=False)
    again, memory = stub.again, stub.group.memory((0, 0, 0))
    assert again
    stub.fails = True
    with pytest.raises(LaunchError):
        one()
    stub.fails = False
    assert not stub.group.plans and stub.group.memory((0, 0, 0)) is not memory
    wanted = stub.done(one, usual=True)
    for _ in range(3):
        assert stub.done(one, usual=False) == wanted
    assert stub.again > again + 1


def test_other_plans_are_looked_up_again(stub, monkeypatch):
    x = stub.sharded("float32", (40, 50, 60))
    for count in (0, 1, 1, 2, 3):
        if count == 1:
            monkeypatch.setattr(call, "_plans", {})
        stub.done(lambda: cs.cumsum(x), usual=False)
    assert stub.again == 2


def test_records_keep_no_group(stub):
    group = Group.local()
    known, before = weakref.ref(group), stub.group
    stub.group = group
    x = stub.sharded("float32", (40, 50, 60))
    for function in (cs.unique_consecutive, cs.run_length_encode, cs.cumsum) * 2:
        stub.done(functools.partial(function, x), usual=False)
    assert stub.again == 3
    stub.group = before
    del group, x, function
    gc.collect()
    assert known() is None
