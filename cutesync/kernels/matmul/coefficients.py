"""Coefficients of the model, which no manual states. ``python perf/fit.py --coefficients`` writes the defaults (last:
of the results matmul-random-*-seed21, -seed22, -seed31, -seed32 and table-matmul-*; ``line_epilogue_rate``: that of the
least regret of -seed62). ``SUSTAINED`` are those of long products: of times of 33 shapes, of calls back to back for so
long that power limits the clock."""

from typing import NamedTuple


class Coefficients(NamedTuple):
    """Rates in bytes a clock of a multiprocessor, ``dram_rate`` of the GPU; the rest in clocks, or factors."""

    shared_rate: float = 103  # of shared memory that wgmma reads
    arrival_rate: float = 74.9  # that reach a multiprocessor, multicast or not
    l2_rate: float = 183  # that its own loads bring, in aligned rows of 128
    l2_total_rate: float = 11800  # that the L2 gives to all
    dram_rate: float = 2430  # that the GPU reads from memory or writes there
    few_blocks: float = 0.138  # the part of memory's rate that blocks do not use when they are few
    k_tile: float = 9.96  # what a k-tile adds to its multiplications
    min_k_tile: float = 157  # the least a k-tile takes: a barrier, multiplications, a release
    peer: float = 1.46  # what each further block that shares loads adds to a k-tile: its arrival at a barrier
    promotion: float = 228  # the additions of a k-tile's products in float32
    promotion_pingpong: float = 159
    tile: float = 401  # between two tiles
    deferred_tile: float = 808  # the same with a deferred epilogue
    epilogue_rate: float = 37.5  # of the result
    line_epilogue_rate: float = 8  # the same where threads store lines that begin anywhere
    direct_epilogue_rate: float = 2.93  # the same where they store single elements
    sub_tile: float = 72.2  # what a sub-tile adds to that
    activation: float = 0.366  # of an element that passes a function (fitted to gelu)
    turnstile: float = 2240  # a write, an atomic and a read of the L2, one after the other
    turnstile_rate: float = 56.1  # of partial sums in memory
    cluster_split_rate: float = 9.02  # of partial sums in a cluster: stored, waited for and added up
    cluster: float = 250  # the barrier of a cluster at its start and end
    start: float = 3380  # the first loads, the first barrier, the last store
    stage: float = 44  # of each stage beyond 8, where not all loads are multicast (why is not known)
    crowded: float = 0.0688  # the part of the multiplications that the last cluster waits for room
    ragged: float = 0.264  # the part of an idle multiprocessor's share of the last wave that the others gain
    unhidden: float = 0.241  # the part of the loads that shows beside whatever is slower: they share the power
    unhidden_memory: float = 0.273  # the part of the shorter that shows, of work and the streaming of memory
    l2_share: float = 0.0424  # the part of the loads from the L2 that costs as much as memory
    copy: float = 2710  # of the launch of a copy of an operand before
    own_k_tile: float = 364  # of a k-tile that the producer's threads load: a barrier, a fence, the latency of memory
    own_instruction: float = 4.4  # of their instructions, with the share of that latency
    row_of_two_lines: float = 1.89  # cost of a row of 128 bytes that straddles cache lines
    row_of_half_sectors: float = 2.94  # of one that straddles their sectors of 32 bytes


COEFFICIENTS = Coefficients()
SUSTAINED = Coefficients(
    shared_rate=100.0,
    arrival_rate=58.7,
    l2_rate=64.0,
    l2_total_rate=100000.0,
    dram_rate=2200.0,
    few_blocks=0.0,
    k_tile=13.0,
    min_k_tile=240.0,
    peer=0.0,
    promotion=80.0,
    promotion_pingpong=300.0,
    tile=600.0,
    deferred_tile=1300.0,
    epilogue_rate=9.5,
    line_epilogue_rate=8.0,
    direct_epilogue_rate=4.0,
    sub_tile=0.0,
    activation=0.0,
    turnstile=9000.0,
    turnstile_rate=64.0,
    cluster_split_rate=16.0,
    cluster=1200.0,
    start=4500.0,
    stage=0.0,
    crowded=0.0,
    ragged=0.0,
    unhidden=0.03,
    unhidden_memory=0.5,
    l2_share=0.05,
    copy=4500.0,
    own_k_tile=400.0,
    own_instruction=3.0,
    row_of_two_lines=1.5,
    row_of_half_sectors=2.6,
)
