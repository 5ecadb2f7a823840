"""Every pattern of the demo, small, for compute-sanitizer to watch. Run by test_sanitizer.py in a process of its own."""

import os
import sys

import numpy as np

sys.path.insert(0, os.getcwd())
import cutesync as cs
from cutesync.cli import demo_patterns

for case in demo_patterns.cases("emulator"):
    inputs = case.make(np.random.default_rng(5))
    got, wanted = np.asarray(case.call(*map(cs.asarray, inputs))), np.asarray(case.expected(*inputs))
    assert np.array_equal(got, wanted) or np.allclose(got, wanted, rtol=1e-5), case.operation
print("sanitized: done")
