"""Tensor maps that a kernel edits: the fences between an edit and its use, and edits while a copy still reads them.

And what a store reads of a box that ends beyond the tensor.
"""

import numpy as np
import pytest

from cutesync.emulator import POLICIES, EmulationError, Settings
from cutesync.emulator.tensor_map import TensorMap, encode

from .support import INIT, WAIT, kernel_text, launch

ADDRESS = """
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, smem;
    add.u32 %r2, %r1, 128;
    add.u64 %rd6, %a1, 64;
    add.u64 %rd7, %a2, 128;
    mov.u32 %r11, 0;
    setp.eq.u32 %p1, %r0, 0;
    setp.eq.u32 %p3, %r0, 1;"""
EDIT = "@%p1 tensormap.replace.tile.global_address.global.b1024.b64 [%a2], %rd6;"
RELEASE, ACQUIRE = "fence.proxy.tensormap::generic.release.gpu;", "fence.proxy.tensormap::generic.acquire.gpu"
LOAD = """@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 64;
    @%p1 cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
    [%r2], [%a2, {%r11}], [%r1];"""
STORE = """mad.lo.u32 %r3, %r0, 4, %r2;
    st.shared.b32 [%r3], %r0;
    fence.proxy.async;
    bar.warp.sync -1;
    @%p1 cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%a2, {%r11}], [%r2];
    @%p1 cp.async.bulk.commit_group;"""
OUT = """
    setp.lt.u32 %p4, %r0, 16;
    mad.lo.u32 %r3, %r0, 4, %r2;
    @%p4 ld.shared.b32 %r5, [%r3];
    mul.wide.u32 %rd3, %r0, 4;
    add.u64 %rd3, %rd3, %a0;
    @%p4 st.global.b32 [%rd3], %r5;"""


def found(*steps: str) -> tuple[str, str]:
    """``(kind, report)`` of a kernel of these steps on one warp; two maps lie in memory, edited or not."""
    room = np.zeros(512 + 64, np.float32)
    x = room[(-room.ctypes.data % 256) // 4 :][:256]
    x[:] = np.arange(256)
    table = np.zeros(128, np.uint32)
    table = table[(-table.ctypes.data % 128) // 4 :][:64]
    table[:] = np.tile(np.frombuffer(encode(TensorMap("f32", x.ctypes.data, (16,), (), (16,))), np.uint32), 2)
    out = np.zeros(32, np.float32)
    text = kernel_text(ADDRESS + INIT.replace("COUNT", "1") + "\n    ".join(("", *steps)), 3, shared=512)
    try:
        launch(text, out, x, table, settings=Settings(schedules=len(POLICIES)))
    except EmulationError as error:
        return error.kind, str(error)
    if OUT in steps:
        assert out[:16].tolist() == [16.0 * (EDIT in steps) + n for n in range(16)]
    return "", ""


FENCED = (
    (EDIT, RELEASE, f"{ACQUIRE} [%a2], 128;"),
    (EDIT, f"@%p1 {RELEASE}", f"@%p1 {ACQUIRE} [%a2], 128;"),
    (EDIT, RELEASE, "bar.warp.sync -1;", f"@%p3 {ACQUIRE} [%a2], 128;", "bar.warp.sync -1;"),
    (f"{ACQUIRE} [%a2], 128;",),
    (),
)
NOT_FENCED = (
    ("generic.acquire", EDIT, RELEASE),
    ("generic.acquire", EDIT, RELEASE, f"{ACQUIRE} [%rd7], 128;"),
    ("generic.acquire", f"{ACQUIRE} [%a2], 128;", EDIT, RELEASE),
    ("generic.acquire", EDIT, RELEASE, "bar.warp.sync -1;", f"@%p3 {ACQUIRE} [%a2], 128;"),
    ("generic.release", EDIT, f"{ACQUIRE} [%a2], 128;"),
    ("generic.release", RELEASE, EDIT, f"{ACQUIRE} [%a2], 128;"),
    ("generic.release", EDIT, "fence.proxy.async;", f"{ACQUIRE} [%a2], 128;"),
)


@pytest.mark.parametrize("steps", FENCED)
def test_an_edit_reaches_the_copy(steps):
    assert found(*steps, LOAD, WAIT, OUT) == ("", "")


@pytest.mark.parametrize("case", NOT_FENCED)
def test_a_fence_is_missing(case):
    missing, *steps = case
    kind, text = found(*steps, LOAD, WAIT, OUT)
    assert (
        kind == "proxy" and "tensormap.replace" in text and f"there must be a fence.proxy.tensormap::{missing}" in text
    )


@pytest.mark.parametrize(
    "use, wait",
    ((LOAD, WAIT), (STORE, "@%p1 cp.async.bulk.wait_group.read 0;")),
    ids=("load", "store"),
)
def test_an_edit_while_a_copy_reads_the_map(use, wait):
    assert found(use, wait, EDIT) == ("", "")
    kind, text = found(use, EDIT, wait)
    assert kind == "race" and "write and read of the same bytes" in text and "cp.async.bulk.tensor" in text


def test_a_bulk_group_covers_what_loads_read_of_their_maps():
    """As CUTLASS has it, whatever the group holds besides. It says nothing of the bytes that they write."""
    commit, over = "@%p1 cp.async.bulk.commit_group;", "@%p1 cp.async.bulk.wait_group.read 0;"
    assert found(LOAD, commit, over, EDIT, WAIT) == ("", "")
    for steps in ((LOAD, over, EDIT, WAIT), (LOAD, commit, over.replace("0;", "1;"), EDIT, WAIT)):
        assert found(*steps)[0] == "race"
    written = "@%p1 ld.shared.b32 %r5, [%r2];"
    assert found(LOAD, commit, over.replace(".read", ""), written, WAIT)[0] == "race"


@pytest.mark.parametrize("word, kind", [(7, "race"), (8, "")])
def test_a_store_reads_what_lies_in_the_tensor(word, kind):
    """Half of the box lies beyond the end: its words in shared memory may change while the copy is under way."""
    overwrite = f"setp.eq.u32 %p4, %r0, {word};\n    @%p4 st.shared.b32 [%r3], %r11;"
    steps = "mov.u32 %r11, 8;", STORE, "bar.warp.sync -1;", overwrite, "@%p1 cp.async.bulk.wait_group.read 0;"
    assert found(*steps)[0] == kind
