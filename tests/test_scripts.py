"""The scripts of perf/: what a user can mend is one line and a non-zero exit, and asking for help changes nothing."""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import cutesync as cs
from cutesync.dtypes import dtype
from cutesync.runtime import device
from cutesync.runtime.kernel import collect

PERF = Path(__file__).parent.parent / "perf"
SCRIPTS = sorted(path.name for path in PERF.glob("*.py") if "__main__" in path.read_text())
BAD = {
    "absent": None,
    "empty": "",
    "no JSON": "x",
    "a list": "[1]",
    "an object": "{}",
    "no text": "\udcff",
    "no events": '{"traceEvents": []}',
    "other events": '{"traceEvents": [{"pid": 1}]}',
    "no cases": '{"family": "reduce", "cases": []}',
}


def run(*arguments, stdout=subprocess.PIPE) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, PERF / arguments[0], *map(str, arguments[1:])],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )


def fails(*arguments, word: str = "") -> None:
    found = run(*arguments)
    assert (
        found.returncode in (1, 2) and found.stdout == "" and found.stderr.count("\n") == 1 and word in found.stderr
    ), found


def test_these_are_the_scripts():
    assert {"readme.py", "limits.py", "trace.py", "sweep.py", "launch.py", "plot.py", "report.py"} <= set(SCRIPTS)


@pytest.mark.drawn(6)
@pytest.mark.parametrize("script", SCRIPTS)
def test_help_helps_and_writes_nothing(script):
    readme = PERF / "README.md"
    before = readme.stat().st_mtime_ns
    found = run(script, "--help")
    assert found.returncode == 0 and found.stdout.startswith("usage:") and found.stderr == ""
    fails(script, "--no-such-option")
    assert readme.stat().st_mtime_ns == before


def test_a_full_disk_is_said():
    with open("/dev/full", "w") as full:
        found = run("readme.py", "--check", stdout=full)
    assert found.returncode == 1 and found.stderr.count("\n") == 1 and "No space left" in found.stderr


@pytest.mark.skipif(device.unavailable() is None, reason="there is a GPU")
@pytest.mark.parametrize("script", ["limits.py", "launch.py", "sweep.py"])
def test_without_a_driver(script):
    fails(script, *(["reduce"] if script == "sweep.py" else []), word="needs an NVIDIA GPU and its driver")


@pytest.mark.parametrize("script", ["trace.py", "plot.py", "report.py"])
@pytest.mark.parametrize("kind", BAD)
def test_files_that_are_not_theirs(script, kind, tmp_path):
    path = tmp_path / "file.json"
    if BAD[kind] is not None:
        path.write_text(BAD[kind], errors="surrogateescape")
    fails(script, path)


def test_blocks_and_places_that_are_not_there(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [{"ph": "M", "pid": 0, "name": "process_name", "args": {"name": "k"}}]}))
    for block in (-1, 1, 10**30):
        fails("trace.py", path, "--block", block, word="needs one of its 1 blocks")
    fails("trace.py", path, "--out", tmp_path, word="cannot be written")
    if importlib.util.find_spec("matplotlib") is None:
        fails("trace.py", path, word="matplotlib")


@pytest.mark.drawn(4)
@pytest.mark.parametrize("size", ["0", "-1", "nan", "1e400", "2**99999999999", "2**-1", "x", "9" * 5000])
def test_sizes_out_of_bounds(size):
    fails("sweep.py", "reduce", f"--sizes={size}", word="needs from 1 to 2**36 elements")


@pytest.mark.parametrize("family", ["gpu", "case", "nothing", "../setup"])
def test_families_that_are_none(family):
    fails("sweep.py", family, word="family")


@pytest.mark.parametrize("family", ["reduce", "scan", "flags", "matmul", "patterns"])
def test_tables_fit_a_terminal_and_name_bars_when_asked(family):
    path = max(PERF.glob(f"results/{family}-*-????-??-??.json"))
    for bars in ((), ("--bars",)):
        lines = run("report.py", path, *bars).stdout.splitlines()
        assert len(lines) > 15 and max(map(len, lines)) <= 120
        assert any(line.lstrip().startswith(("met ", "MISSED ")) for line in lines) == bool(bars)


def test_a_sweep_that_is_cut_keeps_what_it_has(monkeypatch, capsys):
    monkeypatch.syspath_prepend(PERF)
    sweep = importlib.import_module("sweep")
    earlier = json.loads(max(PERF.glob("results/scan-*-????-??-??.json")).read_text())
    cases = [SimpleNamespace(**case) for case in earlier["cases"][:5]]
    found, kept = iter(earlier["cases"][:2]), []

    def run_case(*_):
        try:
            return next(found)
        except StopIteration:
            sys.exit(143)  # what SIGTERM does

    monkeypatch.setattr(sweep, "run_case", run_case)
    report = {"copy_bytes_per_us": 1.0, "cases": [], "failures": {}, "left_out": []}
    options = SimpleNamespace(quick=False, bars=False, cases=None)
    with pytest.raises(SystemExit):
        sweep.run_cases(cases, None, None, None, report, lambda: kept.append(1), float("inf"), options)
    assert len(kept) == 2 and report["left_out"] == [case.name for case in cases[2:]]
    sweep.run_cases(cases, None, None, None, report, None, 0.0, options)  # the time is over before the first
    assert report["left_out"] == [case.name for case in cases]


def test_quick_sweeps_are_short(monkeypatch):
    """At most 16 cases of at most 2**26 elements (products: 8192**3), so that a sweep takes less than a minute."""
    pytest.importorskip("ml_dtypes")  # matmul's bfloat16
    monkeypatch.syspath_prepend(PERF)
    for name in ("reduce", "scan", "flags", "matmul", "patterns"):
        cases = importlib.import_module(name).cases(None, None, True)
        assert 10 <= len(cases) <= 16 and max(case.size for case in cases) <= 1 << 26


@pytest.mark.parametrize("shape", [(4096, 4096, 4096), (128, 256, 8192), (1056, 272, 6360)])
def test_shares_of_a_product_add_up(shape, monkeypatch):
    """They are made of the model's coefficients, for whole tiles and for split ones."""
    monkeypatch.syspath_prepend(PERF)
    limits, (m, n, k) = importlib.import_module("limits"), shape
    with collect():
        places = enumerate([(m, k), (k, n)], 1)
        a, b = (cs.DeviceArray(i << 40, extents, dtype("float16"), device.DRY, None) for i, extents in places)
        problem, config = limits.launched(lambda: cs.matmul(a, b))
    found = limits.shares(problem, config, 132, 1e5, 1.7, 1.98, 0.0)
    assert np.isclose(sum(found.values()), 1) and min(found.values()) >= 0
