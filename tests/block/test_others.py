"""block.AdjacentDifference, Exchange, Load and Store."""

import cutlass
import numpy as np
import pytest

from ..cases import everywhere, same
from .kernels import Differences, Rearranged, run


def left(x, op, first):
    return np.concatenate([[first], op(x[1:], x[:-1])]).astype(x.dtype)


def right(x, op, last):
    return np.concatenate([op(x[:-1], x[1:]), [last]]).astype(x.dtype)


FORMS = [("int32", (64,), 3, "sub"), ("float16", (4, 4, 4), 3, "sub"), ("uint8", (96,), 2, lambda a, b: a + 2 * b)]


@everywhere(
    "dtype, block_dim, items, op, valid",
    [(*form, valid) for form in FORMS for valid in (0, 1, 50, 192)],
    emulator=lambda dtype, block_dim, items, op, valid: (dtype == "int32") == (valid in (0, 1)),
)
def test_differences(place, dtype, block_dim, items, op, valid):
    x = np.random.default_rng(2).integers(0, 200, 192).astype(dtype)
    host = Differences(getattr(cutlass, dtype.capitalize()), block_dim, items, valid, op)
    out = run(place, host, x, np.array([7, 9], dtype), np.full((6, 192), 77, dtype), schedules=9)[2]
    fn = np.subtract if op == "sub" else op
    with np.errstate(over="ignore"):
        same(out[0], left(x, fn, x[0]), "left")
        same(out[1], left(x, fn, fn(x[:1], x.dtype.type(7))[0]), "left with a predecessor")
        same(out[2], right(x, fn, x[-1]), "right")
        same(out[3], right(x, fn, fn(x[-1:], x.dtype.type(9))[0]), "right with a successor")
        same(out[4], np.where(np.arange(192) < valid, out[0], x), "left of the valid ones")
        same(out[5], np.where(np.arange(192) + 1 < valid, out[2], x), "right of the valid ones")


@pytest.mark.drawn(5)
@pytest.mark.parametrize(
    ("dtype", "block_dim", "items"),
    [("int32", (64,), 1), ("int8", (8, 4, 2), 4), ("float64", (96,), 5), ("int32", (32,), 8)],
    ids=str,
)
@pytest.mark.parametrize("missing", [0, 13])
def test_exchange_load_and_store(place, dtype, block_dim, items, missing):
    threads = int(np.prod(block_dim))
    count = threads * items
    x = (np.arange(count) % 100).astype(dtype)
    host = Rearranged(getattr(cutlass, dtype.capitalize()), block_dim, items, count - missing)
    out = run(place, host, x, np.full((3, count), 77, dtype), schedules=9)[1]
    loaded = np.where(np.arange(count) < count - missing, x, 7).astype(dtype)
    same(out[0], loaded.reshape(items, threads).T.reshape(-1), "striped")
    for row in (1, 2):
        same(
            out[row],
            np.where(np.arange(count) < count - missing, x, 77).astype(dtype),
            "loaded, exchanged twice and stored",
        )
