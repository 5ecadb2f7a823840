"""The trace of a warp-specialised kernel shows its warps, its barriers' phases and its copies."""

import json

import numpy as np

from cutesync import emulator

from . import kernels_matmul as matmul


def test_trace_of_a_matmul(tmp_path):
    a, b, c = np.ones((64, 256), np.float16), np.ones((64, 256), np.float16), np.zeros((64, 64), np.float32)
    compiled = emulator.compile_for_emulator(matmul.matmul, a, b, c, 256)
    with emulator.emulate(trace=tmp_path / "run.json", schedules=2) as used:
        emulator.call(compiled, matmul.matmul, a, b, c, 256)
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    tracks = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert {f"warp {i}" for i in range(5)} <= tracks
    spans = [e for e in events if e["ph"] == "X"]
    assert all(e["ts"] >= 0 and e["ts"] + e["dur"] <= used.steps + 20 for e in spans)
    names = [e["name"] for e in spans]
    assert names.count("tensor copy to shared memory") == 8  # two operands, four steps of k
    assert sum(n.startswith("phase") for n in names) >= 8  # four full, four empty
    assert any(n.startswith("waits for parity") for n in names)
    assert any(n.startswith("wgmma m64n64") for n in names)
    by_warp = {}
    for e in spans:
        if e["tid"] < 1000 and "at" in e["args"]:
            by_warp.setdefault(e["tid"], []).append((e["ts"], e["ts"] + e["dur"]))
    for slices in by_warp.values():  # one warp runs one thing at a time
        slices.sort()
        assert all(stop <= start + 1 for (_, stop), (start, _) in zip(slices, slices[1:]))
