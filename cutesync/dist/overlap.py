"""Large products in pieces, so that copies between devices run beside them.

All-gather and product (rows of A by columns of B): each device multiplies its own rows of A while copy engines bring it
those of the others, then these, a launch for the rows of each rank.

Product and reduce-scatter (A and B sharded along K): a ring. The rows of the result that device ``d`` keeps begin on
device ``d + 1``, which sends its sums to ``d + 2``; each device adds its product to what it has received (as C of the
product, in float32), and ``d`` is the last and rounds. So the order of the sum follows from the number of devices, and
the bits are equal in every run. The rows are cut in two halves: one is sent while the other is multiplied.

Copies are those of copy engines where one process has all GPUs and no graph is captured; events order them. Otherwise
they are launches of ``pull_kernel`` between the same products, with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..dtypes import DType
from ..kernels.matmul import matmul
from ..kernels.matmul.call import Arguments, MatmulSpec
from ..runtime import arrays
from ..runtime.copy_engine import CopyEngine
from ..runtime.device_array import DeviceArray
from .parts import Results, part_of
from .recorder import allocator
from .reshard import shift
from .sharded import Sharded
from .work import Work

MIN_PIECE = 1 << 34  # multiplications and additions of a piece: 23 us of an H200, in which it copies 8 MB
import os
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
            engine = group.copy_engine(streams)
            if engine is None:
                wholes = xs[0].reshard(None, stream=streams if explicit else None).parts
                for rank, raw in enumerate(streams):
                    work.at(rank)
                    for rows in self.rows:
                        self.multiply(wholes[rank][rows], xs[1].parts[rank], found[rank][rows], raw)
            else:
                self.run_beside(engine, xs, found, work)
        return self.results.of(group, found, outs)

    def multiply(self, a: Any, b: Any, out: Any, stream: int) -> None:
        self.call(self.arguments, a, out, stream, (b,))

    def run_beside(self, engine: CopyEngine, xs: tuple[Sharded, ...], found: list, work: Work) -> None:
        """Copies first, then the products of own rows, then those of the others as their rows come, on another stream:
        their blocks take the multiprocessors that the first ones leave."""
        (a, b), at, streams, ranks = xs, work.at, work.streams, range(len(found))
        wholes = []
        for rank, (_, empty) in enumerate(self.like):
            at(rank)
            wholes.append(empty(streams[rank], work.explicit))
            engine.record(("ready", rank), streams[rank])
        line = a.shape[1] * a.dtype.size
        for rank in ranks:
            at(rank)
            start = arrays.adapter(wholes[rank]).address(wholes[rank])
            for ready in ranks:
                engine.wait(("ready", ready), engine.copies[rank])
            for other in _others(rank, len(found)):
                for piece, (first, behind) in enumerate(cuts(a.lengths[other], GATHER_PIECES)):
                    to = start + (a.offsets[other] + first) * line
                    engine.copy(rank, to, a.pointers[other] + first * line, (behind - first) * line)
                    engine.record(("landed", rank, other, piece), engine.copies[rank])
        for rank in ranks:
            at(rank)
            self.multiply(a.parts[rank], b.parts[rank], found[rank][self.rows[rank]], streams[rank])
        for rank in ranks:
            at(rank)
            for other in _others(rank, len(found)):
                for piece, (first, behind) in enumerate(cuts(a.lengths[other], GATHER_PIECES)):
                    stream = engine.kernels[rank] if piece % 2 == 0 else streams[rank]
                    engine.wait(("landed", rank, other, piece), stream)
                    rows = slice(a.offsets[other] + first, a.offsets[other] + behind)
                    self.multiply(wholes[rank][rows], b.parts[rank], found[rank][rows], stream)
            engine.record(("done", rank), engine.kernels[rank])
            engine.wait(("done", rank), streams[rank])
            for other in _others(rank, len(found)):  # which may write to its A again
                engine.wait(("landed", rank, other, GATHER_PIECES - 1), streams[other])


class RingPlan:
    """Product and reduce-scatter. In turn ``t`` device ``r`` multiplies the rows that ``r - 1 - t`` keeps."""

    def __init__(self, arguments: tuple, spec: MatmulSpec, xs: tuple[Sharded, Sharded]) -> None:
        a, b = xs
        given = Arguments(*arguments)
        self.options = {name: getattr(given, name) for name in OPTIONS} | {"out_dtype": spec.dtype.name}
        lengths = a.group.lengths(a.shape[0])
        self.pieces = [cuts(n, RING_PIECES) for n in lengths]
        self.starts = [sum(lengths[:rank]) for rank in range(len(lengths))]
        self.columns, self.dtype = b.shape[1], spec.dtype
        self.like = [
            _maker(part, (n, b.shape[1]), spec.dtype, view.device) for part, view, n in zip(a.parts, a.views, lengths)
        ]

    def run(self, xs: tuple[Sharded, ...], streams: tuple[int, ...], explicit: bool) -> Sharded:
        group, found = xs[0].group, []
        with Work(group, streams, explicit) as work:
            for rank, empty in enumerate(self.like):
                work.at(rank)
                found.append(empty(streams[rank], explicit))
            engine = group.copy_engine(streams)
            carrier: Any = ByKernels(work) if engine is None else (ByCopies if os.environ.get('CS_RING') == 'copies' else ByStores)(self, xs[0], engine, work)
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
        return matmul(rows, b.parts[rank], c, out=out, stream=carrier.stream(piece, rank), **self.options)


class ByKernels:
    """Sends sums to the next device by launches."""

    def __init__(self, work: Work) -> None:
        self.work, self.parts = work, {}

    def stream(self, piece: int, rank: int) -> int:
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
        group = self.work.memory  # placeholder
        self.parts[piece] = shift(Sharded.of_results(self.work._group, sums, 0), self.work.streams).parts

    def end(self) -> None:
        """Let later work on all devices wait for all that this has begun."""


class ByStores(ByKernels):
    """Products store their sums in the memory of the next device."""

    def __init__(self, plan: RingPlan, a: Sharded, engine: CopyEngine, work: Work) -> None:
        super().__init__(work)
        self.engine, size = engine, len(work.streams)
        self.rooms, self.views = [], []
        for rank, stream in enumerate(work.streams):
            work.at(rank)
            rooms, views = {}, {}
            for turn in range(size - 1):
                for piece in range(RING_PIECES):
                    _, (first, behind) = plan.rows((rank - 1) % size, turn, piece)
                    shape = (behind - first, plan.columns)
                    room = _maker(a.parts[rank], shape, plan.dtype, a.views[rank].device)(stream, work.explicit)
                    rooms[turn + 1, piece] = room
                    sender = a.views[rank - 1].device
                    views[turn, piece] = DeviceArray(arrays.adapter(room).address(room), shape, plan.dtype, sender, room)
            self.rooms.append(rooms)
            self.views.append(views)
            engine.record(("ready", rank), stream)
            if RING_STREAMS > 1:
                engine.wait(("ready", rank), engine.kernels[rank])
        for rank, stream in enumerate(work.streams):
            work.at(rank)
            engine.wait(("ready", (rank + 1) % size), stream)
            if RING_STREAMS > 1:
                engine.wait(("ready", (rank + 1) % size), engine.kernels[rank])

    def stream(self, piece: int, rank: int) -> int:
        return self.engine.kernels[rank] if piece % RING_STREAMS else self.work.streams[rank]

    def target(self, rank: int, turn: int, piece: int) -> Any:
        return self.views[(rank + 1) % len(self.views)][turn, piece]

    def received(self, rank: int, turn: int, piece: int) -> Any:
        self.engine.wait(("sums", (rank - 1) % len(self.views), turn - 1, piece), self.stream(piece, rank))
        return self.rooms[rank][turn, piece]

    def carry(self, turn: int, piece: int, sums: list) -> None:
        for rank in range(len(sums)):
            self.work.at(rank)
            self.engine.record(("sums", rank, turn, piece), self.stream(piece, rank))

    def end(self) -> None:
        if RING_STREAMS < 2:
            return
        for rank, stream in enumerate(self.work.streams):
            self.work.at(rank)
            self.engine.record(("done", rank), self.engine.kernels[rank])
            self.engine.wait(("done", rank), stream)


class ByCopies(ByStores):
    """Copy engines bring the sums."""

    def target(self, rank: int, turn: int, piece: int) -> Any:
        return None

    def received(self, rank: int, turn: int, piece: int) -> Any:
        self.engine.wait(("carried", rank, turn, piece), self.stream(piece, rank))
        return self.rooms[rank][turn, piece]

    def carry(self, turn: int, piece: int, sums: list) -> None:
        engine, size = self.engine, len(sums)
        self.held = getattr(self, "held", [])
        self.held.append(sums)
        for rank, y in enumerate(sums):
            to = (rank + 1) % size
            self.work.at(rank)
            engine.record(("sums", rank, turn, piece), self.stream(piece, rank))
            self.work.at(to)
            engine.wait(("sums", rank, turn, piece), engine.copies[to])
            room = self.rooms[to][turn + 1, piece]
            nbytes = room.numel() * room.element_size() if hasattr(room, "numel") else room.nbytes
            engine.copy(to, arrays.adapter(room).address(room), arrays.adapter(y).address(y), nbytes)
            engine.record(("carried", to, turn + 1, piece), engine.copies[to])


def cuts(n: int, pieces: int) -> list[tuple[int, int]]:
    """Cut ``n`` rows into pieces."""
    return [(n * i // pieces, n * (i + 1) // pieces) for i in range(pieces)]


def _others(rank: int, size: int) -> list[int]:
    """Return the other ranks; devices begin with different ones."""
    return [(rank + i) % size for i in range(1, size)]


def _maker(part: Any, shape: tuple[int, ...], dtype: DType, ordinal: int) -> Callable:
    return allocator(arrays.adapter(part), shape, dtype, ordinal)
