"""Several GPUs of one host: the same calls on arrays whose parts lie on different devices.

``Group.local()`` makes a group of all GPUs of this process (or of the emulator's devices), ``group.shard(x)`` spreads
an array over them, and the functions of cutesync take what it returns: ``cs.sum(sharded)``. A group's kernels exchange
values through each other's memory; they need no library for it. ``Group.from_torch``, ``from_mpi`` and ``from_nccl``
make a group of several processes with a GPU each; ``in_threads`` tries their programs on the emulator.
"""

from . import calls as calls
from .communicators import in_threads
from .group import Group
from .sharded import Sharded

__all__ = ["Group", "Sharded", "in_threads"]
