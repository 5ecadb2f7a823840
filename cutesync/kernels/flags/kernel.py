"""Flags and differences between neighbours of a whole array, in one pass.

A row is cut into runs, one a block (one a warp, where there are several rows). A thread of a run holds ``unroll``
vectors, which lie next to each other across the threads, so every line is read once; the element before (behind) a
vector is loaded on its own, out of a line that the vectors bring in. Flags are stored in vectors as well. No shared
memory, no barrier, no shuffle but for packed bits. The last ``length % 32`` elements of a row go one to a lane.

    row       | run 0             | run 1             | run 2       | tail |      whole = where the tail begins
    run       | v v v v ... v     | v v v v ... v     |                           step u: one vector of each thread
                step 0     step 1 ...

A small array takes as long as a launch, one round trip to memory and the fetching of instructions. Hence code that is
short and straight: no loop over runs, all loads before all stores, rare cases behind them.

Places count from the start of the row, or of the period (a tile, or a row of an array that is seen as one long row).
The flag at the start (end) of a row or period is forced, or compares with the predecessor (successor).
"""

from __future__ import annotations

from collections import namedtuple

import cutlass
from cutlass import Int32, Int64, Uint32, cute

from ...monoid import choose, tree
from ...sync.overlap import let_next_start
from ...warp import LANES
from ..coordinates import quotient
from . import words
from .compare import Compare
from .policy import HALF, FlagPolicy, team

# The same for all elements of a run: where its row begins in the input and in each output, the predecessor and the
# successor (``ends``), the row's length, the period, and where the run begins in the row and (``start``) in its period;
# how many elements of the array lie before the row, and behind it; the numbers that divide by the period, or None.
Run = namedtuple("Run", "x outs ends length period begin start before behind divisor", defaults=(0, 0, None))


class FlagKernel(Compare):
    """A compiled kernel. ``marking`` says what is computed (``spec.Marking``), the policy how."""

    def __init__(self, marking, policy: FlagPolicy) -> None:
        super().__init__(marking, policy.warps * LANES)
        self.several_rows, self.periodic = policy.several_rows, policy.periodic
        self.vector, self.piece, self.unroll = policy.vector, policy.piece, policy.unroll
        self.by_words, self.whole = words.fit(marking, not policy.whole, policy.vector), policy.whole
        self.team = team(policy.several_rows, policy.warps)
        self.step = self.team * policy.vector  # elements from a thread's policy.vector to its next one
        self.elements = self.step * policy.unroll
        self.joins = policy.joined
        self.group = LANES // policy.vector  # lanes whose bits make a word

    @cute.jit
    def main(self, arrays: tuple, numbers: tuple, values: tuple):
        let_next_start()
        (x, *others), (length, rows, period, runs, *found) = arrays, numbers
        # Joined vectors are found with the numbers that divide (H200, heads bool (3391, 400), off by one: with a
        # division 1.6 us, so 1.5 us; but heads uint16 (11, 73530), on boundaries: 1.5 and 1.7 us).
        divisor = tuple(found) if self.joins else None
        thread, block = cute.arch.thread_idx()[0], cute.arch.block_idx()[0]
        outs = tuple(others[: self.marking.outputs])
        ends = self.bind(values)
        if cutlass.const_expr(self.several_rows):
            work = Int64(block) * (self.threads // LANES) + thread // LANES
            row = work // runs
            if row < rows:
                outs = tuple(pointer + row * self.stride(length) for pointer in outs)
                begin = (work - row * runs) * self.elements
                far = row * length, (rows - 1 - row) * length
                run = Run(x + far[0], outs, ends, length, Int32(period), begin, Int32(0), *far, divisor)
                self.mark(run, thread % LANES)
        else:
            begin = Int64(block) * self.elements
            self.mark(Run(x, outs, ends, length, Int32(period), begin, Int32(0), 0, 0, divisor), thread)

    def stride(self, length):
        """Results a row has in memory."""
        return (length + 31) // 32 if self.marking.bits else length

    @cute.jit
    def mark(self, run: Run, member):
        """Mark a run; ``member`` is the thread's place in the team that shares it."""
        whole = run.length & -LANES  # where the elements begin that go one to a lane
        if cutlass.const_expr(self.periodic):
            run = run._replace(start=self.first_place(run))
        place = run.begin + member * self.vector
        if cutlass.const_expr(self.unroll == 1):
            self.mark_some(run, place, whole, False)
        elif run.begin + self.elements <= whole:
            self.mark_all(run, place)
        else:
            for u in cutlass.range(self.unroll, unroll=1):
                self.mark_some(run, place + Int64(u) * self.step, whole, False)
        # the last run; its last warp has the least to do
        if (run.begin + self.elements >= run.length) & (member >= self.team - LANES):
            self.mark_some(run, whole + member % LANES, run.length, True)

    def mark_all(self, run: Run, place):
        """All vectors of a thread, the first at ``place``, in a run of whole ones. All loads come first."""
        places = [place + u * self.step for u in range(self.unroll)]
        found = self.vectors(run, places)
        for number, target in enumerate(run.outs):
            if self.marking.bits:
                self.store_bits(target, place, [self.joined(self.packed(results[number])) for results in found])
            else:
                for at, results in zip(places, found):
                    self.store(target + at, results[number])

    @cute.jit
    def mark_some(self, run: Run, place, stop, single: cutlass.Constexpr):
        """The vector at ``place``, or (``single``) the element there, if it lies before ``stop``."""
        parts = [Int32(0) for _ in run.outs]
        if place < stop:
            found = self.lone(run, place) if single else self.vectors(run, [place])[0]
            if cutlass.const_expr(self.marking.bits):
                parts = [flags[0] if single else self.packed(flags) for flags in found]
            else:
                for target, values in zip(run.outs, found):
                    if cutlass.const_expr(single):
                        self.put(target, place, self.lowered(values[0]))
                    else:
                        self.store(target + place, values)
        if cutlass.const_expr(self.marking.bits):
            for target, part in zip(run.outs, parts):
                word = cute.arch.vote_ballot_sync(part != 0) if single else self.joined(part)
                if (place < stop) & (place % 32 == 0):
                    self.put(target, place // 32, Uint32(word))

    def lone(self, run: Run, place):
        """The results of one element, a list an output."""
        items = [self.beside(run, 0, place, True), self.get(run.x, place), self.beside(run, 1, place + 1, True)]
        return self.results(run, items, place, place == 0, place + 1 == run.length)

    def vectors(self, run: Run, places):
        """The results of the vectors at ``places``, each a list an output."""
        final = len(places) - 1
        if self.joins:
            vectors = self.joined_vectors(run, places)
        else:
            vectors = [self.load(run, place, k in (0, final)) for k, place in enumerate(places)]
        before = [self.beside(run, 0, place, k == 0) for k, place in enumerate(places)]
        behind = [self.beside(run, 1, place + self.vector, k == final) for k, place in enumerate(places)]
        found = []
        for k, place in enumerate(places):
            first = place == 0 if k == 0 else None
            last = place + self.vector == run.length if k == final else None
            if self.by_words and self.periodic:
                rest = self.rest(run, place)
                first, last = rest == 0, rest + self.vector == run.period
            if self.by_words:
                found.append(self.word_results(run, [before[k], *vectors[k], behind[k]], first, last))
            else:
                found.append(self.results(run, [before[k], *vectors[k], behind[k]], place, first, last))
        return found

    def word_results(self, run: Run, items, first, last):
        """As ``results``, of words of keys between two keys, as words of flags."""
        _, *keys, _ = items
        found = []
        for side, edge, mark, bit in ((0, first, words.heads, 1), (-1, last, words.tails, 1 << 24)):
            if self.looks[side]:
                given = edge is not None and self.given[side]
                end = choose(edge, run.ends[side], items[side]) if given else items[side]
                flags = mark(self.marking.op.name, keys, end)
                if edge is not None and not given:
                    flags[side] = flags[side] | choose(edge, Uint32(bit), Uint32(0))
                found.append(flags)
        return found

    def joined_vectors(self, run: Run, places) -> list:
        """The elements of the vectors at ``places``, which begin anywhere."""
        size = self.vector * self.marking.source.size // words.BYTES
        found = [cute.make_rmem_tensor((size,), Uint32) for _ in places]
        margin = words.MARGIN // self.marking.source.size
        inside = places[0] + run.before >= margin
        inside &= places[-1] + (self.vector + margin) <= run.length + run.behind
        self.fill(run.x, places, found, inside)
        if self.by_words:
            return [[words.keys(Uint32(each[i]), self.marking.source) for i in range(size)] for each in found]
        return [self.lifted(each, self.vector) for each in found]

    @cute.jit
    def fill(self, x, places: cutlass.Constexpr, found: cutlass.Constexpr, inside):
        """Load vectors: joined from words or vectors on boundaries that hold them, if these lie ``inside`` of the
        array."""
        if inside:
            joined = words.shifted if self.marking.source.size == HALF else words.shifted_vector
            for each, vector in zip(found, [joined(x + place, words.VECTOR // words.BYTES) for place in places]):
                for i, word in enumerate(vector):
                    each[i] = word
        else:
            for each, place in zip(found, places):
                vector = cute.recast_tensor(self.loaded(x + place, self.vector, self.piece), Uint32)
                for i in cutlass.range_constexpr(cute.size(each)):
                    each[i] = vector[i]

    def load(self, run: Run, place, outermost: bool):
        """The elements of a vector, or its words."""
        if self.by_words and self.piece < self.vector > words.KEYS:
            inside = (place + run.before >= words.MARGIN) & (
                place + (self.vector + words.MARGIN) <= run.length + run.behind
            )
            found = words.vector_anywhere(run.x + place, self.vector // words.KEYS, inside)
            return [words.keys(word, self.marking.source) for word in found]
        if self.by_words and self.piece < words.KEYS:
            inside = (place > 0) & (place + 2 * words.KEYS <= run.length) if outermost else True
            return [words.keys(words.load_anywhere(run.x + place, inside), self.marking.source)]
        vector = self.loaded(run.x + place, self.vector, self.piece)
        if self.by_words:
            keys = cute.recast_tensor(vector, Uint32)
            source = self.marking.source
            return [words.keys(Uint32(keys[i]), source) for i in range(self.vector // words.KEYS)]
        return self.lifted(vector, self.vector)

    def beside(self, run: Run, side: int, place, outermost: bool):
        """The element before ``place``, or on side 1 the one at ``place``, the end of a vector; any value if there is
        none, which can be only ``outermost``."""
        if not self.looks[side]:
            return None
        if outermost:
            return self.get_if(place < run.length if side else place > 0, run.x, place if side else place - 1)
        return self.get(run.x, place if side else place - 1)

    @cute.jit
    def get_if(self, condition, x, place):
        value = self.rule.register(0)
        if condition:
            value = self.get(x, place)
        return value

    def results(self, run: Run, items, place, first, last):
        """The results of the vector ``items[1:-1]``, a list an output. ``place`` is that of its first element.

        ``first`` (``last``): whether its first (last) element is that of the row, None if it cannot be."""
        count = len(items) - 2
        rests = self.rests(run, place, count)
        found = []
        for side, end, outermost in ((0, first, 0), (1, last, count - 1)):
            if self.looks[side]:
                edges = [self.is_edge(end if i == outermost else None, rests[i + side]) for i in range(count)]
                if self.periodic and self.whole:  # no period ends within a vector
                    edges = [edges[i] if i == outermost else None for i in range(count)]
                indexes = [self.index(place, rests, i) for i in range(count)]
                pairs = zip(items[side:], items[side + 1 :], edges, [i + 1 for i in indexes] if side else indexes)
                found.append([self.compared(side, *pair, run.ends[side]) for pair in pairs])
        return found

    def rests(self, run: Run, place, count: int):
        """The places in the period of ``count`` elements from ``place`` on and of the one behind, counted in 32 bits
        from the run's; None without periods."""
        if not self.periodic:
            return [None] * (count + 1)
        rests = [self.rest(run, place)]
        if self.whole:
            rests += [rests[0] + i for i in range(1, count)]
        while len(rests) <= count:
            rests.append(choose(rests[-1] + 1 == run.period, Int32(0), rests[-1] + 1))
        return rests

    def rest(self, run: Run, place):
        """A place in the period."""
        return self.within(run, run.start + Int32(place - run.begin))

    def within(self, run: Run, place):
        """What is left of a place below 2**31 behind whole periods."""
        if run.divisor is None:
            return place % run.period
        number = Uint32(place)
        return Int32(number - quotient(number, run.period, *run.divisor) * Uint32(run.period))

    @cute.jit
    def first_place(self, run: Run):
        """The place in the period at which a run begins."""
        found = Int32(0)
        if run.begin < 1 << 31:
            found = self.within(run, Int32(run.begin))
        else:
            found = Int32(run.begin % run.period)
        return found

    @staticmethod
    def is_edge(edge, rest):
        """Whether the row or a period starts (behind a tail: ends) here; None if it cannot."""
        if rest is None:
            return edge
        return rest == 0 if edge is None else (rest == 0) | edge

    def index(self, place, rests, i: int):
        return Int64(rests[i]) if self.periodic else place + i

    def store(self, target, values):
        """The results of a vector, in one piece."""
        kind = Uint32 if self.by_words else self.marking.result.cutlass
        shape = cute.make_layout((len(values),))
        results = cute.make_rmem_tensor(shape, kind)
        for i, value in enumerate(values):
            results[i] = value if self.by_words else self.lowered(value)
        at = cute.make_ptr(
            kind, target.toint(), cute.AddressSpace.gmem, assumed_align=self.vector * self.marking.result.size
        )
        cute.autovec_copy(results, cute.make_tensor(at, shape))

    def packed(self, flags):
        """The flags of a vector as the bits of a word."""
        if self.by_words:
            return Int32(words.packed(flags))
        return tree([(flag << i,) for i, flag in enumerate(flags)], lambda a, b: (a[0] | b[0],))[0]

    def joined(self, part):
        """The word whose bits the lanes of a group hold, ``vector`` each, in all of them. All lanes of the warp
        call."""
        if self.group == LANES:
            return cute.arch.vote_ballot_sync(part != 0)
        word = part << ((cute.arch.lane_idx() % self.group) * self.vector)
        for log in range((self.group - 1).bit_length()):
            word = word | cute.arch.shuffle_sync_bfly(word, offset=1 << log)
        return word

    @cute.jit
    def store_bits(self, target, place, joined):
        """Store the words of a thread's vectors, the first at ``place``. Each lane of a group stores another
        vector's."""
        lane = cute.arch.lane_idx() % self.group
        for u in cutlass.range_constexpr(0, self.unroll, self.group):
            mine = joined[u]
            for k in cutlass.range_constexpr(1, min(self.group, self.unroll - u)):
                mine = choose(lane == k, joined[u + k], mine)
            if u + lane < self.unroll:
                self.put(target, (place + Int64(u + lane) * self.step) // 32, Uint32(mine))
