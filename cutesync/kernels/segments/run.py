"""A chunk of a tile, of which each lane goes through a run of neighbouring positions. Device code; all 32 lanes call.

A lane reads its run from shared memory once a role, in vectors where the array allows it, and keeps it in registers. An
operator is called about twice a position, once to reduce and once to emit; lanes exchange states once a chunk. Results
take the place of elements in shared memory that are in registers, or have room of their own (``Target``):

    positions  a result at the place of each position of the chunk, stored to the result in whole vectors
    segments   the chunk's heads are *packed*: place k of the chunk has the keys of its segment k, and the state of the
               segment that ends where that begins. The first of these states lacks what comes before the chunk, which
               is added when that is known; all others are complete. A head never moves up, and the one at the last
               position stays, as the next chunk's warp reads it
"""

from __future__ import annotations

import math
from collections import namedtuple

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64

from ...monoid import choose
from ...warp import LANES, Maybe, combine_valid, prepend, scan_states, select, shift_up, zeros
from ..gather import WORDS
from ..hardware import VECTOR_BYTES
from ..select.chunk import cells, put, put_if
from ..select.where import below
from .base import Arguments
from .policy import PipelinePolicy
from .spec import SegmentsSpec
from .states import SegmentStates

UNROLL = 4  # results of a lane that are loaded together

# A lane's run: the addresses of its first position in the buffers of heads and inputs, the position among all, how many
# of its positions exist (0 or less: none), where the tile stops, and how many positions there are in all. ``bits`` says
# where segments begin, once that is known: bit i belongs to position i of the run, higher ones mean nothing.
Part = namedtuple("Part", "at position exists stop count bits")


class ChunkRuns:
    """Runs of ``policy.run`` positions."""

    def __init__(self, spec: SegmentsSpec, states: SegmentStates, policy: PipelinePolicy, buffers: tuple) -> None:
        self.spec, self.states, self.run, self.chunk = spec, states, policy.run, policy.chunk
        self.buffers, self.keys, self.reverse = buffers, len(spec.heads.sources), spec.reverse
        self.types = states.monoid.types

    # Positions

    def is_whole(self, part: Part, lane) -> Boolean:
        """Whether all positions of the chunk exist."""
        return part.position + ((LANES - lane) * self.run) <= part.stop

    def hold(self, part: Part, whole, first: int = 0) -> list:
        """The elements of a run in registers, of the buffers from number ``first`` on."""
        pairs = list(zip(self.buffers, part.at))[first:]
        return [load_run(b.dtype.cutlass, at, b.step, self.run, part.exists, whole) for b, at in pairs]

    def elements(self, held: list, i: int, first: int = 0, last: int | None = None) -> tuple:
        """The elements at position ``i`` of a run, of some of the arrays held."""
        place = in_memory(i, self.run, self.reverse)
        return tuple(registers[place] for registers in held[first:last])

    def index(self, part: Part, i):
        """The index in the arrays of position ``i`` of the run."""
        position = part.position + i
        return part.count - 1 - position if self.reverse else position

    def head(self, part: Part, i) -> Boolean:
        return (part.bits >> i) & 1 != 0

    # Where segments begin

    @cute.jit
    def heads(self, part: Part, held: cutlass.Constexpr, whole: cutlass.Constexpr):
        """The bits of a run. The first position of all begins a segment."""
        bits = part.bits | Int32(part.position == 0)
        if cutlass.const_expr(self.spec.heads.kind != "bits"):
            before = tuple(b.dtype.cutlass(0) for b in self.buffers[: self.keys])
            if part.exists > 0:
                before = tuple(
                    b.dtype.cutlass(cells(b.dtype.cutlass, at - b.step, 1)[0])
                    for b, at in zip(self.buffers[: self.keys], part.at)
                )
            for i in cutlass.range_constexpr(self.run):
                keys = self.elements(held, i, 0, self.keys)
                begins = Boolean(True)
                if cutlass.const_expr(whole):
                    begins = self.states.begins(before, keys)
                else:
                    begins = self.begins_if(part.exists > i, before, keys)
                bits = bits | (Int32(begins) << i)
                before = keys
        exist = Int32(self.run) if whole else cutlass.min(cutlass.max(part.exists, 0), self.run)
        return bits & Int32(below(exist))

    @cute.jit
    def begins_if(self, exists: Boolean, before: tuple, keys: tuple):
        found = Boolean(False)
        if exists:
            found = Boolean(self.states.begins(before, keys))
        return found

    # Reducing

    @cute.jit
    def reduce(self, part: Part, held: cutlass.Constexpr, whole, lane):
        """``(bits, before, total)``: where segments begin in the run, the state of the lanes before a lane (``Maybe``),
        and in the last lane that of all."""
        bits, inclusive = Int32(0), (*zeros(self.states.types), Int32(0))
        if whole:
            bits = self.heads(part, held, True)
            state = (self.count(bits), *self.reduce_run(part._replace(bits=bits), held))
            inclusive = (*scan_states(state, self.states.combine, lane), Int32(1))
        else:
            bits = self.heads(part, held, False)
            packed = self.reduce_rest(part._replace(bits=bits), held)
            merge = lambda a, b: combine_valid(a, b, self.states.combine)  # noqa: E731
            inclusive = scan_states((self.count(bits), *packed), merge, lane)
        before = Maybe.unpack(shift_up(inclusive))
        return bits, Maybe(before.state, before.valid & (lane > 0)), Maybe.unpack(inclusive)

    def count(self, bits):
        return self.states.types[0](cute.arch.popc(bits))

    def reduce_run(self, part: Part, held: list):
        """The values behind a whole run."""
        values = self.states.begin(self.head(part, 0), self.value(part, held, 0))
        for i in range(1, self.run):
            values = self.states.follow(values, self.head(part, i), self.value(part, held, i))
        return values

    def reduce_rest(self, part: Part, held: list):
        """The packed values behind the positions of a run that exist."""
        packed = (*zeros(self.types), Int32(0))
        for i in range(self.run):
            packed = self.extend(part.exists > i, packed, self.head(part, i), self.operands(part, held, i))
        return packed

    def operands(self, part: Part, held: list, i) -> tuple:
        """The elements at a position, and its index."""
        return (*self.elements(held, i, len(held) - len(self.spec.operation.sources)), self.index(part, i))

    def value(self, part: Part, held: list, i):
        """The value of the operation at position ``i`` of the run."""
        return self.lift(self.operands(part, held, i))

    def lift(self, operands: tuple):
        return self.states.lift(operands[:-1], operands[-1])

    @cute.jit
    def extend(self, exists: Boolean, packed: tuple, head: Boolean, operands: tuple):
        """Packed values followed by a position, if it exists."""
        if exists:
            value = self.states.begin(head, self.lift(operands))
            goes_on = (packed[-1] != 0) & cutlass.not_(head)
            packed = (*prepend(goes_on, packed[:-1], value, self.states.ordered), Int32(1))
        return packed

    # Packing segments

    @cute.jit
    def pack(self, part: Part, held: cutlass.Constexpr, before: Maybe, targets: cutlass.Constexpr, whole, lane):
        """Pack the chunk's heads in ``targets`` (of keys, then of values); ``before`` is the state of the lanes before
        a lane."""
        if cute.arch.vote_any_sync(part.bits != 0):
            if whole:
                self.pack_run(part, held, before, targets, True, lane)
            else:
                self.pack_run(part, held, before, targets, False, lane)

    def pack_run(self, part: Part, held: list, before: Maybe, targets: tuple, whole: bool, lane) -> None:
        rank = choose(before.valid, Int32(before.state[0]), Int32(0))
        places, last = [t.address + rank * t.step for t in targets], self.run - 1
        values, valid = before.state[1:], Int32(before.valid)
        for i in range(self.run):
            head, bit = self.head(part, i), part.bits & (1 << i)
            keys = self.elements(held, i, 0, len(targets) - len(values))
            for k, (target, number) in enumerate(zip(targets, (*keys, *values))):
                chosen = bit
                if i == last and k < len(keys):
                    stays = places[k] == target.address + (lane * self.run + i) * target.step
                    chosen = choose(stays, Int32(0), bit)
                put_if(chosen, WORDS[target.kind.width // 8], places[k], bits_of(number))
            places = [place + choose(head, Int32(t.step), Int32(0)) for t, place in zip(targets, places)]
            if whole and i > 0:
                values = self.states.follow(values, head, self.value(part, held, i))
            else:
                exists = Boolean(True) if whole else part.exists > i
                *values, valid = self.extend(exists, (*values, valid), head, self.operands(part, held, i))
                values = tuple(values)

    @cute.jit
    def store_segments(
        self, a: Arguments, before: Maybe, total: Maybe, opens: Boolean, targets: cutlass.Constexpr, lane
    ):
        """Store the keys of the segments that begin in the chunk, and the results of those before them. ``before`` is
        the state before the chunk, ``total`` its own; ``opens``: a segment begins at its first position."""
        begun, count, keys = before.state[0], choose(total.valid, Int32(total.state[0]), Int32(0)), len(a.keys)
        values = targets[keys:]
        if (lane == 0) & (count > 0):
            state = prepend(before.valid, before.state[1:], self.numbers(values, 0), self.states.ordered)
            self.put_numbers(values, select(opens, before.state[1:], state))
        first = Int64(begun)
        rooms = Int32(cutlass.min(cutlass.max(a.capacity - first, Int64(-1)), Int64(self.chunk)))
        nobody = Int32(first == 0)  # the first segment of all has none before it
        for k in cutlass.range(lane, cutlass.min(count, rooms + 1), LANES, unroll=UNROLL):
            if k < rooms:
                self.store_all(a.keys, first + k, self.numbers(targets[:keys], k))
            if k >= nobody:
                self.store_all(a.out, first + k - 1, self.states.monoid.results_of(self.numbers(values, k)))

    def numbers(self, targets: tuple, place) -> tuple:
        """The numbers at a place of targets."""
        return tuple(t.kind(cells(t.kind, t.address + place * t.step, 1)[0]) for t in targets)

    def put_numbers(self, targets: tuple, numbers, place=0) -> None:
        for target, number in zip(targets, numbers):
            put(target.kind, target.address + place * target.step, number)

    @cute.jit
    def report(self, a: Arguments, state, lane):
        """The warp that has the last position: store how many segments there are, and the result of the last one."""
        if lane == 0:
            count = Int64(state[0])
            cells(Int64, a.found.toint(), 1, cute.AddressSpace.gmem)[0] = count
            if (count > 0) & (count <= a.capacity):
                self.store_all(a.out, count - 1, self.states.monoid.results_of(state[1:]))

    # A result for each position

    @cute.jit
    def emit_positions(
        self,
        part: Part,
        a: Arguments,
        held: cutlass.Constexpr,
        values,
        targets: cutlass.Constexpr,
        whole,
        lane,
    ):
        """Store a result for each position of the chunk. ``held`` are the elements of the operation in the lane's run,
        ``values`` those before it."""
        if whole:
            self.show_run(part, held, values, targets, lane)
        else:
            for i in cutlass.range_constexpr(self.run):
                values = self.show_if(part.exists > i, part, i, values, self.operands(part, held, i), targets, lane)
        cute.arch.sync_warp()
        first = part.position - lane * self.run  # of the chunk
        lowest = part.count - first - self.chunk if self.reverse else first
        for k in cutlass.range_constexpr(len(targets)):
            self.store_positions(a.out[k], targets[k], lowest, whole, part.stop - first, lane)

    def show_run(self, part: Part, held: list, values, targets: tuple, lane) -> None:
        """Put the results of a whole run in shared memory."""
        shown = [cute.make_rmem_tensor(run_layout(self.run, t.kind.width // 8), t.kind) for t in targets]
        for i in range(self.run):
            values, results = self.show(self.head(part, i), values, self.value(part, held, i))
            for registers, result in zip(shown, results):
                registers[in_memory(i, self.run, self.reverse)] = result
        for registers, target in zip(shown, targets):
            store_run(registers, target.kind, target.address + lane * self.run * target.step, target.step, self.run)

    def show(self, head: Boolean, values, value):
        """The values behind a position, and its results."""
        following = self.states.follow(values, head, value)
        shown = following
        if self.spec.exclusive:
            shown = select(head, self.states.start, values)
        return following, self.states.monoid.results_of(shown)

    @cute.jit
    def show_if(self, exists: Boolean, part: Part, i, values: tuple, operands: tuple, targets: cutlass.Constexpr, lane):
        """The values behind position ``i`` of the run; if it exists, its results are put in shared memory."""
        if exists:
            values, results = self.show(self.head(part, i), values, self.lift(operands))
            self.put_numbers(targets, results, lane * self.run + i)
        return values

    @cute.jit
    def store_positions(self, out, target: cutlass.Constexpr, lowest, whole, stop, lane):
        """Store the results of a chunk to ``out``, from index ``lowest`` on; the first ``stop`` exist."""
        size = target.kind.width // 8
        source = target.address + (self.chunk - 1) * target.step if self.reverse else target.address
        sink = (out + lowest).toint()
        if whole & self.lies_even(source, sink):
            for v in cutlass.range(lane, self.chunk * size // VECTOR_BYTES, LANES, unroll=UNROLL):
                held = cells(Int32, source + v * VECTOR_BYTES, 4, align=VECTOR_BYTES)
                there = cells(Int32, sink + v * VECTOR_BYTES, 4, cute.AddressSpace.gmem, VECTOR_BYTES)
                cute.autovec_copy(held, there)
        else:
            begin = Int32(cutlass.max(self.chunk - stop, Int64(0))) if self.reverse else Int32(0)
            end = Int32(self.chunk) if self.reverse else Int32(cutlass.min(stop, Int64(self.chunk)))
            for place in cutlass.range(begin + lane, end, LANES, unroll=UNROLL):
                self.store(out, lowest + place, target.kind(cells(target.kind, source + place * size, 1)[0]))

    def lies_even(self, source, sink) -> Boolean:
        """Whether a chunk's results can be stored in vectors."""
        if self.spec.stepped:
            return Boolean(False)
        return (source % VECTOR_BYTES == 0) & (sink % VECTOR_BYTES == 0)

    def store(self, out, index, value) -> None:
        cute.make_tensor(out + index, cute.make_layout((1,)))[0] = value

    def store_all(self, outs, index, values) -> None:
        for out, value in zip(outs, values):
            self.store(out, index, value)


def bits_of(number):
    """The bits of a number in an integer register."""
    return number.bitcast(WORDS[number.width // 8]) if type(number).is_float else number


def in_memory(i: int, run: int, reverse: bool) -> int:
    """Where position ``i`` of a run lies in memory, counted from its lowest one."""
    return run - 1 - i if reverse else i


def run_layout(run: int, size: int):
    """Of the registers of a run whose elements have ``size`` bytes: vectors, as long as they divide a run."""
    each = max(math.gcd(run * size, VECTOR_BYTES) // size, 1)
    return cute.make_layout((each, run // each))


@cute.jit
def load_run(kind: cutlass.Constexpr, address, step: cutlass.Constexpr, run: cutlass.Constexpr, exists, whole):
    """The elements of a run, whose first position in scan order is at ``address``, in memory order. Those that do not
    exist are 0."""
    size = kind.width // 8
    held = cute.make_rmem_tensor(run_layout(run, size), kind)
    width = size * run_layout(run, size).shape[0]
    lowest = address + (run - 1) * step if step < 0 else address
    if whole & (lowest % width == 0):
        for v in cutlass.range_constexpr(run * size // width):
            cute.autovec_copy(cells(kind, lowest + v * width, width // size, align=width), held[(None, v)])
    else:
        for i in cutlass.range_constexpr(run):
            held[in_memory(i, run, step < 0)] = kind(0)
            if exists > i:
                held[in_memory(i, run, step < 0)] = cells(kind, address + i * step, 1)[0]
    return held


@cute.jit
def store_run(
    held: cutlass.Constexpr, kind: cutlass.Constexpr, address, step: cutlass.Constexpr, run: cutlass.Constexpr
):
    """The counterpart of ``load_run``."""
    size = kind.width // 8
    width = size * run_layout(run, size).shape[0]
    lowest = address + (run - 1) * step if step < 0 else address
    if lowest % width == 0:
        for v in cutlass.range_constexpr(run * size // width):
            cute.autovec_copy(held[(None, v)], cells(kind, lowest + v * width, width // size, align=width))
    else:
        for i in cutlass.range_constexpr(run):
            put(kind, lowest + i * size, held[i])
