"""A reduction of a contiguous array as its policies see it, and what they choose: shared by all of them."""

from __future__ import annotations

from dataclasses import dataclass

from ..policy import Policy


@dataclass(frozen=True)
class Problem:
    """Each of outer * inner results is reduced from ``length`` elements of ``size`` bytes (the widest, if there are
    several ``inputs``). A state has ``words`` 32-bit words. ``aligned`` and ``aligned_out``: inputs and outputs begin
    on 16-byte boundaries. ``together``: all inputs are on such a boundary where that of the smallest elements is.
    ``in_turn``: elements may be combined in any order. The widest results have ``out_size`` bytes. ``keys``: elements
    and their places are combined as one number; ``masked``: some element changes no state."""

    outer: int
    length: int
    inner: int
    size: int
    words: int
    aligned: bool
    aligned_out: bool
    inputs: int = 1
    together: bool = True
    in_turn: bool = False
    out_size: int = 4
    keys: bool = False
    masked: bool = False

    @property
    def several(self) -> bool:
        """Whether there are several inputs, or states of more words than a number and its index."""
        return self.inputs > 1 or self.words > 4


@dataclass(frozen=True)
class FillPolicy(Policy, kernel=".base:FillReduce"):
    """Fill the results of an empty axis: ``each`` of a thread."""

    each: int = 1


@dataclass(frozen=True)
class SegmentPolicy(Policy, kernel=".segments:SegmentReduce"):
    """Rows in chunks of ``unroll`` 16-byte vectors per lane. ``scope`` says which threads reduce a row: "warp",
    "block", "grid" (one row) or "grid_rows". ``whole``: rows consist of whole chunks on 16-byte boundaries. ``few``: at
    most 32 blocks share a row."""

    scope: str
    warps: int
    unroll: int
    blocks_per_sm: int
    whole: bool = False
    few: bool = False
    aligned: bool = True

    @property
    def last_heads(self) -> bool:
        """Whether a block's last warp reads the head, which its first one reads where eight or sixteen have a row
        (H200, sum bool (17953,): 1.73 us, by the last 1.85 us)."""
        return self.scope != "block" or self.warps < 8


@dataclass(frozen=True)
class ShortRowPolicy(Policy, kernel=".rows:ShortRowReduce"):
    """Rows of up to 512 bytes: ``group`` lanes per row, which load 16-byte ``vectors``, ``each`` side by side, or
    single elements; with ``masked`` each so many vectors, which may hold elements of other rows."""

    vectors: bool
    group: int
    unroll: int
    warps: int
    masked: int = 0
    each: int = 1


@dataclass(frozen=True)
class WholeRowPolicy(Policy, kernel=".rows:WholeRowReduce"):
    """Rows of ``length`` elements, so short that a lane reduces several whole rows: it loads ``unroll`` times
    ``lane_bytes``."""

    length: int
    lane_bytes: int
    unroll: int
    warps: int
    aligned_out: bool


@dataclass(frozen=True)
class ColumnPolicy(Policy, kernel=".columns:ColumnReduce"):
    """An axis that is not the last. A block has ``lanes`` threads side by side, each with a vector or one element of
    columns, times ``groups`` of rows; with ``split`` several blocks share the rows."""

    vectors: bool
    lanes: int
    groups: int
    unroll: int
    split: bool
    aligned_out: bool


@dataclass(frozen=True)
class NarrowPolicy(Policy, kernel=".narrow:NarrowColumnReduce"):
    """An axis that is not the last, with few ``columns``: a lane loads ``lane_bytes``, which are whole rows; with
    ``split`` several blocks share the rows. ``anywhere``: slices or rows of a lane do not begin on 16-byte boundaries.
    ``in_turn``: rows are combined in any order. ``alone``: each warp has a slice of its own."""

    columns: int
    lane_bytes: int
    unroll: int
    warps: int
    split: bool
    anywhere: bool = False
    in_turn: bool = False
    alone: bool = False


@dataclass(frozen=True)
class Choice:
    """A policy and its launch: ``splits`` blocks share a result, ``tiles`` blocks cover ``inner``."""

    policy: Policy
    splits: int
    tiles: int
    grid: int

    @property
    def agrees(self) -> bool:
        """Whether blocks combine their partials through the workspace."""
        return self.splits > 1 and getattr(self.policy, "scope", "") != "atomic"
