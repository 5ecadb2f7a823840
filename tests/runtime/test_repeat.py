"""Calls made again do what the usual way does: the same launches at the same addresses, and the same results.

Nothing is compiled and nothing runs: a launch is what the driver would be told.
"""

from __future__ import annotations

import itertools
import random
import threading

import numpy as np
import pytest

import cutesync as cs
from cutesync.dtypes import BY_NAME
from cutesync.errors import ArgumentTypeError, ArgumentValueError
from cutesync.runtime import call, compiler, emulated, repeat
from cutesync.runtime.compiler import Kernel
from cutesync.runtime.device import HOST
from cutesync.runtime.device_array import DeviceArray

LIMIT = 0.25


class Stub:
    """What was launched, and how many calls were made again."""

    def __init__(self) -> None:
        self.launches, self.again, self.addresses, self.free = [], 0, itertools.count(1 << 40, 1 << 24), None
        self.lock = threading.Lock()

    def launcher(self, kernel, ordinal, grid, make_block, claim):
        block = make_block()

        def run(addresses, stream):
            with self.lock:  # as launchers do: threads share the block
                block.put(addresses, None)
                self.launches.append((kernel.ptx, grid, block.packed(), stream))

        return run

    def done(self, function, given, named):
        """The launches of a call, and its result with addresses in place of arrays, or its error. New arrays lie at
        the same addresses each time."""
        self.launches, self.free = [], itertools.count(1 << 50, 1 << 24)
        try:
            return self.launches, placed(function(*given, **named))
        except (ArgumentTypeError, ArgumentValueError) as error:
            return self.launches, (type(error), str(error))


def placed(x):
    if isinstance(x, DeviceArray):
        return x.ptr, x.shape, x.dtype, x.steps
    if isinstance(x, tuple):
        return (type(x), *map(placed, x))
    return x if x is None else (type(x), *(placed(getattr(x, name)) for name in type(x).__slots__))


@pytest.fixture
def stub(monkeypatch):
    made, run = Stub(), repeat.Record.run

    def counted(record, *given):
        made.again += 1
        return run(record, *given)

    monkeypatch.setattr(repeat.Record, "run", counted)
    monkeypatch.setattr(emulated._Emulator, "launcher", staticmethod(made.launcher))
    monkeypatch.setattr(emulated._Emulator, "allocate", staticmethod(lambda *given: (next(made.free), None)))
    monkeypatch.setattr(
        compiler, "get", lambda key, build, stream: Kernel("k", b"", repr(key), (128, 1, 1), 0, (), (1, 1, 1))
    )
    monkeypatch.setattr(call, "_plans", {})
    with cs.emulate():
        yield made


@pytest.fixture
def array(stub):
    def make(dtype, shape=(1000,), shift=0):
        kind = BY_NAME[dtype]
        return DeviceArray(next(stub.addresses) + shift * kind.size, shape, kind, HOST, None)

    return make


def same(stub, function, given, named, again):
    """Make a call the usual way and through what records it. ``again``: it was made before. Return whether it was not
    refused."""
    before = stub.again
    usual = stub.done(function.__wrapped__, given, named)
    launched = bool(usual[0])
    assert stub.done(function, given, named) == usual
    assert stub.again == before + (again and launched)
    return launched


def calls(array, rng):
    """A call drawn at random, and one more with other arrays and run-time arguments: function, arguments, and
    arguments by name."""
    length, shift = rng.choice([1, 1000]), rng.choice([0, 0, 1])
    kind, parts = rng.choice(["int32", "float32", "uint8", "float64"]), rng.choice([0, 0, 2])
    size, n, fill = rng.choice([None, 0, 77]), rng.choice([None, 500, "there"]), rng.choice([0, 1, True, 0.5, -0.0])
    stream, which, out = rng.choice([None, None, 7]), rng.randrange(11), rng.random() < 0.4
    limit, op = rng.choice([None, 3, 0.5, 1 << 40]), rng.choice(["add", "max", lambda a, b: a * b])

    def make():
        def new(dtype, shape=(length,)):
            return array(dtype, shape, shift)

        x = tuple(new(kind) for _ in range(parts)) if parts else new(kind)
        named = {} if stream is None else {"stream": stream}
        if n is not None:
            named["n"] = new("int64", ()) if n == "there" else n
        if size is not None and which in (0, 2, 3, 4):
            named |= {"size": size, "fill_value": fill}
        results = [new(kind, (2 * length,)) for _ in range(parts or 1)]
        if which < 2:
            named |= {"out": (*results, new("int64", ()))} if out else {}
            above = (lambda v, w, limit: v + w > limit) if parts else (lambda v, limit: v > limit)
            where = new("bool") if limit is None else above
            named |= {} if limit is None else {"args": (limit,)}
            return (cs.select, cs.partition)[which], (x, where), named
        if which == 2:
            return cs.unique_consecutive, (x,), named | {"return_counts": out}
        if which == 3:
            return cs.run_length_encode, (new(kind),), named
        if which == 4:
            return cs.run_length_decode, (new(kind), new("int32")), named | {"size": 5000}
        if which == 5:
            named |= {"out": (*results, new("float32", (2 * length,)), new("int64", ()))} if out else {}
            return cs.reduce_by_key, (x, new("float32"), op), named
        if which == 6:
            return cs.segmented_reduce, (new("float32"), op), named | {"offsets": new("int64", (11,)), "init": fill}
        if which == 7:
            return cs.segmented_scan, (new("int32"), "add"), named | {"lengths": new("int32", (10,))}
        if which > 8:
            function, pair = (
                (cs.segmented_reduce, cs.segmented_scan)[which - 9],
                (new("int64", (10,)), new("int64", (10,))),
            )
            if limit is not None:
                named |= {"transform": lambda v, limit: v if v > limit else v - v, "args": (limit,)}
            return function, (new("int32"), "add"), named | {"offsets": pair}
        return cs.topk, (new(kind), 1), named | ({"out": (new(kind, (1,)), new("int64", (1,)))} if out else {})

    return make(), make()


@pytest.mark.parametrize("seed", range(60))
def test_calls_drawn_at_random(stub, array, seed):
    rng = random.Random(seed)
    (function, *first), (_, *second) = calls(array, rng)
    same(stub, function, *first, again=False)
    same(stub, function, *second, again=True)
    same(stub, function, *first, again=True)


def test_most_of_these_are_not_refused(stub, array):
    drawn = [calls(array, random.Random(seed))[0] for seed in range(60)]
    assert sum(bool(stub.done(*call)[0]) for call in drawn) > 50


def test_constants_of_other_types_are_other_calls(stub, array):
    """Python's 0, False, 0.0 and -0.0 are equal."""
    x, mask = array("float32"), array("bool")
    for fill in (0, 0.0, -0.0, False, 1, 1.0, True):
        same(stub, cs.select, (x, mask), {"size": 7, "fill_value": fill}, again=False)


def test_run_time_numbers_are_not_part_of_what_is_recorded(stub, array):
    x, above = array("int64"), lambda v, limit: v > limit
    same(stub, cs.select, (x, above), {"args": (1,)}, again=False)
    for limit in (2, -5, (1 << 31) - 1):
        same(stub, cs.select, (x, above), {"args": (limit,)}, again=True)
    same(stub, cs.select, (x, above), {"args": (1 << 31,)}, again=False)
    same(stub, cs.select, (x, above), {"args": (True,)}, again=False)
    same(stub, cs.select, (x, above), {"args": (1.5,)}, again=False)
    with pytest.raises(ArgumentValueError, match="64 bits"):
        cs.select(x, above, args=(1 << 63,))


def test_a_callable_is_what_it_means_now(stub, array, monkeypatch):
    x, limits = array("float32"), [1.0, 2.0]
    texts = []
    for value in (0.25, 0.25, 0.75, 0.25):
        monkeypatch.setitem(globals(), "LIMIT", value)
        texts.append(stub.done(cs.select, (x, lambda v: v > LIMIT), {})[0][0][0])
    assert texts[0] == texts[1] == texts[3] != texts[2] and stub.again == 2
    for captured in limits:
        texts.append(stub.done(cs.select, (x, lambda v, captured=captured: v > captured), {})[0][0][0])
    assert len(set(texts)) == 4


def test_an_array_given_twice_has_two_places(stub, array):
    keys, values = array("int32"), array("int32")
    same(stub, cs.reduce_by_key, (keys, keys), {}, again=False)
    same(stub, cs.reduce_by_key, (keys, values), {}, again=False)
    same(stub, cs.reduce_by_key, (values, keys), {}, again=True)
    same(stub, cs.reduce_by_key, (keys, keys), {}, again=True)


def test_overlaps_are_seen_in_every_call(stub, array):
    x, mask, out, count = array("float32"), array("bool"), array("float32"), array("int64", ())
    for _ in range(2):
        stub.done(cs.select, (x, mask), {"out": (out, count)})
    inside = DeviceArray(x.ptr + 16, x.shape, x.dtype, HOST, None)
    for wrong in ((inside, count), (x, count), (out, DeviceArray(out.ptr + 16, (), count.dtype, HOST, None))):
        stub.launches = []
        with pytest.raises(ArgumentValueError, match="overlap"):
            cs.select(x, mask, out=wrong)
        assert not stub.launches
    assert stub.again == 4


def test_what_is_refused_stays_refused(stub, array):
    x, mask = array("float32"), array("bool", (999,))
    for _ in range(2):
        with pytest.raises(ArgumentValueError, match="999"):
            cs.select(x, mask)
    for where in (np.ones(1000, bool), [True], 1.5):
        with pytest.raises((ArgumentTypeError, cs.errors.DeviceError)):
            cs.select(x, where)


def test_lengths_that_the_host_reads_are_read_in_every_call(stub, array):
    """``size`` may be an array of one integer: it is no input of a launch, so its address is not enough."""
    x, mask, counts, memory = array("int32"), array("bool"), array("int64"), np.array(5)
    size = DeviceArray(memory.ctypes.data, (), BY_NAME["int64"], HOST, memory)
    for memory[...] in (5, 5, 7):
        same(stub, cs.select, (x, mask), {"size": size}, again=False)
        same(stub, cs.run_length_decode, (x, counts), {"size": size}, again=False)


def test_other_plans_are_looked_up_again(stub, array, monkeypatch):
    x, mask = array("float32"), array("bool")
    same(stub, cs.select, (x, mask), {}, again=False)
    monkeypatch.setattr(call, "_plans", {})
    same(stub, cs.select, (x, mask), {}, again=False)
    same(stub, cs.select, (x, mask), {}, again=True)


def test_threads_record_for_themselves(stub, array):
    """Each thread's numbers and records are its own, also while another thread records."""
    x, stop, wrong = array("float32"), threading.Barrier(4), []

    def work(number):
        stop.wait()
        for i in range(50):
            where, n = (lambda v, limit: v > limit), 1 + (i + number) % 7
            cs.select(x, where, args=(float(number),), n=n, stream=100 + number)
            own = [block for _, _, block, stream in list(stub.launches) if stream == 100 + number]
            if np.float32(number).view(np.uint32) not in own[-1] or n not in own[-1]:
                wrong.append((number, i))

    stub.free = itertools.count(1 << 50, 1 << 24)
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and stub.again > 150 and not call.recorders
