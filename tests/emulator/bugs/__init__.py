"""Public synchronization bugs of other projects, re-created as small kernels from their descriptions (``kit`` has the
form). ``python -m tests.emulator.bugs`` prints the table of ``cutesync/emulator/README.md``.
"""

from . import copies, threads
from .copies import CONTROL
from .kit import Bug

__all__ = ["BUGS", "CONTROL", "Bug"]

BUGS = copies.BUGS | threads.BUGS
