"""Large products, made in pieces, so that copies between devices run beside them.

All-gather and product (rows of A by columns of B): each device multiplies its own rows of A while copy engines bring it
those of the others, then these, a piece at a time.

Product and reduce-scatter (A and B sharded along K): a ring. The rows of the result that device ``d`` keeps begin on
device ``d + 1``, which sends its sums to ``d + 2``; each device adds its product to what it has received (as C of the
product), and ``d`` is the last. Sums cross in the type of the result: the order of additions and roundings follows from
the number of devices, and the bits are equal in every run. One piece of the rows is sent while the next is multiplied.

Copies are those of copy engines where one process has all GPUs and no graph is captured; events order them. Otherwise
they are launches of ``pull_kernel`` between the same products, with the same bits.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ..dtypes import DType
from ..kernels.matmul import matmul
from ..kernels.matmul.call import Arguments, MatmulSpec
from ..runtime import arrays
from .beside import CALL, COPIES, KERNELS, Beside
from .parts import Results, part_of
from .recorder import allocator
from .reshard import shift
from .sharded import Sharded
from .work import Work

MIN_PIECE = 1 << 34  # multiplications and additions of a piece: 23 us of an H200, in which it copies 8 MB
RING_PIECES = int(os.environ.get("CS_RING_PIECES", 2))
RING_STREAMS = int(os.environ.get("CS_RING_STREAMS", 1))
GATHER_PIECES = int(os.environ.get("CS_GATHER_PIECES", 2))
OPTIONS = ("alpha", "out_dtype", "precision", "fast_accumulation", "batch_invariant", "config")


def gathers_rows(a: Sharded, b: Sharded, terms: list) -> bool:
    """Return whether a product of rows of A by columns of B is made in pieces."""
    return a.ndim == b.ndim == 2 and not _given(terms) and _large(a, b, min(a.lengths), min(b.lengths), a.shape[1])


def is_ring(a: Sharded, b: Sharded, spec: MatmulSpec) -> bool:
    """Return whether a product along K is a ring."""
    if not (a.ndim == b.ndim == 2 and a.axis == 1 and a.offsets == b.offsets and a.dtype.kind == "f"):
        return False
    return _large(a, b, a.shape[0] // (RING_PIECES * a.group.size), b.shape[1], min(a.lengths))


def _given(terms: list) -> bool:
    return any(term is not None for term in terms)


def _large(a: Sharded, b: Sharded, m: int, n: int, k: int) -> bool:
    """Return whether the smallest piece (m, n, k) is large enough; A is copied as it lies."""
    return a.group.size > 1 and min(m, n, k) > 0 and 2 * m * n * k >= MIN_PIECE and all(v.contiguous for v in a.views)


class GatherPlan:
    """All-gather and product."""

    def __init__(self, call: Callable, arguments: tuple, spec: MatmulSpec, xs: tuple[Sharded, Sharded]) -> None:
        a, b = xs
        self.call, self.arguments, self.results = call, arguments, Results(1, b.lengths)
        self.pieces = [[(start + i, start + j) for i, j in cuts(n, GATHER_PIECES)] for start, n in zip(a.offsets, a.lengths)]
        self.rows = [slice(*pair) for pair in zip(a.offsets, a.offsets[1:])]
        self.like = [
            (_maker(part, (a.shape[0], n), spec.dtype, view.device), _maker(part, a.shape, a.dtype, view.device))
            for part, view, n in zip(a.parts, a.views, b.lengths)
        ]

    def run(
        self, xs: tuple[Sharded, ...], streams: tuple[int, ...], explicit: bool, outs: tuple[Sharded, ...] | None = None
    ) -> Any:
        group, found = xs[0].group, []
        with Work(group, streams, explicit) as work:
            for rank, (empty, _) in enumerate(self.like):
                work.at(rank)
                found.append(part_of(outs, rank) if outs else empty(streams[rank], explicit))
            beside = Beside.of(work, group)
            if beside is None:
                wholes = xs[0].reshard(None, stream=streams if explicit else None).parts
                for rank, raw in enumerate(streams):
                    work.at(rank)
                    for rows in self.rows:
                        self.multiply(wholes[rank][rows], xs[1].parts[rank], found[rank][rows], raw)
            else:
                self.run_beside(beside, xs, found, work)
        return self.results.of(group, found, outs)

    def multiply(self, a: Any, b: Any, out: Any, stream: int) -> None:
        self.call(self.arguments, a, out, stream, (b,))

    def run_beside(self, beside: Beside, xs: tuple[Sharded, ...], found: list, work: Work) -> None:
        """Copies first, then the products of own rows, then those of the others as their rows come, on another stream:
        their blocks take the multiprocessors that the first ones leave."""
        (a, b), ranks = xs, range(len(found))
        wholes = []
        for rank, (_, empty) in enumerate(self.like):
            work.at(rank)
            wholes.append(empty(work.streams[rank], work.explicit))
            beside.record(("ready", rank), rank, CALL)
        for rank in ranks:
            work.at(rank)
            self.copy_rows(beside, a, wholes[rank], rank)
            self.multiply(a.parts[rank], b.parts[rank], found[rank][self.rows[rank]], work.streams[rank])
        for rank in ranks:
            work.at(rank)
            for other in _others(rank, len(found)):
                for piece, pair in enumerate(self.pieces[other]):
                    lane, rows = (KERNELS, CALL)[piece % 2], slice(*pair)
                    beside.wait(("landed", rank, other, piece), rank, lane)
                    self.multiply(wholes[rank][rows], b.parts[rank], found[rank][rows], beside.stream(rank, lane))
            beside.join(rank)
            for other in _others(rank, len(found)):  # which may write to its A again
                beside.wait(("landed", other, rank, GATHER_PIECES - 1), rank, CALL)

    def copy_rows(self, beside: Beside, a: Sharded, whole: Any, rank: int) -> None:
        """Copy the rows of all other devices to the array of a rank, a piece at a time."""
        line, start = a.shape[1] * a.dtype.size, arrays.adapter(whole).address(whole)
        for other in range(a.group.size):
            beside.wait(("ready", other), rank, COPIES)
        for other in _others(rank, a.group.size):
            for piece, (first, behind) in enumerate(self.pieces[other]):
                source = a.pointers[other] + (first - a.offsets[other]) * line
                beside.copy(rank, (start + first * line, source), (behind - first) * line)
                beside.record(("landed", rank, other, piece), rank, COPIES)


class RingPlan:
    """Product and reduce-scatter. In turn ``t`` device ``r`` multiplies the rows that ``r - 1 - t`` keeps."""

    def __init__(self, arguments: tuple, spec: MatmulSpec, xs: tuple[Sharded, Sharded]) -> None:
        a, b = xs
        given = Arguments(*arguments)
        self.options = {name: getattr(given, name) for name in OPTIONS} | {"out_dtype": spec.dtype.name}
        lengths = a.group.lengths(a.shape[0])
        self.pieces = [cuts(n, RING_PIECES) for n in lengths]
        self.starts = [sum(lengths[:rank]) for rank in range(len(lengths))]
        self.line = b.shape[1] * spec.dtype.size
        of = [(part, (a.shape[0] - n, b.shape[1]), spec.dtype, view.device) for part, view, n in zip(a.parts, a.views, lengths)]
        self.like = [_maker(part, (n, b.shape[1]), spec.dtype, view.device) for part, view, n in zip(a.parts, a.views, lengths)]
        before = [lengths[rank - 1] for rank in range(len(lengths))]  # kept by the rank before, which sends no such rows
        self.sent = [_maker(*each) for each in of]
        self.received = [
            _maker(part, (a.shape[0] - n, b.shape[1]), spec.dtype, view.device)
            for part, view, n in zip(a.parts, a.views, before)
        ]

    def run(self, xs: tuple[Sharded, ...], streams: tuple[int, ...], explicit: bool) -> Sharded:
        group, found = xs[0].group, []
        with Work(group, streams, explicit) as work:
            for rank, empty in enumerate(self.like):
                work.at(rank)
                found.append(empty(streams[rank], explicit))
            beside = Beside.of(work, group)
            carrier: Any = ByKernels(group, work) if beside is None else ByCopies(self, beside, work)
            for turn in range(group.size):
                for piece in range(RING_PIECES):
                    sums = []
                    for rank in range(group.size):
                        work.at(rank)
                        sums.append(self.multiply(xs, (rank, turn, piece), found, carrier))
                    if turn < group.size - 1:
                        carrier.carry(turn, piece, sums)
            carrier.end()
        return Sharded.of_results(group, found, 0)

    def rows(self, rank: int, turn: int, piece: int) -> tuple[int, tuple[int, int]]:
        """Return who keeps the rows of a piece, and where they lie among the keeper's."""
        keeper = (rank - 1 - turn) % len(self.pieces)
        return keeper, self.pieces[keeper][piece]

    def multiply(self, xs: tuple[Sharded, ...], place: tuple[int, int, int], found: list, carrier: Any) -> Any:
        """Launch the product of a device in a turn; return its sums."""
        (a, b), (rank, turn, piece) = xs, place
        keeper, (first, behind) = self.rows(*place)
        start = self.starts[keeper]
        rows = a.parts[rank][start + first : start + behind]
        c = carrier.received(*place) if turn else None
        out = carrier.target(*place) if turn < len(found) - 1 else found[rank][first:behind]
        return matmul(rows, b.parts[rank], c, out=out, stream=carrier.stream(rank, piece), **self.options)


class ByKernels:
    """Sends sums to the next device by launches."""

    def __init__(self, group: Any, work: Work) -> None:
        self.group, self.work = group, work
        self.parts: dict[int, tuple] = {}

    def stream(self, rank: int, piece: int) -> int:
        """Return the stream on which a device multiplies a piece."""
        return self.work.streams[rank]

    def target(self, rank: int, turn: int, piece: int) -> Any:
        """Return where a device stores its sums; None for memory of its own."""
        return None

    def received(self, rank: int, turn: int, piece: int) -> Any:
        """Return the sums of the device before this one."""
        return self.parts[piece][rank]

    def carry(self, turn: int, piece: int, sums: list) -> None:
        """Send the sums of all devices."""
        self.parts[piece] = shift(Sharded.of_results(self.group, sums, 0), self.work.streams).parts

    def end(self) -> None:
        """Let later work on all devices wait for all that this has begun."""


class ByCopies:
    """Sends sums to the next device by copy engines. Each device has the memory of all that it sends and receives, a
    piece behind the other."""

    def __init__(self, plan: RingPlan, beside: Beside, work: Work) -> None:
        self.plan, self.beside, self.work = plan, beside, work
        self.sends: list[Any] = []
        self.receives: list[Any] = []
        for rank, stream in enumerate(work.streams):
            work.at(rank)
            self.sends.append(plan.sent[rank](stream, work.explicit))
            self.receives.append(plan.received[rank](stream, work.explicit))
            beside.record(("ready", rank), rank, CALL)
            for lane in (COPIES, KERNELS)[:RING_STREAMS]:
                beside.wait(("ready", rank), rank, lane)

    def stream(self, rank: int, piece: int) -> int:
        return self.beside.stream(rank, self.lane(piece))

    def lane(self, piece: int) -> str:
        return KERNELS if piece % RING_STREAMS else CALL

    def span(self, rank: int, turn: int, piece: int) -> slice:
        """Return where the rows that a device sends lie in its memory for such rows, and in that of the next one."""
        start, pieces = 0, self.plan.pieces
        for earlier in range(turn):
            keeper, _ = self.plan.rows(rank, earlier, 0)
            start += pieces[keeper][-1][1]
        _, (first, behind) = self.plan.rows(rank, turn, piece)
        return slice(start + first, start + behind)

    def target(self, rank: int, turn: int, piece: int) -> Any:
        return self.sends[rank][self.span(rank, turn, piece)]

    def received(self, rank: int, turn: int, piece: int) -> Any:
        before = (rank - 1) % len(self.sends)
        self.beside.wait(("carried", rank, turn, piece), rank, self.lane(piece))
        return self.receives[rank][self.span(before, turn - 1, piece)]

    def carry(self, turn: int, piece: int, sums: list) -> None:
        beside, line = self.beside, self.plan.line
        for rank in range(len(sums)):
            self.work.at(rank)
            beside.record(("sums", rank, turn, piece), rank, self.lane(piece))
        for rank in range(len(sums)):
            self.work.at(rank)
            before = (rank - 1) % len(sums)
            beside.wait(("sums", before, turn, piece), rank, COPIES)
            rows = self.span(before, turn, piece)
            places = (arrays.adapter(y).address(y) + rows.start * line for y in (self.receives[rank], self.sends[before]))
            beside.copy(rank, tuple(places), (rows.stop - rows.start) * line)
            beside.record(("carried", rank, turn + 1, piece), rank, COPIES)

    def end(self) -> None:
        """The last copy out of a device's memory has been made before it may be used again."""
        turn = len(self.sends) - 1
        for rank in range(len(self.sends)):
            self.work.at(rank)
            after = (rank + 1) % len(self.sends)
            self.beside.wait(("carried", after, turn, RING_PIECES - 1), rank, CALL)
            if RING_STREAMS > 1:
                self.beside.join(rank)


def cuts(n: int, pieces: int) -> list[tuple[int, int]]:
    """Cut ``n`` rows into pieces."""
    return [(n * i // pieces, n * (i + 1) // pieces) for i in range(pieces)]


def _others(rank: int, size: int) -> list[int]:
    """Return the other ranks; devices begin with different ones."""
    return [(rank + i) % size for i in range(1, size)]


def _maker(part: Any, shape: tuple[int, ...], dtype: DType, ordinal: int) -> Callable:
    return allocator(arrays.adapter(part), shape, dtype, ordinal)
