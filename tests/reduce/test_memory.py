"""Kernels write their result and nothing else, and read nothing outside their input."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ..cases import data, same

import cutesync as cs

pytestmark = pytest.mark.gpu

BAND = 64  # elements before and after


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "int64"])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((37,), None), ((2500,), None), ((70_001,), None), ((1001, 3), 1), ((1001, 3), 0), ((333, 37), 1), ((37, 333), 0), ((100, 300), 1), ((6, 50_000), 1),
     ((20_000, 17), 0), ((50_000, 5), 0), ((5, 7, 11), (0, 2)), ((5, 0), 1)],
    ids=str,
)  # fmt: skip
def test_guard_bands_around_out_stay(dtype, shape, axis):
    x = data(shape, dtype)
    wanted = cs.reference.reduce(x, axis=axis)
    for skew in (0, 1, 3):
        memory = np.full(2 * BAND + skew + wanted.size, 77, wanted.dtype)
        device = cs.asarray(memory)
        out = device[BAND + skew : BAND + skew + wanted.size].reshape(*wanted.shape) if wanted.shape else device[BAND + skew : BAND + skew + 1].reshape(())
        cs.reduce(cs.asarray(x), axis=axis, out=out)
        found = np.asarray(device)
        same(found[BAND + skew : BAND + skew + wanted.size].reshape(wanted.shape), wanted)
        assert (found[: BAND + skew] == 77).all() and (found[BAND + skew + wanted.size :] == 77).all()


@pytest.mark.parametrize(("shape", "axis"), [((70_001,), None), ((1001, 3), 1), ((20_000, 17), 0), ((50_000, 5), 0)], ids=str)
def test_the_input_stays(shape, axis):
    x = data(shape, "int32")
    array = cs.asarray(x)
    cs.reduce(array, axis=axis)
    same(np.asarray(array), x)


def sanitizer() -> str | None:
    return shutil.which("compute-sanitizer") or next((str(p) for p in Path("/usr/local").glob("cuda*/bin/compute-sanitizer")), None)


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "synccheck", "initcheck"])
def test_compute_sanitizer_is_clean(tool):
    command = sanitizer()
    if command is None:
        pytest.skip("compute-sanitizer is not installed")
    script = Path(__file__).with_name("sanitized.py")
    environment = os.environ | {"CUTESYNC_BACKEND": "gpu"}
    run = subprocess.run(
        [command, "--tool", tool, "--error-exitcode", "9", "--kernel-name", "kernel_substring=cutesync", sys.executable, str(script)],
        capture_output=True, text=True, timeout=280, env=environment, cwd=Path(cs.__file__).parent.parent,
    )  # fmt: skip
    assert run.returncode == 0 and "sanitized: done" in run.stdout, run.stdout[-3000:] + run.stderr[-2000:]
