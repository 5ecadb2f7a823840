"""What selections accept and refuse, before anything runs; what they return."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync.errors import ArgumentTypeError, ArgumentValueError, DeviceError

X = np.arange(100, dtype=np.int32)
MASK = X % 3 == 0

REFUSED = {
    "a mask of another size": (lambda: cs.select(X, MASK[1:]), ArgumentValueError, "99 elements; needs 100"),
    "a mask of floats": (lambda: cs.select(X, X.astype(np.float32)), ArgumentTypeError, "bool, uint8, int8"),
    "too few bits": (lambda: cs.select(X, np.zeros(3, np.uint32)), ArgumentValueError, "4 for 100 elements"),
    "a condition too long": (lambda: cs.compress(MASK, X[:50]), ArgumentValueError, "at most 50"),
    "bits as a condition": (lambda: cs.compress(np.zeros(4, np.uint32), X), ArgumentTypeError, "uint32"),
    "no arrays": (lambda: cs.select((), MASK), ArgumentValueError, "at least one array"),
    "arrays of two sizes": (lambda: cs.select((X, X[1:]), MASK), ArgumentValueError, r"x\[1\]"),
    "no array": (lambda: cs.select([1, 2], MASK), ArgumentTypeError, "x"),
    "a callable of too many values": (lambda: cs.select(X, lambda a, b, c: a), ArgumentTypeError, "where"),
    "arguments without a callable": (lambda: cs.select(X, MASK, args=(1,)), ArgumentTypeError, "args"),
    "a negative size": (lambda: cs.select(X, MASK, size=-1), ArgumentValueError, "size"),
    "a size that is no int": (lambda: cs.select(X, MASK, size=1.5), ArgumentTypeError, "size"),
    "a fill value out of range": (lambda: cs.select(X, MASK, size=9, fill_value=1 << 40), ArgumentValueError, "fill"),
    "a fill value that is no number": (lambda: cs.select(X, MASK, size=9, fill_value=[]), ArgumentTypeError, "fill"),
    "an n that is no int": (lambda: cs.select(X, MASK, n=True), ArgumentTypeError, "n"),
    "indices that are no bool": (lambda: cs.select(X, MASK, indices=1), ArgumentTypeError, "indices"),
    "an out of another type": (lambda: cs.select(X, MASK, out=np.empty(9)), ArgumentTypeError, "out"),
    "an out of two axes": (lambda: cs.select(X, MASK, out=np.empty((3, 3), np.int32)), ArgumentValueError, "one axis"),
    "one out for two results": (lambda: cs.select(X, MASK, indices=True, out=X), ArgumentTypeError, "2 arrays"),
    "nonzero of no axes": (lambda: cs.nonzero(X[0:1].reshape(())), ArgumentValueError, "at least one axis"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    call, error, text = REFUSED[case]
    with cs.emulate(), pytest.raises(error, match=text):
        call()


def test_refused_on_the_device():
    with cs.emulate():
        a, mask = cs.asarray(X), cs.asarray(MASK)
        with pytest.raises(ArgumentValueError, match="overlaps x"):
            cs.select(a, mask, out=a)
        with pytest.raises(ArgumentTypeError, match="0-d array of int64"):
            cs.select(a, mask, n=cs.asarray(np.int32(5)))
        with pytest.raises(DeviceError, match="where"):
            cs.select(a, MASK)
        with pytest.raises(ArgumentTypeError, match="int32"):
            cs.select(a, mask, out=cs.empty(5, "int64"))


def test_what_is_returned():
    with cs.emulate():
        a, mask = cs.asarray(X), cs.asarray(MASK)
        found = cs.select(a, mask, indices=True)
        values, count, indices = found
        assert values.shape == indices.shape == (100,)
        assert count.shape == ()
        assert len(found) == int(count) == 34
        exact, places = found.exact()
        assert np.array_equal(exact, X[MASK])
        assert np.array_equal(places, np.flatnonzero(MASK))
        assert np.array_equal(np.asarray(found, np.float64), X[MASK].astype(np.float64))
        assert np.array_equal(cs.select((a, a), mask), np.stack([X[MASK]] * 2))
        assert repr(found).startswith("Selected(values=DeviceArray(shape=(100,)")
        host = cs.select(X.reshape(20, 5), MASK.reshape(20, 5))
        assert np.array_equal(host.values, X[MASK])
        assert isinstance(cs.compress(MASK, X), np.ndarray)
        assert cs.compress(mask, a).values.shape == (100,)
