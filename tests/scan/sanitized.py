"""A few scans through every kernel, for compute-sanitizer. test_sanitizer.py runs it in a process of its own."""

import sys

import numpy as np

import cutesync as cs

for shape, axis in [
    ((1,), 0),
    ((37,), 0),
    ((4001,), 0),
    ((9, 1001), 1),
    ((10_001, 3), 0),
    ((2500,), 0),
    ((300_007,), 0),
    ((8_000_003,), 0),
    ((1001, 3), 1),
    ((333, 37), 1),
    ((37, 333), 0),
    ((50, 5001), 1),
    ((20_000, 40), 0),
    ((700_001, 5), 0),
    ((3, 400_000), 1),
    ((0,), 0),
]:
    if "racecheck" in sys.argv and shape in ((8_000_003,), (700_001, 5)):
        continue  # pipelines: one lane of each warp arrives
    x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    array = cs.asarray(x)
    for _ in range(2):
        assert np.array_equal(np.asarray(cs.scan(array, axis=axis)), x.cumsum(axis, dtype=np.int32)), (shape, axis)
    backwards = np.asarray(cs.scan(array, axis=axis, reverse=True, out=array))
    assert np.array_equal(backwards, np.flip(np.flip(x, axis).cumsum(axis, dtype=np.int32), axis)), (shape, axis)
whole = cs.asarray(np.ones(20_016, np.int8))
for offset in (1, 7, 15):
    assert np.asarray(cs.scan(whole[offset : offset + 20_001], dtype="int32"))[-1] == 20_001
print("sanitized: done")
