"""Products of sharded matrices are those of the whole ones, for every two ways in which they may be sharded."""

import itertools

import numpy as np
import pytest

import cutesync as cs
from cutesync.dist import Group, Sharded
from cutesync.errors import ArgumentTypeError, ArgumentValueError

from .test_reduce import lengths

SHAPES = {
    "matrices": ((16, 24), (24, 40)),
    "a vector and a matrix": ((24,), (24, 16)),
    "a matrix and a vector": ((16, 24), (24,)),
    "vectors": ((24,), (24,)),
    "batches": ((4, 16, 8), (4, 8, 16)),
    "one matrix for all items": ((4, 16, 8), (8, 16)),
}
BATCHED = [(None, 0), (0, None), (0, 1), (0, 2), (1, 0), (2, 0)]  # sharded axes that "batches" may not have


def sharded(group: Group, x: np.ndarray, axis: int | None, parts=None) -> Sharded:
    if axis is None:
        return Sharded(group, [group.put(x, rank) for rank in range(group.size)], None)
    return group.shard(x, axis, parts)


def right(found: Sharded, want: np.ndarray) -> bool:
    return all(np.array_equal(np.asarray(y), want) for y in (found.parts if found.axis is None else (found,)))


@pytest.mark.drawn(3)
@pytest.mark.slow
@pytest.mark.parametrize("name, size", [(name, 3 if name == "a vector and a matrix" else 2) for name in SHAPES])
def test_every_two_ways(name, size):
    random = np.random.default_rng(size)
    a, b = (random.integers(-2, 3, shape).astype("float16") for shape in SHAPES[name])
    with cs.emulate(devices=size):
        group = Group.local()
        for of_a, of_b in itertools.product(*([None, *range(x.ndim)] for x in (a, b))):
            given = sharded(group, a, of_a), sharded(group, b, of_b)
            if (name == "batches" and (of_a, of_b) in BATCHED) or (name == "one matrix for all items" and of_a == 0):
                if name != "batches" and of_b is None:
                    assert right(cs.matmul(*given), a @ b)
                    continue
                with pytest.raises(ArgumentValueError, match="batches sharded alike"):
                    cs.matmul(*given)
                continue
            assert right(cs.matmul(*given), a @ b), (of_a, of_b)


def test_terms_types_and_what_is_refused():
    random = np.random.default_rng(5)
    a, b = random.integers(-2, 3, (16, 24)).astype("float16"), random.integers(-2, 3, (24, 16)).astype("float16")
    bias, c = random.integers(-9, 9, 16).astype("float16"), random.integers(-9, 9, (16, 16)).astype("float16")
    with cs.emulate(devices=2):
        group = Group.local()
        rows, columns, along_k = (
            sharded(group, a, 0, [9, 7]),
            sharded(group, b, 1, [3, 13]),
            sharded(group, a, 1, [8, 16]),
        )
        whole = sharded(group, b, None)
        found = cs.matmul(rows, whole, group.shard(c, 0, [9, 7]), bias=sharded(group, bias, None), activation="relu")
        assert found.axis == 0 and right(found, np.maximum(a @ b + c + bias, 0))
        found = cs.matmul(rows, columns, bias=group.shard(bias, 0, [3, 13]), pre_activation=True, activation="relu")
        assert [y.axis for y in found] == [1, 1] and right(found[1], a @ b + bias)
        sums = cs.matmul(along_k, sharded(group, b, 0), alpha=0.5, out_dtype="float32")
        assert sums.lengths == (8, 8) and right(sums, 0.5 * (a.astype("float32") @ b))
        whole_k = cs.matmul(sharded(group, a.astype("int8"), 1), whole.group.shard(b.astype("int8"), 0))
        assert right(whole_k, a.astype("int32") @ b.astype("int32"))
        for error, words, call in (
            (
                ArgumentValueError,
                "bias.*along its axis -1",
                lambda: cs.matmul(rows, columns, bias=sharded(group, bias, None)),
            ),
            (ArgumentValueError, "bias.*the whole", lambda: cs.matmul(rows, whole, bias=group.shard(bias, 0))),
            (
                ArgumentValueError,
                "bias.*sharded along K",
                lambda: cs.matmul(along_k, whole, bias=sharded(group, bias, None)),
            ),
            (ArgumentValueError, "activation.*sharded along K", lambda: cs.matmul(along_k, whole, activation="relu")),
            (ArgumentValueError, "amax", lambda: cs.matmul(rows, whole, amax=True)),
            (ArgumentTypeError, "beside a Sharded", lambda: cs.matmul(rows, whole.parts[0])),
            (ArgumentValueError, "24 rows", lambda: cs.matmul(rows, rows)),
        ):
            with pytest.raises(error, match=words):
                call()


@pytest.mark.drawn(1)
@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 8])
def test_calls_in_flight_under_many_schedules(size):
    random = np.random.default_rng(size)
    a, b = random.integers(-2, 3, (16, 32)).astype("float16"), random.integers(-2, 3, (32, 24)).astype("float16")
    parts = lengths(random, 4, size)
    schedules = {2: 9, 8: 1}[size]
    with cs.emulate(devices=size, schedules=schedules) as ran:
        group = Group.local()
        along_k = group.shard(a, 1, [8 * n for n in parts]), group.shard(b, 0)
        crossed = group.shard(a), group.shard(b, 1)
        with group.together():
            found = [cs.matmul(*along_k), cs.matmul(*crossed)]
        assert ran.launches == schedules and all(right(y, a @ b) for y in found)
