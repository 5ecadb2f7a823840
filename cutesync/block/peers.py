"""States that the blocks of a cluster tell each other, once a launch, through distributed shared memory.

    Peers.make(types, blocks)    at the top of the kernel, in all threads; then ``meet()``
    tell(state, rank, lane)      one warp of each block: its state is stored in the shared memory of every block
    before(rank, combine, lane)  one warp of each block: waits for all of them, and combines those of lower rank

The blocks of a cluster run at the same time, so no ticket has to say that those before have started, and nothing lies
in global memory. ``told``: an arrival of each block, when it has stored its state; release and acquire at cluster
scope; first phase 0. Every block waits for all arrivals, so none leaves while a peer may still store or arrive there.
"""

from __future__ import annotations

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import Boolean

from ..sync.barrier import Barriers
from ..warp import Maybe, reduce_valid, select, zeros
from .reduce import get, state_array


@dataclass(frozen=True)
class Peers:
    """The places of the blocks' states in this block's shared memory, one a block."""

    states: tuple
    told: Barriers
    types: tuple
    blocks: int

    @staticmethod
    def make(types: tuple, blocks: int) -> Peers:
        """In all threads of all blocks."""
        return Peers(state_array(types, blocks), Barriers.make(1, blocks, scope="cluster", name="told"), types, blocks)

    def meet(self) -> None:
        """All threads of all blocks, after ``make``: this block may be stored to. ``met`` must follow."""
        cute.arch.cluster_arrive()

    def met(self) -> None:
        """All threads of all blocks, before ``tell``: every block may be stored to."""
        cute.arch.cluster_wait()

    @cute.jit
    def tell(self, state, rank, lane):
        """One warp: store this block's state in every block of the cluster, a lane each."""
        if lane < self.blocks:
            for member, value in zip(self.states, state):
                there = cute.arch.map_dsmem_ptr(member.iterator + rank, lane)
                mine = cute.make_rmem_tensor(cute.make_layout((1,)), type(value))
                mine[0] = value
                cute.autovec_copy(mine, cute.make_tensor(there, cute.make_layout((1,))))
            self.told[0].arrive_remote(lane)

    def collect(self, lane):
        """One warp: wait for all blocks; lane r gets the state of block r."""
        self.told[0].wait_parity(0)
        return get(self.states, cutlass.min(lane, self.blocks - 1), self.types)

    def before(self, rank, combine, lane) -> Maybe:
        """One warp: the states of the blocks of lower rank in order (zeros if there are none), in lane 0 at least."""
        state = reduce_valid(self.collect(lane), rank, combine, lane)
        return Maybe(select(rank > 0, state, zeros(self.types)), Boolean(rank > 0))
