"""Programmatic dependent launch: a launch and its first instructions are hidden behind the end of the launch before.

Every kernel of this package may start while the launch before it in its stream still runs (``runtime.launch``). Two
instructions make that safe and useful. ``griddepcontrol.wait`` holds a thread until the launches before have ended and
their writes are visible; a launch ends after its own wait, so it is enough that each waits for the one before it.
``griddepcontrol.launch_dependents`` lets the next launch start once all blocks of this one have executed it or ended.

A kernel with several blocks per SM executes ``griddepcontrol.launch_dependents`` after its loads. Triggered earlier,
blocks of the next grid occupy SMs unevenly, and that grid stays unbalanced when it runs (sum of 2**24 float32 in a
graph: 17.8 us instead of 23.1). A kernel whose own blocks would have to wait for an SM that a block of the next grid
occupies does not execute it (``matmul.pack``).
"""

from __future__ import annotations

import cutlass.cute as cute

LINE_BYTES = 128  # of memory


def await_launches() -> None:
    """Wait for the launches before. Every thread calls, before its first access to global memory."""
    cute.arch.griddepcontrol_wait()


def ask_for_line(pointer) -> None:
    """Ask the L2 for the line that holds what a pointer points to. This reads nothing, and what the launches before
    write comes to the L2, too: it may come before ``await_launches``."""
    cute.arch.inline_ptx("prefetch.global.L2 [{$r0}];", write_only_types=[], read_only_args=[pointer])


def let_next_start() -> None:
    """Allow the next launch to start, as far as this block is concerned. Any thread of it calls, or all."""
    cute.arch.griddepcontrol_launch_dependents()
