"""``out=``: results in memory that the caller gives, sharded as they are."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.dist import Group, Sharded
from cutesync.errors import ArgumentTypeError, ArgumentValueError

CALLS = {
    "sum": lambda x, out: cs.sum(x, out=out),
    "max of rows": lambda x, out: cs.max(x, axis=1, out=out),
    "cumsum": lambda x, out: cs.cumsum(x, axis=0, out=out),
    "heads and tails": lambda x, out: cs.flag_heads_and_tails(x, axis=0, out=out),
}
MORE = {
    "sum of columns": lambda x, out: cs.sum(x, axis=0, out=out),
    "argmax": lambda x, out: cs.argmax(x, out=out),
    "order": lambda x, out: cs.scan(x, lambda a, b: b, axis=0, out=out),
    "differences": lambda x, out: cs.adjacent_difference(x, axis=0, out=out),
}


def target(group: Group, like: Sharded) -> Sharded:
    """Memory as large as a result, with other contents."""
    parts = [group.put(np.full(part.shape, 77).astype(like.dtype.numpy), rank) for rank, part in enumerate(like.parts)]
    return Sharded(group, parts, like.axis)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("name", [*CALLS, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE)])
def test_results_go_where_they_are_wanted(name):
    call = (CALLS | MORE)[name]
    x = np.random.default_rng(len(name)).integers(-3, 4, (9, 4))
    with cs.emulate(devices=2, schedules=3):
        group = Group.local()
        for parts in ([5, 4], [0, 9]):
            sharded = group.shard(x, 0, parts)
            want = call(sharded, None)
            wants = want if isinstance(want, tuple) else (want,)
            outs = tuple(target(group, y) for y in wants)
            given = outs if isinstance(want, tuple) else outs[0]
            assert call(sharded, given) is given
            for y, expected in zip(outs, wants):
                for part, other in zip(y.parts, expected.parts):
                    assert np.array_equal(np.asarray(part), np.asarray(other)), parts


def test_in_place_products_and_what_is_refused():
    x = np.arange(12, dtype=np.int64).reshape(6, 2)
    a = np.random.default_rng(1).integers(-2, 3, (16, 16)).astype("float16")
    with cs.emulate(devices=2):
        group = Group.local()
        sharded = group.shard(x)
        alike, whole = group.shard(x), Sharded(group, [group.put(a, rank) for rank in range(2)], None)
        assert cs.cumsum(alike, axis=0, out=alike) is alike and np.array_equal(np.asarray(alike), x.cumsum(0))
        product = group.shard(np.zeros((16, 16), "float32"))
        cs.matmul(group.shard(a), whole, out=product)
        assert np.array_equal(np.asarray(product), (a @ a).astype("float32"))
        other, uneven = Group.local(), group.shard(x, 0, [1, 5])
        for error, words, call in (
            (ArgumentTypeError, "out.*Sharded", lambda: cs.cumsum(sharded, axis=0, out=x)),
            (ArgumentTypeError, "dtype", lambda: cs.cumsum(sharded, axis=0, out=group.shard(x.astype("int32")))),
            (ArgumentValueError, "shape", lambda: cs.cumsum(sharded, axis=0, out=group.shard(x[1:]))),
            (ArgumentValueError, "lengths", lambda: cs.cumsum(sharded, axis=0, out=uneven)),
            (ArgumentValueError, "axis=0", lambda: cs.cumsum(sharded, axis=0, out=group.shard(x, 1))),
            (ArgumentValueError, "another group", lambda: cs.cumsum(sharded, axis=0, out=other.shard(x))),
            (ArgumentValueError, "overlaps", lambda: cs.adjacent_difference(sharded, axis=0, out=sharded)),
            (ArgumentValueError, "the whole", lambda: cs.sum(sharded, axis=0, out=group.shard(x[0]))),
            (ArgumentTypeError, "for this call", lambda: cs.matmul(group.shard(a, 1), whole, out=product)),
        ):
            with pytest.raises(error, match=words):
                call()
        assert np.array_equal(np.asarray(sharded), x)


@pytest.mark.slow
def test_several_results_in_place_of_the_inputs_of_their_types():
    x, y = np.arange(9), np.arange(9, dtype=np.float32)
    with cs.emulate(devices=2):
        group = Group.local()
        a, b = group.shard(x), group.shard(y)
        cs.scan((a, b), lambda p, q: (p[0] + q[0], p[1] + q[1]), out=(a, b))
        assert np.array_equal(np.asarray(a), x.cumsum()) and np.array_equal(np.asarray(b), y.cumsum())
        c = group.shard(x)
        with pytest.raises(ArgumentValueError, match="overlaps"):
            cs.scan((c, b), lambda p, q: (p[0] + q[0], p[1] + q[1]), out=(c, c), dtype=("int64", "int64"))
