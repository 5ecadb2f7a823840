"""Elements that are repeated as often as an array of lengths says, in one pass: resident blocks, each a pipeline of
warps with one job.

    load        takes tile numbers from an atomic and copies tiles of lengths and elements into a ring of ``stages``
    place       adds up the lengths of groups of runs, and finds where runs begin in the tile (``decode_place``). One
                squad measures a tile while another one waits for the sums of its groups
    publish     adds up the groups of a tile, and publishes how many results it has
    look ahead  adds up the published tiles of all blocks: where the results of each of this block's tiles begin, and
                which warp stores which band of them (found by each warp, 1100 of 4000 instructions of a dense tile)
    store       a warp each stores bands of the tile's results (``decode_store``; ``decode_fill``: of one or two bytes)

    barrier          completed by                                      waited for by
    full[stage]      load: 1 arrival and the tile's bytes              all others
    counted[stage]   one lane of each place warp of a squad            publish
    summed[stage]    publish                                           place, look ahead
    ready[stage]     the same, and one lane of look ahead              store, load
    empty[stage]     one lane of each store warp                       load

A tile of more than ``limit`` results is not stored at once but listed (``decode_ahead``). When there are no more tiles,
a stage ``TURN`` without one tells how many parts the listed ones have. Each block has as many neighbouring parts then:
a tile that has some of them is loaded again, and only their results are stored. So no block has much more to store than
others, however long runs are, and a tile takes one stage of each of them: a stage for each 64 KiB of a giant run of
2**28 int8 took 80 us, this takes 73 (H200).

A tile is published before its block waits for other tiles: the progress is that of ``scan.pipeline``. An entry of the
list needs the tiles before it, which are published then.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint32

from ...errors import ArgumentValueError, explain
from ...monoid import choose
from ...sync.gather import Entry, enter
from ...sync.named_barrier import NamedBarrier
from ...sync.overlap import let_next_start
from ...sync.ring import Cursor
from ...sync.roles import Role, Roles
from ...sync.tiles import DONE
from ...sync.wait import in_role
from ...warp import LANES
from ..coordinates import store
from ..gather import Stepped
from ..hardware import LINE_BYTES, VECTOR_BYTES
from ..plain import PlainKernel
from ..select.fill import fill_result
from ..select.window import TileBuffer, as_copy
from ..tiled import positions
from .decode_ahead import AHEAD, Before, Board, Cut, add_tiles, exist, find_long, publish, read_long
from .decode_fill import FillStorer
from .decode_place import BEGIN_BYTES, FAR, HAS_EMPTY, HAS_LONG, Placer, of_group, sum_groups
from .decode_policy import GROUP, DecodePolicy, scratch_bytes
from .decode_shared import TURN, WHOLE, Arguments, Control, Meeting, Shared
from .decode_spec import Decoding
from .decode_store import Band, Runs, Storer, lead, load_words

MOST_AT_ONCE = FAR // 2  # results of a tile that are stored at once


class Decode(PlainKernel):
    """The kernel, with the sizes of a policy."""

    name = "decode"

    def __init__(self, decoding: Decoding, policy: DecodePolicy) -> None:
        assert decoding.lengths is not None
        if policy.stages % policy.squads:
            # else a warp could wait for a parity that the phase two before has, too
            came = f"{policy.stages} stages"
            raise ArgumentValueError(explain("policy", came, f"multiples of {policy.squads}"))
        self.decoding, self.policy, self.stages, self.tile = decoding, policy, policy.stages, policy.tile
        self.roles = Roles(
            Role("control", len(Control)),
            Role("place", policy.squads * policy.place_warps),
            Role("store", policy.store_warps),
        )
        self.sizes = decoding.dtype.size, decoding.lengths.size
        smem = policy.bytes(*self.sizes)
        self.scratch = scratch_bytes(decoding.dtype.size)
        super().__init__(self.roles.threads, smem)
        # where runs begin takes the place of their lengths
        room = self.tile * max(1, BEGIN_BYTES // decoding.lengths.size) + GROUP * BEGIN_BYTES // decoding.lengths.size
        values = self.tile + (GROUP if decoding.dtype.size < 4 else 0)
        self.buffers = TileBuffer(decoding.lengths, room), TileBuffer(decoding.dtype, values)
        self.placer, self.storer = Placer(decoding.dtype, decoding.lengths), storer(decoding.dtype.size, policy)

    def arguments(self, arrays: tuple, numbers: tuple, slots: cute.Pointer, counters: cute.Pointer) -> Arguments:
        """The parameters of a launch, of the kernel that is traced."""
        values, lengths, n, out, count = arrays
        fill, runs, size, step, limit, unit, places = numbers
        runs = positions(runs, n) if self.decoding.counted else runs
        cut = Cut(limit, unit, size)
        return Arguments(values, lengths, Stepped(out, step), count, fill, runs, cut, slots, places, counters)

    @cute.jit
    def body(self, a: Arguments):
        shared = Shared.make(self)
        cute.arch.sync_threads()
        self.roles.run(
            control=lambda warp: self.control(shared, a, warp),
            place=lambda warp: self.place(shared, a, warp),
            store=lambda warp: self.store(shared, a, warp),
        )

    @cute.jit
    def control(self, shared: cutlass.Constexpr, a: Arguments, warp):
        lane = cute.arch.lane_idx()
        if warp == Control.LOAD:
            in_role("load", self.load, shared, a, lane)
        elif warp == Control.PUBLISH:
            in_role("publish", self.publish, shared, a, lane)
        else:
            in_role("look ahead", self.look_ahead, shared, a, lane)

    def tiles(self, a: Arguments):
        return Int32((a.runs + (self.tile - 1)) // self.tile)

    def existing(self, a: Arguments, number):
        """How many runs of a tile exist."""
        rest = cutlass.min(a.runs - Int64(number) * self.tile, Int64(self.tile))
        return choose(number >= 0, Int32(cutlass.max(rest, Int64(0))), Int32(0))

    def board(self, a: Arguments, shared) -> Board:
        """Where tiles are published. The loader has stored the launch's tag."""
        return Board(a.slots, a.places, shared.tag[0])

    @cute.jit
    def load(self, shared: cutlass.Constexpr, a: Arguments, lane):
        ring, tiles, tag = shared.tiles.ring, self.tiles(a), shared.tag
        at, entry = Cursor(Int32(0), Int32(1)), self.draw(a, lane)
        if lane == 0:
            tag[0] = entry.tag
        while entry.arrived < tiles:
            self.bring(shared, a, at, entry.arrived, WHOLE, lane)
            at = ring.next(at)
            ring.acquire_alone(at)
            entry = self.draw(a, lane)
        if lane == 0:
            self.hand_over(shared, at, Int32(TURN), (WHOLE[0] - tiles, WHOLE[1]), [])  # how many there are
        shared.ready.await_phase(at.stage, at.parity ^ 1)
        at = self.load_parts(shared, a, at, lane)
        let_next_start()
        for _ in cutlass.range_constexpr(self.policy.squads):
            at = ring.next(at)
            ring.acquire_alone(at)
            if lane == 0:
                self.hand_over(shared, at, Int32(DONE), WHOLE, [])
        if lane == 0:
            blocks, _, _ = cute.arch.grid_dim()
            entry.close(a.counters, Int32(0), tiles + blocks)

    @cute.jit
    def load_parts(self, shared: cutlass.Constexpr, a: Arguments, at, lane):
        """Load the tiles of the block's parts of long ones; ``at`` is the last stage that was filled, which knows what
        comes before the end. Return the same behind them."""
        before, board = Before(*(x[at.stage] for x in shared.before)), self.board(a, shared)
        begins, most = shared.before.results, Int64(MOST_AT_ONCE) // a.cut.unit
        (block, _, _), (blocks, _, _) = cute.arch.block_idx(), cute.arch.grid_dim()
        part, end = (Int32(Int64(before.parts) * k // blocks) for k in (block, block + 1))
        place, tile, begin, first, stop = Int32(0), Int32(0), Int64(0), Int32(0), part
        if part < end:
            place = find_long(board, part, before.long, lane)
        while part < end:
            while part == stop:
                tile, begin, first, stop = read_long(board, place, before)
                place += 1
            at, offset = shared.tiles.ring.next(at), Int64(part - first) * a.cut.unit
            count = cutlass.min(cutlass.min(stop, end) - part, Int32(most))
            shared.tiles.ring.acquire_alone(at)
            if lane == 0:
                begins[at.stage] = begin + offset
            self.bring(shared, a, at, tile, (offset, count * a.cut.unit), lane)
            part += count
        return at

    @cute.jit
    def draw(self, a: Arguments, lane):
        """The next ticket, in all lanes."""
        word, number = Int64(0), Int32(0)
        if lane == 0:
            entry = enter(a.counters)
            word, number = entry.word, entry.arrived
        return Entry(word, Int32(cute.arch.shuffle_sync(number, 0)))

    @cute.jit
    def bring(self, shared: cutlass.Constexpr, a: Arguments, at, number, part: tuple, lane):
        """Copy tile ``number`` into a stage. ``part``: the first of its results that is stored, and how many are at
        most; or ``WHOLE``."""
        copies = [
            as_copy(self.tile_of(buffer, at.stage).fill(0, array, number, a.runs, lane))
            for buffer, array in zip(shared.buffers, (a.lengths, a.values))
        ]
        cute.arch.sync_warp()  # what the lanes have copied comes before the arrival
        if lane == 0:
            self.hand_over(shared, at, number, part, copies)

    def tile_of(self, buffer: TileBuffer, stage) -> TileBuffer:
        """The buffer of a stage's tile, which may have more room than the tile."""
        return replace(buffer, tile=self.tile, start=buffer.start + stage * buffer.stage_bytes)

    def hand_over(self, shared, at, number, part: tuple, copies) -> None:
        """One lane: a stage's tile, and the copies that bring it."""
        shared.parts[at.stage], shared.stops[at.stage] = Int64(part[0]), Int32(part[1])
        shared.tiles.announce(at, number)
        shared.tiles.ring.load_alone(at, copies)

    def address(self, shared, a: Arguments, stage, k: int):
        """The address of a tile's first length, or element."""
        return shared.buffers[k].first(stage, (a.lengths, a.values)[k])

    @cute.jit
    def place(self, shared: cutlass.Constexpr, a: Arguments, warp):
        """A warp of a squad: its groups of each tile of the squad."""
        lane, squads, each = cute.arch.lane_idx(), self.policy.squads, self.policy.place_warps
        squad, warp = warp // each, warp % each
        at = shared.tiles.first(squad)
        while at.number != DONE:
            runs = self.existing(a, at.number)
            begins = self.measure(shared, a, at.stage, runs, warp, lane)
            shared.counted[at.stage].arrive_once()
            shared.summed.await_phase(at.stage, at.parity)
            self.put_runs(shared, a, at.stage, begins, runs, (squad, warp), lane)
            shared.ready[at.stage].arrive_once()
            at = shared.tiles.next(at, squads)

    def groups(self, warp) -> tuple:
        """The numbers of a place warp's groups."""
        warps = self.policy.place_warps
        return tuple(warp + k * warps for k in range(self.policy.groups // warps))

    @cute.jit
    def measure(self, shared: cutlass.Constexpr, a: Arguments, stage, runs, warp, lane):
        """A warp: its groups of a tile of so many runs. Where the lane's runs begin in them, as ``Placer.measure``."""
        groups, first = self.groups(warp), stage * self.policy.groups
        found, lives = shared.results, shared.runs
        results, live, begins = self.placer.measure(self.address(shared, a, stage, 0), groups, runs, lane)
        if lane == 0:
            for group, count, some in zip(groups, results, live):
                found[first + group], lives[first + group] = count, some
        return begins

    @cute.jit
    def put_runs(self, shared: cutlass.Constexpr, a: Arguments, stage, begins: tuple, runs, worker: tuple, lane):
        """A squad's warp: where the runs of its groups begin, behind the first result of the part that is stored."""
        (squad, warp), first = worker, stage * self.policy.groups
        groups, part = self.groups(warp), cutlass.max(Int64(shared.parts[stage]), Int64(0))
        address, said = self.begins(shared, stage), shared.said[stage]
        if said == 0:
            starts = [Int32(shared.results[first + group]) - Int32(part) for group in groups]
            for k, start in enumerate(starts):
                self.placer.put_all(address, groups[k], start, of_group(begins, k), lane)
        else:
            addresses = address, self.address(shared, a, stage, 1)
            lengths = self.placer.lengths(self.address(shared, a, stage, 0), groups, runs, lane)
            values = [self.placer.packed(addresses[1], group, runs, lane) for group in groups]
            for k, meeting in zip(range(self.policy.squads), Meeting):
                if squad == k:
                    NamedBarrier(meeting, self.policy.place_warps * LANES).sync()
            for k in cutlass.range_constexpr(len(groups)):
                start, rank = Int64(shared.results[first + groups[k]]) - part, shared.runs[first + groups[k]]
                own = of_group(lengths, k), values[k], start, rank, lane
                if said >= HAS_LONG:
                    self.placer.put_live(Int64, addresses, *own)
                else:
                    self.placer.put_live(Int32, addresses, *own)
        if warp == 0:
            self.placer.put_end((address, self.address(shared, a, stage, 1)), shared.lives[stage], lane)

    def begins(self, shared, stage) -> Any:
        """The address of where a tile's runs begin."""
        return shared.buffers[0].start.toint() + stage * shared.buffers[0].stage_bytes

    @cute.jit
    def publish(self, shared: cutlass.Constexpr, a: Arguments, lane):
        groups, starts, ranks = self.policy.groups, shared.results, shared.runs
        counts, lives, said, stops = shared.counts, shared.lives, shared.said, shared.stops
        at = shared.tiles.first()
        while at.number != DONE:
            shared.counted.await_phase(at.stage, at.parity)
            results, runs = Int64(0), Int32(0)
            if lane < groups:
                results, runs = starts[at.stage * groups + lane], ranks[at.stage * groups + lane]
            through, live, word = sum_groups(results, runs, self.tile, lane)
            if lane < groups:
                starts[at.stage * groups + lane] = through - results
                ranks[at.stage * groups + lane] = live - (runs & (HAS_EMPTY - 1))
            part = Int64(shared.parts[at.stage])
            if lane == LANES - 1:
                counts[at.stage], lives[at.stage], said[at.stage] = through, live, word
                stops[at.stage] = a.cut.stored(through, part, stops[at.stage])
            tile = (at.number != TURN) & (part < 0)
            shared.summed[at.stage].arrive_once()  # the stage may be another tile's from here on
            if tile & (lane == LANES - 1):
                publish(self.board(a, shared), at.number, through, a.cut.limit)
            at = shared.tiles.next(at)

    @cute.jit
    def look_ahead(self, shared: cutlass.Constexpr, a: Arguments, lane):
        """What comes before each tile, and at last before the parts of long tiles; which warps store which bands."""
        before, known, turn = Before(Int64(0), Int32(0), Int32(0)), Int32(0), Int32(0)
        results, long, parts = shared.before
        at = shared.tiles.first()
        while at.number != DONE:
            begin = before.results
            if shared.parts[at.stage] < 0:
                stop, board = at.number, self.board(a, shared)
                if stop == TURN:
                    stop = Int32(WHOLE[0] - shared.parts[at.stage])
                while known < stop:
                    before = add_tiles(board, before, known, stop, a.cut, lane)
                    known = cutlass.min(known + AHEAD * LANES, stop)
                begin = before.results
                if lane == 0:
                    results[at.stage], long[at.stage], parts[at.stage] = before
            else:
                begin = Int64(results[at.stage])  # of a part
            shared.summed.await_phase(at.stage, at.parity)
            if lane == 0:
                self.list_long(shared, a, at, begin)
            turn = self.share_out(shared, a, at.stage, begin, turn, lane)
            shared.ready[at.stage].arrive_once()
            at = shared.tiles.next(at)
        if (cute.arch.block_idx()[0] == 0) & (lane == 0):
            store(a.count, cutlass.max(before.results, Int64(0)))

    @cute.jit
    def list_long(self, shared: cutlass.Constexpr, a: Arguments, at, begin):
        """One lane: list the tile if it is long."""
        if (shared.parts[at.stage] < 0) & (shared.counts[at.stage] > a.cut.limit):
            place, board = shared.before.long[at.stage], self.board(a, shared)
            board.firsts.publish(place, (shared.before.parts[at.stage],))
            board.entries.publish(place, (at.number, begin))

    @cute.jit
    def share_out(self, shared: cutlass.Constexpr, a: Arguments, stage, begin, turn, lane):
        """One warp: how many bands a tile has, or a part of it, whose results begin at index ``begin``. Warp ``turn``
        stores the first of them; return which one comes after the last."""
        each, held = self.policy.windows * self.storer.window, shared.bands
        count = Int32(exist(Int64(shared.stops[stage]), begin, a.cut.size))
        ahead, vectors = lead(a.out, begin, self.decoding.dtype.size)
        bands = choose(count > 0, Uint32(count + ahead + (each - 1)) // each, Uint32(0))
        if lane == 0:
            words = turn, Int32(bands), count, ahead + choose(vectors, Int32(LINE_BYTES), Int32(0))
            for k, word in enumerate(words):
                held[4 * stage + k] = word
        return Int32((Uint32(turn) + bands) % self.policy.store_warps)

    @cute.jit
    def store(self, shared: cutlass.Constexpr, a: Arguments, warp):
        """A warp: its bands of each tile."""
        lane, warps, total = cute.arch.lane_idx(), self.policy.store_warps, Int64(0)
        at = shared.tiles.first()
        while at.number != DONE:
            shared.ready.await_phase(at.stage, at.parity)
            if at.number == TURN:
                total = Int64(shared.before.results[at.stage])
            self.store_tile(shared, a, at.stage, warp, lane)
            shared.tiles.ring.release(at)
            at = shared.tiles.next(at)
        blocks, _, _ = cute.arch.grid_dim()
        worker = cute.arch.block_idx()[0] * warps + warp
        first = cutlass.max(total, Int64(0)) + worker * LANES + lane
        fill_result(a.out, a.fill, first, a.cut.size, Int64(blocks * warps) * LANES)

    @cute.jit
    def store_tile(self, shared: cutlass.Constexpr, a: Arguments, stage, warp, lane):
        """Store a warp's bands of a tile, or of a part of it."""
        warps, each, held = self.policy.store_warps, self.policy.windows * self.storer.window, shared.bands.iterator
        turn, bands, count, skew = load_words(held.toint() + stage * VECTOR_BYTES)
        first = warp - turn
        if first < 0:
            first += warps
        if first < bands:
            begin, ahead = Int64(shared.before.results[stage]), skew & (LINE_BYTES - 1)
            runs = Runs(self.begins(shared, stage), self.address(shared, a, stage, 1), shared.lives[stage])
            flags = Int32(shared.flags.toint()) + warp * self.scratch
            for band in cutlass.range(first, bands, warps, unroll=1):
                low = band * each - ahead
                at = Band(low, cutlass.min(low + each, count), begin, flags, skew >= LINE_BYTES)
                self.storer.store(a.out, runs, at, lane)


def storer(size: int, policy: DecodePolicy) -> Any:
    """What stores results of ``size`` bytes."""
    return FillStorer(size, policy.windows, policy.dense) if size < 4 else Storer(size)
