"""What a consumer warpgroup does with a tile that is multiplied: store it now, or beside the next tile's multiplications.

With split-K it is first added to the other slices of K (see ``split``). All have the same interface: ``exchange`` allocates the shared
memory by which warpgroups exchange partial sums, ``registers`` those of a pending tile; ``complete`` takes a multiplied tile;
``store_beside`` stores sub-tile ``index`` of the pending tile, for each ``index`` below ``beside``; ``flush`` stores what is pending at the end.
"""

from __future__ import annotations

import cutlass.cute as cute
from cutlass import Int32

from .epilogue import Epilogue, Outlet, Progress


class DirectStore:
    """A tile is stored when it is multiplied. In "pingpong" the other warpgroup has the tensor cores then."""

    def __init__(self, epilogue: Epilogue) -> None:
        self.epilogue, self.config = epilogue, epilogue.config
        self.beside = 0

    def exchange(self, allocator, split):
        return None

    def registers(self):
        return None

    def complete(self, accumulators, place, progress: Progress, to: Outlet):
        tile = place[2]
        return Progress(self.epilogue.store_tile(accumulators, tile, to, progress.stored), tile)

    def store_beside(self, index: int, progress: Progress, to: Outlet):
        return progress

    def flush(self, progress: Progress, to: Outlet):
        for index in range(self.beside):
            progress = self.store_beside(index, progress, to)


class DeferredStore(DirectStore):
    """A multiplied tile is kept in registers as finished elements. One of its sub-tiles is stored after each of the next tile's first k-tiles, so
    that a "cooperative" block's tensor cores work meanwhile (``MatmulPolicy.deferred``)."""

    def __init__(self, epilogue: Epilogue) -> None:
        super().__init__(epilogue)
        self.beside = epilogue.sub_tiles

    def registers(self):
        return cute.make_rmem_tensor((self.epilogue.sub_tiles * self.epilogue.words,), Int32)

    def complete(self, accumulators, place, progress: Progress, to: Outlet):
        self.epilogue.keep(accumulators, place[2], to)
        return Progress(progress.stored, place[2])

    def store_beside(self, index: int, progress: Progress, to: Outlet):
        return Progress(self.epilogue.store_kept(index, progress.tile, to, progress.stored), progress.tile)
