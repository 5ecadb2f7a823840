"""Scan of arrays of any strides: tiles of positions times columns in shared memory.

The tiles are those of ``column_tiles``, and so are the order of steps, the look-back and the progress. What differs is
who loads what: neighbouring threads copy what lies side by side in memory, be it columns or positions, in each input by
itself; a barrier later each thread reduces and scans ``height`` positions of one column. Results take the places of the
elements in shared memory, and are stored as they lie side by side in the output. So whole lines are read and written
although inputs and outputs disagree about the axis of neighbours.

Positions and columns are numbers; their places in memory follow from the extents and strides of the axes (``Layout``).
Slots in shared memory are padded so that neighbouring threads access different banks in each of these orders.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64, Uint8
from cutlass.experimental import primitives

from ...block.reduce import get, put, state_bytes
from ...monoid import choose
from ...sizes import power_of_two_below
from ...warp import LANES, Maybe, scan_states
from ..arrays import pointers_of
from ..coordinates import Axes
from .base import Arguments, Scan, ScanKernel
from .column_copies import WORD_BYTES, Member
from .column_groups import MAX_UNIT
from .column_tiles import UNROLL_BYTES, ColumnTileScan
from .strided_policy import THREADS, StridedPolicy, slot_sizes, strides_of_slots

BATCH = 8  # elements of a thread that are in registers on their way to or from shared memory

# As ``column_tiles.Part``. ``first`` is the tile's first position, ``base`` its first column.
Part = namedtuple("Part", "tile outer column inside left row count position first base")


class StridedScan(ColumnTileScan):
    """The kernel. Threads whose positions or columns do not exist load others in their place, and store nothing."""

    copies_for_others = True

    def __init__(self, scan: Scan, policy: StridedPolicy) -> None:
        self.prefetch, self.fixed = False, True
        self.width, self.lanes, self.groups, self.height = 1, policy.lanes, policy.groups, policy.height
        self.group, self.alone, self.ranks, self.wide = policy.group, policy.alone, policy.ranks, policy.wide
        self.tile, self.states, self.stages = policy.tile, THREADS, 1 if policy.alone else 2
        sources, results = scan.monoid.sources, scan.monoid.results
        self.turned, self.turn = policy.turned or (False,) * len(policy.along), policy.turn
        self.gaps = policy.lanes // policy.turn[1] if policy.turned else 0
        self.along, self.units, self.log = policy.along, policy.units, policy.height.bit_length() - 1
        self.beside = policy.beside or (1,) * len(policy.along)
        self.backward = policy.backward or (False,) * len(policy.along)
        self.slots_of = slot_sizes([d.size for d in sources], [d.size for d in results])
        self.steps_of = [strides_of_slots(policy.lanes, policy.height, size, self.gaps) for size in self.slots_of]
        self.stage_bytes = [-(-run * policy.groups // 16) * 16 for _, run in self.steps_of]
        most = power_of_two_below(UNROLL_BYTES // sum(self.slots_of))
        self.unroll = max(1, min(MAX_UNIT, policy.height, most))
        elements = sum(self.stages * size + 16 for size in self.stage_bytes)
        smem = elements + (1 if policy.alone else 2) * state_bytes(scan.monoid.types, self.states) + 16
        self.positions = 0 if policy.alone else self.tile
        ScanKernel.__init__(self, scan, THREADS, smem, policy.blocks_per_sm)

    def stage_buffers(self, allocator) -> tuple:
        return tuple(
            allocator.allocate_array(Uint8, self.stages * size, byte_alignment=16) for size in self.stage_bytes
        )

    def chains(self, a: Arguments):
        return self.across(a)

    def part(self, number, a: Arguments, me: Member) -> Any:
        chains = self.chains(a)
        tile = number // chains
        base = Int64(number - tile * chains) * self.lanes
        inside = base + me.lane < a.inner
        first, row = Int64(tile) * self.tile, me.group * self.height
        count = Int32(cutlass.min(a.length - first, Int64(self.tile)))
        left = choose(inside, count - row, Int32(0))
        return Part(tile, Int32(0), base + me.lane, inside, left, row, count, first + row, first, base)

    def start(self, a: Arguments, part: Any) -> Maybe:
        if self.scan.start != "rows":
            return self.carry_in(a, 0, 0)
        column = self.number(cutlass.min(part.column, a.inner - 1))
        place = a.init_at + self.axes(a)[1].offsets(column)[-1]
        return Maybe.of((self.scan.first_at(tuple(self.scan.monoid.first_state(a.init)), place),))

    # Places in memory

    def axes(self, a: Arguments) -> tuple[Axes, Axes]:
        """The scanned axes, and those of the columns."""
        arrays = len(self.along) + (self.scan.start == "rows")
        scanned = self.ranks[0] * (3 + arrays)
        return Axes(a.layout[:scanned], self.ranks[0], arrays), Axes(a.layout[scanned:], self.ranks[1], arrays)

    def number(self, n):
        """A position or a column as a number that is divided."""
        return Int64(n) if self.wide else Int32(n)

    # What a thread loads or stores as number ``j`` in array ``k`` is a unit: some neighbouring positions, or columns.
    # The first of them is at the position and the column of its *spot*: those of number 0, which depend on the thread,
    # and steps from there, which do not.

    def numbers(self, k: int) -> range:
        return range(self.height // self.units[k])

    def spot(self, k: int, me: Member):
        """``(position, column)`` in a tile of a thread's number 0."""
        unit, beside = self.units[k], self.beside[k]
        across = min(self.tile * beside // unit, THREADS) if self.along[k] else self.lanes // unit
        low, high = (me.thread & (across - 1)) * unit, me.thread >> (across.bit_length() - 1)
        if beside > 1:
            return low // beside, high * beside + low % beside
        if self.turned[k]:
            before, last = self.turn
            low = low // (before * last) * (before * last) + low % before * last + low // before % last
        return (low, high) if self.along[k] else (high, low)

    def step_to(self, k: int, j: int) -> tuple[int, int]:
        """``(positions, columns)`` from number 0 to number ``j``."""
        elements, beside = THREADS * self.units[k], self.beside[k]  # of all threads at once
        if not self.along[k]:
            return j * (elements // self.lanes), 0
        rows = elements // beside
        if self.tile >= rows:
            return j * rows % self.tile, j * rows // self.tile * beside
        return 0, j * (elements // self.tile)

    def batches(self, k: int) -> list:
        """The numbers, in batches."""
        numbers, count = self.numbers(k), max(1, BATCH // self.units[k])
        return [numbers[first : first + count] for first in range(0, len(numbers), count)]

    def offsets(self, k: int, a: Arguments, part: Any, me: Member, full: bool) -> Callable[[int], Any]:
        """Return where the unit of a number lies in array ``k``, in elements. Another unit is taken in place of one
        that does not exist. Where some array has positions side by side, offsets are computed when they are needed, but
        for loads of such: registers do not hold all of them."""
        scanned, columns = self.axes(a)
        position, column = self.spot(k, me)
        tall, broad = (self.units[k], 1) if self.along[k] else (1, self.units[k])
        last = tall - 1 if self.scan.reverse else 0  # the position of a unit that has its lowest address
        down_is_full, right_is_full = (full and more for more in self.several(k))

        def of_position(add: int):
            at = position + add if down_is_full else cutlass.min(position + add, part.count - tall)
            return scanned.offsets(self.number(self.scan.flip(part.first + (at + last), a.length)))[k]

        def of_column(add: int):
            at = part.base + (column + add)
            return columns.offsets(self.number(at if right_is_full else cutlass.min(at, a.inner - broad)))[k]

        rows: dict[int, Any] = {}
        across: dict[int, Any] = {}

        def of_number(j: int):
            down, right = self.step_to(k, j)
            if right not in across:
                if full and across and self.ranks[1] == 1:
                    across[right] = across[0] + right * columns.steps[k]
                else:
                    across[right] = of_column(right)
            if down not in rows:
                if full and rows and self.ranks[0] == 1:
                    step = scanned.steps[k]
                    rows[down] = rows[0] + down * (-step if self.scan.reverse else step)
                else:
                    rows[down] = of_position(down)
            return rows[down] + across[right]

        loaded = full and self.along[k] and k < len(self.scan.monoid.sources)
        if loaded or not any(self.along):
            found = [of_number(j) for j in self.numbers(k)]
            return lambda j: found[j]
        return of_number

    def slots_at(self, shared, k: int, stage, me: Member, array: int, dtype) -> list:
        """Where the units of a thread's numbers of an array lie in shared memory, in slots ``k``: their first elements,
        in scan order."""
        position, column = self.spot(array, me)
        row, run = self.steps_of[k]
        first = self.slot(shared, k, stage, position >> self.log, position & (self.height - 1), column)
        found = []
        for j in self.numbers(array):
            down, right = self.step_to(array, j)  # positions carry nothing from run to run: both are powers of two
            far = down // self.height * run + down % self.height * row + right * self.slots_of[k]
            found.append(self.pointer(first + far, dtype))
        return found

    def slot(self, shared, k: int, stage, group, inside, column):
        """The slot of a position of a row group, and a column."""
        row, run = self.steps_of[k]
        place = stage * self.stage_bytes[k] + group * run + inside * row + column * self.slots_of[k]
        if self.gaps:
            place += column // self.turn[1] * max(self.slots_of[k], WORD_BYTES)
        return shared.stages[k] + place

    def pointer(self, at, dtype):
        return cute.make_ptr(dtype.cutlass, at.toint(), cute.AddressSpace.smem, assumed_align=dtype.size)

    def held(self, shared, k: int, stage, u, me: Member):
        return self.pointer(self.slot(shared, k, stage, me.group, u, me.lane), self.scan.monoid.sources[k])

    # Loading and storing

    def several(self, k: int) -> tuple[bool, bool]:
        """Whether a thread has more than one position, and more than one column, in array ``k``."""
        down, right = zip(*(self.step_to(k, j) for j in self.numbers(k)))
        return any(down), any(right)

    def is_full(self, k: int, a: Arguments, part: Any):
        """Whether all positions of a tile exist if a thread has several in array ``k``, and so for columns."""
        down, right = self.several(k)
        full = part.count == self.tile if down else Boolean(True)
        return full & (part.base + self.lanes <= a.inner) if right else full

    @cute.jit
    def load(self, shared: cutlass.Constexpr, a: Arguments, me: Member, part: Any, stage):
        """Start the copies of a tile into a stage."""
        for k in cutlass.range_constexpr(len(self.scan.monoid.sources)):
            if self.is_full(k, a, part):
                self.load_array(shared, k, a, me, part, stage, True)
            else:
                self.load_array(shared, k, a, me, part, stage, False)
        cute.arch.cp_async_commit_group()

    def load_array(self, shared, k: int, a: Arguments, me: Member, part: Any, stage, full: bool) -> None:
        source, dtype = pointers_of(a.x)[k], self.scan.monoid.sources[k]
        offsets = self.offsets(k, a, part, me, full)
        slots = self.slots_at(shared, k, stage, me, k, dtype)
        unit = self.units[k]
        for batch in self.batches(k):
            if dtype.size >= WORD_BYTES:
                for j in batch:
                    primitives.cp_async_shared_global(slots[j], source + offsets(j), dtype.size, "ca")
            elif self.backward[k]:
                words = [self.turned_word(source + (offsets(j) - (unit - 1)), unit) for j in batch]
                for j, word in zip(batch, words):
                    put_element(self.word(slots[j]), word)
            elif unit > 1 and not self.along[k]:
                for j in batch:
                    target, at = self.word(slots[j]), self.word(source + offsets(j))
                    primitives.cp_async_shared_global(target, at, WORD_BYTES, "ca")
            else:
                values = [self.unit_at(source + offsets(j), unit) for j in batch]
                for j, elements in zip(batch, values):
                    for i, slot in enumerate(self.slots_of_unit(slots[j], k, unit)):
                        put_element(slot, elements[self.scan.flip(i, unit)])

    def slots_of_unit(self, first, k: int, unit: int) -> list:
        """Where the positions of a unit lie in shared memory, in scan order."""
        return [first + i * (self.steps_of[k][0] * 8 // first.value_type.width) for i in range(unit)]

    def word(self, pointer):
        return cute.make_ptr(Int32, pointer.toint(), pointer.memspace, assumed_align=WORD_BYTES)

    def a_word(self):
        """A register. The stride is stated: a mode of one element would get stride 0, which recasting spreads."""
        return cute.make_rmem_tensor(cute.make_layout((1,), stride=(1,)), Int32)

    def unit_at(self, pointer, unit: int):
        """The elements of a unit in memory."""
        if unit == 1:
            return element(pointer)
        words = self.a_word()
        words[0] = element(self.word(pointer))[0]
        return cute.recast_tensor(words, pointer.value_type)

    def turned_word(self, pointer, unit: int):
        """The elements of a word in memory, from the last one to the first."""
        elements, turned = self.unit_at(pointer, unit), self.a_word()
        backward = cute.recast_tensor(turned, pointer.value_type)
        for i in range(unit):
            backward[i] = elements[unit - 1 - i]
        return turned[0]

    @cute.jit
    def store(self, shared: cutlass.Constexpr, a: Arguments, me: Member, part: Any, stage):
        """Store the results of a tile."""
        for k in cutlass.range_constexpr(len(self.scan.monoid.results)):
            if self.is_full(len(self.scan.monoid.sources) + k, a, part):
                self.store_array(shared, k, a, me, part, stage, True)
            else:
                self.store_array(shared, k, a, me, part, stage, False)

    def store_array(self, shared, k: int, a: Arguments, me: Member, part: Any, stage, full: bool) -> None:
        out, array = pointers_of(a.out)[k], len(self.scan.monoid.sources) + k
        offsets = self.offsets(array, a, part, me, full)
        slots = self.slots_at(shared, k, stage, me, array, self.scan.monoid.results[k])
        position, column = self.spot(array, me)
        rows, columns = (full and more for more in self.several(array))
        for batch in self.batches(array):
            values = [self.unit_of_slots(slots[j], k, array) for j in batch]
            for j, value in zip(batch, values):
                down, right = self.step_to(array, j)
                exists = Boolean(True) if rows else position + down < part.count
                if not columns:
                    exists = exists & self.column_exists(a, part.base + (column + right))
                at = out + offsets(j)
                at = at if self.units[array] == 1 else self.word(at)
                self.store_one(exists, at, value)

    def unit_of_slots(self, slot, k: int, array: int):
        """A unit of results: an element, or a word."""
        unit = self.units[array]
        if unit == 1:
            return element(slot)[0]
        if not self.along[array]:
            return element(self.word(slot))[0]
        words = self.a_word()
        elements = cute.recast_tensor(words, slot.value_type)
        for i, place in enumerate(self.slots_of_unit(slot, k, unit)):
            elements[self.scan.flip(i, unit)] = element(place)[0]
        return words[0]

    def column_exists(self, a: Arguments, column):
        return column < a.inner

    @cute.jit
    def store_one(self, exists, at, value):
        if exists:
            put_element(at, value)

    # Scanning

    @cute.jit
    def reduce_tile(self, shared: cutlass.Constexpr, a: Arguments, me: Member, part: Any, stage):
        cute.arch.cp_async_wait_group(0)
        cute.arch.sync_threads()  # a thread reads what others copied
        return self.reduce_rows(shared, a, me, part, stage)

    @cute.jit
    def exchange(self, storage: cutlass.Constexpr, states, me: Member, count: Int32):
        """As in ``column_tiles``, by warps that scan the states of neighbouring threads of a column. Two barriers."""
        types, combine = self.scan.monoid.types, self.scan.combine
        put(storage, me.thread, states[0])
        cute.arch.sync_threads()
        column, group = me.thread // self.groups, me.thread % self.groups
        place = group * self.lanes + column
        own = get(storage, place, types)
        run = scan_states(own, combine, me.thread % LANES, min(self.groups, LANES), group < count)
        put(storage, place, run)
        cute.arch.sync_threads()
        before = self.up_to(storage, me, cutlass.max(me.group - 1, 0))
        return (before,), (self.up_to(storage, me, cutlass.max(count - 1, 0)),)

    @cute.jit
    def up_to(self, storage: cutlass.Constexpr, me: Member, group):
        """The states of a column's threads up to row group ``group``, from the scans of warps."""
        types = self.scan.monoid.types
        state = get(storage, cutlass.min(group, LANES - 1) * self.lanes + me.lane, types)
        if cutlass.const_expr(self.groups > LANES):
            for warp in cutlass.range(1, group // LANES + 1, 1, unroll=1):
                place = cutlass.min(group, warp * LANES + (LANES - 1)) * self.lanes + me.lane
                state = self.scan.combine(state, get(storage, place, types))
        return state

    @cute.jit
    def scan_rows(self, shared: cutlass.Constexpr, a: Arguments, me: Member, part: Any, stage, before: Maybe):
        """Scan a thread's positions in shared memory, then store the tile."""
        states = before.state
        for first in cutlass.range(0, self.height, self.unroll, unroll=1):
            rows = self.states_of(shared, a, me, part, stage, first)
            for u, row in enumerate(rows):
                following = (
                    self.append((first + u > 0) | before.valid, states, row) if u == 0 else self.combine(states, row)
                )
                self.put_results(shared, me, stage, first + u, states if self.scan.exclusive else following)
                states = following
        cute.arch.sync_threads()
        self.store(shared, a, me, part, stage)

    def put_results(self, shared, me: Member, stage, u, states) -> None:
        """Put the results of a thread's position ``u`` in the places of its elements."""
        for k, (result, dtype) in enumerate(zip(self.scan.monoid.results_of(states[0]), self.scan.monoid.results)):
            element(self.pointer(self.slot(shared, k, stage, me.group, u, me.lane), dtype))[0] = result


def element(pointer):
    return cute.make_tensor(pointer, cute.make_layout((1,)))


def put_element(pointer, value) -> None:
    element(pointer)[0] = value
