"""A few flags and differences through every kernel, for compute-sanitizer to watch. Run by test_sanitizer.py in a
process of its own."""

import numpy as np

import cutesync as cs

reference = cs.reference
for shape in [(1,), (37,), (2500,), (300_007,), (333, 37), (37, 333), (50, 5001), (2000, 16)]:
    x = np.random.default_rng(len(shape)).integers(0, 3, shape).astype(np.int32)
    array = cs.asarray(x)
    for dtype in ("uint8", "int32", "bits"):
        assert np.array_equal(np.asarray(cs.flag_heads(array, dtype=dtype)), reference.flag_heads(x, dtype=dtype)), (
            shape,
            dtype,
        )
    for found, wanted in zip(cs.flag_heads_and_tails(array), reference.flag_heads_and_tails(x)):
        assert np.array_equal(np.asarray(found), wanted), shape
    assert np.array_equal(np.asarray(cs.adjacent_difference(array)), reference.adjacent_difference(x)), shape
x = np.random.default_rng(9).integers(0, 2, 20_016).astype(np.int8)
whole = cs.asarray(x)
for offset in (1, 7, 15):
    part = slice(offset, offset + 20_001)
    assert np.array_equal(
        np.asarray(cs.flag_tails(whole[part], lambda a, b, index: (a != b) & (index > 3))),
        reference.flag_tails(x[part], lambda a, b, index: (a != b) & (index > 3)),
    )
    assert np.array_equal(np.asarray(cs.flag_heads(whole[part], tile=100)), reference.flag_heads(x[part], tile=100))
print("sanitized: done")
