"""Faults planted in the compiled matmul: the emulator must find each of them. Those of source document 002 are among
them."""

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

import cutesync as cs
from cutesync.emulator import EmulationError
from cutesync.kernels.matmul.policy import MatmulPolicy
from cutesync.runtime import compiler, device, workspace

from .support import few_blocks, operand

pytestmark = pytest.mark.slow


class Case(NamedTuple):
    """A configuration, (M, N, K), and how many blocks run at a time: several tiles a block and k-tiles a tile."""

    config: MatmulPolicy
    shape: tuple[int, int, int]
    blocks: int = 2
    dtype: str = "float16"


COOPERATIVE = Case(MatmulPolicy((128, 64), "cooperative", (2, 1), stages=2), (264, 72, 264))
PINGPONG = Case(MatmulPolicy((64, 64), "pingpong", stages=2), (264, 72, 264))
SPLIT = Case(
    MatmulPolicy((64, 64), "pingpong", (1, 2), stages=2, splits=3), (70, 136, 264), 6
)  # shares meet in global memory
MEET = Case(MatmulPolicy((64, 64), "pingpong", stages=2, splits=3), (100, 72, 264))  # shares meet in a cluster
FOUR = Case(
    MatmulPolicy((64, 32), "pingpong", (4, 1), stages=2), (300, 24, 264), 4
)  # B multicast by four blocks, a quarter each
NARROW = Case(
    MatmulPolicy((128, 16), "cooperative", (2, 1), stages=2, splits=2), (13, 136, 264), 4
)  # few rows: turned, stored without TMA
PROMOTED = Case(
    MatmulPolicy((64, 64), "pingpong", stages=2), (200, 80, 528), dtype="float8_e4m3fn"
)  # every k-tile's products added to a second set
HELD = Case(
    MatmulPolicy((256, 32), "cooperative", stages=2), (520, 40, 264), 1
)  # a finished tile waits in registers: two slabs, stored beside the next one
HELD_PROMOTED = Case(MatmulPolicy((128, 64), "cooperative", stages=2), (200, 80, 528), 1, "float8_e4m3fn")
LINE = r"\s+(?:\.loc[^\n]*\s+)*"  # between two instructions
CASES = {
    "cooperative": COOPERATIVE,
    "pingpong": PINGPONG,
    "split": SPLIT,
    "shares that meet": MEET,
    "cluster of four": FOUR,
    "narrow": NARROW,
    "promoted": PROMOTED,
    "held": HELD,
    "held, promoted": HELD_PROMOTED,
}


def drop(pattern: str, which: int = 0):
    """Delete one instruction: the ``which``-th line that matches."""

    def edit(ptx: str) -> str:
        found = list(re.finditer(rf"^[^\n]*{pattern}[^\n]*\n", ptx, re.M))
        return ptx[: found[which].start()] + ptx[found[which].end() :]

    return edit


def swap(pattern: str, new: str):
    return lambda ptx: re.sub(pattern, new, ptx)


def every(pattern: str):
    return lambda ptx: re.sub(rf"^[^\n]*{pattern}[^\n]*\n", "", ptx, flags=re.M)


def after(start: str, edit: Callable[[str], str]):
    """The edit, of what follows the first match of ``start``."""

    def limited(ptx: str) -> str:
        at = re.search(start, ptx).start()
        return ptx[:at] + edit(ptx[at:])

    return limited


def bound(keep: int):
    """Of the two tests of the plain stores, row and column, ``keep`` alone (0 or 1)."""
    joined = rf"or\.pred (\t(%p\d+)), (%p\d+), (%p\d+);(?={LINE}@\2 bra[^\n]*{LINE}cvt\.s64\.s32)"
    return swap(joined, rf"mov.pred \1, \{3 + keep};")


def empty_count(change: int):
    """Change the arrivals that the empty barriers expect: the second group of initialisations."""

    def edit(ptx: str) -> str:
        inits = list(re.finditer(r"mov\.b32 \t(%r\d+), (\d+);\s+mbarrier\.init", ptx))
        at = inits[1]
        return ptx[: at.start(2)] + str(int(at[2]) + change) + ptx[at.end(2) :]

    return edit


FAULTS = {
    "the empty barriers never initialised": (COOPERATIVE, lambda ptx: without_empty_barriers(ptx)),
    "the full barriers expect a warpgroup's arrivals": (
        COOPERATIVE,
        swap(r"mov\.b32 (\t%r\d+), 1;(\s+mbarrier\.init)", r"mov.b32 \1, 128;\2"),
    ),
    "a stage released before the tensor cores have read it": (
        COOPERATIVE,
        swap(r"wgmma\.wait_group\.sync\.aligned \t1;", "wgmma.wait_group.sync.aligned \t2;"),
    ),
    "the same, pingpong": (
        PINGPONG,
        swap(r"wgmma\.wait_group\.sync\.aligned \t1;", "wgmma.wait_group.sync.aligned \t2;"),
    ),
    "accumulators stored before the last multiplications": (COOPERATIVE, drop(r"wgmma\.wait_group\.sync\.aligned \t0")),
    "one arrival too many expected on an empty barrier": (COOPERATIVE, empty_count(+1)),
    "a whole warpgroup's arrivals not waited for": (COOPERATIVE, empty_count(-8)),
    "the arrivals of one consumer warpgroup, doubled": (PINGPONG, empty_count(+4)),
    "fewer bytes expected than a stage has": (COOPERATIVE, swap(r"mov\.b32 (\t%r\d+), 24576;", r"mov.b32 \1, 16384;")),
    "more bytes expected than a stage has": (COOPERATIVE, swap(r"mov\.b32 (\t%r\d+), 24576;", r"mov.b32 \1, 24592;")),
    "released on the own block's barrier alone": (
        COOPERATIVE,
        swap(r"mapa\.shared::cluster\.u32 (\t%r\d+), (%r\d+), %r\d+;", r"mapa.shared::cluster.u32 \1, \2, 0;"),
    ),
    "the slab stored without a proxy fence": (COOPERATIVE, every(r"fence\.proxy\.async")),
    "the slab stored before all threads have filled it": (COOPERATIVE, every(r"bar\.sync \t%r\d+, 128")),
    "a slab filled while TMA reads it": (PINGPONG, every(r"cp\.async\.bulk\.wait_group\.read")),
    "no cluster barrier after the barriers' initialisation": (COOPERATIVE, every(r"barrier\.cluster\.")),
    "shares counted before they are written": (SPLIT, drop(r"bar\.sync \t%r\d+, 128", 0)),
    "shares counted without a release": (
        SPLIT,
        swap(r"atom\.global\.acq_rel\.gpu\.inc", "atom.global.relaxed.gpu.inc"),
    ),
    "shares counted for the block alone": (
        SPLIT,
        swap(r"atom\.global\.acq_rel\.gpu\.inc", "atom.global.acq_rel.cta.inc"),
    ),
    "the notice read before it is written": (SPLIT, drop(r"bar\.sync \t%r\d+, 128", 1)),
    "a counter that does not wrap": (
        SPLIT,
        swap(r"(atom\.global\.acq_rel\.gpu)\.inc(\.u32 [^,]*, [^,]*), %r\d+;", r"\1.add\2, 1;"),
    ),
    "the producer leaves with loads of its peer in flight": (COOPERATIVE, lambda ptx: skip_tail(ptx)),
    "a warpgroup multiplies out of turn": (PINGPONG, every(r"bar\.sync \t%r\d+, 256")),
    "a turn that nobody is given": (PINGPONG, every(r"bar\.arrive")),
    "a turn given to oneself": (PINGPONG, swap(r"sub\.s32 \t(%r\d+), 4, (%r\d+);", r"add.s32 \t\1, 3, \2;")),
    "products added up before they are there": (PROMOTED, drop(r"wgmma\.wait_group\.sync\.aligned \t0")),
    "the products of the last k-tile but one added up": (
        PROMOTED,
        swap(r"wgmma\.wait_group\.sync\.aligned \t0;", "wgmma.wait_group.sync.aligned \t1;"),
    ),
    # tiles held in registers
    "a tile held before the last multiplications": (HELD, drop(r"wgmma\.wait_group\.sync\.aligned \t0")),
    "a stage released too early, beside the first slab": (HELD, drop(r"wgmma\.wait_group\.sync\.aligned \t1", 0)),
    "the same, beside the second": (HELD, drop(r"wgmma\.wait_group\.sync\.aligned \t1", 1)),
    "a held slab stored without a proxy fence": (HELD, drop(r"fence\.proxy\.async", 0)),
    "the last tile's slab stored without a proxy fence": (HELD, drop(r"fence\.proxy\.async", 2)),
    "a held slab stored before all threads have filled it": (HELD, drop(r"bar\.sync \t%r\d+, 128", 1)),
    "a held slab filled while TMA reads it": (HELD, every(r"cp\.async\.bulk\.wait_group\.read")),
    "the slab of the last tile not stored": (HELD, drop(r"cp\.async\.bulk\.tensor\.3d\.global", 2)),
    "held products added up before they are there": (HELD_PROMOTED, drop(r"wgmma\.wait_group\.sync\.aligned \t0", 0)),
    # shares that meet in a cluster
    "shares added up before they have arrived": (
        MEET,
        after(r"try_wait\.parity\.acquire\.cluster", lambda ptx: re.sub(r"@%p\d+ bra", "bra.uni", ptx, count=1)),
    ),
    "the last block's share not waited for": (
        MEET,
        swap(r"mov\.b32 (\t%r\d+), 256;(\s+mbarrier\.init)", r"mov.b32 \1, 128;\2"),
    ),
    "a share more waited for than comes": (
        MEET,
        swap(r"mov\.b32 (\t%r\d+), 256;(\s+mbarrier\.init)", r"mov.b32 \1, 384;\2"),
    ),
    "a share that is not announced": (
        MEET,
        swap(r"mbarrier\.arrive\.release\.cluster\.shared::cluster\.b64 _, \[%rd\d+\];", ""),
    ),
    "shares published without a release": (
        MEET,
        swap(r"mbarrier\.arrive\.release\.cluster", "mbarrier.arrive.relaxed.cluster"),
    ),
    "shares seen without an acquire": (
        MEET,
        swap(r"try_wait\.parity\.acquire\.cluster", "try_wait.parity.relaxed.cluster"),
    ),
    "no cluster barrier before the first share": (MEET, every(r"barrier\.cluster\.")),
    "all shares stored to one place": (MEET, swap(r"shl\.b32 (\t%r\d+), %r\d+, 14;", r"mov.b32 \1, 16384;")),
    "the first share not added": (
        MEET,
        after(
            r"try_wait\.parity\.acquire\.cluster",
            lambda ptx: re.sub(
                r"(ld\.shared\.v4[^\n]*%r\d+)\+(\d+)\]", lambda m: f"{m[1]}+{int(m[2]) + 16384}]", ptx, count=1
            ),
        ),
    ),
    # launches overlap
    "nobody waits for the launch before": (COOPERATIVE, every(r"griddepcontrol\.wait")),
    "the producer does not wait for the launch before": (COOPERATIVE, drop(r"griddepcontrol\.wait", 0)),
    "the same, split": (SPLIT, drop(r"griddepcontrol\.wait", 0)),
    "the launch before waited for after the first load": (PINGPONG, lambda ptx: late_wait(ptx)),
    # clusters of four
    "empty barriers of a cluster of two": (FOUR, empty_count(-8)),
    "the arrivals of one peer of four not waited for": (FOUR, empty_count(-4)),
    "the arrivals of a fifth peer": (FOUR, empty_count(+4)),
    "a multicast that leaves out the last peer": (FOUR, swap(r"mov\.b16 (\t%rs\d+), 15;", r"mov.b16 \1, 7;")),
    "a multicast that leaves out the first peer": (FOUR, swap(r"mov\.b16 (\t%rs\d+), 15;", r"mov.b16 \1, 14;")),
    "a multicast to two of four": (FOUR, swap(r"mov\.b16 (\t%rs\d+), 15;", r"mov.b16 \1, 3;")),
    "a stage released to two of four": (
        FOUR,
        swap(r"(mov\.u32 \t(%r\d+), %tid\.x;(?:.|\n)*?and\.b32 \t%r\d+, \2, )3;", r"\g<1>1;"),
    ),
    "a stage released to the first of four": (
        FOUR,
        swap(r"mapa\.shared::cluster\.u32 (\t%r\d+), (%r\d+), %r\d+;", r"mapa.shared::cluster.u32 \1, \2, 0;"),
    ),
    "the bytes of the own loads alone": (FOUR, swap(r"mov\.b32 (\t%r\d+), 12288;", r"mov.b32 \1, 9216;")),
    "no cluster barrier in a cluster of four": (FOUR, every(r"barrier\.cluster\.")),
    "the cluster barrier not waited for": (FOUR, drop(r"barrier\.cluster\.wait")),
    "barriers that the peers do not see initialised": (FOUR, every(r"fence\.mbarrier_init")),
    "a block of four leaves with multicasts to it in flight": (FOUR, lambda ptx: skip_tail(ptx)),
    # narrow tiles
    "rows past the end stored": (NARROW, bound(1)),
    "columns past the end stored": (NARROW, bound(0)),
    "one column past the end stored": (NARROW, lambda ptx: one_past(ptx)),
    "a slab read before it is filled": (NARROW, drop(r"bar\.sync \t%r\d+, 128", 2)),
    "empty barriers of one block of two": (NARROW, empty_count(-8)),
    "a narrow stage released before the tensor cores have read it": (
        NARROW,
        swap(r"wgmma\.wait_group\.sync\.aligned \t1;", "wgmma.wait_group.sync.aligned \t2;"),
    ),
    "half of a narrow tile multicast to the own block alone": (
        NARROW,
        swap(r"mov\.b16 (\t%rs\d+), 3;", r"mov.b16 \1, 1;"),
    ),
    # split-K
    "shares counted before both warpgroups' rows are written": (NARROW, drop(r"bar\.sync \t%r\d+, 128", 0)),
    "the notice of the narrow tile read before it is written": (NARROW, drop(r"bar\.sync \t%r\d+, 128", 1)),
    "shares counted without an acquire": (
        SPLIT,
        swap(r"atom\.global\.acq_rel\.gpu\.inc", "atom.global.release.gpu.inc"),
    ),
    "shares counted with an acquire alone": (
        SPLIT,
        swap(r"atom\.global\.acq_rel\.gpu\.inc", "atom.global.acquire.gpu.inc"),
    ),
    "the first to come adds the shares up": (SPLIT, lambda ptx: gathers_at(ptx, 0)),
    "the last but one adds the shares up": (SPLIT, lambda ptx: gathers_at(ptx, 1)),
    "all shares written to one place": (SPLIT, swap(r"mul\.wide\.s32 (\t%rd\d+), %r\d+, 16384;", r"mov.b64 \1, 0;")),
    "each share written to the place of the next": (
        SPLIT,
        swap(r"(mul\.wide\.s32 (\t%rd\d+), %r\d+, 16384;)", r"\1\n\tadd.s64 \2, \2, 16384;"),
    ),
    "the first share added twice": (SPLIT, after(r"atom\.global", swap(r"mov\.b32 (\t%r\d+), 1;", r"mov.b32 \1, 0;"))),
    "the second share left out": (SPLIT, after(r"atom\.global", swap(r"mov\.b32 (\t%r\d+), 1;", r"mov.b32 \1, 2;"))),
}


# what is there for another reason than correctness: name: (case, edit, why nothing can go wrong)
HARMLESS = {
    "the consumers do not wait for the launch before": (
        COOPERATIVE,
        drop(r"griddepcontrol\.wait", 1),
        "they touch global memory after a stage is full, which the producer's wait comes before",
    ),
    "the same, split-K": (
        SPLIT,
        drop(r"griddepcontrol\.wait", 1),
        "the same: shares are written after the last stage has been multiplied",
    ),
    "no sync_warp before a release": (
        FOUR,
        every(r"bar\.warp\.sync"),
        "wgmma.wait_group is passed by the whole warp, and no lane reads a stage itself",
    ),
}


def without_empty_barriers(ptx: str) -> str:
    first, second = re.finditer(r"mov\.b32 \t%r\d+, \d+;\n(\tmbarrier\.init[^\n]*\n)+", ptx)
    return ptx[: second.start()] + ptx[second.end() :]


def skip_tail(ptx: str) -> str:
    """Make the waits of ``producer_tail``, the last that the producer does, fall through: one a stage."""
    begin = ptx.index("setmaxnreg.dec")
    end = ptx.find("setmaxnreg.inc", begin)
    waits = list(re.finditer(r"bra\.uni\s+LAB_WAIT;", ptx[begin : end if end > 0 else len(ptx)]))
    for wait in reversed(waits[-2:]):
        ptx = ptx[: begin + wait.start()] + ptx[begin + wait.end() :]
    return ptx


def late_wait(ptx: str) -> str:
    """The producer's wait, moved behind its first tensor copy."""
    wait = re.search(r"\tgriddepcontrol\.wait;\n", ptx)
    copy = re.search(r"\tcp\.async\.bulk\.tensor[^\n]*\n", ptx)
    return ptx[: wait.start()] + ptx[wait.end() : copy.end()] + wait[0] + ptx[copy.end() :]


def one_past(ptx: str) -> str:
    """The columns' test of every plain store, with <= in place of <."""
    column = (
        rf"(setp)\.le(\.s32 \t%p\d+, %r\d+, %r\d+;(?={LINE}or\.pred[^\n]*{LINE}@%p\d+ bra[^\n]*{LINE}cvt\.s64\.s32))"
    )
    return re.sub(column, r"\1.lt\2", ptx)


def gathers_at(ptx: str, count: int) -> str:
    """Who finds ``count`` counted before itself adds the shares up."""
    return re.sub(
        rf"(ld\.shared\.b32 \t(%r\d+), \[[^\n]*{LINE}setp\.ne\.b32 \t%p\d+, \2, )%r\d+;", rf"\g<1>{count};", ptx
    )


@pytest.fixture(autouse=True)
def _emulator(on_emulator, monkeypatch):
    monkeypatch.setattr(compiler, "_kernels", {})
    yield
    workspace.forget(device.HOST, 0)  # a mutant may leave the counters anywhere


def plant(monkeypatch, edit) -> None:
    get, done = compiler.get, []

    def edited(*arguments, **options):
        kernel = get(*arguments, **options)
        if kernel in done:
            return kernel
        done.append(kernel)
        changed = edit(kernel.ptx)
        assert changed != kernel.ptx, "the fault was not planted: the kernel's PTX has changed its form"
        kernel.ptx = changed
        return kernel

    monkeypatch.setattr(compiler, "get", edited)


def run(case: Case, monkeypatch) -> bool:
    few_blocks(monkeypatch, case.blocks)
    m, n, k = case.shape
    a, b = operand(m, k, False, case.dtype), operand(k, n, True, case.dtype)
    with cs.emulate(schedules=6, seed=4):
        results = [cs.matmul(a, b, config=case.config) for _ in range(2 if case.config.splits > 1 else 1)]
    wanted = cs.reference.matmul(a, b, out_dtype=results[0].dtype)
    return all(np.array_equal(got, wanted) for got in results)


@pytest.mark.parametrize("name", CASES)
def test_the_kernels_as_they_are(name, monkeypatch):
    assert run(CASES[name], monkeypatch)


@pytest.mark.parametrize("fault", FAULTS)
def test_every_planted_fault_is_found(fault, monkeypatch):
    case, edit = FAULTS[fault]
    plant(monkeypatch, edit)
    try:
        agreed = run(case, monkeypatch)
    except EmulationError:
        return
    assert not agreed, "the mutant survived"


def test_c_overwritten_in_place_without_a_fence_of_global_memory(monkeypatch):
    plant(monkeypatch, swap(r"fence\.proxy\.async\.global;", ""))
    a, b, c = map(cs.asarray, (operand(128, 72, False), operand(72, 64, True), np.zeros((128, 64), np.float16)))
    with pytest.raises(EmulationError) as found:
        cs.matmul(a, b, c, beta=1.0, out=c, config=PINGPONG.config)
    assert found.value.kind == "proxy-read"


@pytest.mark.parametrize("change", HARMLESS)
def test_what_changes_nothing(change, monkeypatch):
    case, edit, _ = HARMLESS[change]
    plant(monkeypatch, edit)
    assert run(case, monkeypatch)
