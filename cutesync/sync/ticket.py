"""The last-block ticket: of ``count`` blocks that take one, exactly one learns that it is the last.

The counter wraps to zero when the last block takes its ticket, so it needs no reset between launches. It must be zero before the
first launch ever (the runtime clears a workspace once, when it is made).
"""

from __future__ import annotations

import cutlass.cute as cute
from cutlass import Int32


def take_ticket(counter, count):
    """True in the block that arrives last. One thread a block calls.

    ``atom.inc.acq_rel.gpu``: release publishes what this thread (and, after a block barrier, its block) wrote before; acquire in
    the last block makes every other block's writes visible to it.
    """
    old = cute.arch.inline_ptx(
        "atom.global.acq_rel.gpu.inc.u32 {$w0}, [{$r0}], {$r1};",
        write_only_types=[Int32],
        read_only_args=[counter, Int32(count) - 1],
    )
    return old == Int32(count) - 1
