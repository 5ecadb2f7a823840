"""Inputs that are whole on each device: ``n=`` and ``args=`` in memory; and the values of selections as inputs. Results
are those of one device; nothing waits."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.dist import Group
from cutesync.errors import ArgumentTypeError, ArgumentValueError

from .test_reduce import lengths

SLOW = pytest.mark.slow
# call of an array and a number of elements, which is the result of one device
REDUCTIONS = {
    "sum": lambda x, n: cs.sum(x, axis=0, n=n),
    "columns": lambda x, n: cs.sum(x, axis=0, n=n),
    "mean": lambda x, n: cs.mean(x, axis=0, n=n, dtype="float64"),
    "var": lambda x, n: cs.var(x, axis=0, n=n, ddof=1, dtype="float64"),
    "logsumexp": lambda x, n: cs.logsumexp(x, axis=0, n=n),
    "count_nonzero": lambda x, n: cs.count_nonzero(x, axis=0, n=n),
    "max with init": lambda x, n: cs.reduce(x, "max", axis=0, init=-7, n=n),
    "order, init": lambda x, n: cs.reduce(x, lambda a, b: b, axis=0, init=5, n=n),
    "order, identity": lambda x, n: cs.reduce(x, lambda a, b: a + b, axis=0, identity=0, n=n),
}
SCANS = {
    "sum": lambda x, n, out: cs.scan(x, axis=0, n=n, out=out),
    "reverse": lambda x, n, out: cs.scan(x, axis=0, reverse=True, n=n, out=out),
    "reverse, exclusive": lambda x, n, out: cs.scan(
        x, "max", axis=0, exclusive=True, init=0, reverse=True, n=n, out=out
    ),
    "order": lambda x, n, out: cs.scan(x, lambda a, b: b, axis=0, n=n, out=out),
    "heads": lambda x, n, out: cs.flag_heads(x, "lt", predecessor=1, axis=0, dtype="int32", n=n, out=out),
    "tails": lambda x, n, out: cs.flag_tails(x, successor=1, axis=0, dtype="int32", n=n, out=out),
    "differences": lambda x, n, out: cs.adjacent_difference(x, axis=0, n=n, out=out),
}
SELECTIONS = {
    "select": lambda x, n: cs.select(x, lambda v: v > 0, n=n),
    "runs": lambda x, n: cs.unique_consecutive(x, n=n),
    "args": lambda x, n: cs.select(x, lambda v, low: v > low, args=(1,), n=n),
}


def data(random, name: str, length: int) -> np.ndarray:
    return random.integers(-2, 3, (length, 3) if name == "columns" else length).astype("int32")


def both(group, parts: list, x: np.ndarray, n: int) -> list:
    """An array and a number of elements on several devices, and the same on one."""
    return [(group.shard(x, 0, parts), group.shard(np.array(n), None)), (cs.asarray(x), cs.asarray(np.array(n)))]


@pytest.mark.drawn(4)
@SLOW
@pytest.mark.parametrize(("name", "size"), [(name, (2, 8)[i % 2]) for i, name in enumerate(REDUCTIONS)])
def test_reductions_of_the_first_elements(name, size):
    random = np.random.default_rng([len(name), size])
    with cs.emulate(devices=size):
        group = Group.local()
        for n in (0, 33, 99):
            x = data(random, name, 60)
            got, want = (REDUCTIONS[name](*given) for given in both(group, lengths(random, 60, size), x, n))
            for part in got.parts:
                np.testing.assert_allclose(np.asarray(part), np.asarray(want), rtol=1e-6, err_msg=f"{n}")


@pytest.mark.drawn(4)
@SLOW
@pytest.mark.parametrize(("name", "size"), [(name, (2, 4)[i % 2]) for i, name in enumerate(SCANS)])
def test_scans_and_flags_of_the_first_elements(name, size):
    """What lies behind them is left as it is."""
    random = np.random.default_rng([len(name), size])
    with cs.emulate(devices=size):
        group = Group.local()
        for n in (0, 33, 99):
            x, parts = data(random, name, 60), lengths(random, 60, size)
            outs = group.shard(np.full_like(x, 77), 0, parts), cs.asarray(np.full_like(x, 77))
            for given, out in zip(both(group, parts, x, n), outs):
                SCANS[name](*given, out)
            assert np.array_equal(*map(np.asarray, outs)), (n, parts)


@SLOW
@pytest.mark.parametrize(("name", "size"), [(name, (2, 4)[i % 2]) for i, name in enumerate(SELECTIONS)])
def test_selections_from_the_first_elements(name, size):
    random = np.random.default_rng([len(name), size])
    with cs.emulate(devices=size):
        group = Group.local()
        for n in (0, 1, 33, 99):
            x, parts = data(random, name, 60), lengths(random, 60, size)
            pair = both(group, parts, x, n)
            got, want = (np.asarray(SELECTIONS[name](*given)) for given in pair)
            assert np.array_equal(got, want) and np.array_equal(np.asarray(SELECTIONS[name](pair[0][0], n)), want)


@pytest.mark.parametrize("size", [2, pytest.param(8, marks=SLOW)])
def test_chains_of_calls_that_do_not_wait(size):
    """select, then a scan and a sum of what is selected, by the count that it found; parts may have none of it."""
    x = np.arange(120).reshape(4, 30)[:, ::-1].ravel()
    with cs.emulate(devices=size, schedules=20 if size == 4 else 2):
        group = Group.local()
        with group.together():
            small = cs.select(group.shard(x), lambda v: v < 20)
            odd = cs.select(small.values, lambda v: v % 2 == 1, n=small.count)
            found = cs.cumsum(odd.values), cs.sum(odd.values), cs.sum(small.values, axis=0, n=odd.count)
        low = x[x < 20]
        wanted = low[low % 2 == 1].cumsum(), low[low % 2 == 1].sum(), low[:10].sum()
        assert [np.array_equal(np.asarray(a), b) for a, b in zip(found, wanted)] == [True] * 3


@SLOW
@pytest.mark.parametrize("size", [4])
def test_values_of_selections(size):
    random = np.random.default_rng(size)
    with cs.emulate(devices=size):
        group = Group.local()
        x = random.integers(-9, 9, 90)
        for chosen in (x > 0, np.arange(90) > 80, np.arange(90) == 3):
            values = cs.select(group.shard(x), group.shard(chosen)).values
            y = x[chosen]
            assert float(cs.mean(values)) == pytest.approx(y.mean())
            assert float(cs.var(values)) == pytest.approx(y.var())
            assert np.array_equal(np.asarray(cs.scan(values, reverse=True)), y[::-1].cumsum()[::-1])
            assert np.array_equal(np.asarray(cs.scan(values, exclusive=True, init=4)), 4 + y.cumsum() - y)
            assert np.array_equal(
                np.asarray(cs.bincount(values, length=8)), np.bincount(y[(y >= 0) & (y < 8)], minlength=8)
            )
            pair = cs.scan((values, values), lambda a, b: (a[0] + b[0], a[1] * 0 + b[1]), identity=(0, 0))
            assert np.array_equal(np.asarray(pair[0]), y.cumsum()) and np.array_equal(np.asarray(pair[1]), y)


@SLOW
def test_arguments_of_callables():
    """Numbers, and arrays of one element on each device; other numbers neither compile nor plan anything again."""
    x = np.arange(40, dtype=np.float32)
    with cs.emulate(devices=3):
        group = Group.local()
        sharded = group.shard(x, 0, [11, 0, 29])
        weighted = {"op": lambda a, b, w, c: a + b, "transform": lambda v, w, c: v * w + c}
        for w, c in ((2.5, 1.0), (-1.0, 3.0)):
            args = group.shard(np.float32(w), None), c
            wanted = (x * w + c).astype(np.float32)
            half = cs.reduce(sharded, **weighted, finish=lambda s, w, c: s * c, out_dtype="float32", args=args)
            assert float(half) == pytest.approx(wanted.sum() * c)
            n = group.shard(np.array(20), None)
            assert float(cs.reduce(sharded, **weighted, axis=0, identity=0, args=args, n=n)) == wanted[:20].sum()
            np.testing.assert_allclose(np.asarray(cs.scan(sharded, **weighted, args=args)), wanted.cumsum())
            heads = cs.flag_heads(sharded, lambda a, b, low: b > low, args=(c,))
            assert np.array_equal(np.asarray(heads), (x > c) | (x == 0))
        plans = len(group.plans)
        cs.scan(sharded, **weighted, args=(group.shard(np.float32(9), None), 4.0))
        assert len(group.plans) == plans


def test_what_is_refused():
    x = np.arange(8)
    with cs.emulate(devices=2):
        group = Group.local()
        sharded, n = group.shard(x), group.shard(np.array(3), None)
        values = cs.select(sharded, group.shard(x > 2)).values
        for kind, words, call in (
            (ArgumentTypeError, "axis=None", lambda: cs.sum(sharded, axis=0, n=group.put(np.array(3), 0))),
            (ArgumentValueError, "whole on each", lambda: cs.sum(sharded, axis=0, n=sharded)),
            (ArgumentValueError, "no identity", lambda: cs.max(sharded, axis=0, n=n)),
            (ArgumentValueError, "no identity", lambda: cs.scan(sharded, lambda a, b: b, reverse=True, n=n)),
            (ArgumentTypeError, "Ragged, for topk", lambda: cs.topk(values, 2)),
            (ArgumentTypeError, "number as n=", lambda: cs.sum(values, axis=0, n=3)),
            (ArgumentTypeError, "beside a Ragged", lambda: cs.select(values, sharded)),
            (ArgumentValueError, "one call", lambda: cs.select(values, cs.select(sharded, lambda v: v > 2).values)),
        ):
            with pytest.raises(kind, match=words):
                call()
