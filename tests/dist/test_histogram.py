"""Counts and searches of sharded arrays are those of the whole array, on every device."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.dist import Group

from .test_reduce import lengths

CALLS = {
    "bincount": (lambda x, w, n: cs.bincount(x, length=9, n=n), lambda x, w: np.bincount(x, minlength=9)),
    "weights": (lambda x, w, n: cs.bincount(x, w, length=9, n=n), lambda x, w: np.bincount(x, w, 9)),
    "histogram": (lambda x, w, n: cs.histogram(x, 5, (0, 9), n=n)[0], lambda x, w: np.histogram(x, 5, (0, 9))[0]),
    "edges": (
        lambda x, w, n: cs.histogram(x, [0, 2, 7], weights=w, n=n)[0],
        lambda x, w: np.histogram(x, [0, 2, 7], weights=w)[0],
    ),
    "whole in sorted parts": (
        lambda x, w, n: cs.searchsorted(x, whole(x, np.arange(-1, 11)), "right", n=n),
        lambda x, w: np.searchsorted(x, np.arange(-1, 11), "right"),
    ),
    "parts in sorted whole": (
        lambda x, w, n: cs.searchsorted(whole(x, np.arange(0, 9, 2)), x),
        lambda x, w: np.searchsorted(np.arange(0, 9, 2), x),
    ),
}


def whole(x, values: np.ndarray) -> cs.dist.Sharded:
    return x.group.shard(values, None)


@pytest.mark.drawn(3)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "size"), [(name, (2, 8)[i % 2]) for i, name in enumerate(CALLS)])
def test_agrees_with_numpy(name, size):
    call, expected = CALLS[name]
    random = np.random.default_rng([len(name), size])
    with cs.emulate(devices=size, schedules=3 if size == 2 else 1):
        group = Group.local()
        for length in (1, 90):
            x, w = np.sort(random.integers(0, 9, length)), random.random(length)
            parts = lengths(random, length, size)
            given = group.shard(x, 0, parts), group.shard(w, 0, parts)
            some = length if name.startswith("parts") else length // 2
            counts = (None, length) if name.startswith("parts") else (None, some, group.shard(np.array(some), None))
            for n in counts:
                got, k = call(*given, n), length if n is None else some
                for part in got.parts if got.axis is None else (got,):
                    np.testing.assert_allclose(np.asarray(part), expected(x[:k], w[:k]), err_msg=str(parts))


def test_results_in_memory_that_is_given_and_what_is_refused():
    x = np.arange(40) % 7
    with cs.emulate(devices=2):
        group = Group.local()
        sharded, out = group.shard(x), group.shard(np.zeros(7, np.int64), None)
        assert cs.bincount(sharded, length=7, out=out) is out
        assert all(np.array_equal(np.asarray(part), np.bincount(x)) for part in out.parts)
        for words, call in (
            ("density", lambda: cs.histogram(sharded, 3, (0, 7), density=True)),
            ("reshard", lambda: cs.searchsorted(sharded, sharded)),
        ):
            with pytest.raises(cs.errors.ArgumentValueError, match=words):
                call()
