"""The trace of a warp-specialised kernel shows its warps, its barriers' phases and its copies."""

import json
import re
import struct
import zlib

import numpy as np
import pytest

from cutesync import cli, emulator

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


def pixels(path) -> np.ndarray:
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and data[-8:-4] == b"IEND"
    width, height = struct.unpack(">II", data[16:24])
    (size,) = struct.unpack(">I", data[33:37])
    lines = np.frombuffer(zlib.decompress(data[41 : 41 + size]), np.uint8).reshape(height, 3 * width + 1)
    return lines[:, 1:].reshape(height, width, 3)


@pytest.mark.parametrize("faulty", (True, False))
def test_the_picture_of_a_race_marks_both_accesses(faulty, tmp_path, capsys):
    a, b, c = np.ones((64, 256), np.float16), np.ones((64, 256), np.float16), np.zeros((64, 64), np.float32)
    compiled = emulator.compile_for_emulator(matmul.matmul, a, b, c, 256)

    def edit(text: str) -> str:
        return re.sub(r"wgmma\.wait_group[^;]*;", "", text) if faulty else text

    try:
        with emulator.emulate(trace=tmp_path / "run.json"):
            emulator.call(compiled, matmul.matmul, a, b, c, 256, edit=edit)
    except emulator.EmulationError as error:
        assert faulty and error.kind == "race"
    assert cli.main(["trace", str(tmp_path / "run.json"), "--png", str(tmp_path / "run.png")]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert ("race: write and read" in line and "kernels_matmul.py:" in line) if faulty else line == "no error"
    red = (pixels(tmp_path / "run.png") == (220, 30, 30)).all(2)
    assert (red.sum(0) > 100).sum() == (2 if faulty else 0), "a line through all rows for each access"


def test_files_that_are_no_traces(tmp_path, capsys):
    (tmp_path / "other.json").write_text('{"events": []}')
    for path in (tmp_path / "other.json", tmp_path / "missing.json", tmp_path):
        assert cli.main(["trace", str(path)]) == 2
        assert "a file that check --trace wrote" in capsys.readouterr().err
