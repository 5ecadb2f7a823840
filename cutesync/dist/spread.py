"""Large products along K whose operands are less to copy than their sums: each device gets its rows of A, and B, whole
along K, instead of sums.

While copy engines bring the parts of the others, a device multiplies its own part of K for its first rows. All of K for
the other rows follows on another stream, and at last the others' parts of K for the first rows, which are added to what
these have (as C of the product). So the result is rounded to its type once, for the first rows two times or, by a
device between others, three times. Rows are cut by what is to be copied, so bits follow from shapes and the number of
devices, and are equal in every run.

Between processes, in captures and on the emulator, launches of ``pull_kernel`` bring the parts first; the products are
the same ones.
"""

from __future__ import annotations

from typing import Any

from ..kernels.matmul import matmul
from ..kernels.matmul.call import MatmulSpec
from ..runtime import arrays
from ..runtime.copy_engine import Lines
from .beside import CALL, COPIES, KERNELS, Beside
from .overlap import maker_of, options_of, others_of
from .sharded import Sharded
from .work import Work

RATE = 0.85e9  # multiplications and additions a microsecond that an H200 makes
BYTES = 0.35e6  # a microsecond from other devices
LATENCY = 20  # microseconds of the copies
MOST = 0.75  # of a device's rows that are first ones: with more, sums are less to wait for
STEP = 256  # rows by which they are cut


def spreads(a: Sharded, b: Sharded) -> bool:
    """Return whether a product along K is made so."""
    return _share(a, b) <= MOST and all(view.contiguous for view in b.views) and min(_rows(a)) >= 2 * STEP


def _rows(a: Sharded) -> tuple[int, ...]:
    return a.group.lengths(a.shape[0])


def _share(a: Sharded, b: Sharded) -> float:
    """Return the share of rows whose product by a device's own part of K takes as long as it takes to copy all of B,
    and of A the other rows."""
    (rows, k), p = a.shape, a.group.size
    rows //= p
    other = k * (p - 1) / p * a.dtype.size / BYTES  # of a row of A, and of a column of B
    own = 2 * rows * b.shape[1] * (k / p) / RATE
    return (LATENCY + (b.shape[1] + rows) * other) / (own + rows * other)


class SpreadPlan:
    """Product and reduce-scatter. A device keeps ``rows[rank]`` of the result, of which the first ``firsts[rank]`` are
    multiplied by its own part of K beforehand."""

    def __init__(self, arguments: tuple, spec: MatmulSpec, xs: tuple[Sharded, Sharded]) -> None:
        a, b = xs
        self.options, share = options_of(arguments, spec), _share(a, b)
        self.lengths, self.k = _rows(a), a.offsets
        self.starts = [sum(self.lengths[:rank]) for rank in range(a.group.size)]
        self.firsts = [min(int(share * n) // STEP + 1, (n - 1) // STEP) * STEP for n in self.lengths]
        self.like = [
            (
                maker_of(part, (n, b.shape[1]), spec.dtype, view.device),
                maker_of(part, (n, a.shape[1]), a.dtype, view.device),
                maker_of(part, b.shape, b.dtype, view.device),
            )
            for part, view, n in zip(a.parts, a.views, self.lengths)
        ]

    def run(self, xs: tuple[Sharded, ...], streams: tuple[int, ...], explicit: bool) -> Sharded:
        (a, b), group, found = xs, xs[0].group, []
        with Work(group, streams, explicit) as work:
            for rank, (empty, *_) in enumerate(self.like):
                work.at(rank)
                found.append(empty(streams[rank], explicit))
            beside = Beside.of(work, group)
            if beside is None:
                given = streams if explicit else None
                left, right = a.reshard(0, self.lengths, stream=given).parts, b.reshard(None, stream=given).parts
                for rank, raw in enumerate(streams):
                    work.at(rank)
                    self.multiply_own(xs, found, rank, raw)
                    self.multiply_rest(left, right, found, rank, raw)
                    self.multiply_others(left, right, found, rank, raw)
            else:
                self.run_beside(beside, (a, b), found, work)
        return Sharded.of_results(group, found, 0)

    def multiply_own(self, xs: tuple, found: list, rank: int, stream: int) -> None:
        """The first rows, by the device's own part of K."""
        start, first = self.starts[rank], self.firsts[rank]
        self.multiply(xs[0].parts[rank][start : start + first], xs[1].parts[rank], None, found[rank][:first], stream)

    def multiply_rest(self, left: Any, right: Any, found: list, rank: int, stream: int) -> None:
        """The other rows."""
        first = self.firsts[rank]
        self.multiply(left[rank][first:], right[rank], None, found[rank][first:], stream)

    def multiply_others(self, left: Any, right: Any, found: list, rank: int, stream: int) -> None:
        """The first rows, by the parts of K of lower ranks, then of higher ones; added to what there is."""
        first, out = self.firsts[rank], found[rank][: self.firsts[rank]]
        for start, stop in ((0, self.k[rank]), (self.k[rank + 1], self.k[-1])):
            if start < stop:
                self.multiply(left[rank][:first, start:stop], right[rank][start:stop], out, out, stream)

    def multiply(self, a: Any, b: Any, c: Any, out: Any, stream: int) -> None:
        matmul(a, b, c, out=out, stream=stream, **self.options)

    def run_beside(self, beside: Beside, xs: tuple[Sharded, Sharded], found: list, work: Work) -> None:
        left, right = [], []
        for rank, (_, of_a, of_b) in enumerate(self.like):
            work.at(rank)
            left.append(of_a(work.streams[rank], work.explicit))
            right.append(of_b(work.streams[rank], work.explicit))
            beside.record(("ready", rank), rank, CALL)
        ranks = range(len(found))
        for rank in ranks:
            work.at(rank)
            self.copy(beside, xs, (left[rank], right[rank]), rank)
            self.multiply_own(xs, found, rank, work.streams[rank])
        for rank in ranks:
            work.at(rank)
            beside.wait(("rest", rank), rank, KERNELS)
            self.multiply_rest(left, right, found, rank, beside.stream(rank, KERNELS))
            beside.wait(("landed", rank), rank, CALL)
            self.multiply_others(left, right, found, rank, work.streams[rank])
            beside.join(rank)
            for other in others_of(rank, len(found)):  # which may write to its A and B again
                beside.wait(("landed", other), rank, CALL)

    def copy(self, beside: Beside, xs: tuple[Sharded, Sharded], to: tuple[Any, Any], rank: int) -> None:
        """Copy to a device what its products need, and of its own parts what the other rows need."""
        first, n = self.firsts[rank], self.lengths[rank]
        for other in range(len(self.lengths)):
            beside.wait(("ready", other), rank, COPIES)
        beside.wait(("ready", rank), rank, KERNELS)
        for other in (rank, *others_of(rank, len(self.lengths))):
            lane = KERNELS if other == rank else COPIES
            self.copy_b(beside, xs[1], to[1], (rank, other), lane)
            self.copy_a(beside, xs[0], to[0], (rank, other), (first, n), lane)
        beside.record(("rest", rank), rank, COPIES)
        for other in others_of(rank, len(self.lengths)):
            self.copy_a(beside, xs[0], to[0], (rank, other), (0, first), COPIES)
        beside.record(("landed", rank), rank, COPIES)

    def copy_b(self, beside: Beside, b: Sharded, to: Any, ranks: tuple[int, int], lane: str) -> None:
        """Copy the part of B of ``ranks[1]`` to ``ranks[0]``."""
        rank, other = ranks
        line, start, stop = b.shape[1] * b.dtype.size, self.k[other], self.k[other + 1]
        at = Lines(arrays.adapter(to).address(to) + start * line)
        beside.copy(rank, at, Lines(b.pointers[other]), (stop - start) * line, lane=lane)

    def copy_a(
        self, beside: Beside, a: Sharded, to: Any, ranks: tuple[int, int], rows: tuple[int, int], lane: str
    ) -> None:
        """Copy the part of K of ``ranks[1]`` of some of the rows that ``ranks[0]`` keeps."""
        (rank, other), (start, stop), size = ranks, rows, a.dtype.size
        pitches = a.shape[1] * size, (self.k[other + 1] - self.k[other]) * size
        at = arrays.adapter(to).address(to) + start * pitches[0] + self.k[other] * size
        source = a.pointers[other] + (self.starts[rank] + start) * pitches[1]
        beside.copy(rank, Lines(at, pitches[0]), Lines(source, pitches[1]), pitches[1], stop - start, lane)
