"""Every family's kernels under compute-sanitizer, at sizes whose ends are ragged. What runs stands in
<family>/sanitized.py, which is told the tool: racecheck does not follow a warp whose lanes meet and of which one then
arrives at an mbarrier, nor an arrival at another block's, and initcheck does not see what bulk and tensor copies write.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

HERE = Path(__file__).parent


def sanitizer() -> str | None:
    return shutil.which("compute-sanitizer") or next(
        (str(p) for p in Path("/usr/local").glob("cuda*/bin/compute-sanitizer")), None
    )


@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "synccheck", "initcheck"])
@pytest.mark.parametrize("family", sorted(path.parent.name for path in HERE.glob("*/sanitized.py")))
def test_compute_sanitizer_is_clean(family, tool):
    command = sanitizer()
    if command is None:
        pytest.skip("compute-sanitizer is not installed")
    run = subprocess.run(
        [
            command,
            "--tool",
            tool,
            "--error-exitcode",
            "9",
            "--kernel-name",
            "kernel_substring=cutesync",
            sys.executable,
            "-m",
            f"tests.{family}.sanitized",
            tool,
        ],
        capture_output=True,
        text=True,
        timeout=280,
        env=os.environ | {"CUTESYNC_BACKEND": "gpu"},
        cwd=HERE.parent,
    )
    assert run.returncode == 0 and "sanitized: done" in run.stdout, run.stdout[-3000:] + run.stderr[-2000:]
