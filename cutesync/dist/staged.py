"""Parts of a group of several processes, copied to memory that the others have mapped before they are read there.

The copy is a launch before the one that reads, in the same stream. The memory is that of the stream (or graph), so
nobody reads it any more when the next copy is made: a launch that reads ends after all ranks have read
(``pull_kernel``).
"""

from __future__ import annotations

from ..dtypes import BY_NAME
from ..kernels.reduce import reduce
from ..runtime.device_array import DeviceArray
from ..runtime.view import View
from .sharded import Sharded
from .team import Team
from .work import Work


def staged_view(view: View) -> View:
    """Return the layout of the copy of a part."""
    return View(0, view.shape, view.dtype, view.device, True)


class Staged:
    """The copies of the parts of arrays like ``x``."""

    def __init__(self, team: Team, x: Sharded) -> None:
        self.team = team
        self.size = max(view.size for view in x.views) * x.dtype.size

    def copy(self, x: Sharded, work: Work) -> tuple[int, ...]:
        """Launch the copy of the own part. Return the addresses of all copies, by rank."""
        rank = self.team.rank
        bases, view = work.memory.staging(self.team, max(self.size, 1)), x.views[rank]
        if view.size:
            work.at(rank)
            bits = BY_NAME[f"uint{8 * view.dtype.size}"]  # the same bits, whatever they mean
            source = DeviceArray(view.ptr, view.shape, bits, view.device, x.parts[rank], view.steps)
            target = DeviceArray(bases[rank], view.shape, bits, view.device, None)
            reduce(source, "max", axis=(), out=target, stream=work.streams[rank])
        return bases
