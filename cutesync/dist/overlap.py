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
from .parts import Results, part_of
from .recorder import allocator
from .reshard import shift
from .sharded import Sharded
from .work import Work

MIN_PIECE = 1 << 34  # multiplications and additions of a piece: 23 us of an H200, in which it copies 8 MB
HALVES = 2
OPTIONS = ("alpha", "out_dtype", "precision", "fast_accumulation", "batch_invariant", "config")


def gathers_rows(a: Sharded, b: Sharded, terms: list) -> bool:
    """Return whether a product of rows of A by columns of B is made in pieces."""
    return a.ndim == b.ndim == 2 and not _given(terms) and _large(a, b, min(a.lengths), min(b.lengths), a.shape[1])


def is_ring(a: Sharded, b: Sharded, spec: MatmulSpec) -> bool:
    """Return whether a product along K is a ring."""
    if not (a.ndim == b.ndim == 2 and a.axis == 1 and a.offsets == b.offsets and a.dtype.kind == "f"):
        return False
    return _large(a, b, a.shape[0] // (HALVES * a.group.size), b.shape[1], min(a.lengths))


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
                to = start + a.offsets[other] * line
                engine.copy(rank, to, a.pointers[other], a.lengths[other] * line)
                engine.record(("landed", rank, other), engine.copies[rank])
        for rank in ranks:
            at(rank)
            self.multiply(a.parts[rank], b.parts[rank], found[rank][self.rows[rank]], streams[rank])
        for rank in ranks:
            at(rank)
            for other in _others(rank, len(found)):
                engine.wait(("landed", rank, other), engine.kernels[rank])
                rows = self.rows[other]
                self.multiply(wholes[rank][rows], b.parts[rank], found[rank][rows], engine.kernels[rank])
            engine.record(("done", rank), engine.kernels[rank])
            engine.wait(("done", rank), streams[rank])
            for other in _others(rank, len(found)):  # which may write to its A again
                engine.wait(("landed", rank, other), streams[other])


class RingPlan:
    """Product and reduce-scatter. In turn ``t`` device ``r`` multiplies the rows that ``r - 1 - t`` keeps."""

    def __init__(self, arguments: tuple, spec: MatmulSpec, xs: tuple[Sharded, Sharded]) -> None:
        a, b = xs
        given = Arguments(*arguments)
        self.last = {name: getattr(given, name) for name in OPTIONS} | {"out_dtype": spec.dtype.name}
        self.sums = self.last | {"out_dtype": "float32"}
        lengths = a.group.lengths(a.shape[0])
        self.halves = [[(n * half // HALVES, n * (half + 1) // HALVES) for half in range(HALVES)] for n in lengths]
        self.starts = [sum(lengths[:rank]) for rank in range(len(lengths))]
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
            carrier: Any = ByKernels(work) if engine is None else ByCopies(engine, work)
            received: dict[int, list] = {}
            for turn in range(group.size):
                for half in range(HALVES):
                    sums = []
                    for rank in range(group.size):
                        work.at(rank)
                        carrier.arrived((turn, half), rank)
                        c = received[half][rank] if turn else None
                        sums.append(self.multiply(xs, (rank, turn, half), c, found, carrier.stream(half, rank)))
                    if turn < group.size - 1:
                        received[half] = carrier.carry((turn + 1, half), Sharded.of_results(group, sums, 0))
            carrier.end()
        return Sharded.of_results(group, found, 0)

    def multiply(self, xs: tuple[Sharded, ...], place: tuple[int, int, int], c: Any, found: list, stream: int) -> Any:
        """Launch the product of a device in a turn; ``c`` are the sums that it has received. Return its sums."""
        a, b = xs
        rank, turn, half = place
        ranks = len(found)
        keeper = (rank - 1 - turn) % ranks
        first, behind = self.halves[keeper][half]
        start = self.starts[keeper]
        rows = a.parts[rank][start + first : start + behind]
        if turn < ranks - 1:
            return matmul(rows, b.parts[rank], c, stream=stream, **self.sums)
        return matmul(rows, b.parts[rank], c, out=found[rank][first:behind], stream=stream, **self.last)


class ByKernels:
    """Sends sums to the next device by launches."""

    def __init__(self, work: Work) -> None:
        self.work = work

    def stream(self, half: int, rank: int) -> int:
        """Return the stream on which a device multiplies a half of the rows."""
        return self.work.streams[rank]

    def carry(self, name: tuple[int, int], sums: Sharded) -> tuple:
        """Return the sums of the device before each; ``name`` has the turn in which they are needed, and the half."""
        return shift(sums, self.work.streams).parts

    def arrived(self, name: tuple[int, int], rank: int) -> None:
        """Let the next launch on a device wait for what is carried."""

    def end(self) -> None:
        """Let later work on all devices wait for all that this has begun."""


class ByCopies(ByKernels):
    """Sends sums to the next device by copy engines. The halves are multiplied on different streams, so that blocks of
    one take the multiprocessors that those of the other have left."""

    def __init__(self, engine: CopyEngine, work: Work) -> None:
        super().__init__(work)
        self.engine, self.turn = engine, 0
        self.held: list = []  # until later work waits for all copies: its memory could be used again before
        for rank, stream in enumerate(work.streams):
            work.at(rank)
            engine.record(("ready", rank), stream)
            engine.wait(("ready", rank), engine.kernels[rank])

    def stream(self, half: int, rank: int) -> int:
        return self.engine.kernels[rank] if half else self.work.streams[rank]

    def carry(self, name: tuple[int, int], sums: Sharded) -> tuple:
        engine, received = self.engine, []  # type: CopyEngine, list
        self.held += [sums, received]
        self.turn, half = name
        for rank, view in enumerate(sums.views):
            self.work.at(rank)
            before, stream = sums.views[rank - 1], self.stream(half, rank)
            received.append(_maker(sums.parts[rank], before.shape, before.dtype, view.device)(stream, True))
            engine.record(("sums", rank, *name), stream)
        for rank, target in enumerate(received):
            self.work.at(rank)
            for sender in (rank, (rank - 1) % len(received)):  # its memory is there, and the sums are
                engine.wait(("sums", sender, *name), engine.copies[rank])
            view = sums.views[rank - 1]
            engine.copy(rank, arrays.adapter(target).address(target), view.ptr, view.size * view.dtype.size)
            engine.record(("carried", rank, *name), engine.copies[rank])
        return tuple(received)

    def arrived(self, name: tuple[int, int], rank: int) -> None:
        if name[0]:
            self.engine.wait(("carried", rank, *name), self.stream(name[1], rank))

    def end(self) -> None:
        engine, ranks = self.engine, len(self.work.streams)
        for rank, stream in enumerate(self.work.streams):
            self.work.at(rank)
            # memory of sums may be used again
            engine.wait(("carried", (rank + 1) % ranks, self.turn, HALVES - 1), engine.kernels[rank])
            engine.record(("done", rank), engine.kernels[rank])
            engine.wait(("done", rank), stream)


def _others(rank: int, size: int) -> list[int]:
    """Return the other ranks; devices begin with different ones."""
    return [(rank + i) % size for i in range(1, size)]


def _maker(part: Any, shape: tuple[int, ...], dtype: DType, ordinal: int) -> Callable:
    return allocator(arrays.adapter(part), shape, dtype, ordinal)
