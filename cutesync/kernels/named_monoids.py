"""Device code of the operators with names of their own, which ``named.Named`` describes.

To make a state of every element, and to combine these, costs a state of three numbers too many instructions. So a class
may define ``run``: it makes one state of many elements at once, and only such states are combined.
"""

from __future__ import annotations

from typing import Any

import cutlass.cute as cute
from cutlass import Float32, Int32, Int64

from ..dtypes import INT64, DType
from ..monoid import ArgMonoid, Monoid, binary, choose, convert, nonzero, tree
from ..ops import Operator
from .named import Named
from .state_monoid import StateMonoid

math: Any = cute.math  # type checkers do not see its functions
RUN_WORDS = 32  # registers of the elements that ``run`` gets at once
LOG2_E = 1.4426950408889634


def named(op: str, dtype: DType):
    """The traced function of a built-in operator on two registers."""
    return binary(Operator(op), dtype)[1]


class NamedMonoid(StateMonoid):
    """The base class. ``element`` makes a state of an element, and ``finish`` makes the results of a state; a pass
    after the first reads states, and one before the last writes them."""

    indexed = False
    element: Any

    def __init__(self, states: Named) -> None:
        super().__init__(states)
        self.number_of_pass, self.backward = states.number, states.backward
        self.takes_index = self.indexed
        self.first, self.last = states.number == 0, states.number == states.passes - 1
        self.value = states.values[0]

    def finish(self, state) -> tuple:
        return state

    def lift(self, *given):
        """The state of the elements at one position; the last operand is the position's index."""
        *elements, index = given
        if not self.first:
            return self.stored(elements, index)
        return self.element(*(self.number(x, t) for x, t in zip(elements, self.sources)), index)

    def number(self, x, source: DType):
        """An element as a register of the first value's type."""
        value = nonzero(x) if source.kind == "b" else convert(source.cutlass(x), self.types[0])
        return self.types[0](value)

    def stored(self, values, index):
        """The state that an earlier pass stored."""
        return tuple(t(dtype.cutlass(value)) for t, dtype, value in zip(self.types, self.sources, values))

    def results_of(self, state):
        """The element to store in each output."""
        found = self.finish(state) if self.last else state
        return tuple(dtype.cutlass(convert(value, dtype.cutlass)) for dtype, value in zip(self.results, found))


class MeanMonoid(NamedMonoid):
    """A plain sum, which is divided at the end by a run-time argument."""

    commutative = True

    def __init__(self, states: Named) -> None:
        super().__init__(states)
        self.sum = Monoid(Operator("add"), self.source, self.value, self.value)

    def lift(self, *given):
        return self.sum.lift(*given)

    def combine(self, a, b):
        return self.sum.combine(a, b)

    def fold(self, words, index):
        return self.sum.fold(words, index)

    def finish(self, state):
        (count,) = self.args
        return (convert(state[0], type(count)) / count,)


class RunMonoid(NamedMonoid):
    """A commutative operator that makes one state of all vectors of a lane that fit ``RUN_WORDS`` registers."""

    commutative = True

    def __init__(self, states: Named) -> None:
        super().__init__(states)
        words = (16 // self.source.size) * (self.width // 32)
        self.lane_vectors = max(1, RUN_WORDS // words) if self.first else 1

    @property
    def width(self) -> int:
        """The bits of an element in ``run``."""
        return self.types[0].width

    def run(self, elements, index):
        if not self.first:
            return super().run(elements, index)
        return self.of_numbers([self.number(x, self.source) for x in elements])

    def of_numbers(self, values):
        """The state of a list of elements."""
        raise NotImplementedError


class MomentsMonoid(RunMonoid):
    """var: count, mean in two parts, and the sum of squared differences from the mean.

    Those of a run are computed from differences from its first element: as that belongs to the run, cancellation costs
    at most as many units in the last place as the run has elements. Small integers are summed exactly. States combine
    as Chan, Golub and LeVeque (1979) say. A mean of one part would be rounded at each of these steps, and a variance of
    1 around 1e6 would be 0.2 % wrong in float32."""

    @property
    def small(self) -> bool:
        return self.source.kind != "f" and self.source.size < 4

    @property
    def width(self) -> int:
        return 32 if self.small else super().width

    def element(self, value, index):
        kind = self.types[0]
        return kind(1), value, kind(0), value - value  # NaN for an infinity, as in NumPy

    def run(self, elements, index):
        if not (self.first and self.small):
            return super().run(elements, index)
        kind, count, wide = self.types[0], len(elements), Int32 if self.source.size == 1 else Int64
        boolean = self.source.kind == "b"
        values = [nonzero(x) if boolean else convert(self.source.cutlass(x), Int32) for x in elements]
        total = Int64(tree(values, lambda a, b: a + b))
        squares = Int64(tree([wide(x) * wide(x) for x in values], lambda a, b: a + b))
        share = kind(1.0 / count)
        return kind(count), kind(total) * share, kind(0), kind(squares * count - total * total) * share

    def of_numbers(self, values):
        kind, count = self.types[0], len(values)
        differences = [value - values[0] for value in values]
        squares = [kind(0) for _ in range(min(4, count))]
        for i, difference in enumerate(differences):
            squares[i % 4] = squares[i % 4] + difference * difference
        total = tree(differences, lambda a, b: a + b)
        shift = total * kind(1.0 / count)
        spread = named("max", self.value)(tree(squares, lambda a, b: a + b) - total * shift, kind(0))
        return kind(count), *self.shifted(values[0], shift), spread

    def shifted(self, mean, shift):
        """A mean plus something smaller, in two parts (Dekker 1971)."""
        large = mean + shift
        return large, shift - (large - mean)

    def combine(self, a, b):
        count, delta = a[0] + b[0], (b[1] - a[1]) + (b[2] - a[2])
        share = b[0] * (cute.arch.rcp_approx(count) if self.types[0] is Float32 else self.types[0](1) / count)
        shift = delta * share
        return count, *self.shifted(a[1], a[2] + shift), a[3] + b[3] + delta * shift * a[0]

    def finish(self, state):
        (divisor,) = self.args
        return (state[3] / divisor,)


class DeviationMonoid(MomentsMonoid):
    """std: the square root of var."""

    def finish(self, state):
        return (math.sqrt(super().finish(state)[0]),)


class VarMeanMonoid(MomentsMonoid):
    """var_mean: var, and the two parts of the mean as one number."""

    def finish(self, state):
        return (*super().finish(state), state[1] + state[2])


class LogSumExpMonoid(RunMonoid):
    """The maximum, and the sum of exp(x - maximum)."""

    def __init__(self, states: Named) -> None:
        super().__init__(states)
        self.largest = named("max", self.value)

    def element(self, value, index):
        return value, self.exp(value - self.reference(value))

    def reference(self, largest):
        """What is subtracted: the maximum, or 0 if that is infinite or NaN."""
        zero = self.types[0](0)
        return choose(largest - largest == zero, largest, zero)

    def exp(self, x):
        if self.types[0] is Float32:
            return math.exp2(x * Float32(LOG2_E), fastmath=True)
        return math.exp(x)

    def of_numbers(self, values):
        largest = tree(values, self.largest)
        reference = self.reference(largest)
        return largest, tree([self.exp(value - reference) for value in values], lambda a, b: a + b)

    def combine(self, a, b):
        largest = self.largest(a[0], b[0])
        reference = self.reference(largest)
        return largest, a[1] * self.exp(a[0] - reference) + b[1] * self.exp(b[0] - reference)

    def finish(self, state):
        return (self.reference(state[0]) + math.log(state[1]),)


class MinMaxMonoid(RunMonoid):
    def __init__(self, states: Named) -> None:
        super().__init__(states)
        self.smallest, self.largest = (named(op, self.value) for op in ("min", "max"))

    def element(self, value, index):
        return value, value

    def of_numbers(self, values):
        return tree(values, self.smallest), tree(values, self.largest)

    def combine(self, a, b):
        return self.smallest(a[0], b[0]), self.largest(a[1], b[1])


class CountMonoid(RunMonoid):
    """count_nonzero. A lane counts in 32 bits, elements of one and two bytes by population counts of whole words."""

    def number(self, x, source: DType):
        return nonzero(source.cutlass(x)) if self.first else Int64(x)

    def element(self, value, index):
        return (Int64(value),)

    def of_numbers(self, values):
        return (Int64(tree(values, lambda a, b: a + b)),)

    def combine(self, a, b):
        return (a[0] + b[0],)

    def fold_vectors(self, vectors, index):
        if self.source.size > 2 or not self.first:
            return super().fold_vectors(vectors, index)
        return (Int64(tree([self.of_word(w[i]) for w in vectors for i in range(cute.size(w))], lambda a, b: a + b)),)

    def of_word(self, word):
        """How many elements of a 32-bit word are not zero: the top bit of each is set, and these bits are counted. The
        sign of a float does not count."""
        low, top = (0x7F7F7F7F, -0x7F7F7F80) if self.source.size == 1 else (0x7FFF7FFF, -0x7FFF8000)
        found = (word & Int32(low)) + Int32(low)
        if self.source.kind != "f":
            found = found | word
        return Int32(cute.arch.popc(found & Int32(top)))


class PlaceMonoid(NamedMonoid):
    """argmin or argmax over axes that are not neighbours: (value, index). Run-time arguments say by how much the index
    of each pass counts."""

    indexed = True

    def __init__(self, states: Named) -> None:
        super().__init__(states)
        self.best = ArgMonoid(states.op.name == "argmax", self.value, INT64)

    def element(self, value, index):
        return value, Int64(index)

    def stored(self, values, index):
        value, place = super().stored(values, index)
        return value, Int64(index) * self.args[self.number_of_pass] + place

    def combine(self, a, b):
        return self.best.combine(a, b)

    def finish(self, state):
        return (state[1],)


class ExtremumMonoid(NamedMonoid):
    """cummax or cummin: (value, index). The last of equal values wins, and the last NaN beats every number."""

    indexed = True

    def element(self, value, index):
        return value, Int64(index)

    def combine(self, a, b):
        wins = b[0] >= a[0] if self.states.op.name == "cummax" else b[0] <= a[0]
        if self.source.kind == "f":
            wins = wins | (b[0] != b[0])
        return tuple(choose(wins, y, x) for x, y in zip(a, b))


class RecurrenceMonoid(NamedMonoid):
    """h = a h + b: the state (a, b) is this map, and states combine as maps do (Blelloch 1990)."""

    def element(self, a, b, index):
        return a, b

    def combine(self, a, b):
        earlier, later = (b, a) if self.backward else (a, b)
        return earlier[0] * later[0], later[0] * earlier[1] + later[1]

    def finish(self, state):
        return (state[1],)


class FillMonoid(NamedMonoid):
    """ffill: the last value that is not NaN."""

    def element(self, value, index):
        return (value,)

    def combine(self, a, b):
        earlier, later = (b, a) if self.backward else (a, b)
        return (choose(later[0] == later[0], later[0], earlier[0]),)


MONOIDS: dict[str, Any] = {
    "mean": MeanMonoid,
    "var": MomentsMonoid,
    "std": DeviationMonoid,
    "var_mean": VarMeanMonoid,
    "logsumexp": LogSumExpMonoid,
    "minmax": MinMaxMonoid,
    "count_nonzero": CountMonoid,
    "argmin": PlaceMonoid,
    "argmax": PlaceMonoid,
    "cummax": ExtremumMonoid,
    "cummin": ExtremumMonoid,
    "linear_recurrence": RecurrenceMonoid,
    "ffill": FillMonoid,
}
