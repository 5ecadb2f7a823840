"""Reductions across the lanes of a warp that keep the order of operands, so any associative operator works.

Device code. All 32 lanes call together, and every lane gets the result. ``combine(a, b)`` takes two states (tuples of
registers) and returns one; ``a`` comes from lower lanes than ``b``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int32

from .arguments import whole
from .errors import ArgumentValueError, explain
from .monoid import choose, tree

LANES = 32


def zeros(types):
    """Registers of the shape of a state, with no meaning yet."""
    return tuple(t(0) for t in types)


class Maybe(NamedTuple):
    """A state that may be missing: ``state`` has a meaning only where ``valid`` (a Boolean) holds. No operator sees a
    missing state.

    Shuffles and shared memory take it *packed*: the registers of the state, then the flag as an Int32 that is 0 or 1.
    """

    state: Any
    valid: Any

    @classmethod
    def none(cls, types) -> Maybe:
        return cls(zeros(types), Boolean(False))

    @classmethod
    def of(cls, state) -> Maybe:
        return cls(state, Boolean(True))

    @classmethod
    def unpack(cls, registers) -> Maybe:
        *state, flag = registers
        return cls(tuple(state), flag != 0)

    def pack(self):
        return (*self.state, Int32(self.valid))

    def then(self, other: Maybe, combine) -> Maybe:
        """This state followed by another one; missing if both are."""
        return Maybe.unpack(combine_valid(self.pack(), other.pack(), combine))

    def append(self, state, combine) -> Maybe:
        """This state followed by one that is there."""
        return Maybe.of(prepend(self.valid, self.state, state, combine))


def exchange(state, distance: int):
    """Every lane gets the state of the lane whose number differs by ``distance`` (a power of two)."""
    return tuple(cute.arch.shuffle_sync_bfly(value, offset=distance) for value in state)


def broadcast(state, source: int = 0):
    """Every lane gets the state of lane ``source``."""
    return tuple(type(value)(cute.arch.shuffle_sync(value, source)) for value in state)


def shift_up(state, distance: int = 1):
    """Every lane gets the state of the lane ``distance`` before it; the first lanes keep their own."""
    return tuple(type(value)(cute.arch.shuffle_sync_up(value, distance)) for value in state)


def select(condition, a, b):
    """``a`` where the condition holds, else ``b``, member by member."""
    return tuple(choose(condition, x, y) for x, y in zip(a, b))


def _in_order(lane, distance, own, other, combine):
    """Combine two halves of a group: the half whose lanes have the ``distance`` bit clear comes first."""
    upper = (lane & distance) != 0
    return combine(select(upper, other, own), select(upper, own, other))


def reduce_states(state, combine, lane, width: int = LANES):
    """Reduce one state a lane over groups of ``width`` (a power of two) lanes: log2(width) shuffles a member."""
    distance = 1
    while distance < width:
        state = _in_order(lane, distance, state, exchange(state, distance), combine)
        distance *= 2
    return state


def reduce_commutative(state, combine):
    """As ``reduce_states`` of all lanes, for an operator that commutes but for rounding: it selects no operands.

    Lanes may get results that are rounded differently; lane 0 combines in lane order."""
    for log in range(LANES.bit_length() - 1):
        state = combine(state, exchange(state, 1 << log))
    return state


def _halve(states, distance, lane, combine):
    """Lanes ``distance`` apart split a list of states between them: the lane with that bit clear keeps the first half.
    Each combines its own and the received states in lane order."""
    half = len(states) // 2
    upper = (lane & distance) != 0
    reduced = []
    for first, second in zip(states[:half], states[half:]):
        received = exchange(select(upper, first, second), distance)
        kept = select(upper, second, first)
        reduced.append(combine(select(upper, received, kept), select(upper, kept, received)))
    return reduced


def reduce_columns(columns, combine, lane, width: int = LANES):
    """Reduce ``len(columns)`` (a power of two, at most ``width``) independent columns over groups of ``width`` lanes,
    lane after lane.

    Each step halves the columns a lane holds, so it takes columns + 4 - log2(columns) shuffles instead of 5 * columns.
    Lane l gets column ``column_of_lane(l, len(columns))``.
    """
    distance = 1
    while len(columns) > 1:
        columns = _halve(columns, distance, lane, combine)
        distance *= 2
    state = columns[0]
    while distance < width:
        state = _in_order(lane, distance, state, exchange(state, distance), combine)
        distance *= 2
    return state


def reduce_rows(rows, combine, lane, width: int = LANES):
    """Reduce ``len(rows)`` rows (a power of two, at most ``width``) of ``width`` states, row after row, lane after
    lane.

    It takes about 2 * rows shuffles instead of 5 * rows: first the rows are reduced as columns, which leaves each row's
    aggregate in some lane, then the aggregates are combined in row order."""
    state = reduce_columns(rows, combine, lane, width)
    distance = len(rows) // 2
    while distance > 0:
        state = _in_order(lane, distance, state, exchange(state, distance), combine)
        distance //= 2
    return state


def column_of_lane(lane, columns: int):
    """The column that ``reduce_columns`` leaves in a lane: the lane's low bits in reverse order."""
    column = Int32(0)
    for bit in range(columns.bit_length() - 1):
        column = column | (((lane >> bit) & 1) << (columns.bit_length() - 2 - bit))
    return column


@cute.jit
def reduce_valid(state, count: Int32, combine: cutlass.Constexpr, lane: Int32, width: cutlass.Constexpr = LANES):
    """Reduce the first ``count`` lanes' states of each group of ``width`` lanes; ``count`` is the same in all 32 lanes.

    The operator never sees the registers of other lanes. The first lanes of each group get the result, lane 0 always.
    With ``count`` 0 the result has no meaning."""
    position = lane & (width - 1)
    for log in cutlass.range_constexpr(width.bit_length() - 1):
        distance = 1 << log
        if distance < count:
            other = exchange(state, distance)
            upper = (lane & distance) != 0
            first = select(upper, other, state)
            second = select(upper, state, other)
            state = first
            if ((position & -(2 * distance)) | distance) < count:
                state = combine(first, second)
    return state


@cute.jit
def combine_valid(a, b, combine: cutlass.Constexpr):
    """``combine`` for states whose last member is 1 if they hold anything: the operator sees only those that do."""
    state = a
    if b[-1] != 0:
        state = b
        if a[-1] != 0:
            state = (*combine(a[:-1], b[:-1]), Int32(1))
    return state


@cute.jit
def prepend(where: Boolean, a, b, combine: cutlass.Constexpr):
    """``combine(a, b)`` in the lanes where ``a`` counts, else ``b``."""
    if where:
        b = combine(a, b)
    return b


def prepend_between_states(where: Boolean, a, b, combine):
    """As ``prepend``, where both are states in all lanes: without a branch, which costs more than the operator. One
    number is left to the compiler, which needs no branch for it."""
    return prepend(where, a, b, combine) if len(b) == 1 else select(where, combine(a, b), b)


@cute.jit
def append(where: Boolean, a, b, combine: cutlass.Constexpr):
    """``combine(a, b)`` in the lanes where ``b`` counts, else ``a``."""
    if where:
        a = combine(a, b)
    return a


@cute.jit
def scan_states(
    state, combine: cutlass.Constexpr, lane: Int32, width: cutlass.Constexpr = LANES, valid: Boolean | bool = True
):
    """Inclusive scan of one state a lane over groups of ``width`` neighbouring lanes (a power of two).

    It takes log2(width) shuffles a member. The operator sees only states of neighbouring runs of one group, and none of
    the lanes that are not ``valid``, which come last. The method is that of Hillis and Steele (1986)."""
    position = lane & (width - 1)
    for log in cutlass.range_constexpr(width.bit_length() - 1):
        before = shift_up(state, 1 << log)
        if cutlass.const_expr(valid is True):
            state = prepend_between_states(position >= (1 << log), before, state, combine)
        else:
            state = prepend((position >= (1 << log)) & valid, before, state, combine)
    return state


def reduce(value, op="add", width: int = LANES):
    """Reduce ``value`` (a register of any numeric DSL type, one a lane) over groups of ``width`` lanes, a power of two.

    ``op`` is a name (``add mul min max and or xor``) or a callable of two such registers, associative, not necessarily
    commutative. Every lane of a group gets the result, converted to the type of ``value``. A tuple of registers is a
    state of several values: a callable then takes two tuples and returns one, and a name applies to each value. All 32
    lanes must call.

    >>> largest, at = warp.reduce((value, index), lambda p, q: q if q[0] > p[0] else p)
    """
    from .block.operators import StateType

    width, states = _group(width), StateType.of_value(value)
    return states.given(reduce_states(states.of(value, "value"), states.combine(op), cute.arch.lane_idx(), width))


def scan(value, op="add", *, initial=None, width: int = LANES):
    """``(inclusive, exclusive)`` scans of ``value`` over groups of ``width`` lanes, a power of two.

    ``value``, ``op`` and states of several values are as in ``reduce``; both results have the type of ``value``.
    ``initial`` comes in front of the first lane; without it the first lane's exclusive result is its own value and
    means nothing. All 32 lanes must call.
    """
    from .block.operators import StateType

    width, states = _group(width), StateType.of_value(value)
    lane, combine = cute.arch.lane_idx(), states.combine(op)
    inclusive = scan_states(states.of(value, "value"), combine, lane, width)
    exclusive = shift_up(inclusive)
    if initial is not None:
        front = states.of(initial, "initial")
        first = (lane & (width - 1)) == 0
        exclusive = select(first, front, append(cutlass.not_(first), front, exclusive, combine))
        inclusive = combine(front, inclusive)
    return states.given(inclusive), states.given(exclusive)


def _group(width) -> int:
    """``width``, once checked."""
    if whole(width, "width") not in (1, 2, 4, 8, 16, 32):
        raise ArgumentValueError(explain("width", width, "a power of two, 1 to 32"))
    return width


__all__ = [
    "LANES",
    "Maybe",
    "append",
    "broadcast",
    "column_of_lane",
    "combine_valid",
    "exchange",
    "prepend",
    "reduce",
    "reduce_columns",
    "reduce_commutative",
    "reduce_rows",
    "reduce_states",
    "reduce_valid",
    "scan",
    "scan_states",
    "select",
    "shift_up",
    "tree",
    "zeros",
]
