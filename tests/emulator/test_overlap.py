"""Launches that may start before the one before them has ended (programmatic dependent launch): global memory is
touched after ``griddepcontrol.wait`` or it is a race. Each access of each kind is found, and a wait reaches as far
as synchronization carries it."""

import linecache
import re
from functools import partial

import numpy as np
import pytest

import cutesync as cs
from cutesync import emulator, patterns
from cutesync.emulator import POLICIES, Settings, overlap
from cutesync.emulator.tensor_map import TensorMap, encode
from cutesync.runtime import call, compiler, device, workspace

from ..compiled import check
from . import kernels_overlap as kernels
from .support import enqueue, kernel_text, launch, reported

SCHEDULES = len(POLICIES)
TITLE = "global memory touched before griddepcontrol.wait"
T = kernels.THREADS


def add(how: str, overlaps: bool = True) -> None:
    x, y, weights = (np.arange(n, dtype=np.int32) for n in (3 * T, 3 * T, T))
    check(kernels.add, x, y, weights, 3, how, overlaps, schedules=SCHEDULES)
    assert np.array_equal(y, x + np.tile(weights, 3))


@pytest.mark.parametrize("how", ["every thread", "the copying thread", "one warp of two"])
def test_a_wait_serves_all_who_synchronize_with_it(how):
    """By a barrier of the block, or by the mbarrier that says that a copy has landed."""
    add(how)


@pytest.mark.parametrize("how", ["nobody", "after the copy"])
def test_what_does_not_wait_is_found_where_it_is(how):
    text = reported("race", TITLE, add, how)
    assert "add_kernel" in text and re.search(r"block \(\d, 0, 0\) warp 0 lane 0", text) and "seed=" in text
    path, line = re.search(r"(\S+kernels_overlap\.py):(\d+)", text).groups()
    assert "CopyBulkG2SOp" in linecache.getline(path, int(line))


def test_tensor_copies_wait():
    y = np.zeros(256, np.int32)
    check(kernels.store_tile, y, False, schedules=SCHEDULES)
    assert np.array_equal(y, np.arange(256))
    reported("race", TITLE + r"[^$]*cp\.async\.bulk\.tensor", check, kernels.store_tile, y, True, schedules=1)


def test_only_a_launch_that_says_so_may_start_early():
    add("nobody", overlaps=False)


WAIT = "\tgriddepcontrol.wait;\n"
ADDRESS = (
    "\tmov.u32 %r0, %tid.x;\n\tmul.wide.u32 %rd1, %r0, 4;\n\tadd.u64 %rd2, %a0, %rd1;\n\tmov.u32 %r1, smem;\n"
    "\tmov.u32 %r5, 1;\n"
)
ONE_LANE = "\telect.sync _|%p1, -1;\n"
ACCESSES = {
    "load": "\tld.global.b32 %r5, [%rd2];\n",
    "generic load": "\tld.b32 %r5, [%rd2];\n",
    "volatile load": "\tld.volatile.global.b32 %r5, [%rd2];\n",
    "store": "\tst.global.b32 [%rd2], %r5;\n",
    "release store": "\tst.release.gpu.global.b32 [%rd2], %r5;\n",
    "atomic": "\tatom.global.add.u32 %r6, [%rd2], %r5;\n",
    "reduction": "\tred.global.add.u32 [%rd2], %r5;\n",
    "tensor map": ONE_LANE + "\t@%p1 tensormap.replace.tile.global_address.global.b1024.b64 [%a0], %a0;\n",
    "small copy": "\tshl.b32 %r2, %r0, 2;\n\tadd.u32 %r2, %r2, %r1;\n\tcp.async.ca.shared.global [%r2], [%rd2], 4;\n"
    "\tcp.async.wait_all;\n",
    "bulk store": ONE_LANE + "\tst.shared.b32 [%r1], %r5;\n\tfence.proxy.async;\n\tbar.warp.sync -1;\n"
    "\t@%p1 cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r1], 16;\n"
    "\tcp.async.bulk.commit_group;\n\tcp.async.bulk.wait_group 0;\n",
    "bulk reduction": ONE_LANE + "\tst.shared.b32 [%r1], %r5;\n\tfence.proxy.async;\n\tbar.warp.sync -1;\n"
    "\t@%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%a0], [%r1], 16;\n"
    "\tcp.async.bulk.commit_group;\n\tcp.async.bulk.wait_group 0;\n",
}


def run(body: str, programmatic: bool = True, **settings) -> None:
    """One warp over 32 words, which are a tensor map. Each lane writes a word of shared memory first."""
    filled = "\tshl.b32 %r3, %r0, 2;\n\tadd.u32 %r3, %r3, %r1;\n\tst.shared.b32 [%r3], %r5;\n\tbar.sync 0;\n"
    room = np.zeros(48, np.uint32)
    x = room[-room.ctypes.data % 64 // 4 :][:32]
    x[:] = np.frombuffer(encode(TensorMap("f32", x.ctypes.data, (16,), (), (16,))), np.uint32)
    launch(
        kernel_text(ADDRESS + filled + body, 1, shared=128), x, settings=Settings(**settings), programmatic=programmatic
    )


@pytest.mark.parametrize("kind", ACCESSES)
def test_every_kind_of_access(kind):
    access = ACCESSES[kind].replace("\tst.shared.b32 [%r1], %r5;\n", "")
    text = reported("race", TITLE, run, access + WAIT)
    line = next(
        line for line in access.split("\n") if re.search(r"\b(ld|st|atom|red|cp|tensormap)\b\S*global|ld\.b32", line)
    )
    assert line.split("\t")[-1].split()[0 if "@" not in line else 1] in text
    run(WAIT + access)
    run(access + WAIT, programmatic=False)
    run(access + WAIT, sanitize=False)


def test_each_lane_waits_for_itself():
    """A wait that some lanes pass says nothing to the others, until the warp meets."""
    some = "\tsetp.lt.u32 %p2, %r0, 7;\n\t@%p2 griddepcontrol.wait;\n"
    assert "lanes 7-31" in reported("race", TITLE, run, some + ACCESSES["load"])
    run(some + "\tbar.warp.sync -1;\n" + ACCESSES["load"])
    run(some + "\t@%p2" + ACCESSES["load"].strip("\n") + "\n")


def test_data_may_be_prefetched_and_parameters_read():
    run("\tld.param.u64 %rd3, [p0];\n\tprefetch.global.L2 [%rd3];\n\tcp.async.bulk.prefetch.L2.global [%rd3], 16;\n")


@pytest.mark.parametrize(("arrival", "found"), [("", False), (".release", False), (".relaxed", True)])
def test_another_block_s_wait_needs_a_release(arrival, found):
    """Block 0 waits for the launch before; block 1 of its cluster meets it at the cluster barrier and loads."""
    body = f"""
\tmov.u32 %r0, %ctaid.x;
\tsetp.eq.u32 %p1, %r0, 0;
\t@%p1 griddepcontrol.wait;
\tbarrier.cluster.arrive{arrival};
\tbarrier.cluster.wait;
\tld.global.b32 %r5, [%a0];"""
    text, options = kernel_text(body, 1), {"grid": (2, 1, 1), "cluster": (2, 1, 1), "programmatic": True}
    run = partial(launch, text, np.zeros(1, np.uint32), **options)
    reported("race", TITLE + r"[^/]*block \(1, 0, 0\)", run) if found else run()


def test_the_launch_of_a_text_says_whether_it_may_start_early():
    text, x = kernel_text(ADDRESS + ACCESSES["load"], 1, shared=128), np.zeros(32, np.uint32)
    enqueue(text, x, block=(32, 1, 1))
    reported("race", TITLE, enqueue, text, x, block=(32, 1, 1), programmatic=True)


X = np.arange(600, dtype=np.float32)
A = np.ones((5, 7), np.float16)  # rows that TMA cannot read: packed by a launch of their own
CALLS = {
    "reduce": lambda: cs.sum(X),
    "scan": lambda: cs.cumsum(X),
    "flags": lambda: cs.flag_heads(X),
    "matmul": lambda: cs.matmul(A, A.T),
    "a pattern": lambda: patterns.primes.run(50),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_launch_of_the_package_may_start_early(name, monkeypatch, on_emulator):
    """So each kernel must wait: without, the emulator finds the launch it belongs to."""
    monkeypatch.setattr(call, "_plans", {})
    monkeypatch.setattr(compiler, "_kernels", {})
    CALLS[name]()
    kernels = list(compiler._kernels.values())
    assert kernels
    for kernel in kernels:
        original, kernel.ptx = kernel.ptx, re.sub(r"griddepcontrol\.wait;", "", kernel.ptx)
        reported("race", f"{TITLE}\n  kernel {kernel.name}", CALLS[name])
        kernel.ptx = original
        workspace.forget(device.HOST, 0)


# --- launches that are seen -------------------------------------------------------------------------------------------

FILL = (
    "\tmov.u32 %r0, %tid.x;\n\tmul.wide.u32 %rd1, %r0, 4;\n\tadd.u64 %rd2, %a0, %rd1;\n\tst.global.b32 [%rd2], %r0;\n"
)
LOOK = FILL.replace("st.global.b32 [%rd2], %r0;", "ld.global.b32 %r5, [%rd2];")
BEYOND = "\tadd.u64 %a0, %a0, 128;\n"


def two(first: str, second: str, programmatic: bool = True):
    """A launch over the first 32 words of an array, and an early one after it."""
    x = np.zeros(64, np.uint32)
    with emulator.DEVICE.arrays(x), emulator.emulate(unseen_launches=False) as used:
        emulator.launch(kernel_text(first, 1), (1, 1, 1), (32, 1, 1), [x.ctypes.data])
        emulator.launch(kernel_text(second, 1), (1, 1, 1), (32, 1, 1), [x.ctypes.data], programmatic=programmatic)
    return list(used.findings)


@pytest.mark.parametrize("first, second, word", ((FILL, LOOK, "wrote"), (FILL, FILL, "wrote"), (LOOK, FILL, "read")))
def test_an_early_access_to_bytes_that_the_launch_before_uses(first, second, word):
    assert f"k {word} these bytes" in reported("race", TITLE, two, first, second)
    assert two(first, WAIT + second) == two(first, second, programmatic=False) == []
    assert two(first, BEYOND + second) == []


def test_an_early_access_to_bytes_that_launches_only_read():
    assert two(LOOK, LOOK) == []


def test_an_early_access_of_the_first_launch_that_is_seen_is_a_note(monkeypatch):
    x = np.zeros(32, np.uint32)
    monkeypatch.setattr(overlap.SEEN, "earlier", [])
    with emulator.emulate(unseen_launches=False) as used:
        enqueue(kernel_text(LOOK, 1), x, block=(32, 1, 1), programmatic=True)
    (note,) = used.findings
    assert (note.severity, note.kind) == ("note", "race") and TITLE in note.title
