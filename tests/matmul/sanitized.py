"""Products in every schedule, for compute-sanitizer to watch. Run by test_sanitizer.py in a process of its own."""

import sys

import numpy as np

import cutesync as cs
from cutesync.kernels.matmul import MatmulPolicy

CONFIGS = (
    None,
    MatmulPolicy((64, 64), "pingpong"),
    MatmulPolicy((128, 128), "cooperative", (2, 1)),
    MatmulPolicy((128, 64), "pingpong", (1, 2)),
    MatmulPolicy((64, 64), "pingpong", splits=3),
    MatmulPolicy((64, 64), "pingpong", (2, 1), splits=5),
)
# racecheck accepts only a cluster's barrier as proof that the block written to still runs, not the barrier of shared
# memory that this block waits for
if sys.argv[1:] == ["racecheck"]:
    CONFIGS = [config for config in CONFIGS if config and not config.cluster_split]
for m, n, k in [(200, 136, 200), (65, 67, 35), (1, 300, 520)]:
    a, b = (
        np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float16)
        for seed, shape in enumerate([(m, k), (k, n)])
    )
    for config in 2 * CONFIGS:
        out = cs.asarray(np.zeros((m, n), np.float16))  # tensor copies write it
        assert np.array_equal(
            np.asarray(cs.matmul(cs.asarray(a), cs.asarray(b), out=out, config=config)), cs.reference.matmul(a, b)
        ), (m, n, k, config)
print("sanitized: done")
