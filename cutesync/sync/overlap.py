"""Launches that overlap: programmatic dependent launch, which hides a launch and its first instructions behind the end of the one before.

Every kernel of this package is launched so that it may start while what precedes it in its stream still runs (``runtime.launch``). Two
instructions make that safe and useful: ``griddepcontrol.launch_dependents`` lets the next launch start as soon as all blocks of this one have,
and ``griddepcontrol.wait`` holds a thread until the launches before have ended and what they wrote can be seen. A launch ends after
its own wait, so it is enough that each waits for the one before it.
"""

from __future__ import annotations

import cutlass.cute as cute


def overlap() -> None:
    """First thing in a kernel, by every thread: the next launch may start; wait for those before. Global memory must not be touched earlier."""
    cute.arch.griddepcontrol_launch_dependents()
    cute.arch.griddepcontrol_wait()
