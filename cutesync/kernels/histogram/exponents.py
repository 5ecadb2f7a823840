"""The exponents of weights, which are the scales of their sums (``weights``). Device code."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float64, Int32, Int64

from ...monoid import choose
from ...sync.overlap import let_next_start
from ..coordinates import element
from ..tiled import positions
from .base import Arguments, Elements
from .kernel import Slots
from .policy import short
from .weights import (
    EXPONENT_BIAS,
    SHORT_BIAS,
    SHORT_SPECIAL,
    SPECIAL,
    common,
    exponent_of,
    limits,
    near,
    notes,
    short_field,
)


class Finite(Elements):
    """A kernel that looks for exponents."""

    @cute.jit
    def exponent(self, weight):
        """The biased exponent of a weight in float64; ``SPECIAL`` if it is not finite."""
        exponent = Int32(SPECIAL)
        if cutlass.const_expr(short(self.counting.weights)):
            field = short_field(weight)
            if field == 0:  # few of them
                exponent = exponent_of(Float64(weight))
            elif field < SHORT_SPECIAL:
                exponent = field + (EXPONENT_BIAS - SHORT_BIAS)
        else:
            exponent = exponent_of(Float64(weight))
        return exponent


class Limits(Finite):
    """The largest and the smallest exponent of all weights; of some, if those are too far from each other already."""

    @cute.jit
    def body(self, a: Arguments):
        if cutlass.const_expr(self.counting.counted):
            a = a._replace(length=positions(a.length, a.n))
        tiles, tile, most, least = self.tiles(a), a.block, Int32(0), Int32(0)
        while tile < tiles:
            for _, weight, exists in self.load_tile(a, tile):
                exponent = self.exponent(weight)
                counts = exists & (exponent > 0) & (exponent < SPECIAL)
                most = cutlass.max(most, choose(counts, exponent, Int32(0)))
                least = cutlass.max(least, choose(counts, SPECIAL - exponent, Int32(0)))
            most, least = (Int32(cute.arch.warp_redux_sync(mine, "max")) for mine in (most, least))
            tile = choose(near(a, most, least), tile + a.blocks, tiles)
        let_next_start()
        for i, mine in enumerate((most, least)):
            if Int32(cute.arch.lane_idx()) == 0:
                self.raise_to(limits(a) + i, mine)

    @cute.jit
    def raise_to(self, place, found):
        """The larger one of a number in global memory and another."""
        if found > Int32(cute.arch.load(place, Int32, sem="relaxed", scope="gpu")):
            cute.arch.atomic_max(place, found, sem="relaxed", scope="gpu")


class Exponents(Finite):
    """The largest exponent of the finite weights of each bin."""

    def __init__(self, counting: Any, policy: Any) -> None:
        super().__init__(counting, policy)
        self.slots = Slots(policy.slots, policy.threads)

    @cute.jit
    def body(self, a: Arguments):
        if common(a, self.counting.weights) < 0:
            super().body(a)

    def flush(self, a: Arguments, i, found) -> None:
        self.note(a, a.first + i, found)

    @cute.jit
    def note(self, a: Arguments, bin, exponent):
        """The exponent of some of a bin's weights."""
        if exponent > 0:
            cute.arch.atomic_max(notes(a) + 2 * Int64(bin), exponent, sem="relaxed", scope="gpu")

    @cute.jit
    def direct(self, a: Arguments):
        held = self.slots.make(a.block)
        self.visit_all(a, held)
        cute.arch.sync_threads()
        let_next_start()
        for i in cutlass.range(cute.arch.thread_idx()[0], self.policy.slots, self.threads, unroll=1):
            self.note(a, Int32(element(held.bins + i)), Int32(element(held.words + i)))

    @cute.jit
    def visit(self, a: Arguments, largest, item: tuple):
        value, weight, exists = item
        found, counts = self.bin_of(value, a)
        exponent = self.exponent(weight)
        if counts & exists & (exponent > 0) & (exponent < SPECIAL):  # atomics only where needed, so few of them meet
            if cutlass.const_expr(self.policy.shared > 0):
                self.raise_shared(largest + found, exponent)
            else:
                slot, mine = self.slots.find(largest, found)
                if mine:
                    self.raise_shared(largest.words + slot, exponent)
                else:
                    if exponent > Int32(cute.arch.load(notes(a) + 2 * Int64(found), Int32, sem="relaxed", scope="gpu")):
                        self.note(a, found, exponent)

    @cute.jit
    def raise_shared(self, place, exponent):
        """The larger one of a number in shared memory and another."""
        if exponent > Int32(cute.arch.load(place, Int32, sem="relaxed", scope="cta")):
            cute.arch.atomic_max(place, exponent, sem="relaxed", scope="cta")
