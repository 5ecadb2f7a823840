"""What the policies of scans are chosen for, and what is chosen."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...runtime.kernel import Scalar
from ...sizes import power_of_two_below
from ..hardware import LANES, VECTOR_BYTES, WORD_BYTES
from ..policy import Policy

ANYWHERE = -1  # of ``Problem.shift``: in each row elsewhere, as the kernel finds
MIN_VECTOR_BYTES = 8  # if only narrower vectors divide a row, the row is read in aligned vectors of 16 bytes instead
# Elements of one or two bytes: in shorter rows a warp a row is slower than slices (H200, rows of 251, 301 and 627
# uint8: 24.3, 20.5 and 14.3 us, in slices 20.7, 23.2 and 28.7 us; of 251 and 351 float16: 26.2 and 21.4 us, in slices
# 23.1 and 27.0 us).
MIN_RAGGED_ROW = 288
# Words of smaller arrays are loaded one by one (H200, reverse float32 (256, 1024), 1088 apart: 2.4 us, joined 2.7 us;
# (1024, 512), 738 apart: 3.4 and 2.9 us).
MIN_JOINED_BYTES = 2 << 20
# Vectors of a row: longer ones are tiles. Rows of 8 bytes of as many elements are read one by one, a lane each, or in
# vectors of their own (H200, off by one, joined: reverse uint64 (2048, 2048): 29.1 us, so 18.5 us; float64 (600, 1500):
# 7.9 and 6.0 us; uint64 (1108,): 2.9 and 1.6 us).
MAX_JOINED_VECTORS = 1024
MAX_CHUNK_WORDS = 96  # states of several values: registers of a lane for its vectors and their prefixes


@dataclass(frozen=True)
class Problem:
    """There are rows * inner scans of ``length`` elements. ``sources`` and ``results`` are the element sizes of the
    inputs and outputs in bytes; ``xs`` and ``outs`` are their addresses, of which only the alignment counts. A state
    has ``words`` 32-bit words; ``double``: it is one float64; ``indexed``: it is made with its position's index.
    ``counted``: only the first positions count, as many as the call says when it runs.

    ``apart``: the outputs do not lie in the memory of the inputs, so elements beside those of a thread may be read.
    ``packs``: the operator has word arithmetic (``packed``). ``sums``: it is a sum, or one of bools. ``firsts``: first
    operands are an array. ``words_of_numbers``: elements are words of integers of one byte.

    ``view`` is that of ``base.Scan``. Unless it is None, ``pitches`` are the inputs' strides and the outputs', in
    elements: from group to group, where there are several columns from position to position, and from row to row in a
    group of ``group`` rows. Addresses of "mirrored" inputs are those behind their last elements in memory.

    ``gap``: the positions of rows of the only input lie so many elements apart. Elements are loaded one by one: ``xs``
    is an address from which vectors begin (in a reverse scan, end) with a row, and the input's ``pitches`` are 0.

    ``whole_vectors``: of rows with gaps, vectors of 16 bytes begin (in a reverse scan, end) with each row in memory.

    ``interleaved``: that of the ``Layout`` of a strided array. ``far``: that of its ``Form``."""

    rows: int
    length: int
    inner: int
    sources: tuple[int, ...]
    results: tuple[int, ...]
    xs: tuple[int, ...]
    outs: tuple[int, ...]
    words: int = 1
    double: bool = False
    indexed: bool = False
    counted: bool = False
    view: str | None = None
    pitches: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    apart: bool = False
    packs: bool = False
    group: int = 1
    gap: int = 1
    interleaved: bool = False
    whole_vectors: bool = False
    sums: bool = False
    firsts: bool = False
    words_of_numbers: bool = False
    far: int = 0

    @functools.cached_property
    def several(self) -> bool:
        """Whether there are several inputs, several outputs, indexes, or states of more words than the widest
        number."""
        return len(self.sources) > 1 or len(self.results) > 1 or self.words > 2 or self.indexed

    @functools.cached_property
    def source(self) -> int:
        """The smallest element of an input."""
        return min(self.sources)

    @functools.cached_property
    def wide(self) -> int:
        return max(*self.sources, *self.results)

    @property
    def position_bytes(self) -> int:
        """Bytes that are read or written of each position, whichever is more."""
        return max(sum(self.sources), sum(self.results))

    @functools.cached_property
    def items(self) -> int:
        """Elements of a vector of 16 bytes of the widest type."""
        return VECTOR_BYTES // self.wide

    @property
    def first(self) -> int:
        """The place of the first element in the input of the smallest elements, counted in elements from an address
        that is aligned."""
        lead = self.sources.index(self.source)
        return self.xs[lead] // self.source

    @functools.cached_property
    def together(self) -> bool:
        """Whether all inputs are on a boundary of 16 bytes where the one of the smallest elements is."""
        return all((x // size - self.first) % (VECTOR_BYTES // size) == 0 for x, size in zip(self.xs, self.sources))

    @functools.cached_property
    def shift(self) -> int | None:
        """How many elements past a vector boundary of the output the aligned vectors of the input are stored:
        ``ANYWHERE`` if rows differ. None if vectors of the output are narrower than a word, if several outputs differ,
        or if the inputs do."""
        shifts = {(out // size + self._sign * self.first) % self.items for out, size in zip(self.outs, self.results)}
        if self.alike and shifts == {0} and self.together:
            return 0
        if self.several or self.items * self.results[0] < 4:
            return None
        return shifts.pop() if self.alike else ANYWHERE

    @functools.cached_property
    def alike(self) -> bool:
        """Whether vectors are stored as far past a boundary in every row."""
        pairs = *zip(*self.pitches), (self.far, 0)
        return self.rows == 1 or not any((out + self._sign * x) % self.items for x, out in pairs)

    @property
    def _sign(self) -> int:
        """-1 if the outputs' places count down from where the mirrored inputs' end."""
        return 1 if self.view == "mirrored" else -1

    @property
    def places(self) -> tuple[int, ...] | None:
        """For each output an input of its own with elements of the same size; None if there are not so many."""
        found: list[int] = []
        for result in self.results:
            k = next((k for k, size in enumerate(self.sources) if size == result and k not in found), None)
            if k is None:
                return None
            found.append(k)
        return tuple(found)

    def vector(self, extent: int) -> tuple[int, int | None]:
        """Return ``(items, shift)``: the largest vector that divides ``extent`` and is aligned in the inputs; ``shift``
        is 0 if it is aligned in the outputs, too, else None."""
        items = math.gcd(extent, self._begins)
        return items, self.aligned(items)

    @functools.cached_property
    def _begins(self) -> int:
        """The largest vector that is aligned in the inputs, in elements."""
        return math.gcd(self.items, self.far, *self.pitches[0], *(x // size for x, size in zip(self.xs, self.sources)))

    @functools.cached_property
    def _stored(self) -> int:
        """Vectors of which numbers of elements are aligned in the outputs: of those that divide this."""
        return math.gcd(*self.pitches[1], *(out // size for out, size in zip(self.outs, self.results)))

    def aligned(self, items: int) -> int | None:
        """Return 0 if all vectors of ``items`` are aligned in the outputs, else None."""
        return None if self._stored % items else 0

    @functools.cached_property
    def ragged(self) -> bool:
        """Whether aligned vectors of 16 bytes read a row, of which the first and the last may hold others' elements."""
        if self.skewed:
            return False
        least = LANES * self.items
        if self.rows > 1 and self.wide <= 2 and not self.several and self.shift is not None:
            least = min(least, MIN_RAGGED_ROW)
        return self.length > least and self.vector(self.length)[0] * self.wide < MIN_VECTOR_BYTES

    @functools.cached_property
    def skewed(self) -> bool:
        """Whether rows are whole vectors of 16 bytes on their boundaries in the output, but begin anywhere in the
        input: each vector is joined from the two aligned ones that hold it."""
        plain = self.sources == self.results and self.inner == 1 and self.gap == 1
        if not plain or self.several or self.counted or self.length % self.items or self.aligned(self.items) is None:
            return False
        few = self.wide == WORD_BYTES and self.size_of_results < MIN_JOINED_BYTES
        fits = self.length <= MAX_JOINED_VECTORS * self.items
        least = VECTOR_BYTES if self.wide == 8 and self.length > MAX_JOINED_VECTORS else MIN_VECTOR_BYTES
        return fits and not few and self.vector(self.length)[0] * self.wide < least

    @functools.cached_property
    def size_of_results(self) -> int:
        """Bytes of the widest results."""
        return self.rows * self.length * self.inner * max(self.results)

    @functools.cached_property
    def whole(self) -> bool:
        """Whether rows begin and end on boundaries of 16 bytes."""
        return self.source == self.wide and not self.counted and self.vector(self.length)[0] == self.items

    def fitted(self, rows: int) -> int:
        """Return the number of vectors per lane, at most ``rows``, that fit registers with their prefixes."""
        if not self.several:
            return rows
        words = self.items * sum(self.sources) / 4 + self.words
        return max(1, min(rows, power_of_two_below(int(MAX_CHUNK_WORDS / words))))


@dataclass(frozen=True)
class Choice:
    """A policy and its launch: ``tiles`` cover a row; ``slots`` states of ``width`` columns are published. ``layout``
    has the parameters that describe strided arrays, and their values; ``view`` is that of ``base.Scan``."""

    policy: Policy
    tiles: int
    grid: int
    slots: int = 0
    width: int = 1
    layout: Mapping[Scalar, int] = field(default_factory=dict)
    view: str | None = None
