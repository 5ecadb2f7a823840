"""Reports say what is missing, and call functions and barriers what the source calls them."""

import json
import re

import numpy as np
import pytest

from cutesync import emulator
from cutesync.emulator import source
from cutesync.emulator.settings import Settings
from cutesync.emulator.syntax import Loc

from .bugs import BUGS
from .support import kernel_text, launch, reported

HINTS = {
    "a block barrier that 4 of 12 warps reach": "8 of 12 are elsewhere",
    "cp.async of one warp used by another": "each thread waits for its own cp.async",
    "a copy into a stage that a copy still reads": r"cp\.async\.bulk\.wait_group\.read",
    "an operand of two groups staged again": "a barrier of both warps must come between them",
    "an arrival at a peer at block scope": "it was relaxed or at block scope",
}


@pytest.mark.parametrize("name", HINTS)
def test_the_cause_is_named(name):
    text = reported(BUGS[name].kinds, HINTS[name], BUGS[name].run, False)
    assert "hint: " in text and len(text.split("\n")) < 40


RELEASED = """
    mov.u32 %r5, %cluster_ctarank;
    mov.u32 %r1, smem;
    mov.u32 %r2, %tid.x;
    shl.b32 %r2, %r2, 2;
    add.u32 %r2, %r2, %r1;
    st.shared.u32 [%r2+16], %r5;
    setp.eq.u32 %p1, %r5, 0;
    mapa.shared::cluster.u32 %r3, %r1, 0;
    mapa.shared::cluster.u32 %r4, %r2, 1;
    mov.u32 %r6, %tid.x;
    setp.eq.u32 %p2, %r6, 1;
    @%p2 mbarrier.init.shared.b64 [%r1], 1;
    fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    @%p1 bra AGAIN;
    ld.shared.u32 %r7, [%r2+16];
    SYNC
    @%p2 mbarrier.arrive.shared::cluster.b64 _, [%r3];
    bra END;
    AGAIN: mbarrier.try_wait.parity.shared.b64 %p3, [%r1], 0;
    @!%p3 bra AGAIN;
    st.shared::cluster.u32 [%r4+16], %r5;
    END: barrier.cluster.arrive;
    barrier.cluster.wait;"""


def test_a_lane_that_releases_for_its_warp_to_another_block():
    """Lane 1's arrival at the peer's barrier says nothing of what the other lanes still read."""
    how: dict = {"grid": (2, 1, 1), "cluster": (2, 1, 1)}
    x = np.zeros(1, np.uint32)
    launch(kernel_text(RELEASED.replace("SYNC", "bar.warp.sync -1;"), 1, shared=160), x, **how)
    text = reported("race", "", launch, kernel_text(RELEASED.replace("SYNC", ""), 1, shared=160), x, **how)
    assert "of that warp only lane 1 is known to be past its access, not lane 0: bar.warp.sync" in text


def test_the_steps_before_and_behind_an_access():
    """Between which synchronizing instructions the missing one belongs: warp 1 reads what warp 0 writes, behind a flag
    that orders nothing. What polls is one step."""
    body = """
    .file 1 "steps.py"
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, smem;
    setp.lt.u32 %p1, %r1, 32;
    @%p1 st.shared.u32 [%r2+4], 0;
    .loc 1 3 0
    bar.sync 0;
    @!%p1 bra READ;
    .loc 1 5 0
    st.shared.u32 [%r2], 7;
    .loc 1 6 0
    bar.warp.sync -1;
    .loc 1 7 0
    fence.acq_rel.cta;
    st.relaxed.cta.shared.u32 [%r2+4], 1;
    ret;
    READ: ld.relaxed.cta.shared.u32 %r4, [%r2+4];
    .loc 1 9 0
    fence.proxy.async;
    setp.eq.u32 %p2, %r4, 0;
    @%p2 bra READ;
    .loc 1 10 0
    ld.shared.u32 %r5, [%r2];"""
    text = kernel_text(body, 1, shared=16)
    how: dict = {"block": (64, 1, 1), "settings": Settings("round_robin")}
    lines = reported("race", "", launch, text, np.zeros(1, np.uint32), **how).split("\n")
    steps = {
        "at steps.py:10": "came from steps.py:3 (bar.sync), :9 (fence.proxy.async)",
        "at steps.py:5": "went on to steps.py:6 (bar.warp.sync), :7 (fence.acq_rel.cta)",
    }
    for access, told in steps.items():
        place = next(i for i, line in enumerate(lines) if access in line)
        assert lines[place + 1].strip() == told


def test_functions_and_barriers_have_the_names_of_the_source():
    place = Loc(bar_line.__code__.co_filename, bar_line.__code__.co_firstlineno + 2)
    assert source.function_at(place) == "inner" and source.made_at(place) == "full"
    below = Loc(place.file, place.line + 1)
    assert source.made_at(below) == "empty[stage]" and source.made_at(Loc(place.file, place.line + 2)) == "ready"
    assert source.function_at(Loc("?", 3)) == source.made_at(Loc("?", 3)) == ""


def test_named_barriers_have_the_names_of_the_source():
    first = named_lines.__code__.co_firstlineno + 1
    names = [source.named_at([source.Place(__file__, first + i)]) for i in range(5)]
    assert names == ["epilogue_ready", "Turn.FIRST", "Names.Full + stage", "", ""]


def named_lines(self, arch, stage, Names, Turn, NamedBarrier):
    self.epilogue_ready.arrive_and_wait()
    NamedBarrier(Turn.FIRST, 64).sync()
    arch.barrier(barrier_id=int(Names.Full) + stage, number_of_threads=64)
    arch.sync_threads()
    arch.barrier(barrier_id=1, number_of_threads=64)


def bar_line(stage, empty, make, begin):
    def inner():
        full = make(stage)
        begin(empty[stage], 1)
        return make(full, name="ready")

    return inner


def test_counts_that_the_block_cannot_reach():
    """One line for all warps that wait alike, and why they wait in vain."""
    body = "\tbar.sync 1, 256;"
    text = reported("deadlock", "", launch, kernel_text(body, 1), np.zeros(1, np.uint32), block=(128, 1, 1))
    assert "(and 3 more like it: warps 0-3) waits at named barrier 1" in text and "128 of 256 threads" in text
    assert "counts 256 threads; this launch has 128 in a block" in text


def test_a_cluster_barrier_that_one_block_does_not_reach():
    body = """
    mov.u32 %r5, %cluster_ctarank;
    mov.u32 %r1, smem;
    mbarrier.init.shared.b64 [%r1], 1;
    setp.eq.u32 %p1, %r5, 0;
    @%p1 bra ALL;
    AGAIN: mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0;
    @!%p2 bra AGAIN;
    ALL: barrier.cluster.arrive;
    barrier.cluster.wait;"""
    how = {"grid": (2, 1, 1), "cluster": (2, 1, 1), "block": (1, 1, 1)}
    text = reported("deadlock", "", launch, kernel_text(body, 1, shared=16), np.zeros(1, np.uint32), **how)
    assert "hint: block (1, 0, 0) warp 0 lane 0 has not arrived at the cluster barrier" in text


def test_a_report_as_data():
    with pytest.raises(emulator.EmulationError) as found:
        BUGS["shared memory used again too early"].run(False)
    data = json.loads(json.dumps(found.value.report.as_dict()))
    assert (data["severity"], data["kind"], data["count"], len(data["places"])) == ("error", "race", 1, 2)
    assert {re.search(r"\w\w\.shared", place)[0] for place in data["places"]} == {"ld.shared", "st.shared"}
    assert "seed=" in data["replay"]
