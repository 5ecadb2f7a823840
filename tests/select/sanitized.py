"""A few selections and runs, for compute-sanitizer to watch. Run by test_sanitizer.py in a process of its own."""

import sys

import numpy as np

import cutesync as cs

random = np.random.default_rng(0)
# the kernel is a pipeline: one lane of each warp arrives, and bulk copies write
for n in () if {"racecheck", "initcheck"} & set(sys.argv) else (1, 37, 2500, 300_007):
    x = random.integers(0, 3, n).astype(np.int32)
    mask = random.random(n) < 0.5
    assert np.array_equal(cs.select(x, mask).values, x[mask])
    assert np.array_equal(cs.select(x.astype(np.int8), lambda v: v > 0, size=n).values[: (x > 0).sum()], x[x > 0])
    assert np.array_equal(cs.partition(x, mask).values, np.concatenate([x[mask], x[~mask]]))
    assert np.array_equal(cs.select(cs.asarray(x)[::-1], cs.asarray(mask)[::-1]), x[::-1][mask[::-1]])
    heads = np.append(True, x[1:] != x[:-1])
    values, lengths = cs.run_length_encode(x)
    assert np.array_equal(values, x[heads])
    assert np.array_equal(lengths, np.diff(np.append(np.flatnonzero(heads), n)))
print("sanitized: done")
