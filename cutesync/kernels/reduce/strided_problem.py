"""A reduction of strided arrays as its policies see it, and what they choose: shared by all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...runtime.layout import Axis
from ..policy import Policy
from .normal import Normal

THREADS = 256


@dataclass(frozen=True)
class StridedPolicy(Policy, kernel=".strided:StridedReduce"):
    """Any strides: ``kept`` and ``reduced`` axes. ``lanes`` units of results side by side, times ``groups`` of
    positions, which are taken ``in_turn`` or in contiguous runs. Neighbouring threads are neighbouring lanes if
    ``along_kept``, else groups. With ``split`` several blocks share the positions; ``wide`` counts in 64 bits.

    ``load`` says what a unit is: an "element", a "vector" of ``bytes`` on their boundary, or ``bytes`` that begin
    anywhere and are read as the two "words" that hold them; with ``boundary`` they are one, whose last columns may lie
    between rows. With "row", a unit is one result, whose elements lie side
    by side: a position is a vector of ``bytes`` of them.

    ``count`` says where the number of positions that count is: "scalar", "memory", or "" if all do. With ``empty`` it
    may be 0; then ``init`` is the result. ``identity``: else ``init`` does not count. ``divides``: the operator divides
    by the number of positions.

    ``store`` says how a unit's results are stored: each "element", or as a vector, "forward" or "backward" in memory.
    ``indexed``: positions are not numbered as indexes are; the last of their steps are those of the index.
    ``repeated``: each element stands for several equal ones. ``copied``: each result is stored several times, ``fill``
    of them as a vector. ``pace``: elements are so far apart, and the vector or row has what lies between. ``resident``
    blocks fit the registers of a multiprocessor. ``ragged``: the last position has only the first of its columns."""

    kept: int
    reduced: int
    along_kept: bool
    load: str
    bytes: int
    lanes: int
    groups: int
    unroll: int
    in_turn: bool
    split: bool
    wide: bool
    count: str = ""
    empty: bool = False
    identity: bool = False
    divides: bool = False
    store: str = "element"
    repeated: bool = False
    copied: bool = False
    fill: int = 1
    indexed: bool = False
    pace: int = 1
    boundary: bool = False
    resident: int = 1
    ragged: bool = False

    @property
    def columns(self) -> int:
        """How many steps the reduced axes have beside those of the inputs."""
        return int(self.indexed)

    @property
    def kept_columns(self) -> int:
        """The same of the kept axes: with words, the number of a unit's first result along the last axis."""
        return int(self.load == "words")


@dataclass(frozen=True)
class OrderedPolicy(StridedPolicy, kernel=".ordered:OrderedReduce"):
    """Elements in order, which the lanes of a warp take in turn."""


@dataclass(frozen=True)
class ShortPolicy(StridedPolicy, kernel=".short:ShortReduce"):
    """Axes of at most ``unroll`` positions: a thread has ``results`` units."""

    results: int = 1


@dataclass(frozen=True)
class JoinedPolicy(StridedPolicy, kernel=".joined:JoinedReduce"):
    """Columns that begin anywhere, whose results neighbouring threads store in common vectors."""


@dataclass(frozen=True)
class RunPolicy(StridedPolicy, kernel=".runs:RunReduce"):
    """The last reduced axis is contiguous: positions are pieces of its runs."""

    @property
    def columns(self) -> int:
        """How many steps the reduced axes have beside those of the inputs."""
        return 2


@dataclass(frozen=True)
class MaskedPolicy(StridedPolicy, kernel=".masked:MaskedReduce"):
    """Rows that begin anywhere: a position is one of the lanes of a row, which has so many ``vectors`` of it. Rows have
    ``row_lanes``, or 0 if the number of lanes is not known."""

    vectors: int = 1
    row_lanes: int = 0

    @property
    def columns(self) -> int:
        """How many steps the reduced axes have beside those of the inputs."""
        return 2


class Output(NamedTuple):
    """Elements of ``size`` bytes, the first of which lies ``begin`` bytes behind a 16-byte boundary."""

    size: int
    begin: int


@dataclass(frozen=True)
class StridedProblem:
    """A reduction in its normal form. Elements have ``size`` bytes (the widest), a state ``words`` 32-bit words.
    The first input begins ``begin`` bytes behind a 16-byte boundary. ``in_turn``: the operator combines any order.
    ``counted``: not all elements need count. ``mapped``: a callable maps each element. ``floats``: the first input's
    elements are. ``places``: the result is the index of an element. A thread stores each result ``beside`` times side
    by side. ``masked``: some element changes no state."""

    form: Normal
    inputs: int
    size: int
    words: int
    begin: int
    in_turn: bool
    outputs: tuple[Output, ...]
    counted: bool = False
    mapped: bool = False
    floats: bool = False
    places: bool = False
    beside: int = 1
    masked: bool = False


@dataclass(frozen=True)
class StridedChoice:
    """A policy and its launch, as ``policy.Choice``; and the axes as the kernel counts them."""

    policy: StridedPolicy
    splits: int
    tiles: int
    kept: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    run: int = 0  # elements of a run, of a RunPolicy
    extent: int = 0  # of the last kept axis, of words; or elements of a row behind its vectors
    repeats: int = 1
    copies: tuple[int, ...] = ()  # how many of each result, and their distance in each output

    @property
    def grid(self) -> int:
        return self.splits * self.tiles

    @property
    def agrees(self) -> bool:
        """Whether blocks combine their partials through the workspace."""
        return self.splits > 1
