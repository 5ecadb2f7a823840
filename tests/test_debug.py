"""``CUTESYNC_DEBUG=1``: every wait is bounded, reports and traps; a debug build computes what the plain one does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cutesync as cs
from cutesync import emulator
from cutesync.runtime import compiler, device, workspace

from . import missing
from .cases import with_slow
from .faults import without
from .scan.kernels import pipeline
from .sync import kernels

ROOT = Path(__file__).parents[1]
REPORT = r"cutesync: block \(\d+, \d+, \d+\) warp \d+ lane \d+(, role [a-z ]+,)? waits for .*: nothing has come for 2 s"
WAIT = r"mbarrier\.(try|test)_wait|\bld\.(relaxed|acquire)\."
# the waits of the DSL, which have no bound, and the two files that bound them
UNBOUNDED = r"\bmbarrier_wait\(|\.(producer_acquire|consumer_wait|producer_tail|acquire_and_advance|wait_and_advance)\("
BOUNDING = {"sync/wait.py", "sync/pipelines.py"}


@pytest.fixture(autouse=True)
def _clean_workspace():
    """A kernel that traps leaves its counters anywhere."""
    yield
    workspace.forget(device.HOST, 0)


def unbounded(ptx: str) -> list[str]:
    """The waits in a loop that does not look at the clock."""
    lines = ptx.split("\n")
    places: dict[str, int] = {}
    loops = []
    for number, line in enumerate(lines):
        if label := re.match(r"\s*([$\w]+):", line):
            places[label[1]] = number
        if (jump := re.search(r"\bbra(?:\.uni)?\s+([$\w]+);", line)) and jump[1] in places:
            loops.append((places[jump[1]], number))
    found = []
    for number, line in enumerate(lines):
        around = [loop for loop in loops if loop[0] <= number <= loop[1]]
        if re.search(WAIT, line) and around:
            first, last = min(around, key=lambda loop: loop[1] - loop[0])
            if not any("globaltimer" in inside for inside in lines[first:last]):
                found.append(line.strip())
    return found


# another wait of the same kernel is left to the slow run
ALSO = {
    "scan, pipeline: no prefix",
    "scan, pipeline: a chunk not folded",
    "scan, slabs: a stage not scanned",
    "matmul: a load left out",
    "patterns: a buffer not filled",
    "sync: a ring not published",
}


@pytest.mark.drawn(6)
@pytest.mark.parametrize("name", with_slow(missing.CASES, ALSO))
def test_a_missing_arrival_is_reported(name, on_emulator, monkeypatch, capsys):
    with pytest.raises(emulator.EmulationError, match=REPORT) as failed:
        missing.run(name, monkeypatch)
    assert failed.value.kind == "trap"
    assert re.search(missing.CASES[name].words, capsys.readouterr().out)
    assert not [wait for kernel in compiler._kernels.values() for wait in unbounded(kernel.ptx)]


@pytest.mark.gpu
@pytest.mark.parametrize("name", [name for name in missing.CASES if name not in missing.ON_EMULATOR])
def test_a_missing_arrival_is_reported_by_a_gpu(name):
    pytest.importorskip("torch")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    variables = os.environ | {
        "CUTE_DSL_ARCH": "sm_90a",
        "CUTESYNC_BACKEND": "gpu",
        "CUTESYNC_DEBUG": "1",
        "PYTHONPATH": path,
    }
    ran = subprocess.run(
        [sys.executable, "-m", "tests.missing", name],
        env=variables,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    said = ran.stdout + ran.stderr
    assert ran.returncode and re.search(REPORT, said) and re.search(missing.CASES[name].words, said), said


@pytest.mark.drawn(4)
@pytest.mark.slow
@pytest.mark.parametrize("name", missing.RIGHT)
def test_a_debug_build_computes_the_same(name, place, monkeypatch):
    call, wanted = missing.RIGHT[name]
    missing.debug(monkeypatch)
    with place.schedules(2, seed=7):
        got = call(monkeypatch)
    assert np.array_equal(got, wanted)
    assert not [wait for kernel in compiler._kernels.values() for wait in unbounded(kernel.ptx)]


def test_the_plain_build_is_not_bounded(on_emulator, monkeypatch):
    """``unbounded`` finds the waits of a plain build, for memory and at mbarriers; each mode has its own kernels."""
    call = missing.scanned(pipeline(4, 2, 4, 1, 2, 2), (1, 600), 1)
    missing.debug(monkeypatch)
    monkeypatch.setenv("CUTESYNC_DEBUG", "0")
    call(monkeypatch)
    (plain,) = compiler._kernels.values()
    waits = "\n".join(unbounded(plain.ptx))
    assert (
        "mbarrier.try_wait" in waits and "ld.relaxed" in waits and not re.search("globaltimer|trap|vprintf", plain.ptx)
    )
    monkeypatch.setenv("CUTESYNC_DEBUG", "1")
    call(monkeypatch)
    _, bounded = compiler._kernels.values()
    assert bounded.ptx.count("trap;") > 10 and not unbounded(bounded.ptx)


def test_flags_have_no_wait(on_emulator, monkeypatch):
    missing.debug(monkeypatch)
    cs.flag_heads(cs.asarray(np.arange(5000, dtype=np.int32)))
    (kernel,) = compiler._kernels.values()
    assert not re.search(rf"{WAIT}|globaltimer", kernel.ptx)


def test_only_two_files_call_waits_of_the_dsl():
    package = Path(cs.__file__).parent
    found = {
        path.relative_to(package).as_posix() for path in package.rglob("*.py") if re.search(UNBOUNDED, path.read_text())
    }
    assert found == BOUNDING


def test_what_ptx_cannot_bound_the_emulator_names(on_emulator, monkeypatch):
    """Nobody else waits for the warp that hangs at a named barrier: on a GPU this would hang."""
    missing.debug(monkeypatch)
    without("cutesync.sync:NamedBarrier.arrive")(monkeypatch)
    with pytest.raises(emulator.EmulationError, match="(?s)deadlock.*barrier [12]"):
        emulator.check(kernels.named, np.zeros(1, np.int32), 6, schedules=1)
