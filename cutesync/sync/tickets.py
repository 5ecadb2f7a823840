"""Tickets: tiles dealt to blocks as they ask, one atomic a tile.

    blocks   draw() --> 0, 1, 2, ... in the order of asking --> work on that tile --> draw() ... until there are no more

A fixed deal (block b takes b, b + blocks, ...) gives all blocks equally many tiles, but multiprocessors are not equally
far from memory: the last is late. Copying 2**28 float32 on an H200 that way reached 0.91 of the copy rate, with tickets
0.96 and more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cutlass.cute as cute
from cutlass import Int32


@dataclass(frozen=True)
class Tickets:
    """The numbers 0 to ``count`` - 1, each dealt once to one of ``takers`` (both Int32, below 2**31 together).

    ``word`` points to an Int32 in global memory, zero at first. Every taker draws until it gets a number that is not
    below ``count``: that makes ``count + takers`` draws, after which the word is zero again, for the next launch on the
    same stream.
    """

    word: cute.Pointer
    count: Any
    takers: Any

    def draw(self):
        """The next number (Int32). One thread a taker calls. Nothing here waits for the answer: ask early, use it
        late."""
        return cute.arch.inline_ptx(
            "atom.global.relaxed.gpu.inc.u32 {$w0}, [{$r0}], {$r1};",
            write_only_types=[Int32],
            read_only_args=[self.word, self.count + self.takers - 1],
        )
