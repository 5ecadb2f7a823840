"""Launches that overlap: programmatic dependent launch, which hides a launch and its first instructions behind the end of the one before.

Every kernel of this package is launched so that it may start while what precedes it in its stream still runs (``runtime.launch``). Two
instructions make that safe and useful. ``griddepcontrol.wait`` holds a thread until the launches before have ended and what they
wrote can be seen; a launch ends after its own wait, so it is enough that each waits for the one before it. And
``griddepcontrol.launch_dependents`` lets the next launch start once all blocks of this one have passed it or ended.

A kernel with several blocks an SM passes it when its loads are done: blocks of the next launch that come earlier fill the SMs unevenly, and
run so when their turn comes. One whose own blocks would have to wait for an SM that a block of the next launch fills does not pass it
(``matmul.pack``). (A sum of 2**24 float32 in a graph: 17.8 us, and 23.1 with the next launch let in at the start.)
"""

from __future__ import annotations

import cutlass.cute as cute


def await_launches() -> None:
    """Wait for the launches before: first thing in a kernel, by every thread. Global memory must not be touched earlier."""
    cute.arch.griddepcontrol_wait()


def let_next_start() -> None:
    """This block does not mind if the next launch starts. Any thread of it, or all."""
    cute.arch.griddepcontrol_launch_dependents()
