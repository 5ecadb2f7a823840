"""Top-k of sharded arrays is that of the whole array: the elements, their indices, and the order of equal ones."""

import numpy as np
import pytest

import cutesync as cs
from cutesync import reference
from cutesync.dist import Group, Sharded
from cutesync.errors import ArgumentTypeError, ArgumentValueError

from .test_reduce import lengths

SIZES = [2, pytest.param(8, marks=pytest.mark.slow)]


def agree(found, wanted) -> None:
    for got, want in zip(found, wanted):
        for part in got.parts if got.axis is None else [got]:
            host = np.asarray(part)
            assert host.dtype == want.dtype and np.array_equal(host, want, equal_nan=want.dtype.kind == "f"), got


@pytest.mark.parametrize("size", SIZES)
def test_along_the_sharded_axis(size):
    random = np.random.default_rng(size)
    with cs.emulate(devices=size):
        group = Group.local()
        for n, k in ((7, 7), (60, 11)):
            x = random.integers(-3, 3, n).astype(np.int32)  # many are equal
            agree(cs.topk(group.shard(x, 0, lengths(random, n, size)), k), reference.topk(x, k, 0))


@pytest.mark.drawn(1)
@pytest.mark.slow
@pytest.mark.parametrize("shape, axis", [((40, 3), 0), ((2, 20, 3), 1)])
def test_axes_types_and_options(shape, axis):
    random = np.random.default_rng(len(shape) + axis)
    with cs.emulate(devices=3):
        group = Group.local()
        for dtype in ("float32", "uint8")[axis:]:
            x = random.integers(0, 5, shape).astype(dtype)
            if dtype == "float32":
                x[random.random(shape) < 0.1] = np.nan
            sharded = group.shard(x, axis, lengths(random, shape[axis], 3))
            agree(cs.topk(sharded, 6, axis, largest=False), reference.topk(x, 6, axis, largest=False))
            agree(cs.topk(sharded, 4, axis, n=9), reference.topk(x, 4, axis, n=9))
            agree([cs.argtopk(sharded, 5, axis)], reference.topk(x, 5, axis)[1:])
            other = (axis + 1) % len(shape)
            found = cs.topk(sharded, 2, other)
            assert found[0].axis == axis
            agree(found, reference.topk(x, 2, other))


@pytest.mark.slow
def test_outputs_none_and_calls_in_flight():
    x = np.random.default_rng(1).integers(0, 9, 50).astype(np.int16)
    with cs.emulate(devices=2, schedules=8):
        group = Group.local()
        sharded = group.shard(x)
        outs = tuple(
            Sharded(group, [group.put(np.zeros(5, dtype), rank) for rank in range(2)], None)
            for dtype in (np.int16, np.int64)
        )
        with group.together():
            assert cs.topk(sharded, 5, out=outs) is outs
            found = cs.topk(sharded, 3)
            none = cs.topk(sharded, 0)
        agree(outs, reference.topk(x, 5, 0))
        agree(found, reference.topk(x, 3, 0))
        assert none[0].shape == none[1].shape == (0,)


@pytest.mark.slow
def test_what_is_refused():
    with cs.emulate(devices=2):
        group = Group.local()
        sharded = group.shard(np.arange(8))
        with pytest.raises(ArgumentValueError, match="0 to 8"):
            cs.topk(sharded, 9)
        with pytest.raises((ArgumentTypeError, ArgumentValueError), match="n"):
            cs.topk(sharded, 3, n=cs.asarray(np.array(5)))
