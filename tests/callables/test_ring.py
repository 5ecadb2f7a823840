"""Callables of small integers that are traced on 32 bits: the same results, and others are traced as they were."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.callables.ring import MAX_CONSTANT, of_low_bits

RINGS = {
    "square": lambda v: v * v,
    "polynomial": lambda v: 3 * v * v - (5 - v) * 7,
    "bits": lambda v: (v & 12) ^ ~v | 1,
    "negative": lambda v: -v * (v + 100),
}
OTHERS = {
    "shifted back": lambda v: v >> 1,
    "a branch": lambda v: v if v > 3 else v * v,
    "equal": lambda v: v * (v == 2),
    "a float": lambda v: v * 2.0,
    "divided": lambda v: v // 3,
    "a constant": lambda v: 2,
    "a large number": lambda v: v + (MAX_CONSTANT + 1),
    "one of two": lambda v: min(v, 3),
}


@pytest.mark.parametrize("name", RINGS)
@pytest.mark.parametrize("dtype", ["int8", "uint16"])
def test_low_bits(name, dtype, on_emulator):
    info, fn = np.iinfo(dtype), RINGS[name]
    x = np.random.default_rng(2).integers(info.min, info.max, (300, 16), dtype, endpoint=True)
    wide = fn(x.astype(np.int64))
    for op, ufunc in (("add", np.add), ("xor", np.bitwise_xor), ("mul", np.multiply)):
        found = np.asarray(cs.reduce(cs.asarray(x), op, axis=0, transform=fn))
        assert np.array_equal(found, ufunc.reduce(wide.astype(dtype), axis=0, dtype=dtype)), op


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_not_traced_so(name):
    assert of_low_bits(OTHERS[name], None) is None
