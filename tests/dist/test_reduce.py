"""Reductions of sharded arrays agree with NumPy, for any lengths of the parts, under hostile schedules."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.dist import Group

from ..cases import bicyclic, brackets, reduced

NAMED = {
    "sum": (cs.sum, np.sum),
    "prod": (cs.prod, np.prod),
    "min": (cs.min, np.min),
    "max": (cs.max, np.max),
    "any": (cs.any, np.any),
    "all": (cs.all, np.all),
    "mean": (cs.mean, np.mean),
    "var": (cs.var, np.var),
    "logsumexp": (cs.logsumexp, lambda x, axis: np.log(np.exp(x.astype(float)).sum(axis))),
    "largest of minmax": (lambda x, axis: cs.minmax(x, axis=axis)[1], np.max),
    "count_nonzero": (cs.count_nonzero, np.count_nonzero),
    "argmin": (cs.argmin, np.argmin),
    "argmax": (cs.argmax, np.argmax),
}
SHAPES = [  # shape, axis of the parts, reduced axis
    ((37,), 0, None),
    ((5, 7, 4), 0, None),
    ((3,), 0, None),
    ((5, 7, 4), 1, 1),
    ((5, 7, 4), 2, -1),
    ((5, 7, 4), 0, 2),
]
SIZES = [2, pytest.param(8, marks=pytest.mark.slow)]


def lengths(random, total: int, parts: int) -> list[int]:
    """Lengths of parts that add up; some may be 0."""
    cuts = np.sort(random.integers(0, total + 1, parts - 1))
    return np.diff([0, *cuts, total]).tolist()


def values(random, shape, dtype: str):
    if dtype == "float32":
        x = random.integers(-3, 4, shape).astype(dtype)
        if random.random() < 0.2 and x.size:
            x.flat[random.integers(x.size)] = np.nan
        return x
    return random.integers(-2, 3, shape).astype(dtype)


@pytest.mark.drawn(6)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "size"), [(name, 8 if i == 0 else (4, 2)[i % 2]) for i, name in enumerate(NAMED)])
def test_agrees_with_numpy(name, size):
    call, expected = NAMED[name]
    random = np.random.default_rng([len(name), size])
    with cs.emulate(devices=size):
        group = Group.local()
        for shape, axis, reduced_axes in SHAPES[list(NAMED).index(name) % 2 :: 2]:
            x = values(random, shape, random.choice(["int32", "float32"]))
            sharded = group.shard(x, axis, lengths(random, shape[axis], size))
            got = call(sharded, axis=reduced_axes)
            want = np.asarray(expected(x, axis=reduced_axes))
            assert (got.shape, got.axis is None) == (
                want.shape,
                axis == reduced_axes % x.ndim if reduced_axes else True,
            )
            for part in got.parts if got.axis is None else (got,):
                np.testing.assert_allclose(
                    np.asarray(part), want, rtol=1e-6, atol=1e-6, err_msg=f"{shape} {axis} {sharded}"
                )


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_callables_keep_the_order_of_the_parts(size):
    random = np.random.default_rng(size)
    with cs.emulate(devices=size):
        group = Group.local()
        for n in (3, 100):
            x = brackets(n)
            sharded = group.shard(x, 0, lengths(random, n, size))
            assert int(cs.reduce(sharded, bicyclic)) == int(reduced(x, bicyclic, axis=None))


@pytest.mark.slow
def test_states_init_and_finish():
    x = np.arange(1, 24, dtype=np.float32)
    with cs.emulate(devices=2):
        group = Group.local()
        pair = group.shard(x, 0, [20, 3]), group.shard(-x, 0, [20, 3])
        total = cs.reduce(pair, lambda a, b: (a[0] + b[0], a[1] * b[0]), dtype=("float32", "float32"))
        assert [part.shape for part in total] == [(), ()] and float(total[0]) == x.sum()
        assert float(cs.reduce(pair[0], "add", init=7.0)) == x.sum() + 7
        rms = cs.reduce(pair[1], "add", transform=lambda v: v * v, finish=lambda s: s / 23, out_dtype="float32")
        assert float(rms) == pytest.approx(np.mean(x * x))


@pytest.mark.slow
def test_empty_parts_and_empty_arrays():
    with cs.emulate(devices=3):
        group = Group.local()
        for n, parts in ((0, [0, 0, 0]), (2, [0, 2, 0]), (1, [0, 0, 1])):
            sharded = group.shard(np.arange(5, 5 + n, dtype=np.int64), 0, parts)
            assert [int(part) for part in cs.sum(sharded).parts] == [np.arange(5, 5 + n).sum()] * 3
            assert int(cs.reduce(sharded, "max", init=-1)) == (4 + n if n else -1)
        with pytest.raises(cs.errors.ArgumentValueError, match="empty"):
            cs.max(group.shard(np.zeros((0, 2)), 0))


@pytest.mark.parametrize("size", SIZES)
def test_calls_in_flight_under_many_schedules(size):
    """Several calls before any device has ended the first: devices are a call apart, and slots are used again."""
    x = np.arange(24, dtype=np.int32).reshape(8, 3)
    with cs.emulate(devices=size, schedules=9) as ran:
        group = Group.local()
        sharded = group.shard(x)
        with group.together():
            found = [cs.sum(sharded, axis=0), cs.max(sharded), cs.sum(sharded, axis=0), cs.argmax(sharded)]
        assert ran.launches == 9
        for got, want in zip(found, (x.sum(0), 23, x.sum(0), 23)):
            for part in got.parts:
                assert np.array_equal(np.asarray(part), want)


@pytest.mark.slow
def test_all_reduce_of_more_than_the_slots_hold():
    random = np.random.default_rng(3)
    with cs.emulate(devices=2):
        group = Group.local()
        for n, dtype in ((1, "float32"), (1700, "int64"), (5, "float16"), (0, "int32")):
            parts = [random.integers(-50, 50, n).astype(dtype) for _ in range(2)]
            got = group.all_reduce([group.put(part, rank) for rank, part in enumerate(parts)])
            for part in got.parts:
                assert np.array_equal(np.asarray(part), parts[0] + parts[1])


@pytest.mark.slow
def test_the_first_elements():
    x = np.random.default_rng(2).integers(-9, 9, (10, 3)).astype(np.float32)
    with cs.emulate(devices=3):
        group = Group.local()
        for parts in ([4, 3, 3], [0, 9, 1]):
            sharded = group.shard(x, 0, parts)
            for n in (1, 6, 99):
                assert np.array_equal(np.asarray(cs.sum(sharded, axis=0, n=n)), x[:n].sum(0))
                assert np.array_equal(np.asarray(cs.argmax(sharded, axis=0, n=n)), x[:n].argmax(0))
                np.testing.assert_allclose(np.asarray(cs.var(sharded, axis=0, n=n)), x[:n].var(0), rtol=1e-5)
            assert not np.asarray(cs.sum(sharded, axis=0, n=0)).any()
        line = group.shard(x[:, 0])
        assert float(cs.mean(line, axis=0, n=7)) == pytest.approx(x[:7, 0].mean())
        assert float(cs.sum(line, axis=0, n=-1)) == 0
