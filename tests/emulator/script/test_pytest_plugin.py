"""``pytest --cutesync-check``: a test during which something was found fails, the others run as on a GPU."""

import subprocess
import sys
from pathlib import Path

SUITE = Path(__file__).parent / "scripts" / "suite.py"


def test_a_suite(tmp_path):
    options = ("--cutesync-check", "--cutesync-schedules", "2", "-p", "no:cacheprovider", "--rootdir", str(tmp_path))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "cutesync.pytest_plugin", *options, str(SUITE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert "FAILED" in done.stdout and "race: " in done.stdout and "suite.py:16" in done.stdout
