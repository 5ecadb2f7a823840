"""Device code: which positions are selected, as a word of 32 bits for 32 positions, the first in the lowest bit."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Float32, Int32, Int64, Uint32

from ...dtypes import BOOL, DType
from ...monoid import choose, nonzero, traced
from ..coordinates import element


def presented(value: Any, dtype: DType):
    """A loaded element as callables get it: bool as a Boolean, 16-bit floats as Float32."""
    value = dtype.cutlass(value)
    if dtype.kind == "b":
        return value != type(value)(0)
    return Float32(value) if dtype.kind == "f" and dtype.size == 2 else value


class Where:
    """Which elements are selected, by their values: the kinds "callable" and "nonzero" of a ``spec.Selection``."""

    def __init__(self, selection) -> None:
        self.selection = selection
        self.args: tuple = ()

    def bind(self, args) -> None:
        """Take the run-time arguments of the kernel that is traced."""
        found = []
        for given, (dtype, in_memory) in zip(args, self.selection.args):
            found.append(presented(element(given) if in_memory else given, dtype))
        self.args = tuple(found)

    def holds(self, elements, index) -> Boolean:
        """Whether the position is selected that has these loaded elements, one of each array."""
        chosen = self.selection
        if chosen.kind == "nonzero":
            return nonzero(chosen.sources[0].cutlass(elements[0])) != 0
        operands = [presented(value, dtype) for value, dtype in zip(elements, chosen.sources)]
        if chosen.takes_index:
            operands.append(Int64(index))
        return traced("where", chosen.fn, (*operands, *self.args), None, BOOL) != 0

    def begins(self, differs: Any, is_first: Any) -> Any:
        """Whether a position begins a run: it differs from the one before, or it is the first one, unless an argument
        says that its run began before."""
        if not self.selection.resumed:
            return differs | is_first
        return choose(is_first, Int32(self.args[-1]), choose(differs, Int32(1), Int32(0))) != 0

    def differ(self, before, elements) -> Boolean:
        """Whether the position that has these elements begins a run; ``before`` are the elements of the one before."""
        chosen = self.selection
        pairs = zip(before, elements, chosen.sources)
        both = [(presented(a, dtype), presented(b, dtype)) for a, b, dtype in pairs]
        if chosen.fn is not None:
            operands = (*(a for a, _ in both), *(b for _, b in both))
            return traced("equal", chosen.fn, (*operands, *self.args), None, BOOL) == 0
        found = Int32(0)
        for (a, b), dtype in zip(both, chosen.sources):
            differs = Int32(a != b)
            if dtype.kind == "f" and chosen.equal_nan:
                differs = differs & Int32((a == a) | (b == b))
            found = found | differs
        return found != 0


def word_of_bits(bits: cute.Pointer, first, count):
    """The word of the 32 positions from ``first`` (a multiple of 32) on, of ``count`` > ``first`` positions."""
    word = Uint32(element(bits + first // 32))
    rest = Int32(cutlass.min(count - first, Int64(32)))
    return Int32(word & choose(rest < 32, below(rest & 31), Uint32(0xFFFFFFFF)))


def below(bit):
    """The word whose bits below ``bit`` (0 to 31) are set."""
    return (Uint32(1) << Uint32(bit)) - Uint32(1)
