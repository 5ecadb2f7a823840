"""Differences between neighbouring items of a block, in the manner of ``cub::BlockAdjacentDifference``."""

from __future__ import annotations

import cutlass
from cutlass import Boolean, Int32, cute

from ..monoid import choose
from ..neighbours import Difference
from ..ops import DIFFERENCES, neighbour_operator
from .edges import Neighbours, rank, registers


@cute.jit
def combine_where(condition: Boolean, combine: cutlass.Constexpr, item, neighbour):
    """What the operator says where the condition holds; elsewhere the item, and the operator is not called."""
    result = item
    if condition:
        result = combine(item, neighbour)
    return result


class AdjacentDifference(Neighbours):
    """``op(item, neighbour)`` for every item of a block that has the neighbour; the others stay as they are.

    ``dtype``, ``block_dim``, the arrangement of the items and ``storage`` are those of ``block.Discontinuity``; so is
    the barrier that the next use of the storage requires. ``op`` is "sub", "add", "mul", "min", "max", "and", "or",
    "xor", or a callable of two values, whose second operand is the neighbour. Fresh register tensors are returned.

    >>> steps = block.AdjacentDifference(cutlass.Int32, (128,)).subtract_left(items)   # item - the item before it
    """

    def subtract_left(self, items, op="sub", *, tile_predecessor_item=None, valid_items=None):
        """``op(item, item before it)``. The tile's first item stays as it is, or meets ``tile_predecessor_item`` (read
        in thread 0). With ``valid_items`` the operator is called for no item from that place on."""
        return self._subtract(items, op, 0, tile_predecessor_item, valid_items)

    def subtract_right(self, items, op="sub", *, tile_successor_item=None, valid_items=None):
        """``op(item, item behind it)``. The tile's last item stays as it is, or meets ``tile_successor_item`` (read in
        the last thread). With ``valid_items`` the operator is called only for items before a valid one."""
        return self._subtract(items, op, 1, tile_successor_item, valid_items)

    def _subtract(self, items, op, side: int, given, valid_items):
        """The differences with the items before (side 0) or behind; ``given`` is the neighbour of the outermost one."""
        items, combine = self._items(items), self._combine(op)
        previous, following = self._edges.exchange(*((items[0], None) if side else (None, items[-1])))
        neighbours, outermost = ([*items[1:], following], len(items) - 1) if side else ([previous, *items[:-1]], 0)
        edge = rank(self.block_dim) == (self._edges.threads - 1 if side else 0)
        if given is not None:
            neighbours[outermost] = choose(edge, self.dtype(given), neighbours[outermost])
        lone = [edge if given is None and i == outermost else None for i in range(len(items))]
        results = [
            self._one(combine, *pair, i + side, len(items), valid_items)
            for i, pair in enumerate(zip(items, neighbours, lone))
        ]
        return registers(results, self.dtype)

    def _one(self, combine, item, neighbour, lone, place: int, count: int, valid_items):
        """One result. ``lone``: where there is no neighbour; ``place``: that of the later item among the thread's."""
        condition = None if lone is None else cutlass.not_(lone)
        if valid_items is not None:
            valid = rank(self.block_dim) * count + place < Int32(valid_items)
            condition = valid if condition is None else condition & valid
        return combine(item, neighbour) if condition is None else combine_where(condition, combine, item, neighbour)

    def _combine(self, op):
        difference = Difference(neighbour_operator(op, DIFFERENCES), self._element)
        return lambda a, b: self.dtype(difference.lower(difference.combine(difference.lift(a), difference.lift(b))))
