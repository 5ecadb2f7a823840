"""Faults planted at every place of the repaired kernels of ``bugs``: each is reported, and the report names the
instruction that lacks something or another one that it no longer agrees with."""

import re
from dataclasses import replace

import numpy as np
import pytest

from cutesync.emulator import EmulationError, emulate

from ..faults import each, op, plus
from .bugs import BUGS, CONTROL, Bug
from .bugs.kit import START
from .outside.lines import leads_to

WAIT = r"mbarrier\.try_wait[^\n;]*, (?P<n>[01]);"
ANY = "any kind"
# fault -> edit, kinds of report, what its report names
FAULTS = {
    "dropped release": (each(op(r"(@%p2 )?mbarrier\.arrive\.(?!expect)")), "deadlock", r"waits for parity"),
    "too many bytes": (each(r"expect_tx[^\n;]*\], (?P<n>\d+);", plus(16)), "transaction", r"expect_tx"),
    "too few bytes": (each(r"expect_tx[^\n;]*\], (?P<n>\d+);", plus(-16)), "transaction", r"expect_tx"),
    "no proxy fence": (each(op(r"fence\.proxy\.async")), "proxy proxy-read", r"fence\.proxy\.async must"),
    "no wait for copies": (each(op(r"(@%p1 )?cp\.async\.bulk\.wait_group")), "race barrier", r"cp\.async\.bulk|exited"),
    "no wait for wgmma": (each(op(r"wgmma\.wait_group")), "race registers barrier", r"wgmma|%r10"),
    "wrong phase": (each(WAIT, lambda m: m[0].replace(f", {m['n']};", f", {1 - int(m['n'])};")), ANY, r"mbarrier"),
    "no look at the barrier": (each(r"\{ \.reg \.pred q; AGAIN[^}]*\}"), ANY, r"\["),
    "no wait for cp.async": (each(op(r"cp\.async\.wait_group")), "race uninitialised", r"cp\.async"),
    "no block barrier": (each(op(r"bar\.sync 0")), "race barrier uninitialised proxy", r"shared|mbarrier"),
    "no named barrier": (each(op(r"bar\.(sync|arrive) [12]")), "race deadlock barrier uninitialised", r"shared|bar\."),
    "no sync_warp": (each(op(r"bar\.warp\.sync")), "race mismatch", r"bar\.warp\.sync|volatile"),
    "no cluster barrier": (each(op(r"barrier\.cluster\.wait")), "race barrier out-of-bounds uninitialised", r"block"),
    "no wait for the launch before": (each(op(r"griddepcontrol\.wait")), "race", r"wrote these bytes"),
}
KERNELS = {**BUGS, "control": CONTROL}


NOT_RUN, NOTHING = "a branch that is not taken", "nothing that it orders is accessed afterwards"
HARMLESS = {
    "no proxy fence": {"stores without a fence where a sequence is empty #0": NOT_RUN},
    "no wait for copies": {"a copy into a stage that a copy still reads #1": "its reads have been waited for"},
    "no look at the barrier": {
        "a block barrier that 4 of 12 warps reach #0": NOTHING,
        "pipelines of a cluster without a fence #0": NOTHING,
    },
    "no named barrier": {"a block barrier that 4 of 12 warps reach #0": NOTHING},
    "no cluster barrier": {
        f"{name} #1": NOTHING
        for name in (
            "a buffer of st.async read and released",
            "blocks of a pair with loops of different lengths",
            "pipelines of a cluster without a fence",
            "an arrival at a peer at block scope",
            "a relaxed arrival at a peer",
        )
    },
}


def found(bug: Bug, text: str) -> tuple[str, str]:
    """``(kind, report)`` of an error, else of a race that is a warning; "result" where the results are wrong."""
    try:
        with emulate() as ran:
            out = replace(bug, body=text.removeprefix(START)).run(True)
    except EmulationError as error:
        return error.kind, str(error)
    if bug.wanted is not None and not np.array_equal(out[: len(bug.wanted)], bug.wanted):
        return "result", ""
    return next(((each.kind, each.text()) for each in ran.findings if each.kind == "race"), ("", ""))


@pytest.mark.parametrize("fault", FAULTS)
def test_every_planted_fault_is_found(fault):
    edit, kinds, word = FAULTS[fault]
    survivors, places = [], 0
    for name, bug in KERNELS.items():
        for number, text in enumerate(edit(bug.text(True))):
            kind, report = found(bug, text)
            places += 1
            if not kind:
                survivors.append(f"{name} #{number}")
            elif kind != "result":
                assert kinds == ANY or kind in kinds.split(), (name, number, report)
                assert re.search(word, report), (name, number, report)
    assert places and survivors == list(HARMLESS.get(fault, {}))


@pytest.mark.parametrize(
    "line,led", [(894, "near"), (817, "near"), (840, "between"), (865, "between"), (750, ""), (880, "")]
)
def test_which_lines_a_report_leads_to(line, led):
    report = """race: write and read of the same bytes with nothing to order them
  block (0, 0, 0) warp 0 lane 0
    at /a/gemm.py:894 in kernel (cp.async.bulk.tensor [%r1], [%r2])
    came from other.py:8 (fence.proxy.async), gemm.py:904 (bar.sync)
  unordered with the read by block (0, 0, 0) warp 4
    at /a/gemm.py:812 in kernel (wgmma.mma_async)
    went on to gemm.py:855 (mbarrier.try_wait), :872 (mbarrier.arrive)"""
    assert leads_to(report, ["helper.py:840", f"gemm.py:{line}"]) == led
