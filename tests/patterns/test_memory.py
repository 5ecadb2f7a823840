"""The patterns under compute-sanitizer: barriers used as they must be, and no byte read or written that is not theirs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import cutesync as cs

from ..reduce.test_memory import sanitizer

pytestmark = [pytest.mark.gpu, pytest.mark.slow]


@pytest.mark.parametrize("tool", ["synccheck", "memcheck"])
def test_compute_sanitizer_is_clean(tool):
    command = sanitizer()
    if command is None:
        pytest.skip("compute-sanitizer is not installed")
    script = Path(__file__).with_name("sanitized.py")
    run = subprocess.run(
        [command, "--tool", tool, "--error-exitcode", "9", "--kernel-name", "kernel_substring=cutesync", sys.executable, str(script)],
        capture_output=True, text=True, timeout=280, env=os.environ | {"CUTESYNC_BACKEND": "gpu"}, cwd=Path(cs.__file__).parent.parent,
    )  # fmt: skip
    assert run.returncode == 0 and "sanitized: done" in run.stdout, run.stdout[-3000:] + run.stderr[-2000:]
