"""Faults planted in the compiled matmul are found. Those of source document 002 are among them."""

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync.runtime import device

from ..faults import RESULT, Bench, Edit, each, every, first, last, only, op, plus
from .mutation_cases import (
    ARRIVED,
    CASES,
    COLUMNS,
    CONSUMERS,
    COOPERATIVE,
    COUNTED,
    EPILOGUE,
    FOUR,
    HARMLESS,
    HELD,
    HELD_PROMOTED,
    IN_STAGES,
    IN_TURNS,
    LINE,
    LINES,
    MEET,
    NARROW,
    NO_TAIL,
    OVERLAP,
    PINGPONG,
    PRODUCER,
    PROMOTED,
    READ_ALL,
    SHARING,
    SLICES,
    SPLIT,
    STORES,
    bound,
    empty_count,
    gathers_at,
)
from .support import few_blocks, operand

pytestmark = pytest.mark.slow


FAULTS: dict[str, tuple[str, Edit, set[str]]] = {
    "the empty barriers never initialised": (
        COOPERATIVE,
        last(r"mov\.b32 \t%r\d+, \d+;\n(\tmbarrier\.init[^\n]*\n)+", before=r"fence\.mbarrier_init"),
        {"barrier"},
    ),
    "the full barriers expect a warpgroup's arrivals": (
        COOPERATIVE,
        every(r"mov\.b32 (\t%r\d+), 1;(\s+mbarrier\.init)", r"mov.b32 \1, 128;\2"),
        {"deadlock"},
    ),
    "a stage released before the tensor cores have read it": (
        COOPERATIVE,
        every(r"wgmma\.wait_group\.sync\.aligned \t1;", "wgmma.wait_group.sync.aligned \t2;"),
        {"race"},
    ),
    "the same, pingpong": (
        PINGPONG,
        every(r"wgmma\.wait_group\.sync\.aligned \t1;", "wgmma.wait_group.sync.aligned \t2;"),
        {"race"},
    ),
    "accumulators stored before the last multiplications": (COOPERATIVE, only(READ_ALL), {"registers"}),
    "one arrival too many expected on an empty barrier": (COOPERATIVE, empty_count(+1), {"deadlock"}),
    "a whole warpgroup's arrivals not waited for": (COOPERATIVE, empty_count(-8), {"race"}),
    "the arrivals of one consumer warpgroup, doubled": (PINGPONG, empty_count(+4), {"deadlock"}),
    "fewer bytes expected than a stage has": (
        COOPERATIVE,
        every(r"mov\.b32 (\t%r\d+), 24576;", r"mov.b32 \1, 16384;"),
        {"uninitialised", "transaction"},
    ),
    "more bytes expected than a stage has": (
        COOPERATIVE,
        every(r"mov\.b32 (\t%r\d+), 24576;", r"mov.b32 \1, 24592;"),
        {"transaction"},
    ),
    "released on the own block's barrier alone": (
        COOPERATIVE,
        every(r"mapa\.shared::cluster\.u32 (\t%r\d+), (%r\d+), %r\d+;", r"mapa.shared::cluster.u32 \1, \2, 0;"),
        {"race"},
    ),
    "the slab stored without a proxy fence": (COOPERATIVE, every(op(r"fence\.proxy\.async")), {"proxy"}),
    "the slab stored before all threads have filled it": (COOPERATIVE, every(op(r"bar\.sync \t%r\d+, 128")), {"race"}),
    "a slab filled while TMA reads it": (
        PINGPONG,
        every(op(r"cp\.async\.bulk\.wait_group\.read")),
        {"race", "barrier"},
    ),
    "no cluster barrier after the barriers' initialisation": (
        COOPERATIVE,
        every(op(r"barrier\.cluster\.")),
        {"barrier"},
    ),
    "shares counted before they are written": (SPLIT, last(EPILOGUE, before=COUNTED), {"race"}),
    "shares counted without a release": (
        SPLIT,
        every(r"atom\.global\.acq_rel\.gpu\.inc", "atom.global.relaxed.gpu.inc"),
        {"race"},
    ),
    "shares counted for the block alone": (
        SPLIT,
        every(r"atom\.global\.acq_rel\.gpu\.inc", "atom.global.acq_rel.cta.inc"),
        {"race"},
    ),
    "the notice read before it is written": (SPLIT, first(EPILOGUE, after=COUNTED), {"race", "uninitialised"}),
    "a counter that does not wrap": (
        SPLIT,
        every(r"(atom\.global\.acq_rel\.gpu)\.inc(\.u32 [^,]*, [^,]*), %r\d+;", r"\1.add\2, 1;"),
        {RESULT},
    ),
    "the producer leaves with loads of its peer in flight": (COOPERATIVE, NO_TAIL, {"barrier"}),
    "multiplied out of turn": (PINGPONG, every(op(r"bar\.sync \t%r\d+, 256")), {"uninitialised", "barrier"}),
    "a turn that nobody is given": (PINGPONG, every(op(r"bar\.arrive")), {"deadlock"}),
    "a turn kept": (PINGPONG, every(r"sub\.s32 \t(%r\d+), 4, (%r\d+);", r"add.s32 \t\1, 3, \2;"), {"race", "barrier"}),
    "sums of a slice of K used before they are there": (SLICES, each(READ_ALL), {"registers", "race"}),
    "products added up before they are there": (PROMOTED, only(READ_ALL), {"registers"}),
    "the products of the last k-tile but one added up": (
        PROMOTED,
        every(r"wgmma\.wait_group\.sync\.aligned \t0;", "wgmma.wait_group.sync.aligned \t1;"),
        {"registers"},
    ),
    # tiles held in registers
    "a tile held before the last multiplications": (HELD, only(READ_ALL), {"registers"}),
    "a stage released too early, beside a slab": (
        HELD,
        each(op(r"wgmma\.wait_group\.sync\.aligned \t1")),
        {"race"},
    ),
    "a held slab stored without a proxy fence": (HELD, first(op(r"fence\.proxy\.async"), before=READ_ALL), {"proxy"}),
    "the last tile's slab without a proxy fence": (HELD, first(op(r"fence\.proxy\.async"), after=READ_ALL), {"proxy"}),
    "a held slab stored before all threads have filled it": (HELD, first(EPILOGUE, before=READ_ALL), {"race"}),
    "a held slab filled while TMA reads it": (
        HELD,
        every(op(r"cp\.async\.bulk\.wait_group\.read")),
        {"race", "barrier"},
    ),
    "the slab of the last tile not stored": (
        HELD,
        first(op(r"cp\.async\.bulk\.tensor\.3d\.global"), after=READ_ALL),
        {RESULT},
    ),
    "held products added up before they are there": (HELD_PROMOTED, each(READ_ALL), {"registers"}),
    # shares that meet in a cluster
    "shares added up before they have arrived": (
        MEET,
        first(r"@%p\d+ bra", "bra.uni", after=ARRIVED),
        {"uninitialised"},
    ),
    "the last block's share not waited for": (
        MEET,
        every(r"mov\.b32 (\t%r\d+), 8;(\s+mbarrier\.init)", r"mov.b32 \1, 4;\2"),
        {"barrier", "uninitialised"},
    ),
    "a share more waited for than comes": (
        MEET,
        every(r"mov\.b32 (\t%r\d+), 8;(\s+mbarrier\.init)", r"mov.b32 \1, 12;\2"),
        {"deadlock"},
    ),
    "a share that is not announced": (
        MEET,
        every(r"mbarrier\.arrive\.release\.cluster\.shared::cluster\.b64 _, \[%rd\d+\];", ""),
        {"deadlock"},
    ),
    "shares published without a release": (
        MEET,
        every(r"mbarrier\.arrive\.release\.cluster", "mbarrier.arrive.relaxed.cluster"),
        {"race"},
    ),
    "shares seen without an acquire": (
        MEET,
        every(r"try_wait\.parity\.acquire\.cluster", "try_wait.parity.relaxed.cluster"),
        {"race"},
    ),
    "no cluster barrier before the first share": (MEET, every(op(r"barrier\.cluster\.")), {"barrier"}),
    "all shares stored to one place": (
        MEET,
        every(r"shl\.b32 (\t%r\d+), %r\d+, 13;", r"mov.b32 \1, 8192;"),
        {"race", "uninitialised"},
    ),
    "the first share not added": (
        MEET,
        first(r"ld\.shared\.v4[^\n]*%r\d+\+(?P<n>\d+)\]", plus(8192), after=ARRIVED),
        {RESULT},
    ),
    "a sub-tile sent to the block of the next": (
        MEET,
        first(
            r"mapa\.shared::cluster\.u32 (\t%r\d+), (%r\d+), 0;",
            r"mapa.shared::cluster.u32 \1, \2, 1;",
            after=CONSUMERS,
        ),
        {"race", "uninitialised"},
    ),
    "partial sums stored in stages that a block still reads": (
        IN_STAGES,
        first(r"@%p\d+ bra", "bra.uni", after=ARRIVED),
        {"race"},
    ),
    "the stages of the last slice's block not waited for": (
        IN_STAGES,
        every(r"mov\.b32 (\t%r\d+), 64;(\s+mbarrier\.init)", r"mov.b32 \1, 56;\2"),
        {"race", "barrier"},
    ),
    "stages said to be read without a release": (
        IN_STAGES,
        first(r"mbarrier\.arrive\.release\.cluster", "mbarrier.arrive.relaxed.cluster", after=READ_ALL),
        {"race"},
    ),
    "a multicast to the blocks of the first slice": (
        SHARING,
        first(r"cvt\.u16\.u32 (\t%rs\d+), %r\d+;", r"mov.b16 \1, 3;", after=PRODUCER),
        {"race", "transaction"},
    ),
    "a stage released to the first slice": (
        SHARING,
        every(
            r"mapa(\.shared::cluster\.u32 \t%r\d+, %r\d+), %r\d+;(?=(?:[^\n]*\n){1,6}?\s*mbarrier\.arrive\.sh)",
            r"mapa\1, 0;",
        ),
        {"race", "barrier", "deadlock"},
    ),
    "partial sums sent to the first peer alone": (
        SHARING,
        every(
            r"mapa(\.shared::cluster\.u32 \t%r\d+, %r\d+), %r\d+;(?=\s+(?:\.loc[^\n]*\s+)*add)",
            r"mapa\1, 0;",
            after=CONSUMERS,
        ),
        {"race", "uninitialised", RESULT},
    ),
    # launches overlap
    "nobody waits for the launch before": (COOPERATIVE, every(op(r"griddepcontrol\.wait")), {"race"}),
    "the producer does not wait for the launch before": (COOPERATIVE, first(OVERLAP, after=PRODUCER), {"race"}),
    "the launch before waited for after the first load": (
        PINGPONG,
        first(r"^(\tgriddepcontrol\.wait;\n)([\s\S]*?\tcp\.async\.bulk\.tensor[^\n]*\n)", r"\2\1", after=PRODUCER),
        {"race"},
    ),
    # clusters of four
    "empty barriers of a cluster of two": (FOUR, empty_count(-8), {"race"}),
    "the arrivals of one peer of four not waited for": (FOUR, empty_count(-4), {"race"}),
    "the arrivals of a fifth peer": (FOUR, empty_count(+4), {"deadlock"}),
    "a multicast that leaves out the last peer": (
        FOUR,
        every(r"mov\.b16 (\t%rs\d+), 15;", r"mov.b16 \1, 7;"),
        {"transaction"},
    ),
    "a multicast to two of four": (FOUR, every(r"mov\.b16 (\t%rs\d+), 15;", r"mov.b16 \1, 3;"), {"transaction"}),
    "a stage released to two of four": (
        FOUR,
        every(r"(mov\.u32 \t(%r\d+), %tid\.x;(?:.|\n)*?and\.b32 \t%r\d+, \2, )3;", r"\g<1>1;"),
        {"race"},
    ),
    "the bytes of the own loads alone": (
        FOUR,
        every(r"mov\.b32 (\t%r\d+), 12288;", r"mov.b32 \1, 9216;"),
        {"transaction"},
    ),
    "a stage of B that every block loads": (
        IN_TURNS,
        every(
            rf"(sub\.s32 \t(%r\d+), %r\d+, %r\d+;{LINE}setp\.ne\.b32 \t%p\d+, )\2, %r\d+;", r"\1\2, \2;", after=PRODUCER
        ),
        {"race", "transaction"},
    ),
    "a turn that leaves out the last peer": (
        IN_TURNS,
        every(r"mov\.b16 (\t%rs\d+), 15;", r"mov.b16 \1, 7;"),
        {"transaction", "deadlock"},
    ),
    "the arrivals of one peer of those in turn not waited for": (IN_TURNS, empty_count(-4), {"race"}),
    "one of two warpgroups that share columns not waited for": (COLUMNS, empty_count(-4), {"race"}),
    "a single buffer filled early": (COLUMNS, every(op(r"cp\.async\.bulk\.wait_group\.read")), {"race"}),
    "no cluster barrier in a cluster of four": (FOUR, every(op(r"barrier\.cluster\.")), {"barrier"}),
    "the cluster barrier not waited for": (FOUR, only(op(r"barrier\.cluster\.wait")), {"barrier"}),
    "barriers that the peers do not see initialised": (FOUR, every(op(r"fence\.mbarrier_init")), {"barrier"}),
    "a block of four leaves with multicasts to it in flight": (FOUR, NO_TAIL, {"barrier"}),
    # narrow tiles
    "rows past the end stored": (NARROW, bound(1), {"out-of-bounds", "race"}),  # other rows, or none
    "one column past the end stored": (
        NARROW,
        every(
            rf"(setp)\.le(\.s32 \t%p\d+, %r\d+, %r\d+;(?={LINE}or\.pred[^\n]*{LINE}@%p\d+ bra[^\n]*{STORES}))",
            r"\1.lt\2",
        ),
        {"out-of-bounds"},
    ),
    "a slab read before it is filled": (LINES, first(EPILOGUE, after=r"stmatrix"), {"uninitialised", "race"}),
    "a line's last vector beyond its end": (
        LINES,
        every(r"and\.b32 \t(%r\d+), (%r\d+), -16;", r"add.s32 \t\1, \2, 15;\n\tand.b32 \t\1, \1, -16;"),
        {"out-of-bounds", "race", "misaligned"},
    ),
    "lines beyond the last row": (
        LINES,
        every(r"min\.s32 (\t%r\d+), %r\d+, 64;", r"mov.b32 \1, 64;"),
        {"out-of-bounds"},
    ),
    "empty barriers of one block of two": (NARROW, empty_count(-8), {"race"}),
    "a narrow stage released before the tensor cores have read it": (
        NARROW,
        every(r"wgmma\.wait_group\.sync\.aligned \t1;", "wgmma.wait_group.sync.aligned \t2;"),
        {"race"},
    ),
    "half of a narrow tile multicast to the own block alone": (
        NARROW,
        every(r"mov\.b16 (\t%rs\d+), 3;", r"mov.b16 \1, 1;"),
        {"transaction"},
    ),
    # split-K
    "shares counted before both warpgroups' rows are written": (NARROW, last(EPILOGUE, before=COUNTED), {"race"}),
    "the notice of the narrow tile read before it is written": (
        NARROW,
        first(EPILOGUE, after=COUNTED),
        {"uninitialised"},
    ),
    "shares counted without an acquire": (
        SPLIT,
        every(r"atom\.global\.acq_rel\.gpu\.inc", "atom.global.release.gpu.inc"),
        {"race"},
    ),
    "shares counted with an acquire alone": (
        SPLIT,
        every(r"atom\.global\.acq_rel\.gpu\.inc", "atom.global.acquire.gpu.inc"),
        {"race"},
    ),
    "the first to come adds the shares up": (SPLIT, gathers_at(0), {"race"}),
    "all shares written to one place": (
        SPLIT,
        every(r"mul\.wide\.s32 (\t%rd\d+), %r\d+, 16384;", r"mov.b64 \1, 0;"),
        {"race"},
    ),
    "the first share added twice": (
        SPLIT,
        every(r"mov\.b32 (\t%r\d+), 1;", r"mov.b32 \1, 0;", after=COUNTED),
        {RESULT},
    ),
}


@functools.cache
def bench(name: str) -> Bench:
    """The case as it is; with split-K, called twice on one workspace."""
    case = CASES[name]
    m, n, k = case.shape
    a, b = operand(m, k, False, case.dtype), operand(k, n, True, case.dtype)

    def right() -> bool:
        with pytest.MonkeyPatch.context() as patch, device.forced("emulator"), cs.emulate(schedules=6, seed=4):
            few_blocks(patch, case.blocks)
            more = {"out_dtype": case.out} if case.out else {}
            results = [cs.matmul(a, b, config=case.config, **more) for _ in range(2 if case.config.splits > 1 else 1)]
        wanted = cs.reference.matmul(a, b, out_dtype=results[0].dtype)
        return all(np.array_equal(got, wanted) for got in results)

    return Bench(right)


@pytest.mark.drawn(60)
@pytest.mark.parametrize("fault", FAULTS)
def test_every_planted_fault_is_found(fault):
    name, edit, kinds = FAULTS[fault]
    bench(name).check(edit, kinds)


@pytest.mark.parametrize("change", HARMLESS)
def test_what_changes_nothing(change):
    name, edit, _ = HARMLESS[change]
    bench(name).changes_nothing(edit)
