"""Which tiles scan arrays that are not C-contiguous, and the layout as the kernel's parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...runtime.kernel import Scalar
from ...runtime.layout import Axis
from ...sizes import ceil_div, power_of_two, power_of_two_below
from ..axes import NUMBER_BITS, numbers, parameters
from ..hardware import LINE_BYTES, SMS, WORD_BYTES
from ..policy import Policy
from .column_groups import GROUP_BYTES, MAX_TILE_GROUP, MIN_TILE_GROUP, group_slots
from .column_policy import MIN_FEW_LANES
from .column_runs import FAR, beside_of, box_of, neighbours, neighbours_across, run_of, whole_runs
from .layout import Layout
from .problem import Choice, Problem

THREADS = 256
TILE_BYTES = 1 << 15  # of a tile's slots, at most
MAX_HEIGHT, MIN_HEIGHT, NARROW_HEIGHT = 16, 4, 32  # positions of a thread; the last of elements of up to 2 bytes
NARROW_BYTES = 2
SMEM_BYTES = 216 << 10  # of an SM, for tiles
MAX_BLOCKS = 4  # per SM: 64 registers a thread
ENOUGH_TILES = SMS * 9 // 8  # tiles are made lower for so many
WIDE_STATE_WORDS, WIDEST_STATE_WORDS = 2, 8  # with larger states an SM holds fewer blocks
SECTOR_BYTES = 32  # of memory, read for nothing at the two ends of a run, half of them each
# Of a tile that depends on others (H200, float16 (64, 2048, 512) with strides (2**20, 1, 2048) along its last axis: at
# 1.5 98 us, at 1.1 115 us).
LOOK_BACK_COST = 1.5
# So many tiles of so many columns, of words at least, are half as broad and twice as long: fewer look back (H200,
# exclusive float32 (256, 32768) transposed: 30.5 us, so 26.6 us; max float32 (175, 801395) transposed: 592 us, so
# 465 us; inclusive int64 (8192, 256) backwards along its columns: 22.1 us, so 16.8 us).
MANY_TILES, BROAD_LANES = 48, (64, 128)
# Small arrays of which positions are neighbours in the input and columns in the results: a chain of many tiles is their
# time. Few columns need fewer tiles, which are higher (H200, uint8 (131072, 2, 2) transposed: 4.6 us, so 4.1 us;
# exclusive uint16 (65020, 8): 5.4 and 4.0 us; but lambda int8 (3070, 124): 4.3 and 4.8 us); tiles of others have a
# quarter of the lanes, but at least so many (max int16 (2065, 84): 4.3 and 3.6 us; max bool (2998, 255): 6.3 and 5.4
# us; lambda int32 (5669, 40), half of them: 4.9 and 3.8 us).
MIN_CHAIN_BYTES, MAX_CHAIN_BYTES, MIN_CHAIN = 1 << 18, 1 << 20, 40
MAX_CHAIN_STEP = 2  # elements from a position to the next; others are not measured
FEW_COLUMNS, FEW_TILES, MIN_CHAIN_LANES = 32, SMS * 9 // 20, 8
LOOK_BACK_BYTES = 44  # per word of a state: one published, the others read
# Bytes that an SM moves to memory, or from it, in the clock in which it accesses a line: half of 4.8 TB/s over 132 SMs
# at 1.7 GHz. Not fitted.
LINE_COST = 11.0
# Bytes from which on runs of columns are counted across axes if they follow each other, too (H200, exclusive bfloat16
# (2048, 16384, 4) with strides (65536, -4, 1) along its first axis: 983 us, so 188 us; but max float64 (500, 22, 47, 4)
# with (4136, 188, 4, -1): 11.8 and 14.3 us).
MIN_ACROSS_BYTES = 1 << 25
WARP_LANES = 32
BLOCK, MIN_BLOCK = 16, 4  # columns along each of two axes: 16 elements of 4 bytes are half a line
# The same of axes that these do not divide; smaller ones where the last would be half empty. Not of bytes, of which
# they are no sector (H200, lambda uint8 (17, 13990, 59) transposed: 43.6 us, so 52.1 us).
PADDED_BLOCKS = (16, 8)


@dataclass(frozen=True)
class StridedPolicy(Policy, kernel=".strided:StridedScan"):
    """Tiles of ``lanes`` columns. A thread scans ``height`` positions of a column. ``group`` tiles are a group of the
    look-back; ``alone``: a tile has all positions.

    ``ranks`` are the number of scanned axes and that of axes of columns. ``along`` says for each input, then for each
    output, whether neighbouring threads access neighbouring positions, not columns, and ``units`` how many neighbours a
    thread accesses at once. ``wide``: positions or columns need 64 bits.

    Of an array that is accessed along positions, ``beside`` columns lie beside each other before the next position.

    Arrays that are ``turned`` have their neighbours along the columns' axis before the last. ``turn`` are the extents
    of the last two axes then, powers of two."""

    lanes: int
    height: int
    group: int
    blocks_per_sm: int
    alone: bool
    ranks: tuple[int, int]
    along: tuple[bool, ...]
    units: tuple[int, ...]
    wide: bool
    turned: tuple[bool, ...] = ()
    turn: tuple[int, int] = (1, 1)
    backward: tuple[bool, ...] = ()
    beside: tuple[int, ...] = ()

    @property
    def groups(self) -> int:
        """The threads that share a column."""
        return THREADS // self.lanes

    @property
    def tile(self) -> int:
        """The positions of a tile."""
        return self.groups * self.height


@dataclass(frozen=True)
class PaddedPolicy(StridedPolicy, kernel=".padded:PaddedScan"):
    """Columns in blocks that do not divide their axes (``Layout.padded``)."""


def strides_of_slots(lanes: int, height: int, size: int, gaps: int = 0) -> tuple[int, int]:
    """Return the bytes between positions, and between the positions of two threads of a column, in shared memory with
    slots of ``size`` bytes. Neighbouring positions, and neighbouring threads, lie in different banks. A position has
    ``gaps`` gaps of a word, or of a slot that is larger, between its columns."""
    word = max(size, 4)
    row = lanes * size + gaps * word
    if row > 8:
        row = (ceil_div(row, word) | 1) * word
    unit = max(row if gaps else lanes * size, word)
    run = height * row
    if unit < 128:
        run = (ceil_div(run, unit) | 1) * unit
    return row, run


def slot_sizes(sources: Sequence[int], results: Sequence[int]) -> list[int]:
    """Return the bytes of each slot of a position: a result takes the place of an element."""
    count = max(len(sources), len(results))
    padded = [[*sizes, *[1] * (count - len(sizes))] for sizes in (sources, results)]
    return [max(pair) for pair in zip(*padded)]


def strided(problem: Problem, layout: Layout) -> Choice:
    """Return the policy and the launch of a scan of strided arrays of at least one element."""
    sizes = (*problem.sources, *problem.results)
    sizes_of_slots = slot_sizes(problem.sources, problem.results)
    most = _height(problem, layout)
    layout = ordered(problem, layout)
    for beside in (tuple(beside_of(layout, k, size) for k, size in enumerate(sizes)), (1,) * len(sizes)):
        along = tuple(n > 1 or _runs_along(layout, k, size) for k, (n, size) in enumerate(zip(beside, sizes)))
        lanes, height = _shape(problem, layout, sizes, along, most)
        if max(beside) <= lanes:  # else a tile has fewer columns
            break
    tiles = ceil_div(layout.length, THREADS // lanes * height)
    chains = ceil_div(layout.count, lanes)
    alone = tiles == 1
    turned, turn = _turned(layout, along, lanes)
    gaps = lanes // turn[1] if turned else 0
    held = (
        sum(strides_of_slots(lanes, height, size, gaps)[1] for size in sizes_of_slots)
        * (THREADS // lanes)
        * (1 if alone else 2)
    )
    held += 2 * THREADS * 4 * problem.words + (2 << 10)
    blocks = min(MAX_BLOCKS, SMEM_BYTES // held)
    blocks -= (problem.words > WIDE_STATE_WORDS) + (problem.words > WIDEST_STATE_WORDS) + bool(layout.padded)
    blocks = max(1, blocks)
    tile_bytes = THREADS * height * problem.position_bytes
    group = min(MAX_TILE_GROUP, max(MIN_TILE_GROUP, power_of_two(GROUP_BYTES // (chains * tile_bytes))))
    if alone or chains * tiles <= SMS * blocks:
        group = MAX_TILE_GROUP
    ranks = max(1, len(layout.scanned)), max(1, len(layout.columns))
    wide = max(layout.length, layout.count) + TILE_BYTES >= 1 << NUMBER_BITS
    units = units_of(problem, layout, along, lanes, height)
    pairs = zip(units, along)
    backward = tuple(unit > 1 and not runs and layout.columns[-1].steps[k] < 0 for k, (unit, runs) in enumerate(pairs))
    if not any(backward):
        backward = ()
    kind = PaddedPolicy if layout.padded else StridedPolicy
    policy = kind(lanes, height, group, blocks, alone, ranks, along, units, wide, turned, turn, backward, beside)
    if alone:
        return Choice(policy, 1, chains, layout=described(policy, layout))
    slots = group_slots(tiles, group) * layout.count
    return Choice(policy, tiles, min(SMS * blocks, chains * tiles), slots, layout=described(policy, layout))


def _shape(
    problem: Problem, layout: Layout, sizes: Sequence[int], along: Sequence[bool], height: int
) -> tuple[int, int]:
    """Return the columns of a tile, and the positions of a thread: ``height``, or fewer where tiles are few."""
    lanes = _lanes(layout, sizes, along, height, problem.words)
    chain = len(sizes) == 2 and along[0] and not along[-1]
    chain &= all(abs(axis.steps[0]) <= MAX_CHAIN_STEP for axis in layout.scanned[-1:])
    chain &= MIN_CHAIN_BYTES <= layout.length * layout.count * sizes[0] <= MAX_CHAIN_BYTES
    enough_tiles = FEW_TILES if chain and layout.count <= FEW_COLUMNS else ENOUGH_TILES
    if layout.length > THREADS // lanes * height and _tiles(layout, lanes, height) < enough_tiles:
        whole = _lanes_of_whole_columns(layout, height)
        lanes = whole or lanes
        while whole and height > MIN_HEIGHT and layout.length <= THREADS // lanes * (height // 2):
            height //= 2
    # All positions in one tile: more tiles, and fewer positions of a thread (H200, lambda uint8 (14, 41, 143) along its
    # last axis: 6.1 us, so 2.1 us). Twice as many where results are stored along positions (int8 (692, 30, 40)
    # transposed: 4.0 us, so 2.9 us; uint16 (15482, 23, 3) of rows of 13: 8.1 and 6.5 us; but int8 (16, 256, 256) every
    # fourth element: 4.1 and 4.7 us; up to four an SM: int8 (157, 46, 6, 47) transposed: 9.2 and 10.2 us).
    if layout.length <= THREADS // lanes * height:
        enough = SMS * 2 if along[-1] else SMS - 1
        while (
            lanes > MIN_FEW_LANES
            and _tiles(layout, lanes, height) <= enough
            and layout.length > THREADS // lanes * MIN_HEIGHT
        ):
            lanes //= 2
        while height > MIN_HEIGHT and layout.length <= THREADS // lanes * (height // 2):
            height //= 2
    while (
        height > MIN_HEIGHT
        and _tiles(layout, lanes, height) < enough_tiles
        and layout.length > THREADS // lanes * height
    ):
        height //= 2
        lanes = _lanes(layout, sizes, along, height, problem.words)
    tiles = ceil_div(layout.length, THREADS // lanes * height)
    if chain and layout.count > FEW_COLUMNS and tiles >= MIN_CHAIN:
        return max(min(lanes, MIN_CHAIN_LANES), lanes // 4), height
    many = tiles >= MANY_TILES
    if many and lanes in BROAD_LANES and min(sizes) >= WORD_BYTES and not _turned(layout, along, lanes)[0]:
        lanes //= 2
    return lanes, height


def _height(problem: Problem, layout: Layout) -> int:
    """Return the positions of a thread in large arrays."""
    slots = sum(slot_sizes(problem.sources, problem.results))
    limit = NARROW_HEIGHT if slots <= NARROW_BYTES else MAX_HEIGHT
    return max(1, min(power_of_two_below(TILE_BYTES // THREADS // slots), limit, power_of_two(layout.length)))


def _turned(layout: Layout, along: Sequence[bool], lanes: int) -> tuple[tuple[bool, ...], tuple[int, int]]:
    """Return which arrays are turned, and the extents of the axes; nothing if tiles do not have whole blocks."""
    none: tuple[tuple[bool, ...], tuple[int, int]] = (), (1, 1)
    if len(layout.columns) < 2 or any(along):
        return none
    before, last = layout.columns[-2:]
    found = tuple(abs(a) == 1 != abs(b) for a, b in zip(before.steps[: len(along)], last.steps))
    if not any(found) or not _is_block(before, last, lanes):
        return none
    return found, (before.extent, last.extent)


def units_of(problem: Problem, layout: Layout, along: Sequence[bool], lanes: int, height: int) -> tuple[int, ...]:
    """Return for each array how many neighbours make a word, if words hold whole neighbours everywhere and each thread
    has one at least; else 1."""
    sizes, addresses = (*problem.sources, *problem.results), (*problem.xs, *problem.outs)
    slots = slot_sizes(problem.sources, problem.results)
    slots = [*slots[: len(problem.sources)], *slots[: len(problem.results)]]
    found = []
    for k, (size, slot, address) in enumerate(zip(sizes, slots, addresses)):
        unit = max(1, WORD_BYTES // size)
        axes, others, most = layout.columns, layout.scanned, lanes
        if along[k]:
            axes, others, most = layout.scanned, layout.columns, height
        step = axes[-1].steps[k] if axes else 0
        if step == -1 and not along[k]:
            address += size  # the first unit ends there
        elif step != 1:
            unit = 1
        fits = bool(axes) and axes[-1].extent % unit == 0
        fits &= slot == size and min(most, height) >= unit and address % WORD_BYTES == 0 and not problem.counted
        fits &= not (any(axis.steps[k] % unit for axis in (*axes[:-1], *others)) or layout.padded)
        found.append(unit if fits else 1)
    return tuple(found)


def _lanes_of_whole_columns(layout: Layout, height: int) -> int:
    """Return the columns of a tile that has all positions, few enough for a tile an SM; 0 if tiles would be narrower
    than ``MIN_FEW_LANES``."""
    if layout.length * MIN_FEW_LANES > THREADS * height:
        return 0
    lanes = power_of_two_below(THREADS * height // layout.length)
    while lanes > MIN_FEW_LANES and ceil_div(layout.count, lanes) < SMS:
        lanes //= 2
    return lanes


def _tiles(layout: Layout, lanes: int, height: int) -> int:
    return ceil_div(layout.length, THREADS // lanes * height) * ceil_div(layout.count, lanes)


def _runs_along(layout: Layout, k: int, size: int) -> bool:
    """Return whether a warp touches fewer lines of array ``k`` if it accesses neighbouring positions than if it
    accesses neighbouring columns, of either axis of a block; or as few, if positions alone are neighbours in memory:
    threads then access several at once."""
    scanned, columns = layout.scanned, layout.columns
    orders = [columns]
    if len(columns) > 1 and _is_block(columns[-2], columns[-1], THREADS):
        orders.append((*columns[:-2], columns[-1], columns[-2]))
    along, across = _lines((scanned, columns), k, size), min(_lines((order, scanned), k, size) for order in orders)
    words = size < WORD_BYTES and bool(scanned) and scanned[-1].steps[k] == 1
    extents = [scanned[-1].extent if scanned else 0, *(axis.steps[k] for axis in (*columns, *scanned[:-1]))]
    near = words and not any(n * size % WORD_BYTES for n in extents)
    return along < across or (near and along == across)


def _is_block(before: Axis, last: Axis, lanes: int) -> bool:
    """Return whether tiles of ``lanes`` columns have whole blocks of these two axes."""
    block = before.extent * last.extent
    return not block & (block - 1) and lanes % block == 0 and min(before.extent, last.extent) >= MIN_BLOCK


def _lines(axes: Sequence[Sequence[Axis]], k: int, size: int) -> float:
    """Return the lines that a warp touches for an element of array ``k``, if threads are numbered along the first axes
    and then along the second."""
    first, second = axes
    box = box_of(first, WARP_LANES)
    box += box_of(second, max(1, WARP_LANES // math.prod(n for _, n in box)))
    step, run = run_of(box, k)
    return max(1 / run, min(step * size / LINE_BYTES, 1))


def orders(layout: Layout) -> list[Layout]:
    """Return layouts with the columns in the orders that may be best: as they are, where neighbours are those of the
    outputs; if the first input is contiguous along another axis, with this one innermost; with blocks of both, of
    which a tile has runs, or with the one before the other where extents give no blocks; and with blocks of which the
    last ones are not full."""
    columns = list(layout.columns)
    places = [i for i, axis in enumerate(columns) if abs(axis.steps[0]) == 1]
    if not places or places[0] == len(columns) - 1:
        return [layout]
    inputs, last = columns.pop(places[0]), columns.pop()
    found = [[*columns, last, inputs], [*columns, inputs, last]]
    low = [math.gcd(axis.extent, BLOCK) for axis in (inputs, last)]
    low = [axis.extent if n < MIN_BLOCK else n for n, axis in zip(low, (inputs, last))]
    if max(low) <= BLOCK:
        pairs = list(zip((inputs, last), low))
        outer = [Axis(axis.extent // n, tuple(n * step for step in axis.steps)) for axis, n in pairs]
        found[1] = [*columns, *outer, *(Axis(n, axis.steps) for axis, n in pairs)]
    kept = (tuple(axis for axis in each if axis.extent > 1) for each in found)
    padded = [_padded(layout, columns, inputs, last)] if max(low) > BLOCK else []
    return [layout, *(replace(layout, columns=each) for each in kept if each != layout.columns), *padded]


def _padded(layout: Layout, others: Sequence[Axis], *axes: Axis) -> Layout:
    """Return the layout with blocks along two axes that they need not divide."""

    def block(extent: int) -> int:
        return min(PADDED_BLOCKS, key=lambda n: ceil_div(extent, n) * (n + 2))

    low = [block(axis.extent) for axis in axes]
    outer = [Axis(ceil_div(axis.extent, n), tuple(n * step for step in axis.steps)) for axis, n in zip(axes, low)]
    inner = [Axis(n, axis.steps) for axis, n in zip(axes, low)]
    return replace(layout, columns=(*others, *outer, *inner), padded=tuple(axis.extent for axis in axes))


def ordered(problem: Problem, layout: Layout) -> Layout:
    """Return the layout with the columns in the best order: that whose tiles take least time to move the sectors that
    they touch and to access the lines of each request; or that of whole runs."""
    sizes, height = (*problem.sources, *problem.results), _height(problem, layout)
    runs = whole_runs(layout, sizes)
    if runs is not None:
        return runs

    def cost(order: Layout) -> float:
        along = tuple(_runs_along(order, k, size) for k, size in enumerate(sizes))
        lanes = _lanes(order, sizes, along, height, problem.words)
        turned, _ = _turned(order, along, lanes)
        *outer, before, last = order.columns
        total = 0.0
        for k, (size, runs_along) in enumerate(zip(sizes, along)):
            box = [*box_of(order.scanned, THREADS // lanes * height), *box_of(order.columns, lanes)]
            step, run = run_of(box, k)
            total += min(step * size, SECTOR_BYTES) + SECTOR_BYTES / run
            columns = (*outer, last, before) if turned and turned[k] else order.columns
            total += LINE_COST * _lines((order.scanned, columns) if runs_along else (columns, order.scanned), k, size)
        return total * order.count / layout.count

    found = [order for order in orders(layout) if min(sizes) > 1 or not order.padded]
    return min(found, key=cost) if len(found) > 1 else layout


def _lanes(layout: Layout, sizes: Sequence[int], along: Sequence[bool], height: int, words: int) -> int:
    """Return the columns of a tile: those that cost least, for elements that do not exist, for a look-back and for
    incomplete lines."""

    length, count = layout.length, layout.count
    # (H200, reverse int32 (8192, 1024, 4) with strides (14336, 14, 1) along its first axis: 475 us by neighbours along
    # one axis, so 146 us)
    large = length * count * sizes[0] >= MIN_ACROSS_BYTES
    near = neighbours_across if layout.interleaved(sizes[0], gaps=not large) else neighbours

    best, found = math.inf, 1
    for lanes in (1 << log for log in range(THREADS.bit_length())):
        tile = THREADS // lanes * height
        tiles, chains = ceil_div(length, tile), ceil_div(count, lanes)
        shared = LOOK_BACK_COST + LOOK_BACK_BYTES * words / (tile * sum(sizes))
        total = tiles * tile * chains * lanes / (length * count) * (shared if tiles > 1 else 1)
        for k, (size, runs_along) in enumerate(zip(sizes, along)):
            if total >= best:
                break
            step, run = near(layout.scanned[-1:], k, tile) if runs_along else near(layout.columns, k, lanes)
            if step < FAR:
                total *= 1 + SECTOR_BYTES / (run * size * min(step, SECTOR_BYTES // size))
        if total < best:
            best, found = total, lanes
    return found


def described(policy: StridedPolicy, layout: Layout) -> dict[Scalar, int]:
    """Return the kernel's parameters that describe a layout, and their values."""
    found: dict[Scalar, int] = {}
    arrays = len(layout.offsets)
    for name, rank, axes in zip(("scanned", "column"), policy.ranks, (layout.scanned, layout.columns)):
        of = rank, arrays, policy.wide
        found |= dict(zip(parameters(name, *of), numbers(axes, *of), strict=True))
    return found | {Scalar(f"padded{k}_extent", "Int32"): extent for k, extent in enumerate(layout.padded)}
