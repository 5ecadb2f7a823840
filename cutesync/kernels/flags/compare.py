"""What a flag or a difference is, at the ends of a row and within it: shared by the kernels of this family. Device
code."""

from __future__ import annotations

from typing import Any

import cutlass
from cutlass import Int16, Int32, Uint8, cute

from ...block.adjacent_difference import combine_where
from ...block.discontinuity import flag_unless
from ...monoid import bound, choose
from ...neighbours import Difference, Flag
from ..plain import PlainKernel
from . import words


class Compare(PlainKernel):
    """A kernel with the rule of a ``marking`` (``spec.Marking``). Sides are 0 (the item before) and 1 (the item
    behind)."""

    def __init__(self, marking, threads: int) -> None:
        super().__init__(threads)
        self.marking, self.name = marking, marking.name
        op, source = marking.op, marking.source
        self.rule: Any = Flag(op, source, len(marking.args)) if marking.is_flag else Difference(op, source)
        self.looks, self.given = marking.looks, (marking.predecessor, marking.successor)  # by side
        self.called = marking.op.fn is not None  # a callable: not called for pairs that there are not
        self.sides = [side for side in (0, 1) if self.looks[side]]

    def bind(self, values) -> tuple:
        """Take the last parameters of the kernel that is traced: the predecessor and the successor, which are returned,
        then the run-time arguments."""
        predecessor, successor, *args = values
        self.rule.args = bound(args, self.marking.args)
        return self.rule.lift(predecessor), self.rule.lift(successor)

    def compared(self, side: int, a, b, edge, index, given):
        """The result of an item and its neighbour on a side; ``b`` follows ``a``. ``given`` is what the caller gave
        for the neighbour at an ``edge``."""
        item, neighbour = (a, b) if side else (b, a)
        if not self.marking.is_flag:
            if edge is None:
                return self.rule.combine(item, neighbour)
            return combine_where(cutlass.not_(edge), self.rule.combine, item, neighbour)
        if edge is None:
            return self.rule.compare(a, b, index)
        if self.given[side]:
            neighbour = choose(edge, given, neighbour)
            return self.rule.compare(*((item, neighbour) if side else (neighbour, item)), index)
        return flag_unless(edge, self.rule.compare, a, b, index)

    def guarded(self, outside, side: int, pair, rest):
        """What ``compared`` says of a pair, unless it is ``outside``."""
        if outside is None:
            return self.compared(side, *pair, *rest)
        if self.marking.is_flag:
            return flag_unless(outside, lambda a, b, index: self.compared(side, a, b, *rest), *pair, rest[1])
        item, neighbour = pair if side else pair[::-1]
        inside = cutlass.not_(outside)
        return combine_where(
            inside, lambda a, b: self.compared(side, *((a, b) if side else (b, a)), *rest), item, neighbour
        )

    def paired_words(self, keys, others) -> list:
        """The words of results of words of keys and those of their neighbours."""
        name = self.marking.op.name
        if self.marking.source.size == 2:
            return words.halves(name, self.marking.source, keys, others)
        return [words.results(name, *pair) for pair in zip(keys, others)]

    def lowered(self, value):
        return self.marking.result.cutlass(value) if self.marking.is_flag else self.rule.lower(value)

    def loaded(self, at, count: int, piece: int):
        """The register tensor of ``count`` elements at a pointer, loaded ``piece`` at once. A register tensor of bytes
        would take a register each, so words are loaded."""
        source = self.marking.source
        width = piece * source.size
        word = source.cutlass if source.size >= 4 else Uint8 if width == 1 else Int16 if width == 2 else Int32
        words = count * source.size * 8 // word.width
        # two words at least: CuTe gives an extent of one the stride 0, which recasting repeats
        vector = cute.make_rmem_tensor((max(2, words),), word)
        shape = cute.make_layout((words,))
        start = cute.make_ptr(word, at.toint(), cute.AddressSpace.gmem, assumed_align=width)
        cute.autovec_copy(cute.make_tensor(start, shape), cute.make_tensor(vector.iterator, shape))
        return vector

    def lifted(self, vector, count: int) -> list:
        """The elements in a register tensor of ``loaded``."""
        source = self.marking.source
        elements = vector if source.size > 4 else cute.recast_tensor(vector, source.cutlass)
        return [self.rule.lift(elements[i]) for i in range(count)]

    def get(self, x, place):
        return self.rule.lift(cute.make_tensor(x + place, cute.make_layout((1,)))[0])

    @staticmethod
    def put(target, place, value):
        cute.make_tensor(target + place, cute.make_layout((1,)))[0] = value
