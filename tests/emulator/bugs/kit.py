"""A public bug as a small kernel, and the pieces that such kernels are made of.

Each body is a difference: lines that begin with "-" are in the faulty kernel alone, lines with "+" in the repaired one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cutesync import emulator
from cutesync.emulator import POLICIES
from cutesync.emulator.tensor_map import TensorMap, encode

from ..support import kernel_text

# %r0 thread, %r1 shared memory, %r2 lane, %r3 warp, %r4 16 bytes a thread behind 128 bytes of barriers, %rd2 a word a
# thread of the first array, %p1 thread 0, %p2 lane 0, %p3 the first warp
START = """
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    and.b32 %r2, %r0, 31;
    shr.u32 %r3, %r0, 5;
    mad.lo.u32 %r4, %r0, 16, %r1;
    add.u32 %r4, %r4, 128;
    mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd2, %a0, %rd1;
    setp.eq.u32 %p1, %r0, 0;
    setp.eq.u32 %p2, %r2, 0;
    setp.lt.u32 %p3, %r0, 32;
    mov.u32 %r20, %cluster_ctarank;
    setp.eq.u32 %p4, %r20, 0;
    and.pred %p5, %p1, %p4;
"""
FENCE, MEET = "fence.proxy.async.shared::cta;", "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;"


def wait(barrier: str, parity: int | str = 0, scope: str = "") -> str:
    return (
        f"{{ .reg .pred q; AGAIN: mbarrier.try_wait.parity{scope}.shared::cta.b64 q, [{barrier}], {parity}; "
        "@!q bra AGAIN; }"
    )


def init(*counts: int) -> str:
    lines = [f"@%p1 mbarrier.init.shared.b64 [%r1+{8 * i}], {count};" for i, count in enumerate(counts)]
    return "\n".join([*lines, "@%p1 fence.mbarrier_init.release.cluster;", "bar.sync 0;"])


def load(source: str = "%a1", target: str = "%r1+128", size: int = 512, barrier: str = "%r1", who: str = "%p1") -> str:
    return (
        f"@{who} mbarrier.arrive.expect_tx.shared.b64 _, [{barrier}], {size};\n"
        f"@{who} cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{target}], [{source}], {size}, "
        f"[{barrier}];"
    )


def ring(read: str, fences: str) -> str:
    """Warp 0 fills a stage twice; warp 1 reads it and releases it between."""
    return f"""{init(1, 1)}
@!%p3 bra CONSUMER;
{load()}
{wait("%r1+8")}
{load("%a1+512")}
bra.uni END;
CONSUMER: sub.u32 %r4, %r4, 512;
{wait("%r1")}
{read}
{fences}
bar.warp.sync -1;
@%p2 mbarrier.arrive.shared.b64 _, [%r1+8];
{wait("%r1", 1)}
ld.shared.b32 %r6, [%r4];
add.u32 %r5, %r5, %r6;
st.global.b32 [%rd2], %r5;
END:"""


def tensor_map(data: np.ndarray) -> np.ndarray:
    """A tensor map of the first 16 words of an array, at a multiple of its size."""
    room = np.zeros(64, np.uint32)
    table = room[-room.ctypes.data % 128 // 4 :][:32]
    table[:] = np.frombuffer(encode(TensorMap("u32", data.ctypes.data, (16,), (), (16,))), np.uint32)
    return table


READ = "ld.shared.b32 %r5, [%r4];"
TWICE = np.r_[np.zeros(32, np.uint32), 8 * np.arange(32, dtype=np.uint32) + 128]
DESCRIPTOR = "and.b32 %r10, %r1, 262143;\nshr.u32 %r10, %r10, 4;\ncvt.u64.u32 %rd5, %r10;"
PAIR = {"grid": (2, 1, 1), "cluster": (2, 1, 1)}
PEER = "mov.u32 %r21, 1;\nsub.u32 %r21, %r21, %r20;\nmapa.shared::cluster.u32 %r22, %r1, %r21;"
MULTIPLY = "wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {%r10, %r11}, %rd5, %rd5, 1, 1, 1, 0, 0;"
WGMMA = f"{DESCRIPTOR}\nwgmma.fence.sync.aligned;\n{MULTIPLY}\nwgmma.commit_group.sync.aligned;"


@dataclass(frozen=True)
class Bug:
    """``kinds``: of the report; ``says``: words of it. ``wanted``: what the repaired kernel leaves in array 0."""

    source: str
    nature: str
    kinds: str
    body: str
    says: str = ""
    block: int = 64
    options: dict[str, Any] = field(default_factory=dict)
    wanted: np.ndarray | None = None
    before: str = ""  # a launch before this one, over the same arrays
    mapped: bool = False  # array 2 is a tensor map of the first 64 bytes of array 1

    def text(self, repaired: bool) -> str:
        keep, drop = ("+", "-") if repaired else ("-", "+")
        lines = (line.strip() for line in self.body.strip().split("\n"))
        return START + "\n".join(line.removeprefix(keep) for line in lines if not line.startswith(drop))

    def run(self, repaired: bool, schedules: int = 2 * len(POLICIES), **how) -> np.ndarray:
        """Array 0 after the launch. Both kernels find a word a thread there and in array 1."""
        out, data = np.zeros(512, np.uint32), np.arange(512, dtype=np.uint32)
        arrays = [out, data, *([tensor_map(data)] if self.mapped else ())]
        addresses = [array.ctypes.data for array in arrays]
        how = {"initcheck": False, "unseen_launches": False, **how}
        with emulator.DEVICE.arrays(*arrays), emulator.emulate(schedules=schedules, **how):
            if self.before:
                emulator.launch(kernel_text(START + self.before, 2, shared=64), (1, 1, 1), (64, 1, 1), addresses)
            text = kernel_text(self.text(repaired), len(arrays), shared=8192)
            options = {"grid": (1, 1, 1), "block": (self.block, 1, 1), **self.options}
            emulator.launch(text, options.pop("grid"), options.pop("block"), addresses, **options)
        return out
