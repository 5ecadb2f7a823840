"""A few reductions through every kernel, for compute-sanitizer to watch. Run by test_sanitizer.py in a process of its
own."""

import numpy as np

import cutesync as cs

for shape, axis in [
    ((1,), None),
    ((37,), None),
    ((2500,), None),
    ((300_007,), None),
    ((1001, 3), 1),
    ((333, 37), 1),
    ((37, 333), 0),
    ((20_000, 40), 0),
    ((20_000, 17), 0),
    ((50_000, 3), 0),
    ((3, 40_000), 1),
    ((5, 7, 11), (0, 2)),
    ((0,), None),
]:
    x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    for _ in range(2):
        result = np.asarray(cs.reduce(cs.asarray(x), axis=axis))
        assert np.array_equal(result, x.sum(axis, dtype=np.int32)), (shape, axis)
whole = cs.asarray(np.ones(20_016, np.int8))
for offset in (1, 7, 15):
    assert int(np.asarray(cs.sum(whole[offset : offset + 20_001]))) == 20_001
assert int(np.asarray(cs.argmax(cs.asarray(np.arange(70_001, dtype=np.float32))))) == 70_000
print("sanitized: done")
