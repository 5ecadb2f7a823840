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

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from .group import Group

MIN_PIECE = 1 << 34  # multiplications and additions of one of PIECES: 23 us of an H200, in which it copies 8 MB
PIECES = 2  # of the rows of a device, each a launch
MORE_PIECES = 4  # of a ring in which fewer operations than this are made for a byte that crosses, if they are large
MIN_PER_BYTE = 6000  # an H200 makes 850 million in a microsecond, in which 0.35 MB cross
MIN_MORE = 2  # times MIN_PIECE: the host takes some 40 us for a piece on two devices
LANES = CALL, KERNELS  # the streams on which the pieces of a ring are multiplied in turn
OPTIONS = ("alpha", "out_dtype", "precision", "fast_accumulation", "batch_invariant", "config")


def gathers_rows(a: Sharded, b: Sharded, terms: list) -> bool:
    """Return whether a product of rows of A by columns of B is made in pieces."""
    return a.ndim == b.ndim == 2 and not _given(terms) and _large(a, b, min(a.lengths), min(b.lengths), a.shape[1])


def is_ring(a: Sharded, b: Sharded, spec: MatmulSpec) -> bool:
    """Return whether a product along K is a ring."""
    if not (a.ndim == b.ndim == 2 and a.axis == 1 and a.offsets == b.offsets and a.dtype.kind == "f"):
        return False
    return _large(a, b, a.shape[0] // (PIECES * a.group.size), b.shape[1], min(a.lengths))


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
        self.pieces = [[(start + i, start + j) for i, j in cuts(n, PIECES)] for start, n in zip(a.offsets, a.lengths)]
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
                    others = [slice(*pair) for other in _others(rank, len(found)) for pair in self.pieces[other]]
                    for rows in (self.rows[rank], *others):
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
                beside.wait(("landed", other, rank, PIECES - 1), rank, CALL)

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
    """Product and reduce-scatter. In turn ``t`` device ``r`` multiplies the rows that ``r - 1 - t`` keeps, a piece of
    them after the other: cut along the longer side, so that the operands are read as rarely as may be."""

    def __init__(self, arguments: tuple, spec: MatmulSpec, xs: tuple[Sharded, Sharded]) -> None:
        a, b = xs
        given = Arguments(*arguments)
        self.options = {name: getattr(given, name) for name in OPTIONS} | {"out_dtype": spec.dtype.name}
        self.size, self.columns = spec.dtype.size, b.shape[1]
        lengths = a.group.lengths(a.shape[0])
        along_n = max(lengths) < self.columns
        per_byte = 2 * max(a.lengths) * a.shape[0] / (max(a.shape[0] - min(lengths), 1) * self.size)
        large = 2 * max(lengths) * self.columns * min(a.lengths) >= MIN_MORE * MIN_PIECE * MORE_PIECES
        self.count = count = MORE_PIECES if per_byte < MIN_PER_BYTE and large else PIECES
        self.pieces = [
            [((0, n), cut) for cut in cuts(self.columns, count)]
            if along_n
            else [(cut, (0, self.columns)) for cut in cuts(n, count)]
            for n in lengths
        ]
        self.starts = [sum(lengths[:rank]) for rank in range(len(lengths))]

        def makers(shapes: list[tuple[int, ...]]) -> list[Callable]:
            return [_maker(part, shape, spec.dtype, v.device) for part, v, shape in zip(a.parts, a.views, shapes)]

        self.like = makers([(n, self.columns) for n in lengths])
        self.sends = makers([((a.shape[0] - n) * self.columns,) for n in lengths])
        self.receives = makers([((a.shape[0] - n) * self.columns,) for n in (lengths[-1], *lengths[:-1])])

    def run(self, xs: tuple[Sharded, ...], streams: tuple[int, ...], explicit: bool) -> Sharded:
        group, found = xs[0].group, []
        with Work(group, streams, explicit) as work:
            for rank, empty in enumerate(self.like):
                work.at(rank)
                found.append(empty(streams[rank], explicit))
            beside = Beside.of(work, group)
            carrier: Any = ByKernels(group, work) if beside is None else ByCopies(self, beside, work)
            for turn in range(group.size):
                for piece in range(self.count):
                    sums = []
                    for rank in range(group.size):
                        work.at(rank)
                        sums.append(self.multiply(xs, (rank, turn, piece), found, carrier))
                    if turn < group.size - 1:
                        carrier.carry(turn, piece, sums)
            carrier.end()
        return Sharded.of_results(group, found, 0)

    def cut(self, rank: int, turn: int, piece: int) -> tuple[int, slice, slice]:
        """Return who keeps the rows of a piece, and its rows and columns of those."""
        keeper = (rank - 1 - turn) % len(self.pieces)
        rows, columns = self.pieces[keeper][piece]
        return keeper, slice(*rows), slice(*columns)

    def multiply(self, xs: tuple[Sharded, ...], place: tuple[int, int, int], found: list, carrier: Any) -> Any:
        """Launch the product of a device in a turn; return its sums."""
        (a, b), (rank, turn, _) = xs, place
        keeper, rows, columns = self.cut(*place)
        start = self.starts[keeper]
        c = carrier.received(*place) if turn else None
        out = carrier.target(*place) if turn < len(found) - 1 else found[rank][rows, columns]
        left, right = a.parts[rank][start + rows.start : start + rows.stop], b.parts[rank][:, columns]
        return matmul(left, right, c, out=out, stream=carrier.stream(rank, place[2]), **self.options)


class ByKernels:
    """Sends sums to the next device by launches."""

    def __init__(self, group: Group, work: Work) -> None:
        self.group, self.work = group, work
        self.parts: dict[int, tuple] = {}

    def stream(self, rank: int, piece: int) -> int:
        """Return the stream on which a device multiplies a piece."""
        return self.work.streams[rank]

    def target(self, rank: int, turn: int, piece: int) -> Any:
        """Return where a device stores its sums; None for memory that the product makes."""
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
    """Sends sums to the next device by copy engines. Each device has the memory of all that it sends, and of all that
    it receives, one piece behind the other. Pieces are multiplied on two streams in turn: the blocks of one take the
    multiprocessors that the one before leaves."""

    def __init__(self, plan: RingPlan, beside: Beside, work: Work) -> None:
        self.plan, self.beside, self.work = plan, beside, work
        self.sends: list[Any] = []
        self.receives: list[Any] = []
        for rank, stream in enumerate(work.streams):
            work.at(rank)
            self.sends.append(plan.sends[rank](stream, work.explicit))
            self.receives.append(plan.receives[rank](stream, work.explicit))
            beside.record(("ready", rank), rank, CALL)
            beside.wait(("ready", rank), rank, COPIES)
            beside.wait(("ready", rank), rank, KERNELS)

    def stream(self, rank: int, piece: int) -> int:
        return self.beside.stream(rank, LANES[piece % 2])

    def span(self, rank: int, turn: int, piece: int) -> slice:
        """Return where the elements that a device sends lie in its memory for these, and in that of the next one."""
        plan, start = self.plan, 0
        for earlier in range(turn + 1):
            for other in range(plan.count if earlier < turn else piece + 1):
                _, rows, columns = plan.cut(rank, earlier, other)
                begin, start = start, start + (rows.stop - rows.start) * (columns.stop - columns.start)
        return slice(begin, start)

    def target(self, rank: int, turn: int, piece: int) -> Any:
        return self.matrix(self.sends[rank], (rank, turn, piece))

    def matrix(self, memory: Any, place: tuple[int, int, int]) -> Any:
        """Return the piece that a device sends, in its memory or in that of the next one."""
        _, rows, columns = self.plan.cut(*place)
        return memory[self.span(*place)].reshape(rows.stop - rows.start, columns.stop - columns.start)

    def received(self, rank: int, turn: int, piece: int) -> Any:
        self.beside.wait(("carried", rank, turn, piece), rank, LANES[piece % 2])
        return self.matrix(self.receives[rank], ((rank - 1) % len(self.sends), turn - 1, piece))

    def carry(self, turn: int, piece: int, sums: list) -> None:
        beside, size = self.beside, self.plan.size
        for rank in range(len(sums)):
            self.work.at(rank)
            beside.record(("sums", rank, turn, piece), rank, LANES[piece % 2])
        for rank in range(len(sums)):
            self.work.at(rank)
            before = (rank - 1) % len(sums)
            beside.wait(("sums", before, turn, piece), rank, COPIES)
            span = self.span(before, turn, piece)
            both = self.receives[rank], self.sends[before]
            to, source = (arrays.adapter(y).address(y) + span.start * size for y in both)
            beside.copy(rank, (to, source), (span.stop - span.start) * size)
            beside.record(("carried", rank, turn + 1, piece), rank, COPIES)

    def end(self) -> None:
        """The last copy out of a device's memory has been made before that may be used again."""
        ranks = len(self.sends)
        for rank in range(ranks):
            self.work.at(rank)
            self.beside.join(rank)
            self.beside.wait(("carried", (rank + 1) % ranks, ranks - 1, self.plan.count - 1), rank, CALL)


def cuts(n: int, count: int) -> list[tuple[int, int]]:
    """Cut ``n`` rows or columns into pieces."""
    return [(n * i // count, n * (i + 1) // count) for i in range(count)]


def _others(rank: int, size: int) -> list[int]:
    """Return the other ranks; devices begin with different ones."""
    return [(rank + i) % size for i in range(1, size)]


def _maker(part: Any, shape: tuple[int, ...], dtype: DType, ordinal: int) -> Callable:
    return allocator(arrays.adapter(part), shape, dtype, ordinal)
