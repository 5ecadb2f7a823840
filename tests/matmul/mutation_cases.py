"""The products in which ``test_mutations`` plants faults, and where in a kernel's text they are planted."""

from typing import NamedTuple

from cutesync.kernels.matmul.policy import MatmulPolicy

from ..faults import Edit, every, first, last, op, plus


class Case(NamedTuple):
    """A configuration, (M, N, K), and how many blocks run at a time: several tiles a block and k-tiles a tile."""

    config: MatmulPolicy
    shape: tuple[int, int, int]
    blocks: int = 2
    dtype: str = "float16"
    out: str = ""


CASES = {
    "cooperative": Case(MatmulPolicy((128, 64), "cooperative", (2, 1), stages=2, swap_ab=False), (264, 72, 264)),
    "pingpong": Case(MatmulPolicy((64, 64), "pingpong", stages=2, swap_ab=False), (264, 72, 264)),
    # shares meet in global memory
    "split": Case(MatmulPolicy((64, 64), "pingpong", (1, 2), stages=2, splits=5, swap_ab=False), (70, 136, 584), 6),
    # shares meet in a cluster
    "shares that meet": Case(MatmulPolicy((64, 64), "pingpong", stages=2, splits=3, swap_ab=False), (100, 72, 264)),
    # B multicast by four blocks, a quarter each
    "cluster of four": Case(MatmulPolicy((64, 32), "pingpong", (4, 1), stages=2, swap_ab=False), (300, 24, 264), 4),
    # few rows: operands swapped; results of 32 bits, stored by elements
    "narrow": Case(
        MatmulPolicy((128, 16), "cooperative", (2, 1), stages=2, splits=5, swap_ab=True),
        (13, 132, 904),
        4,
        out="float32",
    ),
    # rows that begin anywhere, stored in lines by threads
    "lines": Case(MatmulPolicy((64, 64), "pingpong", stages=2, swap_ab=False), (100, 131, 136), 1),
    # every k-tile's products added to a second set
    "promoted": Case(
        MatmulPolicy((64, 64), "pingpong", stages=2, swap_ab=False), (200, 80, 528), dtype="float8_e4m3fn"
    ),
    # a finished tile waits in registers: two sub-tiles, stored beside the next one
    "held": Case(MatmulPolicy((256, 32), "cooperative", stages=2, swap_ab=False), (520, 40, 264), 1),
    "held, promoted": Case(
        MatmulPolicy((128, 64), "cooperative", stages=2, swap_ab=False), (200, 80, 528), 1, "float8_e4m3fn"
    ),
    # cluster split: partial sums in the stages; B multicast among the blocks of each slice
    "in stages": Case(MatmulPolicy((128, 64), "cooperative", stages=3, splits=8, swap_ab=False), (136, 72, 1096), 8),
    "split and multicast": Case(
        MatmulPolicy((64, 64), "pingpong", (2, 1), stages=2, splits=3, swap_ab=False), (100, 72, 584), 6
    ),
    # B multicast by four blocks in turn; a tile's columns shared by both warpgroups
    "in turns": Case(MatmulPolicy((64, 16), "pingpong", (4, 1), stages=5, swap_ab=False), (300, 24, 584), 4),
    # of these an odd multiple of 8 each: sub-tiles as wide, in a single buffer
    "shared columns": Case(MatmulPolicy((64, 176), "cooperative", stages=2, swap_ab=False), (130, 184, 264)),
    # K in three slices, one behind the other
    "slices": Case(MatmulPolicy((64, 64), "pingpong", stages=2, slices=3, swap_ab=False), (200, 72, 392), 1),
    # float32, split into parts in the kernel
    "parts": Case(MatmulPolicy((64, 64), "pingpong", stages=2, swap_ab=False), (100, 72, 136), 1, "float32"),
}
COOPERATIVE, PINGPONG, SPLIT, MEET, FOUR, NARROW, LINES, *OTHERS = CASES
PROMOTED, HELD, HELD_PROMOTED, IN_STAGES, SHARING, IN_TURNS, COLUMNS, SLICES, PARTS = OTHERS
PRODUCER, CONSUMERS = r"setmaxnreg\.dec", r"setmaxnreg\.inc"
OVERLAP = op(r"griddepcontrol\.wait")
READ_ALL = op(r"wgmma\.wait_group\.sync\.aligned \t0")
EPILOGUE = op(r"bar\.sync \t%r\d+, 128")
COUNTED, ARRIVED = r"atom\.global", r"try_wait\.parity\.acquire\.cluster"
LINE = r"\s+(?:\.loc[^\n]*\s+)*"  # between two instructions
STORES = rf"{LINE}cvt\.s64\.s32"  # the address of a plain store
# the waits of ``producer_tail``, behind the producer's last load, fall through
TAIL = rf"{PRODUCER}[\s\S]*tensor\.3d\.shared(?=[\s\S]*{CONSUMERS})"
NO_TAIL = every(r"bra\.uni\s+LAB_WAIT;", after=TAIL, before=CONSUMERS)


def bound(keep: int) -> Edit:
    """Of the two tests of the plain stores, row and column, ``keep`` alone (0 or 1)."""
    joined = rf"or\.pred (\t(%p\d+)), (%p\d+), (%p\d+);(?={LINE}@\2 bra[^\n]*{STORES})"
    return every(joined, rf"mov.pred \1, \{3 + keep};")


def empty_count(change: int) -> Edit:
    """The empty barriers, initialised last, expect other arrivals."""
    return last(r"mov\.b32 \t%r\d+, (?P<n>\d+);(?=\s+mbarrier\.init)", plus(change), before=r"fence\.mbarrier_init")


def gathers_at(count: int) -> Edit:
    """Who finds ``count`` counted before itself adds the shares up."""
    return every(rf"(ld\.shared\.b32 \t(%r\d+), \[[^\n]*{LINE}setp\.ne\.b32 \t%p\d+, \2, )%r\d+;", rf"\g<1>{count};")


# what is there for another reason than correctness: name: (case, edit, why nothing can go wrong)
HARMLESS = {
    "the consumers do not wait for the launch before": (
        COOPERATIVE,
        first(OVERLAP, after=CONSUMERS),
        "they touch global memory after a stage is full, which the producer's wait comes before",
    ),
    "the same, split-K": (
        SPLIT,
        first(OVERLAP, after=CONSUMERS),
        "the same: shares are written after the last stage has been multiplied",
    ),
    "no sync_warp before a release": (
        FOUR,
        every(op(r"bar\.warp\.sync")),
        "wgmma.wait_group is passed by the whole warp, and no lane reads a stage itself",
    ),
}
