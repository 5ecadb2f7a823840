"""The blocks of a cluster exchange states through each other's shared memory (distributed shared memory).

The hardware starts the blocks of a cluster together, so they may wait for each other. A block's shared memory may be written from outside once the
block has started, and until it ends; what is sent must be there before it is read. So: everybody says that it has started, sends when all
have, and waits until all have sent. Nobody reads another block's memory, so a block may end when it has read its own.
"""

from __future__ import annotations

import cutlass.cute as cute
from cutlass import Int32


def start_together() -> None:
    """All threads of the cluster's blocks say that they have started; ``leave_in_all`` waits for it."""
    cute.arch.cluster_arrive_relaxed()


@cute.jit
def leave_in_all(storage, place, have, state, lane, peers) -> None:
    """Every warp leaves a state, the same in all its lanes, at ``place`` of a state array in each of the ``peers`` blocks (up to 32). All warps of the
    cluster call; afterwards everything has arrived. Two cluster barriers; the first arrival is ``start_together``."""
    cute.arch.cluster_wait()
    if lane < peers:
        for member, value in zip(storage, (*state, Int32(have))):
            address = (cute.arch.map_dsmem_ptr(member.iterator, lane) + place).toint()
            kind = f"{'f' if type(value).is_float else 'b'}{type(value).width}"
            cute.arch.inline_ptx(f"st.shared::cluster.{kind} [{{$r0}}], {{$r1}};", read_only_args=[address, value])
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()
