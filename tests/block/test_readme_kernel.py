"""The kernel of one's own that block/README.md builds from the block collectives: short, right, and clean under every
policy."""

import re
from pathlib import Path

from cutesync import block
from cutesync.emulator import POLICIES

README = (Path(block.__file__).parent / "README.md").read_text(encoding="utf-8")
LINES = 40


def test_a_segmented_reduction_of_ones_own(tmp_path):
    (code,) = [code for code in re.findall(r"```python\n(.*?)```", README, re.S) if "block.Discontinuity" in code]
    assert len(code.splitlines()) <= LINES
    path = tmp_path / "kernel.py"  # the DSL reads a kernel's source from its file
    path.write_text(code.replace("schedules=1)", f"schedules={2 * len(POLICIES)})"), encoding="utf-8")
    exec(compile(path.read_text(encoding="utf-8"), path, "exec"), {"__name__": "kernel"})
