"""Rules of the sanitizer that allow something: what they allow must not go wrong on a GPU.

An H200 was asked for each of them, and nothing went wrong.
"""

from collections.abc import Iterator

import numpy as np

from .case import HEADER, Case

_ROUNDS, _BYTES = 200, 1024
_DATA = np.arange(2 * _BYTES // 4, dtype=np.uint32) * np.uint32(2654435761)
_REGISTERS = """.reg .pred %p<8>; .reg .b32 %r<24>; .reg .b64 %rd<12>;
.shared .align 128 .b8 smem[2048];
mov.u32 %r0, %tid.x; mov.u32 %r1, smem; mov.u32 %r2, %cluster_ctarank; setp.eq.u32 %p1, %r0, 0;
ld.param.u64 %rd1, [out];
"""
_MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"


def _wait(barrier: str, parity: str, label: str) -> str:
    return f"{label}: mbarrier.try_wait.parity.shared::cta.b64 %p2, [{barrier}], {parity}; @!%p2 bra {label};\n"


def copies_to_a_peer(name: str, read: str, arrival: str, fence: str) -> Case:
    """Block 0 copies into the stage of block 1 again and again. Block 1 waits for each copy, perhaps reads it, and
    arrives at block 0, which starts the next one. Each lane of block 1 counts wrong words of what it reads, or of the
    last copy."""
    body = f""".visible .entry litmus(.param .u64 out, .param .u64 data) .reqnctapercluster 2, 1, 1
{{
{_REGISTERS}ld.param.u64 %rd2, [data];
@%p1 mbarrier.init.shared::cta.b64 [%r1], 1;
@%p1 mbarrier.init.shared::cta.b64 [%r1+8], 1;
@%p1 fence.mbarrier_init.release.cluster;
{_MEET}mov.u32 %r3, 1; sub.u32 %r4, %r3, %r2; mapa.shared::cluster.u32 %r5, %r1, %r4;
mov.u32 %r6, 0; mov.u32 %r7, 0;
shl.b32 %r8, %r0, 2; add.u32 %r8, %r8, %r1;
setp.eq.u32 %p3, %r2, 1; @%p3 bra CONSUMER;
@!%p1 bra END;
COPY: and.b32 %r9, %r6, 1; mul.wide.u32 %rd3, %r9, {_BYTES}; add.u64 %rd3, %rd3, %rd2;
{fence}cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r5+128], [%rd3], {_BYTES}, [%r5];
{_wait("%r1+8", "%r9", "EMPTY")}add.u32 %r6, %r6, 1; setp.lt.u32 %p4, %r6, {_ROUNDS}; @%p4 bra COPY;
bra.uni END;
CONSUMER: @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], {_BYTES};
NEXT: and.b32 %r9, %r6, 1; mul.wide.u32 %rd3, %r9, {_BYTES}; add.u64 %rd3, %rd3, %rd2;
mul.wide.u32 %rd4, %r0, 4; add.u64 %rd4, %rd4, %rd3;
{_wait("%r1", "%r9", "FULL")}{read}add.u32 %r6, %r6, 1; setp.lt.u32 %p4, %r6, {_ROUNDS}; and.pred %p5, %p4, %p1;
bar.warp.sync -1;
@%p5 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], {_BYTES};
@%p1 mbarrier.arrive{arrival}.shared::cluster.b64 _, [%r5+8];
@%p4 bra NEXT;
{_LOOK}mul.wide.u32 %rd4, %r0, 4; add.u64 %rd4, %rd4, %rd1; st.global.b32 [%rd4], %r7;
END: {_MEET}ret;
}}
"""
    out = np.full(32, 99, np.uint32)
    return Case(f"rules.{name}", HEADER + body, (out, _DATA), 0, lambda: np.zeros(32, np.uint32), grid=2)


_LOOK = """ld.shared.b32 %r10, [%r8+128]; ld.global.b32 %r11, [%rd4];
setp.ne.u32 %p6, %r10, %r11; @%p6 add.u32 %r7, %r7, 1;
"""


def left_arrivals() -> Case:
    """Blocks that follow one another on a multiprocessor hand a word over at named barrier 1, then leave an arrival of
    one warp there."""
    body = f""".visible .entry litmus(.param .u64 out)
{{
{_REGISTERS}mov.u32 %r3, %ctaid.x; setp.lt.u32 %p2, %r0, 32;
add.u32 %r4, %r3, 7; @%p1 st.shared.b32 [%r1], %r4;
bar.sync 1, 64;
ld.shared.b32 %r5, [%r1]; sub.u32 %r5, %r5, %r4;
@%p2 bar.arrive 1, 64;
setp.eq.u32 %p3, %r0, 63; mul.wide.u32 %rd2, %r3, 4; add.u64 %rd2, %rd2, %rd1; @%p3 st.global.b32 [%rd2], %r5;
ret;
}}
"""
    blocks, shared = 800, 96 << 10  # two blocks a multiprocessor
    out, none = np.full(blocks, 99, np.uint32), np.zeros(blocks, np.uint32)
    how = {"block": 64, "grid": blocks, "shared_bytes": shared}
    return Case("rules.left_arrivals", HEADER + body, (out,), 0, lambda: none, **how)


def same_value() -> Case:
    """Four warps store the same words at the same places; all threads read them after a barrier."""
    body = f""".visible .entry litmus(.param .u64 out)
{{
{_REGISTERS}and.b32 %r3, %r0, 31; shl.b32 %r4, %r3, 2; add.u32 %r4, %r4, %r1; mad.lo.u32 %r5, %r3, 77, 5;
st.shared.b32 [%r4], %r5; bar.sync 0;
ld.shared.b32 %r6, [%r4]; mul.wide.u32 %rd2, %r0, 4; add.u64 %rd2, %rd2, %rd1; st.global.b32 [%rd2], %r6;
ret;
}}
"""
    want = np.tile(np.arange(32, dtype=np.uint32) * 77 + 5, 4)
    return Case("rules.same_value", HEADER + body, (np.zeros(128, np.uint32),), 0, lambda: want, block=128)


def no_launch_before() -> Case:
    """``griddepcontrol`` in a launch that is not programmatic."""
    body = f""".visible .entry litmus(.param .u64 out)
{{
{_REGISTERS}griddepcontrol.launch_dependents; griddepcontrol.wait; griddepcontrol.wait;
mul.wide.u32 %rd2, %r0, 4; add.u64 %rd2, %rd2, %rd1; st.global.b32 [%rd2], %r0;
ret;
}}
"""
    want = np.arange(32, dtype=np.uint32)
    return Case("rules.no_launch_before", HEADER + body, (np.zeros(32, np.uint32),), 0, lambda: want)


def cases() -> Iterator[Case]:
    fence = "fence.proxy.async.shared::cta;\n"
    for scope, arrival in ("block", ""), ("cluster", ".release.cluster"):
        yield copies_to_a_peer(f"copy_over_copy.{scope}", "", arrival, "")
        yield copies_to_a_peer(f"copy_over_read.{scope}.fence_of_reader", _LOOK + fence, arrival, "")
        yield copies_to_a_peer(f"copy_over_read.{scope}.fence_of_writer", _LOOK, arrival, fence)
    yield from (left_arrivals(), same_value(), no_launch_before())
