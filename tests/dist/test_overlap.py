"""Large products, made in pieces: those of the whole matrices, however long the parts are, and the same ones where
copies go beside kernels."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.dist import Group, overlap, product
from cutesync.errors import ArgumentTypeError

from ..faults import Bench, each, every, first, op


@pytest.fixture(autouse=True)
def all_in_pieces(monkeypatch):
    monkeypatch.setattr(overlap, "MIN_PIECE", 0)


def matrices(size: int, seed: int) -> tuple:
    """Two matrices whose product is exact, and their parts: of A along rows, along K, of B along columns."""
    random = np.random.default_rng(seed)
    rows, k, columns = ([int(n) for n in 8 * random.integers(1, 4, size)] for _ in range(3))
    a, b = random.integers(-2, 3, (sum(rows), sum(k))), random.integers(-2, 3, (sum(k), sum(columns)))
    return a.astype("float16"), b.astype("float16"), (rows, k, columns)


def kinds(monkeypatch) -> list:
    """The plans that are made."""
    made: list = []
    plan_of = product.plan_of
    monkeypatch.setattr(product, "plan_of", lambda *given: made.append(plan_of(*given)) or made[-1])
    return made


# Launches whose threads may know of each other take memory by the square of their number: 20 GB with eight devices.
SLOW = [pytest.param(*of, marks=pytest.mark.slow) for of in ((2, 3), (3, 1))]


@pytest.mark.drawn(1)
@pytest.mark.parametrize("size, schedules", SLOW)
def test_products_in_flight(size, schedules, monkeypatch):
    plans = kinds(monkeypatch)
    a, b, (rows, k, columns) = matrices(size, size)
    with cs.emulate(devices=size, schedules=schedules):
        group = Group.local()
        by_rows, by_columns = group.shard(a, 0, rows), group.shard(b, 1, columns)
        along_k = group.shard(a, 1, k), group.shard(b, 0, k)
        out = group.shard(np.zeros((a.shape[0], b.shape[1]), np.float16), 1, columns)
        with group.together():
            found = [(cs.matmul(*along_k, alpha=2), 2 * (a @ b)), (cs.matmul(by_rows, by_columns, out=out), a @ b)]
        assert found[-1][0] is out
        assert all(np.array_equal(np.asarray(y), wanted) for y, wanted in found)
    assert [type(plan) for plan in plans] == [overlap.RingPlan, overlap.GatherPlan]


@pytest.mark.slow
def test_what_is_made_whole(monkeypatch):
    """Terms, integers, parts of different lengths along K; an empty part; small products."""
    a, b, (rows, k, columns) = matrices(2, 5)
    plans = kinds(monkeypatch)
    with cs.emulate(devices=2):
        group = Group.local()
        bias = group.shard(np.ones(b.shape[1], np.float16), 0, columns)
        calls = [
            lambda: cs.matmul(group.shard(a, 0, rows), group.shard(b, 1, columns), bias=bias) - 0,
            lambda: cs.matmul(group.shard(a, 1, k), group.shard(b, 0, [k[1] + k[0], 0])),
            lambda: cs.matmul(group.shard(a.astype("int8"), 1, k), group.shard(b.astype("int8"), 0, k)),
            lambda: cs.matmul(group.shard(a, 0, [0, sum(rows)]), group.shard(b, 1, columns)),
        ]
        with pytest.raises(TypeError):
            calls[0]()
        for call in calls[1:]:
            assert np.array_equal(np.asarray(call()), a @ b)
        with pytest.raises(ArgumentTypeError, match="out"):
            cs.matmul(group.shard(a, 1, k), group.shard(b, 0, k), out=group.shard(a @ b))
        monkeypatch.setattr(overlap, "MIN_PIECE", 1 << 34)
        cs.matmul(group.shard(a, 0, rows), group.shard(b, 1, columns))
    made = [type(plan) for plan in plans]
    assert made.count(overlap.RingPlan) == 1 and overlap.GatherPlan not in made


@pytest.mark.slow
def test_the_order_of_a_ring_is_that_of_its_devices():
    """Sums of one, a number that swallows it, and its opposite, differ by order: device d + 1 first, d last."""
    big = 2.0**12
    a = np.repeat([[1.0, big, -big]], 6, axis=0).repeat(8, axis=1).astype("float16")
    b = np.repeat([[1 / 8.0], [big / 8], [big / 8]], 8, axis=0).astype("float16").repeat(8, axis=1)
    with cs.emulate(devices=3):
        group = Group.local()
        y = np.asarray(cs.matmul(group.shard(a, 1), group.shard(b, 0), out_dtype="float32"))
    terms = np.float32([1, big * big, -big * big])
    wanted = [(terms[(d + 1) % 3] + terms[(d + 2) % 3]) + terms[d] for d in range(3)]
    assert y.tolist() == np.repeat(wanted, 2)[:, None].repeat(8, 1).tolist() and len(set(wanted)) == 2


@pytest.mark.slow
def test_faults_of_the_copies_between_pieces_are_found():
    a, b, (rows, k, columns) = matrices(2, 2)

    def right() -> bool:
        with cs.emulate(devices=2, schedules=3):
            group = Group.local()
            along_k = group.shard(a, 1, k), group.shard(b, 0, k)
            crossed = group.shard(a, 0, rows), group.shard(b, 1, columns)
            with group.together():
                found = [cs.matmul(*along_k), cs.matmul(*crossed)]
            return all(np.array_equal(np.asarray(y), a @ b) for y in found)

    bench = Bench(right, skip=r"cutesync_matmul")
    for edit, found in (
        (first(r"st\.release\.sys", "st.relaxed.sys", after=r"\.entry"), {"race"}),
        (each(op(r"st\.release\.sys")), {"deadlock"}),
        (each(r"ld\.acquire\.sys", "ld.relaxed.sys"), {"race", ""}),
        (every(op(r"griddepcontrol\.wait")), {"race"}),
    ):
        kinds = bench.finds(edit)
        assert set(kinds) <= found and "".join(kinds), kinds
