"""Scans of sharded arrays agree with those of the whole array, for any lengths of the parts."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.dist import Group
from cutesync.errors import ArgumentValueError

from ..cases import bicyclic, brackets
from .test_reduce import lengths

SIZES = (2, 8)
# name: element type, shape, sharded axis, call
CASES = {
    "sum": ("int32", (300,), 0, lambda x: cs.cumsum(x)),
    "reverse": ("int64", (67,), 0, lambda x: cs.scan(x, "max", reverse=True)),
    "reverse, exclusive": ("int32", (67,), 0, lambda x: cs.scan(x, reverse=True, exclusive=True)),
    "rows": ("int32", (5, 40), 1, lambda x: cs.scan(x, axis=1)),
    "columns": ("int32", (40, 5), 0, lambda x: cs.scan(x, axis=0, init=3)),
    "middle, exclusive": ("int32", (3, 20, 5), 1, lambda x: cs.scan(x, axis=1, exclusive=True)),
    "middle, reverse and exclusive": (
        "int32",
        (3, 20, 5),
        1,
        lambda x: cs.scan(x, "min", axis=1, reverse=True, exclusive=True, init=9),
    ),
    "another axis": ("int32", (6, 9), 0, lambda x: cs.scan(x, axis=1)),
    "flattened": ("int32", (6, 9), 0, lambda x: cs.cumsum(x)),
    "columns of 16-bit floats, exclusive": ("float16", (40, 5), 0, lambda x: cs.scan(x, axis=0, exclusive=True)),
    "order, columns": ("brackets", (40, 3), 0, lambda x: cs.scan(x, bicyclic, axis=0)),
    "order, reverse": ("brackets", (67,), 0, lambda x: cs.scan(x, bicyclic, reverse=True)),
    "states": (
        "float32",
        (67,),
        0,
        lambda x: cs.scan(
            x,
            lambda a, b: (a[0] + b[0], a[1] + b[1]),
            transform=lambda v: (v, v * v),
            dtype=("float32", "float32"),
            finish=lambda s: s[1] - s[0],
            out_dtype="float32",
        ),
    ),
    "NaN filled": ("gaps", (67,), 0, lambda x: cs.ffill(x)),
    "recurrence": ("float32", (67,), 0, lambda x: cs.linear_recurrence(x, x, init=2.0)),
}


@pytest.mark.drawn(6)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "size"), [(name, (2, 4, 2, 8)[i % 4]) for i, name in enumerate(CASES)])
def test_agrees_with_one_device(name, size):
    dtype, shape, axis, call = CASES[name]
    random = np.random.default_rng([len(name), size])
    x = (
        brackets(shape)
        if dtype == "brackets"
        else random.integers(-1, 2, shape).astype(dtype.replace("gaps", "float32"))
    )
    if dtype == "gaps":
        x[random.random(shape) < 0.8] = np.nan
    with cs.emulate(devices=size):
        group, want = Group.local(), np.asarray(call(cs.asarray(x)))
        sharded = group.shard(x, axis, lengths(random, shape[axis], size))
        got = call(sharded)
        assert got.axis == (0 if name == "flattened" else axis)
        assert np.asarray(got).dtype == want.dtype
        assert np.array_equal(np.asarray(got), want, equal_nan=dtype == "gaps"), sharded


@pytest.mark.drawn(1)
@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_calls_in_flight_under_many_schedules(size):
    x = np.arange(40, dtype=np.int32).reshape(20, 2)
    with cs.emulate(devices=size, schedules=9 if size == 2 else 2):
        group = Group.local()
        sharded, row = group.shard(x), group.shard(x.ravel())
        with group.together():
            found = [cs.scan(sharded, axis=0), cs.cumsum(row, dtype="int32"), cs.scan(sharded, axis=0)]
        for got, want in zip(found, (x.cumsum(0), x.ravel().cumsum(), x.cumsum(0))):
            assert np.array_equal(np.asarray(got), want)


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["reverse, exclusive", "rows", "middle, exclusive", "order, columns"])
def test_the_first_elements(name):
    """``n=``: what lies behind them is left as it is."""
    dtype, shape, axis, _ = CASES[name]
    options = {"op": bicyclic} if dtype == "brackets" else {"exclusive": "exclusive" in name}
    options |= {"reverse": "reverse" in name, "axis": axis}
    random = np.random.default_rng(len(name))
    x = brackets(shape) if dtype == "brackets" else random.integers(-9, 9, shape).astype(dtype)
    with cs.emulate(devices=3):
        group, length = Group.local(), shape[axis]
        for n in (0, length // 2, length + 5):
            parts, full = lengths(random, length, 3), np.full(shape, 77, x.dtype)
            out, want = group.shard(full, axis, parts), cs.asarray(full)
            cs.scan(group.shard(x, axis, parts), n=n, out=out, **options)
            cs.scan(cs.asarray(x), n=n, out=want, **options)
            assert np.array_equal(np.asarray(out), np.asarray(want)), (n, parts)
        assert cs.scan(group.shard(x, axis), n=2, **options).shape == shape


@pytest.mark.slow
def test_numbers_of_elements_that_are_refused():
    with cs.emulate(devices=2):
        group = Group.local()
        rows = group.shard(np.ones((2, 8, 2), np.float16), 1)
        with pytest.raises(ArgumentValueError, match="n: "):
            cs.scan(rows, axis=1, n=3)
        with pytest.raises(ArgumentValueError, match="n: "):
            cs.scan(group.shard(np.ones((4, 2))), axis=None, n=3)
