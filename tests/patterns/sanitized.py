"""Every pattern of the demo, small, under compute-sanitizer. Run by test_sanitizer.py in a process of its own."""

import os
import sys

import numpy as np

sys.path.insert(0, os.getcwd())
import cutesync as cs
from cutesync.cli import demo_patterns

for case in demo_patterns.cases("emulator"):
    if "racecheck" in sys.argv and case.operation == "completion function":
        continue  # one lane of each warp arrives
    inputs = case.make(np.random.default_rng(5))
    wanted = np.asarray(case.expected(*inputs))
    got = np.asarray(case.call(*map(cs.asarray, inputs), out=cs.asarray(np.zeros_like(wanted))))  # bulk copies write it
    assert np.array_equal(got, wanted) or np.allclose(got, wanted, rtol=1e-5), case.operation
print("sanitized: done")
