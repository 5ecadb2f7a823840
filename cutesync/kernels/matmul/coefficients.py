"""Coefficients of the model, which no manual states. ``python perf/fit.py`` writes the defaults. ``SUSTAINED`` are
those of long products: of times of 33 shapes, of calls back to back for so long that power limits the clock."""

from typing import NamedTuple


class Coefficients(NamedTuple):
    """Rates in bytes a clock of a multiprocessor, ``dram_rate`` of the GPU; the rest in clocks, or factors."""

    shared_rate: float = 88.7  # of shared memory that wgmma reads
    arrival_rate: float = 66.4  # that reach a multiprocessor, multicast or not
    l2_rate: float = 71.7  # that its own loads bring, in aligned rows of 128
    l2_total_rate: float = 9340  # that the L2 gives to all
    dram_rate: float = 4610  # that the GPU reads from memory or writes there
    k_tile: float = 20.1  # what a k-tile adds to its multiplications
    min_k_tile: float = 153  # the least a k-tile takes: a barrier, multiplications, a release
    promotion: float = 238  # the additions of a k-tile's products in float32
    promotion_pingpong: float = 332
    tile: float = 335  # between two tiles
    deferred_tile: float = 661  # the same with a deferred epilogue
    epilogue_rate: float = 36.1  # of the result
    direct_epilogue_rate: float = 2.89  # the same where threads store single elements
    sub_tile: float = 63.7  # what a sub-tile adds to that
    turnstile: float = 2850  # a write, an atomic and a read of the L2, one after the other
    turnstile_rate: float = 58.9  # of partial sums in memory
    cluster_split_rate: float = 10  # of partial sums in a cluster: stored, waited for and added up
    cluster: float = 363  # the barrier of a cluster at its start and end
    start: float = 1600  # the first loads, the first barrier, the last store
    ragged: float = 0.244  # the part of an idle multiprocessor's share of the last wave that the others gain
    unhidden: float = 0.18  # the part of the loads that shows beside whatever is slower: they share the power
    unhidden_memory: float = 0.397  # the part of the shorter that shows, of work and the streaming of memory
    l2_share: float = 0.0352  # the part of the loads from the L2 that costs as much as memory
    copy: float = 4500  # of the launch of a copy of an operand before
    own_k_tile: float = 400  # of a k-tile that the producer's threads load: a barrier, a fence, the latency of memory
    own_instruction: float = 3  # of their instructions, with the share of that latency
    row_of_two_lines: float = 1.86  # cost of a row of 128 bytes that straddles cache lines
    row_of_half_sectors: float = 2.33  # of one that straddles their sectors of 32 bytes


COEFFICIENTS = Coefficients()
SUSTAINED = Coefficients(
    shared_rate=100.0,
    arrival_rate=58.7,
    l2_rate=64.0,
    l2_total_rate=100000.0,
    dram_rate=2200.0,
    k_tile=13.0,
    min_k_tile=240.0,
    promotion=80.0,
    promotion_pingpong=300.0,
    tile=600.0,
    deferred_tile=1300.0,
    epilogue_rate=9.5,
    direct_epilogue_rate=4.0,
    sub_tile=0.0,
    turnstile=9000.0,
    turnstile_rate=64.0,
    cluster_split_rate=16.0,
    cluster=1200.0,
    start=4500.0,
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
