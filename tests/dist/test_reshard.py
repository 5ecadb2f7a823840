"""Arrays spread anew are the same arrays, whatever their axes, lengths, types and strides."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.dist import Group, Sharded
from cutesync.errors import ArgumentTypeError, ArgumentValueError

from .test_reduce import lengths

SIZES = [2, pytest.param(8, marks=pytest.mark.slow)]
TYPES = ("int8", "float16", "float32", "int64", "bool")


def drawn(random, dtype: str):
    """An array of 1 to 4 axes, and two of its axes or None."""
    shape = tuple(int(n) for n in random.integers(0, 9, random.integers(1, 5)))
    axes = [None, *range(len(shape))]
    return random.integers(0, 100, shape).astype(dtype), *random.choice(np.array(axes, object), 2)


def whole_on_each(group: Group, x: np.ndarray) -> Sharded:
    return Sharded(group, [group.put(x, rank) for rank in range(group.size)], None)


@pytest.mark.parametrize("size", SIZES)
def test_any_axis_to_any_other(size):
    random = np.random.default_rng(size)
    with cs.emulate(devices=size):
        group = Group.local()
        for turn in range(6 if size == 2 else 10):
            x, a, b = drawn(random, TYPES[turn % len(TYPES)])
            held = whole_on_each(group, x) if a is None else group.shard(x, a, lengths(random, x.shape[a], size))
            wanted = None if b is None or turn % 2 else lengths(random, x.shape[b], size)
            found = held.reshard(b, wanted)
            assert found.axis == b and found.shape == x.shape and (wanted is None or list(found.lengths) == wanted)
            for part in found.parts if b is None else (found,):
                assert np.array_equal(np.asarray(part), x), (x.shape, a, b, held)
            rank = int(random.integers(size))
            on_one = held.gather(rank)
            assert on_one.device == group.ordinals[rank] and np.array_equal(np.asarray(on_one), x)


@pytest.mark.parametrize("size", SIZES)
def test_reduce_scatter(size):
    random = np.random.default_rng(size)
    with cs.emulate(devices=size):
        group = Group.local()
        for dtype, op, want, axis in (("float32", "add", sum, 1), ("int16", "max", np.maximum.reduce, 0)):
            xs = [random.integers(-50, 50, (7, 20)).astype(dtype) for _ in range(size)]
            found = group.reduce_scatter([group.put(x, rank) for rank, x in enumerate(xs)], op, axis)
            assert found.axis == axis and np.array_equal(np.asarray(found), want(xs))
        order = group.reduce_scatter([group.put(np.full(3, r), r) for r in range(size)], lambda a, b: a * 10 + b)
        assert np.asarray(order).tolist() == [int("".join(map(str, range(size))))] * 3


def test_strides_and_what_is_refused():
    x = np.arange(240, dtype=np.int32).reshape(2, 3, 4, 10)
    with cs.emulate(devices=2):
        group = Group.local()
        turned = Sharded(group, [group.put(x, rank).transpose(0, 1, 3, 2)[..., 1:] for rank in (0, 1)], 0)
        want = np.concatenate([x, x]).transpose(0, 1, 3, 2)[..., 1:]
        assert np.array_equal(np.asarray(turned.reshard(2)), want)
        sharded = group.shard(x)
        sliced = Sharded(group, [part[:, ::2, ::2, ::3].transpose(0, 3, 2, 1) for part in sharded.parts], 0)
        assert np.array_equal(np.asarray(sliced.gather()), x[:, ::2, ::2, ::3].transpose(0, 3, 2, 1))
        for error, words, call in (
            (ArgumentValueError, "axis", lambda: sharded.reshard(4)),
            (ArgumentTypeError, "axis", lambda: sharded.reshard("0")),
            (ArgumentValueError, "add up to 3", lambda: sharded.reshard(1, [1, 1])),
            (ArgumentTypeError, "2 ints", lambda: sharded.reshard(1, [1.5, 1.5])),
            (ArgumentValueError, "rank", lambda: sharded.gather(2)),
            (ArgumentTypeError, "rank", lambda: sharded.gather(True)),
            (ArgumentTypeError, "stream", lambda: sharded.gather(stream=0)),
            (ArgumentValueError, "one shape", lambda: group.reduce_scatter([*sharded.parts[:1], group.put(x, 1)])),
        ):
            with pytest.raises(error, match=words):
                call()


@pytest.mark.parametrize("size", SIZES)
def test_calls_in_flight_under_many_schedules(size):
    """A device may have ended a call, and write its part again, while another still reads."""
    x = np.arange(6 * size, dtype=np.int32).reshape(2 * size, 3)
    schedules = {2: 20, 4: 8, 8: 3}[size]
    with cs.emulate(devices=size, schedules=schedules) as ran:
        group = Group.local()
        sharded = group.shard(x)
        with group.together():
            sums = cs.cumsum(sharded, axis=0, dtype="int32")
            turned = sums.reshard(1)
            again = cs.cumsum(turned, axis=1, dtype="int32").reshard(None)
        assert ran.launches == schedules
        for part in again.parts:
            assert np.array_equal(np.asarray(part), x.cumsum(0).cumsum(1))
