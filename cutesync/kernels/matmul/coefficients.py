"""Coefficients of the model, which no manual states. ``python perf/fit.py`` writes them."""

from typing import NamedTuple


class Coefficients(NamedTuple):
    """Rates in bytes a clock of a multiprocessor, ``dram_rate`` of the GPU; the rest in clocks, or factors."""

    shared_rate: float = 100.0  # of shared memory that wgmma reads
    arrival_rate: float = 58.7  # that reach a multiprocessor, multicast or not
    l2_rate: float = 64.0  # that its own loads bring, in aligned rows of 128
    dram_rate: float = 2200.0  # that the GPU reads from memory or writes there
    k_tile: float = 13.0  # what a k-tile adds to its multiplications
    min_k_tile: float = 240.0  # the least a k-tile takes: a barrier, multiplications, a release
    promotion: float = 80.0  # the additions of a k-tile's products in float32
    promotion_pingpong: float = 300.0
    tile: float = 600.0  # between two tiles
    deferred_tile: float = 1300.0  # the same with a deferred epilogue
    epilogue_rate: float = 9.5  # of the result
    direct_epilogue_rate: float = 4.0  # the same where threads store single elements
    turnstile: float = 9000.0  # a write, an atomic and a read of the L2, one after the other
    turnstile_rate: float = 64.0  # of partial sums in memory
    cluster_split_rate: float = 8.0  # of partial sums in a cluster: stored, waited for and added up
    cluster: float = 1200.0  # the barrier of a cluster at its start and end
    start: float = 4500.0  # the first loads, the first barrier, the last store
    unhidden: float = 0.03  # the part of the loads that shows beside whatever is slower: they share the power
    unhidden_memory: float = 0.5  # the part of a block's work that shows beside the streaming of memory, or the reverse
    l2_share: float = 0.05  # the part of the loads from the L2 that costs as much as memory where memory is the limit
    row_of_two_lines: float = 1.5  # cost of a row of 128 bytes that straddles cache lines
    row_of_half_sectors: float = 2.6  # of one that straddles their sectors of 32 bytes


COEFFICIENTS = Coefficients()
