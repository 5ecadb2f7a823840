"""Head and tail flags of a block's items, in every form of ``cub::BlockDiscontinuity``.

A head differs from the item before it, a tail from the item behind it; the operator says what "differs" means.
Neighbours inside a warp come by shuffle, the two at a warp's edges through shared memory: one block barrier a call.
"""

from __future__ import annotations

import cutlass
from cutlass import Boolean, Int32, cute

from ..errors import ArgumentTypeError, explain
from ..monoid import choose
from ..neighbours import Flag
from ..ops import COMPARISONS, neighbour_operator
from .edges import Neighbours, rank, registers
from .operators import register_of


@cute.jit
def flag_unless(forced: Boolean, compare: cutlass.Constexpr, a, b, index):
    """1 where ``forced``, and the operator is not called there; else what it says of ``a`` and ``b``."""
    flag = Int32(1)
    if cutlass.not_(forced):
        flag = compare(a, b, index)
    return flag


class Discontinuity(Neighbours):
    """Flags between a block's items, in the manner of ``cub::BlockDiscontinuity``.

    ``dtype`` is the DSL class of the items (``cutlass.Int32``), ``block_dim`` the block's shape: up to three extents, a
    multiple of 32 threads in all. The items are in blocked arrangement: the thread of row-major rank t (x fastest)
    holds items ``t * n .. t * n + n - 1`` in a register tensor of n. The three methods take

    - ``op``: "ne", "eq", "lt", "le", "gt", "ge", or a callable ``op(a, b)`` or ``op(a, b, index)``, true where there is
      a discontinuity between a and the b behind it; ``index`` (Int32) is the place of b in the tile.
    - ``tile_predecessor_item`` (read in thread 0) and ``tile_successor_item`` (read in the last thread): with it the
      tile's first head (last tail) is ``op(predecessor, first, 0)`` (``op(last, successor, items in the tile)``);
      without it that flag is 1, and the operator is not called for it.
    - ``flag_dtype``: any integer DSL class, or ``cutlass.Boolean``.

    and return fresh register tensors of n flags, 0 or 1; the items stay as they are. All threads of the block call
    together.

    Make one at the top of the kernel: it allocates its shared memory then, 2 items a warp, unless ``storage`` gives it
    a tensor to use (``Discontinuity.storage(dtype, block_dim)``, or anything in shared memory that is large enough).
    The next use of the storage, also by a second call, requires a barrier (``cute.arch.sync_threads()``).

    >>> heads = block.Discontinuity(cutlass.Int32, block_dim=(128, 1, 1)).flag_heads(items, "ne")
    """

    def flag_heads(self, items, op="ne", *, tile_predecessor_item=None, flag_dtype=Int32):
        items = self._items(items)
        previous, _ = self._edges.exchange(None, items[-1])
        return self._heads(items, previous, self._compare(op), tile_predecessor_item, flag_dtype)

    def flag_tails(self, items, op="ne", *, tile_successor_item=None, flag_dtype=Int32):
        items = self._items(items)
        _, following = self._edges.exchange(items[0], None)
        return self._tails(items, following, self._compare(op), tile_successor_item, flag_dtype)

    def flag_heads_and_tails(
        self, items, op="ne", *, tile_predecessor_item=None, tile_successor_item=None, flag_dtype=Int32
    ):
        """``(heads, tails)``, with one barrier for both."""
        items, compare = self._items(items), self._compare(op)
        previous, following = self._edges.exchange(items[0], items[-1])
        heads = self._heads(items, previous, compare, tile_predecessor_item, flag_dtype)
        return heads, self._tails(items, following, compare, tile_successor_item, flag_dtype)

    def _compare(self, op):
        flag = Flag(neighbour_operator(op, COMPARISONS), self._element)
        return lambda a, b, index: flag.compare(flag.lift(a), flag.lift(b), index)

    def _heads(self, items, previous, compare, predecessor, flag_dtype):
        thread = rank(self.block_dim)
        at = thread * len(items)
        if predecessor is None:
            first = flag_unless(thread == 0, compare, previous, items[0], at)
        else:
            first = compare(
                choose(thread == 0, register_of(predecessor, self.dtype, "tile_predecessor_item"), previous),
                items[0],
                at,
            )
        inner = [compare(items[i - 1], items[i], at + i) for i in range(1, len(items))]
        return self._flags([first, *inner], flag_dtype)

    def _tails(self, items, following, compare, successor, flag_dtype):
        thread = rank(self.block_dim)
        end, outermost = (thread + 1) * len(items), thread == self._edges.threads - 1
        inner = [compare(items[i - 1], items[i], thread * len(items) + i) for i in range(1, len(items))]
        if successor is None:
            last = flag_unless(outermost, compare, items[-1], following, end)
        else:
            last = compare(
                items[-1], choose(outermost, register_of(successor, self.dtype, "tile_successor_item"), following), end
            )
        return self._flags([*inner, last], flag_dtype)

    @staticmethod
    def _flags(values, flag_dtype):
        if not (isinstance(flag_dtype, type) and (issubclass(flag_dtype, cutlass.Integer) or flag_dtype is Boolean)):
            raise ArgumentTypeError(
                explain("flag_dtype", repr(flag_dtype), "an integer class of cutlass, or cutlass.Boolean")
            )
        return registers(values, flag_dtype)
