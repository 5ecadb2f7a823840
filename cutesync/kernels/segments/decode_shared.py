"""What the roles of the kernel that decodes runs share: the arguments of a launch, and shared memory. Device code."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import cutlass.cute as cute
from cutlass import Int32, Int64
from cutlass.memory import SmemAllocator

from ...sync.barrier import Barriers
from ...sync.tiles import TileRing
from ..select.shared import aligned, tensor
from .decode_ahead import Before

TURN = -2  # the number of the stage behind the tiles: parts of long ones follow
WHOLE = -1, 0  # in place of a part: the tile is stored if it is not long

# A launch's arguments: ``lengths`` has how many results each of ``runs`` runs of ``values`` has; those from the end of
# all on, up to the size in ``cut``, are ``fill``. ``count`` gets where the last run ends.
Arguments = namedtuple("Arguments", "values lengths out count fill runs cut slots places counters")


class Control(IntEnum):
    """The warps of the role "control", each of which has one job."""

    LOAD = 0
    PUBLISH = 1
    LOOK_AHEAD = 2


class Meeting(IntEnum):
    """Named barriers of place warps, of each squad: all have read what they overwrite."""

    READ = 1
    READ_BY_SECOND = 2


@dataclass(frozen=True)
class Shared:
    """Shared memory: the tiles' lengths and elements and their ring, the roles' barriers, of each group how many
    results, then where they begin (``results``), and runs that are not empty (``runs``) there are, and the same of each
    stage (``counts``, ``lives``), and what is ``said`` of its runs; where the part begins in the tile that a stage has
    (``parts``), how many results of either are stored (``stops``), in which ``bands`` (``Decode.share_out``), what
    comes before them (``before``), the launch's tag, and the store warps' flags."""

    buffers: tuple
    tiles: TileRing
    counted: Barriers
    summed: Barriers
    ready: Barriers
    results: cute.Tensor
    runs: cute.Tensor
    counts: cute.Tensor
    lives: cute.Tensor
    said: cute.Tensor
    parts: cute.Tensor
    stops: cute.Tensor
    bands: cute.Tensor
    before: Before
    tag: cute.Tensor
    flags: cute.Pointer

    @staticmethod
    def make(kernel: Any) -> Shared:
        """The shared memory of a ``decode.Decode``. In all threads; one block barrier must follow."""
        stages, policy = kernel.stages, kernel.policy
        groups = stages * policy.groups
        return Shared(
            tuple(replace(buffer, start=aligned(stages * buffer.stage_bytes)) for buffer in kernel.buffers),
            TileRing.make(stages, consumers=policy.store_warps),
            Barriers.make(stages, policy.place_warps, name="counted"),
            Barriers.make(stages, 1, name="summed"),
            Barriers.make(stages, policy.place_warps + 1, name="ready"),
            tensor(Int64, groups),
            tensor(Int32, groups),
            tensor(Int64, stages),
            tensor(Int32, stages),
            tensor(Int32, stages),
            tensor(Int64, stages),
            tensor(Int32, stages),
            cute.make_tensor(SmemAllocator().allocate_array(Int32, 4 * stages, byte_alignment=16), (4 * stages,)),
            Before(tensor(Int64, stages), tensor(Int32, stages), tensor(Int32, stages)),
            tensor(Int32, 1),
            aligned(policy.store_warps * kernel.scratch),
        )
