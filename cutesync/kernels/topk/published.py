"""What blocks that share a row tell each other: bounds while they work, candidates when they are done. Device code."""

from __future__ import annotations

from collections import namedtuple

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32, Int64

from ...monoid import choose
from ...warp import LANES
from .pool import HEARD, NOTE, Limit, Pools, loose, slack, within, word

MAX_UNROLL = 8  # candidates that a lane loads at once
MAX_POLLS = 8  # of what others have told, after the first chunks
COUNTER_WORDS = 2  # of a row, of 32 bits: candidates, arrivals; then two words of 64 bits for each block

# A row's place in the workspace: block ``split`` of ``splits`` works on row ``number``, and ``wanted`` elements
# are wanted of it.
Shared = namedtuple("Shared", "scratch counters number split splits wanted")


def store(address, value) -> None:
    """Store one number."""
    cute.make_tensor(address, cute.make_layout((1,)))[0] = value


class Published:
    """Exchanges of blocks with ``pools``, which have room for ``each`` candidates of a lane beside those that are kept.
    A candidate takes a word of 64 bits, or two if its key or index has 64."""

    def __init__(self, pools: Pools, each: int) -> None:
        self.unroll = min(MAX_UNROLL, each)
        self.pools, self.key, self.index = pools, pools.key, pools.index
        self.wide = max(self.key.width, self.index.width) == 64
        self.elements = LANES * self.unroll

    def counters(self, shared: Shared):
        """The counters of the row: the address of the first."""
        return shared.counters + Int64(shared.number) * (COUNTER_WORDS + 4 * shared.splits)

    def bounds(self, shared: Shared):
        """The bounds of the row's blocks: the address of the first."""
        address = (self.counters(shared) + COUNTER_WORDS).toint()
        return cute.make_ptr(Int64, address, cute.AddressSpace.gmem, assumed_align=8)

    def entry(self, shared: Shared, at):
        """The address of a published candidate of the row."""
        words = 2 if self.wide else 1
        first = Int64(shared.number) * shared.splits * slack(shared.wanted)
        return shared.scratch + (first + at) * words

    @cute.jit
    def tell(self, pool, held, count, limit: Limit, shared: Shared, thread):
        """Tell the other blocks what this one has: ``count`` candidates, none of which comes after the limit. A block
        barrier."""
        if count >= shared.wanted:
            self.tell_word(self.bounds(shared) + 2 * shared.split, limit.key, thread)
        cute.arch.sync_threads()  # all have read how many; the words of the sums may be in use
        if count >= self.part(shared):
            self.tell_part(pool, held, count, limit.key, shared, thread)

    def part(self, shared: Shared):
        """This block's share of the elements that are wanted."""
        return (shared.wanted + shared.splits - 1) // shared.splits

    @cute.jit
    def tell_part(self, pool, held, count, low, shared: Shared, thread):
        """Tell the other blocks a key, not below ``low``, that this block's share of the wanted are not below, of
        ``count`` held keys."""
        key, _, _ = self.pools.bisect(pool, held, count, low, loose(self.part(shared)), thread)
        self.tell_word(self.bounds(shared) + (2 * shared.split + 1), key, thread)

    @cute.jit
    def hear(self, pool, limit: Limit, shared: Shared, thread):
        """The limit raised by what the other blocks have told. After a block barrier."""
        bounds = self.bounds(shared)
        most, least = Int32(Int32.min), Int32(Int32.max)
        for other in cutlass.range(thread, shared.splits, self.pools.threads, unroll=1):
            most = cutlass.max(most, self.told(bounds + 2 * other))
            least = cutlass.min(least, self.told(bounds + (2 * other + 1)))
        return self.raised(limit, self.of_block(pool, most, least, thread))

    @cute.jit
    def listen(self, pool, shared: Shared, lane):
        """Put what the other blocks have told into the pool's word for it. One warp calls."""
        bounds = self.bounds(shared)
        most, least = Int32(Int32.min), Int32(Int32.max)
        for other in cutlass.range(lane, shared.splits, LANES, unroll=4):
            most = cutlass.max(most, self.told(bounds + 2 * other))
            least = cutlass.min(least, self.told(bounds + (2 * other + 1)))
        most = Int32(cute.arch.warp_redux_sync(most, "max"))
        least = Int32(cute.arch.warp_redux_sync(least, "min"))
        found = cutlass.max(most, least)
        if lane == 0:
            cute.arch.store(word(pool, HEARD), found, sem="relaxed", scope="cta")
        return found

    @cute.jit
    def await_others(self, pool, shared: Shared, thread):
        """What the other blocks have told; listen for some time until all have, which may not run yet. The limit. A
        block barrier."""
        if thread < LANES:
            heard, polls = Int32(Int32.min), Int32(0)
            while (heard == Int32.min) & (polls < MAX_POLLS):
                heard = self.listen(pool, shared, thread)
                polls += 1
            if thread == 0:
                pool.words[NOTE] = heard
        cute.arch.sync_threads()
        return self.raised(self.pools.none(), Int32(pool.words[NOTE]))

    def heard(self, pool, limit: Limit):
        """The limit raised by what is in that word: not the same in all warps."""
        return self.raised(limit, Int32(cute.arch.load(word(pool, HEARD), Int32, sem="relaxed", scope="cta")))

    def raised(self, limit: Limit, found):
        """The limit raised to the upper 32 bits of a key."""
        key = self.key(found) << (self.key.width - 32)
        above = key > limit.key
        last = self.index(int(self.index.max))
        return Limit(choose(above, key, limit.key), choose(above, last, limit.index))

    def of_block(self, pool, most, least, thread):
        """The bound that follows from the words that the block's threads have read."""
        most = Int32(cute.arch.warp_redux_sync(most, "max"))
        least = Int32(cute.arch.warp_redux_sync(least, "min"))
        # ~ turns the order around: both are maxima
        most = self.pools.greatest(pool, self.key(most), Int32(0), thread)
        least = self.pools.greatest(pool, self.key(least ^ -1), Int32(1), thread) ^ self.key(-1)
        found = cutlass.max(most, least)
        return found << 32 if self.key.width == 64 else found

    @cute.jit
    def tell_word(self, address, key, thread):
        if thread == 0:
            upper = Int64(key) >> (self.key.width - 32)
            told = (Int64(1) << 32) | (upper & 0xFFFFFFFF)
            cute.arch.store(address, told, sem="relaxed", scope="gpu")

    def told(self, address):
        """What a block has told; the lowest key if it has not."""
        found = Int64(cute.arch.load(address, Int64, sem="relaxed", scope="gpu"))
        return Int32(cutlass.select_(found != 0, Int32(found & 0xFFFFFFFF), Int32(Int32.min)))

    @cute.jit
    def publish(self, pool, limit: Limit, shared: Shared, thread):
        """``(last, number, limit)``: whether this block is the last of the row to publish its candidates, and if so how
        many there are of all blocks, and the limit that all have told. After a block barrier; the last block leaves the
        row's counters zero."""
        count = self.pools.held(pool)
        counters = self.counters(shared)
        if thread == 0:
            pool.words[NOTE] = Int32(cute.arch.atomic_add(counters, count, sem="relaxed", scope="gpu"))
        cute.arch.sync_threads()
        base = Int32(pool.words[NOTE])
        for i in cutlass.range(thread, count, self.pools.threads, unroll=1):
            self.store_entry(self.entry(shared, base + i), self.key(pool.keys[i]), self.index(pool.places[i]))
        cute.arch.sync_threads()
        if thread == 0:
            # release: the block's candidates, ordered before by sync_threads; acquire: those of all that came earlier
            pool.words[NOTE] = cute.arch.inline_ptx(
                "atom.global.acq_rel.gpu.inc.u32 {$w0}, [{$r0}], {$r1};",
                write_only_types=[Int32],
                read_only_args=[counters + 1, shared.splits - 1],
            )
        cute.arch.sync_threads()
        last, number = Int32(pool.words[NOTE]) == shared.splits - 1, Int32(0)
        if last:
            number = Int32(cute.arch.load(counters, Int32, sem="relaxed", scope="gpu"))
            limit = self.hear(pool, limit, shared, thread)
            for i in cutlass.range(thread, 2 * shared.splits, self.pools.threads, unroll=1):
                store(self.bounds(shared) + i, Int64(0))
            if thread == 0:  # all have read the number, some block barriers ago
                store(counters, Int32(0))
        return last, number, limit

    def store_entry(self, address, key, place) -> None:
        """Store a candidate."""
        store(address, Int64(key) if self.wide else (Int64(key) << 32) | Int64(place))
        if self.wide:
            store(address + 1, Int64(place))

    def entry_of(self, shared: Shared, at) -> tuple:
        """The key and the index of a published candidate."""
        entry = cute.make_tensor(self.entry(shared, at), cute.make_layout((2,)))
        if self.wide:
            return self.key(entry[0]), self.index(entry[1])
        return Int32(Int64(entry[0]) >> 32), Int32(Int64(entry[0]) & 0xFFFFFFFF)

    def append(self, pool, shared: Shared, at, count, limit: Limit, lane) -> Boolean:
        """Append candidates ``at``, ``at`` + 32, ... below ``count``; whether there was room."""
        chosen = Int32(0)
        found = [self.entry_of(shared, cutlass.min(at + u * LANES, count - 1)) for u in range(self.unroll)]
        for u, one in enumerate(found):
            chosen = chosen | (Int32((at + u * LANES < count) & within(limit, *one)) << u)
        return self.pools.append(pool, chosen, lambda u: self.entry_of(shared, at + u * LANES), lane)
