"""Warnings and notes: what a run goes on after, and what makes the same thing an error."""

import json

import numpy as np
import pytest

from cutesync import emulator
from cutesync.emulator import POLICIES, EmulationError, Settings
from cutesync.errors import ArgumentValueError

from .bugs import BUGS
from .support import kernel_text, launch, reported

INDEX = "\n\tmov.u32 %r0, %tid.x;\n\tmov.u32 %r1, smem;\n\tmad.lo.u32 %r2, %r0, 4, %r1;\n\tmul.wide.u32 %rd1, %r0, 4;"
INDEX += "\n\tadd.u64 %rd2, %a0, %rd1;\n\tshr.u32 %r9, %r0, 5;"


def run(body: str, threads: int = 64, **how) -> tuple[np.ndarray, Settings]:
    """The output of a kernel under all policies, and the settings with what was found."""
    out, settings = np.zeros(64, np.uint32), Settings(**{"schedules": 2 * len(POLICIES), "initcheck": False, **how})
    launch(kernel_text(INDEX + body, 1, shared=1024), out, block=(threads, 1, 1), settings=settings)
    return out, settings


def only(settings: Settings, severity: str, kind: str, words: str, places: int):
    (found,) = settings.findings
    assert (found.severity, found.kind, len(found.places)) == (severity, kind, places) and words in found.title
    assert found.count > 1 and f"({found.count} times)" in str(settings.findings)
    assert json.loads(json.dumps(found.as_dict()))["places"] == list(found.places)
    return found


@pytest.mark.parametrize("leave", ("bar.arrive 1, 64;", "bar.arrive 1, 96;"))
def test_arrivals_left_at_a_named_barrier_are_a_note(leave):
    _, settings = run(f"\n\tsetp.gt.u32 %p1, %r0, 31;\n\t@%p1 {leave}")
    only(settings, "note", "barrier", "ends with 32 of", 1)


ALLOWED = {
    "a stage read, released and loaded again": "proxy-read",
    "stores without a fence where a sequence is empty": "proxy",
    "an operand in registers loaded again too early": "registers",
    "an operand of two groups staged again": "race",
    "an early launch that never waits": "race",
    "a tensor map edited while loads read it": "race",
}


@pytest.mark.parametrize("name", ALLOWED)
def test_allowed_errors_do_not_end_a_run(name):
    """All schedules run to their end, and all errors are kept. Another kind is an error as before."""
    bug, kind = BUGS[name], ALLOWED[name]
    with emulator.emulate() as outer:
        out = bug.run(False, 4, allow=(kind,), policy="round_robin")
    found = [f for f in outer.findings if f.severity == "error"]
    assert found and {f.kind for f in found} == {kind} and outer.launches == (8 if bug.before else 4)
    assert sum(f.count for f in found) >= 4 and bug.says in str(outer.findings)
    if kind in ("proxy", "proxy-read") and bug.wanted is not None:
        assert np.array_equal(out[: len(bug.wanted)], bug.wanted)
    reported(kind, "", bug.run, False, allow=("deadlock",))


def test_a_store_that_reads_memory_of_a_block_that_has_exited_may_be_allowed():
    body = """
    st.shared.b32 [%r2], %r0;
    fence.proxy.async;
    bar.sync 0;
    setp.eq.u32 %p1, %r0, 0;
    @%p1 cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r1], 256;
    @%p1 cp.async.bulk.commit_group;"""
    reported("barrier", "exited with an asynchronous operation", run, body)
    out, settings = run(body, allow=("barrier",))
    assert np.array_equal(out, np.arange(64)) and [f.kind for f in settings.findings] == ["barrier"]
    with pytest.raises(ArgumentValueError, match="allow"):
        Settings(allow=("everything",))


READ = "\n\tld.shared.b32 %r5, [%r2];"
KEEP = "\n\tsetp.lt.u32 %p1, %r0, 20;\n\t@%p1 st.shared.b32 [%r2], %r0;"
STORE = "\n\t@%p1 st.global.b32 [%rd2], %r5;"


def test_unwritten_shared_memory_that_does_not_matter_is_a_note():
    out, settings = run(KEEP + READ + STORE)
    assert np.array_equal(out[:20], np.arange(20)) and not out[20:].any()
    only(settings, "note", "uninitialised", "reads 4 bytes that nobody has written", 1)
    assert "ld.shared" in reported("uninitialised", "", run, KEEP + READ + STORE, initcheck=True)


def folded(order: str, between: str) -> str:
    """Each lane adds the word that lies ``step`` further to its own. The upper 32 words are zero."""
    steps = [
        f"""ld{order}.shared.b32 %r5, [%r2];
        ld{order}.shared.b32 %r6, [%r2+{4 * step}];
        add.u32 %r5, %r5, %r6;
        {between}
        st{order}.shared.b32 [%r2], %r5;
        {between}"""
        for step in (16, 8, 4, 2, 1)
    ]
    start = f"\nadd.u32 %r7, %r0, 1;\nst{order}.shared.b32 [%r2], %r7;\nst{order}.shared.b32 [%r2+128], 0;\n{between}"
    return start + "\n".join(steps) + "\nst.global.b32 [%rd2], %r5;"


def test_volatile_words_that_lanes_exchange_without_a_barrier_are_a_warning():
    """Volatile accesses are relaxed (no data race), and order no lanes: right as long as a warp runs in step."""
    how = {"threads": 32, "schedules": 1, "policy": "round_robin"}
    out, settings = run(folded(".volatile", ""), **how)
    assert out[0] == 528
    found = list(settings.findings)
    assert {(f.severity, f.kind) for f in found} == {("warning", "race")} and all(len(f.places) == 2 for f in found)
    assert "lanes of one warp exchange volatile words: a read and a write" in found[0].title
    assert any("bar.warp.sync (sync_warp) must come between them" in line for line in found[0].lines)
    text = reported(
        "mismatch", "warning: race: lanes of one warp exchange volatile words", run, folded(".volatile", ""), 32
    )
    assert "st.volatile.shared" in text
    reported("race", "both are lanes of one warp", run, folded("", ""), 32)


@pytest.mark.parametrize("order", (".volatile", ""))
def test_words_that_lanes_exchange_with_barriers_are_clean(order):
    out, settings = run(folded(order, "bar.warp.sync -1;"), 32)
    assert out[0] == 528 and not list(settings.findings)


FLAG = """
\tsetp.eq.u32 %p1, %r0, 32;
\t@%p1 st.volatile.shared.b32 [%r1], 7;
\tsetp.eq.u32 %p2, %r0, 0;
\tmov.u32 %r5, 0;
\tsetp.eq.u32 %p1, %r0, 1;
\t@%p1 st.volatile.shared.b32 [%r1+4], 1;
\tbar.sync 0;
\t@%p2 ld.volatile.shared.b32 %r5, [%r1];
\t@%p2 ld.volatile.shared.b32 %r6, [%r1+4];
\t@%p2 st.global.b32 [%rd2], %r5;"""


def test_volatile_words_of_other_warps_or_behind_a_barrier_are_clean():
    out, settings = run(FLAG)
    assert out[0] == 7 and not list(settings.findings)
    out, settings = run(FLAG.replace("bar.sync 0;", ""), schedules=1)  # warp 1 is another warp; lane 1 is a warning
    only_one = [f for f in settings.findings if f.kind == "race"]
    assert len(only_one) == 1 and "+4]" in only_one[0].places[0]


VECTOR = """
\tshl.b32 %r3, %r2, 2;
\tmul.lo.u32 %r4, %r1, 3;
\tsub.u32 %r3, %r3, %r4;
\tst.shared.v2.b32 [%r3], {%r0, %r0};
\tst.shared.b32 [%r3+12], 5;
\tld.shared.v4.b32 {%r5, %r6, %r7, %r8}, [%r3];
\tadd.u32 %r5, %r5, %r6;
\tadd.u32 %r5, %r5, %r8;"""


def test_unread_words_of_a_vector_are_not_read():
    """Compilers merge loads and fill the gaps between them."""
    body, words = VECTOR + STORE.replace("@%p1", ""), "reads 16 bytes that nobody has written"
    out, settings = run(body, initcheck=True)
    assert np.array_equal(out, 2 * np.arange(64) + 5) and not len(settings.findings)
    reported(
        "uninitialised", words, run, body.replace("add.u32 %r5, %r5, %r8", "add.u32 %r5, %r7, %r8"), initcheck=True
    )


def test_unwritten_shared_memory_that_matters_is_an_error():
    text = reported(
        "uninitialised", "what unwritten shared memory holds changes", run, KEEP + READ + STORE.replace("@%p1", "")
    )
    assert "reads 4 bytes" in text and "ld.shared" in text


def test_a_difference_for_another_reason_is_a_mismatch():
    """Which warp comes first decides; the unwritten bytes do not."""
    first = "\n\tatom.global.add.u32 %r6, [%a0+128], 1;\n\tsetp.lt.u32 %p1, %r0, 8;\n\tmov.u32 %r5, %r6;"
    with pytest.raises(EmulationError) as found:
        run(READ + first + STORE)
    assert found.value.kind == "mismatch"


def test_writes_of_the_same_value():
    both = "\n\tst.global.b32 [%a0], {};"
    out, settings = run(both.format(7))
    assert out[0] == 7
    found = only(settings, "warning", "race", "writes of the same value", 2)
    assert all("st.global" in place for place in found.places)
    different = "\n\tmov.u32 %r5, %r9;" + both.format("%r5")
    assert "race: write and write" in reported("race", "", run, different)
    some = "\n\tmax.u32 %r5, %r0, 33;\n\tsub.u32 %r5, %r5, 33;\n\tand.b32 %r6, %r0, 31;\n\tmul.wide.u32 %rd3, %r6, 4;"
    some += "\n\tadd.u64 %rd3, %rd3, %a0;\n\tst.global.b32 [%rd3], %r5;"
    assert "lane 2" in reported("race", "", run, some, policy="round_robin")  # lanes 0 and 1 of both warps write 0


def test_a_reader_is_not_hidden_by_the_same_lane_of_another_warp():
    """Warps 0 and 8 read a word of shared memory; warp 1, which overwrites it, waits for warp 8 alone."""
    body = """
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    shr.u32 %r2, %r0, 5;
    setp.eq.u32 %p1, %r0, 0;
    @%p1 st.shared.b32 [%r1], 7;
    bar.sync 0;
    setp.eq.u32 %p2, %r2, 1;
    @%p2 bra WRITER;
    and.b32 %r4, %r2, 7;
    setp.ne.u32 %p3, %r4, 0;
    @%p3 bra END;
    ld.shared.b32 %r3, [%r1];
    setp.eq.u32 %p4, %r2, 8;
    @%p4 bar.arrive 1, 64;
    bra.uni END;
    WRITER: bar.sync 1, 64;
    st.shared.b32 [%r1], 8;
    END:"""
    text = kernel_text(body, 1, shared=16)
    how = {"block": (288, 1, 1), "settings": Settings("round_robin")}
    found = reported("race", "", launch, text, np.zeros(1, np.uint32), **how)
    assert "unordered with the read by block (0, 0, 0) warp 0 lane" in found


BUDGETS = """
\tsetmaxnreg.dec.sync.aligned.u32 24;
\tsetp.gt.u32 %p1, %r0, 63;
\t@%p1 bra END;
\tsetmaxnreg.SOME.sync.aligned.u32 COUNT;
END:"""


def test_registers_that_part_of_a_warpgroup_has_already():
    """Two of four warps run another setmaxnreg: a warning if it asks for what they have."""
    again = BUDGETS.replace("SOME", "inc").replace("COUNT", "24")
    _, settings = run(again, threads=128)
    only(settings, "warning", "convergence", "warps [2, 3] did not run it; the others ask for what they have", 1)
    more = BUDGETS.replace("SOME", "inc").replace("COUNT", "40")
    assert "setmaxnreg 40" in reported("convergence", "warps .2, 3. did not run it", run, more, threads=128)


COPIES = "\n\tand.b32 %r3, %r0, 31;\n\tmul.wide.u32 %rd3, %r3, 4;\n\tadd.u64 %rd3, %a0, %rd3;"
COPIES += "\n\tld.global.b32 %r4, [%rd3];\n\tadd.u32 %r4, %r4, 1;\n\tsetp.lt.u32 %p1, %r0, 32;"


def test_copies_of_what_other_threads_hold():
    """Each of two warps reads a word, one stores it: an error, or with ``copies`` a warning unless results differ."""
    kept = COPIES + "\n\t@%p1 st.global.b32 [%rd3], %r4;"
    reported("race", "nothing to order them", run, kept)
    out, settings = run(kept, copies=True)
    assert np.array_equal(out[:32], np.ones(32)) and {(f.severity, f.kind) for f in settings.findings} == {
        ("warning", "race")
    }
    other = "\n\t@!%p1 st.global.b32 [%rd3+128], %r4;"
    reported("mismatch", "", run, kept + other, copies=True)
