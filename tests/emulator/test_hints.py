"""Reports say what is missing, and call functions and barriers what the source calls them."""

import json
import re

import numpy as np
import pytest

from cutesync import emulator

from .bugs import BUGS
from .support import kernel_text, launch, reported
from .test_faults import FAULTS

HINTS = {
    "stage released for a warp by one lane": "of that warp only lane 0 is known to be past its access, not lane 1",
    "sync_warp left out": "both are lanes of one warp",
    "block barrier left out": "a barrier of both warps must come between them",
    "stage released before wgmma has read it": "wgmma.wait_group must come before",
    "remote arrival at block scope": "it was relaxed or at block scope",
    "flag read weak": "one of the two accesses is strong: both must be",
    "empty barrier counts one too many": r"ring\[3\] \(shared byte 24 of block \(0, 0, 0\)\) lacks 1 of 3 arrivals",
    "producer starts in the consumer's phase": "that wait is for parity 1",
    "a block barrier that 4 of 12 warps reach": "8 of 12 are elsewhere",
    "cp.async of one warp used by another": "each thread waits for its own cp.async",
    "a copy into a stage that a copy still reads": r"cp\.async\.bulk\.wait_group\.read",
}


@pytest.mark.parametrize("name", HINTS)
def test_the_cause_is_named(name, monkeypatch):
    if name in BUGS:
        text = reported(BUGS[name].kinds, HINTS[name], BUGS[name].run, False)
    else:
        (function, arguments, *_), kinds, _, *plants = FAULTS[name]
        for plant in plants:
            plant(monkeypatch)
        arguments = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
        text = reported(kinds, HINTS[name], emulator.check, function, *arguments, schedules=27)
        assert re.search(r"\.py:\d+ in \w+ \(", text)
    assert "hint: " in text and len(text.split("\n")) < 40


def test_counts_that_the_block_cannot_reach():
    """One line for all warps that wait alike, and why they wait in vain."""
    body = "\tbar.sync 1, 256;"
    text = reported("deadlock", "", launch, kernel_text(body, 1), np.zeros(1, np.uint32), block=(128, 1, 1))
    assert "(and 3 more like it: warps 0-3) waits at named barrier 1" in text and "128 of 256 threads" in text
    assert "counts 256 threads; this launch has 128 in a block" in text


def test_a_report_as_data():
    with pytest.raises(emulator.EmulationError) as found:
        BUGS["shared memory used again too early"].run(False)
    data = json.loads(json.dumps(found.value.report.as_dict()))
    assert (data["severity"], data["kind"], data["count"], len(data["places"])) == ("error", "race", 1, 2)
    assert {re.search(r"\w\w\.shared", place)[0] for place in data["places"]} == {"ld.shared", "st.shared"}
    assert "seed=" in data["replay"]
