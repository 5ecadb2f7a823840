"""What several schedules of one launch compute alike is computed once, and nothing else is taken for it."""

import numpy as np
import pytest

from cutesync.emulator import ptx, steady
from cutesync.emulator.settings import Settings

from .support import kernel_text, launch, reported

# Each thread adds up the rows of x (4 KiB each) at its place, two numbers at a time, in a loop.
SUM = """
\tmov.u32 %r0, %tid.x;
\tmov.u32 %r1, %ctaid.x;
\tmov.u32 %r2, %ntid.x;
\tmad.lo.u32 %r3, %r1, %r2, %r0;
\tmul.wide.u32 %rd1, %r3, 8;
\tadd.u64 %rd2, %a0, %rd1;
\tadd.u64 %rd3, %a1, %rd1;
\tmov.u32 %r4, 0;
\tmov.u32 %r10, 0;
\tmov.u32 %r11, 0;
LOOP:
\tmul.wide.u32 %rd4, %r4, 4096;
\tadd.u64 %rd5, %rd2, %rd4;
\tld.global.v2.b32 {%r12, %r13}, [%rd5];
\tadd.u32 %r10, %r10, %r12;
\tadd.u32 %r11, %r11, %r13;
\tadd.u32 %r4, %r4, 1;
\tsetp.lt.u32 %p1, %r4, 6;
\t@%p1 bra LOOP;
\tst.global.v2.b32 [%rd3], {%r10, %r11};"""
EIGHT = Settings(schedules=8)


def names_of(body: str, parameters: int = 2) -> frozenset[str]:
    (function,) = ptx.parse(kernel_text(body, parameters)).functions.values()
    return steady.steady_registers(function, set())


def test_what_follows_from_parameters_and_thread_numbers_is_steady():
    found = names_of(SUM)
    assert {"%a0", "%r0", "%r1", "%r3", "%r4", "%rd2", "%rd3", "%rd4", "%rd5", "%p1"} <= found
    assert found.isdisjoint({"%r10", "%r11", "%r12", "%r13"})


@pytest.mark.parametrize(
    "source",
    [
        "ld.global.b32 %r1, [%a0];",
        "mov.u32 %r1, %clock;",
        "mov.u32 %r1, %smid;",
        "atom.global.add.u32 %r1, [%a0], 1;",
        "activemask.b32 %r1;",
        "shfl.sync.idx.b32 %r1, %r0, 0, 31, %r3;",
        "add.cc.u32 %r1, %r0, 1;",
        "vote.sync.ballot.b32 %r1, %p1, -1;",
    ],
)
def test_other_sources_are_not_and_spread(source):
    found = names_of(f"\tmov.u32 %r0, %tid.x;\n\tmov.u32 %r3, -1;\n\t{source}\n\tadd.u32 %r4, %r1, 1;")
    assert "%r0" in found
    assert found.isdisjoint({"%r1", "%r4"})


@pytest.mark.parametrize("room", [1 << 16, 100, 0])
def test_schedules_agree_with_numpy_with_any_room(monkeypatch, room):
    monkeypatch.setattr(steady, "_ROOM", room)
    x, out = np.arange(6 * 1024, dtype=np.uint32).reshape(6, 1024), np.zeros(1024, np.uint32)
    launch(kernel_text(SUM, 2), x, out, grid=(4, 1, 1), block=(128, 1, 1), settings=EIGHT)
    assert np.array_equal(out, x.sum(0, dtype=np.uint32))


def test_results_are_computed_once_and_given_back(monkeypatch):
    computed, left, end = [], [], steady.Kept.end

    class Counting(steady.Group):
        def __init__(self, code, compute, slots, addresses):
            super().__init__(code, lambda f: computed.append(f.warp.identity) or compute(f), slots, addresses)

    def ending(kept):
        end(kept)
        left.append((kept.rows, kept.elements, kept.held, [group.table for group in kept.groups]))

    monkeypatch.setattr(steady, "Group", Counting)
    monkeypatch.setattr(steady.Kept, "end", ending)
    x, out = np.ones((6, 1024), np.uint32), np.zeros(1024, np.uint32)
    settings = Settings(policy="round_robin", schedules=8)
    launch(kernel_text(SUM, 2), x, out, grid=(4, 1, 1), block=(128, 1, 1), settings=settings)
    assert len(computed) == 16 * (1 + 5) + 16  # by 16 warps: what stands before the loop with its first turn, 5 more
    ((rows, elements, held, tables),) = left
    assert not (rows or elements or held) and set(tables) == {None}


def test_a_value_that_a_later_instruction_overwrites_is_read_first():
    """The counter is stored, then counted on, then stored again, in one segment and with a predicate."""
    body = """
\tmov.u32 %r0, %tid.x;
\tmul.wide.u32 %rd1, %r0, 8;
\tadd.u64 %rd2, %a0, %rd1;
\tmov.u32 %r1, 7;
\tsetp.lt.u32 %p1, %r0, 16;
\tst.global.b32 [%rd2], %r1;
\tadd.u32 %r1, %r1, %r0;
\t@%p1 add.u32 %r1, %r1, 100;
\tadd.u64 %rd2, %rd2, 4;
\tst.global.b32 [%rd2], %r1;"""
    out = np.zeros((32, 2), np.uint32)
    launch(kernel_text(body, 1), out, settings=EIGHT)
    lane = np.arange(32)
    assert np.array_equal(out, np.stack([np.full(32, 7), 7 + lane + 100 * (lane < 16)], axis=1))


def test_a_counter_is_compared_anew_after_it_is_counted():
    """A signed number before and behind a branch that joins, which a turn of the loop runs through."""
    body = """
\tld.global.b32 %r2, [%a0];
\tmov.u32 %r0, %tid.x;
\tmul.wide.u32 %rd1, %r0, 4;
\tadd.u64 %rd2, %a1, %rd1;
\tmov.u32 %r1, 0;
\tmov.u32 %r3, 0;
LOOP:
\tsetp.ge.s32 %p1, %r1, %r2;
\t@%p1 bra JOINT;
\tst.global.b32 [%rd2], %r1;
JOINT:
\tadd.s32 %r1, %r1, 1;
\tadd.u64 %rd2, %rd2, 128;
\tadd.u32 %r3, %r3, 5;
\tsetp.lt.s32 %p2, %r1, %r2;
\t@%p2 bra LOOP;
\tst.global.b32 [%rd2], %r3;"""
    out = np.zeros((6, 32), np.uint32)
    launch(kernel_text(body, 2), np.array([3], np.uint32), out, settings=EIGHT)
    assert out[:, 0].tolist() == [0, 1, 2, 15, 0, 0]


def test_shared_memory_is_that_of_each_block():
    """The addresses do not depend on the block, what lies there does."""
    body = """
\tmov.u32 %r0, %tid.x;
\tmov.u32 %r1, %ctaid.x;
\tshl.b32 %r2, %r0, 2;
\tmov.u32 %r3, smem;
\tadd.u32 %r4, %r3, %r2;
\txor.b32 %r5, %r2, 252;
\tadd.u32 %r6, %r3, %r5;
\tmad.lo.u32 %r7, %r1, 1000, %r0;
\tst.shared.b32 [%r4], %r7;
\tbar.sync 0;
\tld.shared.b32 %r8, [%r6];
\tmad.lo.u32 %r9, %r1, 64, %r0;
\tmul.wide.u32 %rd1, %r9, 4;
\tadd.u64 %rd2, %a0, %rd1;
\tst.global.b32 [%rd2], %r8;"""
    out = np.zeros((5, 64), np.uint32)
    text = kernel_text(body, 1, shared=256)
    launch(text, out, grid=(5, 1, 1), block=(64, 1, 1), settings=EIGHT)
    assert np.array_equal(out, np.arange(5)[:, None] * 1000 + np.arange(64)[::-1])
    broken = text.replace("\tbar.sync 0;\n", "")
    reported("race uninitialised", "", launch, broken, out, grid=(5, 1, 1), block=(64, 1, 1), settings=EIGHT)


def test_faults_at_steady_addresses_are_reported_in_any_schedule():
    """A store past the end, by the last schedule's order or the first one's: the address is the same in all."""
    out = np.zeros(1000, np.uint32)
    x = np.zeros((6, 1024), np.uint32)
    reported(
        "out-of-bounds", "", launch, kernel_text(SUM, 2), x, out, grid=(4, 1, 1), block=(128, 1, 1), settings=EIGHT
    )


def test_a_group_whose_inputs_are_always_new_keeps_nothing():
    kept = steady.Kept()
    group = steady.Group([], lambda f: (), [], [])
    kept.group(group)
    kept.begin()
    for schedule in range(4):
        kept.settle()
        for i in range(10):
            kept.add(group, (schedule, i), ((np.zeros(1),), ()))
    assert group.table is None
    kept.begin()
    for _ in range(4):
        kept.settle()
        for i in range(10):
            kept.add(group, (i,), ((np.zeros(1),), ()))
    assert group.table is not None and len(group.table) == 10
