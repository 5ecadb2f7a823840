"""Every pattern in every form at ragged sizes, for compute-sanitizer to watch. Run by test_memory.py in a process of its own."""

import os
import sys

sys.path.insert(0, os.getcwd())
import cutesync as cs
from tests.patterns.cases import PATTERNS, numbers, same, thirds

for name, pattern in PATTERNS.items():
    for n in (31, 257, 1203)[: 1 if name == "relay of one slot" else None]:
        x = pattern.make(n)
        assert same(pattern.run(x), pattern.wanted(x), pattern.ordered), (name, n)
x = numbers(5003)
for method in ("block", "warp", "each"):
    channel = cs.patterns.Channel(100).give(x, thirds, method=method)
    assert len(channel.take(130)) == 100 and channel.size == 0
print("sanitized: done")
