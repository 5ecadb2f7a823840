"""``reduce_by_key`` of sharded arrays is that of the whole arrays: runs go on across the seams, over empty parts and
parts of one run, and a device gives up a run that ends on another."""

import itertools

import numpy as np
import pytest

import cutesync as cs
from cutesync.dist import Group
from cutesync.errors import ArgumentTypeError, ArgumentValueError, DeviceError

from ..cases import bicyclic, brackets
from ..faults import Bench, each, every, op
from .test_mutations import ANY, LOOK, SENT
from .test_reduce import lengths

SIZES = [2, pytest.param(8, marks=pytest.mark.slow)]


def mean_state(value):
    return value, 1.0


def added(a, b):
    return a[0] + b[0], a[1] + b[1]


def quotient(state):
    return state[0] / state[1]


OPTIONS = {
    "sum": {},
    "max after a number": {"op": "max", "init": 1},
    "wider": {"dtype": "float64"},
    "close keys": {"equal": lambda a, b: (b - a < 2) & (a - b < 2)},
    "NaN differs": {"equal_nan": False},
}


def agree(group: Group, keys, values, parts, **options) -> None:
    """The result of sharded arrays is that of whole ones, part by part and as a whole."""
    several = type(keys) is tuple
    given = keys if several else (keys,)
    sharded = tuple(group.shard(key, 0, parts) for key in given)
    found = cs.reduce_by_key(sharded if several else sharded[0], group.shard(values, 0, parts), **options)
    whole = tuple(map(cs.asarray, given))
    wanted = cs.reduce_by_key(whole if several else whole[0], cs.asarray(values), **options)
    keys_of, values_of = wanted.exact()
    for one, other in zip(found.keys if several else (found.keys,), keys_of if several else (keys_of,)):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes(), (parts, np.asarray(one), np.asarray(other))
    assert np.asarray(found.values).dtype == np.asarray(values_of).dtype
    assert np.array_equal(np.asarray(found.values), np.asarray(values_of), equal_nan=True), parts
    assert int(found.count) == len(found) == len(wanted)
    counts = [int(count) for count in found.values.counts]
    assert [int(offset) for offset in found.values.offsets] == list(itertools.accumulate(counts, initial=0))[:-1]


@pytest.mark.parametrize("size", SIZES)
def test_runs_across_seams(size):
    random = np.random.default_rng(size)
    with cs.emulate(devices=size):
        group = Group.local()
        for longest, n in ((1, 9), (4, 40), (30, 60), (60, 60), (3, 2), (1, 0)):
            keys = np.repeat(np.arange(n), random.integers(1, longest + 1, n))[:n].astype(np.int32)
            agree(group, keys, random.integers(-9, 9, n).astype(np.int32), lengths(random, n, size))
        agree(group, np.zeros(size, np.int32), np.arange(size, dtype=np.int32), [1] * size)


@pytest.mark.drawn(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
def test_options(name):
    random = np.random.default_rng(len(name))
    with cs.emulate(devices=4):
        group = Group.local()
        keys = np.repeat(random.integers(0, 5, 12), 4).astype(np.float32)
        keys[10:30], keys[:3] = np.nan, (0.0, -0.0, 0.0)
        agree(group, keys, random.integers(-9, 9, 48).astype(np.float32), lengths(random, 48, 4), **OPTIONS[name])


@pytest.mark.slow
def test_order_of_values_and_several_values_of_a_state():
    random = np.random.default_rng(5)
    keys, cuts = np.repeat(random.integers(0, 3, 8), 5).astype(np.int8), [3, 0, 30, 7]
    with cs.emulate(devices=4):
        group = Group.local()
        agree(group, keys, brackets(40), cuts, op=bicyclic)
        state = {"transform": mean_state, "finish": quotient, "dtype": ("float32",) * 2, "out_dtype": "float32"}
        agree(group, keys, random.integers(1, 9, 40).astype(np.float32), cuts, op=added, **state)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16"])
def test_types_and_keys_of_several_parts(dtype):
    random = np.random.default_rng(7)
    with cs.emulate(devices=3):
        group = Group.local()
        keys = np.repeat(random.integers(0, 2, 16), 3).astype(dtype)
        values, parts = random.integers(0, 5, 48).astype("float16"), lengths(random, 48, 3)
        agree(group, keys, values, parts)
        agree(group, (keys, np.repeat(random.integers(0, 2, 8), 6).astype(np.int64)), values, parts)


@pytest.mark.slow
def test_strided_parts():
    """Parts are columns of an array; keys are every other element."""
    with cs.emulate(devices=2):
        group = Group.local()
        keys, values = np.repeat(np.arange(8), 5).astype(np.int32), np.arange(40)
        parts = [group.put(np.repeat(half, 2), rank)[::2] for rank, half in enumerate(np.split(keys, [18]))]
        rows = [group.put(half, rank) for rank, half in enumerate(np.split(values, [18]))]
        found = cs.reduce_by_key(cs.dist.Sharded(group, parts), cs.dist.Sharded(group, rows))
        assert np.asarray(found.keys).tolist() == list(range(8))
        assert np.array_equal(np.asarray(found.values), values.reshape(8, 5).sum(1))


def right(schedules: int = 12) -> bool:
    """Two calls in flight on three devices: a run over all of them, and one over an empty part."""
    with cs.emulate(schedules=schedules, seed=3, devices=3):
        group = Group.local()
        keys, values = np.array([1, 1, 2, 2, 2, 3], np.int32), np.arange(6, dtype=np.int32)
        with group.together():
            found = [
                cs.reduce_by_key(group.shard(keys, 0, parts), group.shard(values, 0, parts))
                for parts in ([3, 1, 2], [4, 0, 2])
            ]
        return all(
            np.array_equal(np.asarray(one.keys), [1, 2, 3]) and np.array_equal(np.asarray(one.values), [1, 9, 5])
            for one in found
        )


@pytest.mark.slow
def test_faults_of_the_exchange_are_found():
    bench = Bench(right, skip="segments")
    for edit, kinds in (
        (every(SENT, "st.relaxed.gpu.global.b64"), {"race"}),
        (every(LOOK, "ld.relaxed.gpu.global.b64"), {"race"}),
        (each(op(SENT)), {"deadlock"}),
        (every(op(r"griddepcontrol\.wait")), {"race", "uninitialised"}),
        (every(op(r"st\.relaxed\.gpu\.global\.b64")), ANY),
    ):
        bench.check(edit, kinds)


@pytest.mark.slow
def test_what_is_refused():
    x = np.arange(12)
    with cs.emulate(devices=2):
        group = Group.local()
        keys = group.shard(x)
        for options in ({"size": 3}, {"n": group.shard(np.array(5), None)}, {"transform": lambda v, i: v}):
            with pytest.raises(ArgumentValueError, match="Sharded"):
                cs.reduce_by_key(keys, keys, **options)
        with pytest.raises(DeviceError, match="Sharded"):
            cs.reduce_by_key(keys, cs.asarray(x))
        with pytest.raises(ArgumentValueError, match="sharded"):
            cs.reduce_by_key(keys, group.shard(x, 0, [1, 11]))
        with pytest.raises(ArgumentTypeError, match="Sharded"):
            cs.partition3(keys, lambda v: v > 5, lambda v: v > 2)
