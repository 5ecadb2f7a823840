"""A barrier of all blocks of a grid.

    each block   sync_threads --> thread 0 adds to one word, waits until its top bit turns --> sync_threads

All blocks must be resident at once: launch with ``cooperative=True``, or no more blocks than the multiprocessors hold.
Block 0 adds what turns the top bit when the last has arrived and brings the count below it back to 0, so the word needs
clearing once, before its first use ever, and serves any number of barriers, launches and grid sizes after that.
"""

from __future__ import annotations

from dataclasses import dataclass

import cutlass.cute as cute
from cutlass import Int32

from .wait import BACK_OFF, block_thread, until

_TOP = -(1 << 31)


@dataclass(frozen=True)
class GridBarrier:
    """``GridBarrier(word).sync()`` in all threads of all blocks; ``word`` points to an Int32 in global memory, zero
    before first use."""

    word: cute.Pointer

    def sync(self) -> None:
        """Wait for every thread of the grid; what they wrote before, to global memory, is seen after."""
        _sync(self.word)


@cute.jit
def _sync(word: cute.Pointer):
    cute.arch.sync_threads()
    if block_thread() == 0:
        x, y, z = cute.arch.block_idx()
        width, height, depth = cute.arch.grid_dim()
        share = Int32(1)
        if x + y + z == 0:
            share = Int32(_TOP) - (width * height * depth - 1)
        # release: the block's writes, ordered before by sync_threads, come before the count
        before = Int32(cute.arch.atomic_add(word, share, sem="release", scope="gpu"))
        until(lambda: _turned(word, before), "the other blocks at the grid barrier", back_off=BACK_OFF)
    cute.arch.sync_threads()


def _turned(word, before):
    return (Int32(cute.arch.load(word, Int32, sem="acquire", scope="gpu")) ^ before) < 0
