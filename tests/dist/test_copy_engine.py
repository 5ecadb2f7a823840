"""The order of launches and copies on several streams: every two that touch the same memory are ordered by streams and
events, and no wait can be left out. And what is multiplied and copied: the whole product, in the order of the ring."""

import ctypes

import numpy as np
import pytest

import cutesync as cs
from cutesync.dist import Group, Sharded, overlap
from cutesync.dtypes import BY_NAME, FLOAT32
from cutesync.runtime import device, device_array
from cutesync.runtime.kernel import collect

HALF = BY_NAME["float16"]


class Unordered(Exception):
    pass


class Engine:
    """Stands for a CopyEngine, and knows what happens before what. ``left_out`` is the number of a wait that is."""

    def __init__(self, size: int, left_out: int | None) -> None:
        self.copies, self.kernels = range(100, 100 + size), range(200, 200 + size)
        self.clocks: dict[int, dict[int, int]] = {}
        self.events: dict = {}
        self.done: list[tuple] = []
        self.waits, self.left_out = 0, left_out

    def record(self, name, stream) -> None:
        self.events[name] = dict(self.clocks.get(stream, {}))

    def wait(self, name, stream) -> None:
        self.waits += 1
        if self.waits - 1 != self.left_out:
            own = self.clocks.setdefault(stream, {})
            for other, count in self.events[name].items():
                own[other] = max(own.get(other, 0), count)

    def copy(self, rank, to, source, size) -> None:
        self.do(self.copies[rank], [(source, source + size)], [(to, to + size)])

    def do(self, stream: int, reads: list, writes: list) -> None:
        """Something on a stream that reads and writes memory."""
        clock = self.clocks.setdefault(stream, {})
        clock[stream] = clock.get(stream, 0) + 1
        for other, count, theirs, written in self.done:
            if count > clock.get(other, 0) and (meet(writes, theirs + written) or meet(reads, written)):
                raise Unordered
        self.done.append((stream, clock[stream], reads, writes))


def meet(some: list, others: list) -> bool:
    return any(a < d and c < b for a, b in some for c, d in others)


def spans(*arrays) -> list:
    return [array.view.span for array in arrays if array is not None]


def run(kind: str, size: int, left_out: int | None, patch) -> int:
    """A product on streams 1, 2, ...; the number of its waits. Memory belongs to the stream that it is made on: it is
    used there before, and again when all is done."""
    engine, made = Engine(size, left_out), []

    def maker(part, shape, dtype, ordinal):
        def empty(stream, explicit):
            array = device_array.allocate(shape, dtype, device.DRY)
            engine.do(stream, [], spans(array))
            made.append((stream, array))
            return array

        return empty

    def multiply(a, b, c=None, *, out=None, stream, **options):
        out = maker(a, (a.shape[0], b.shape[1]), FLOAT32, 0)(stream, True) if out is None else out
        engine.do(stream, spans(a, b, c), spans(out))
        return out

    patch.setattr(overlap, "MIN_PIECE", 0)
    patch.setattr(overlap, "MIN_PER_BYTE", 0 if kind == "ring" else overlap.MIN_PER_BYTE)
    patch.setattr(overlap, "_maker", maker)
    patch.setattr(overlap, "matmul", multiply)
    patch.setattr(overlap.GatherPlan, "multiply", lambda plan, a, b, y, stream: multiply(a, b, out=y, stream=stream))
    with collect():
        group = Group((device.DRY,) * size)
        patch.setattr(group, "copy_engine", lambda streams: engine)
        shapes = [((24, 24), 0), ((24, 24), 1)] if kind == "gather" else [((24 * size, 24), 1), ((24, 24), 0)]
        given = [
            Sharded(group, [maker(None, shape, HALF, 0)(1 + rank, True) for rank in range(size)], axis)
            for shape, axis in shapes
        ]
        y = cs.matmul(*given, stream=list(range(1, size + 1)))
        for stream, array in [*made, *((1 + rank, part) for rank, part in enumerate(y.parts))]:
            engine.do(stream, [], spans(array))
    return engine.waits


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("kind", ["gather", "ring", "ring in more pieces"])
def test_copies_and_launches_are_ordered(kind, size, monkeypatch):
    waits, spare = run(kind, size, None, monkeypatch), []
    assert waits
    for number in range(waits):
        try:
            run(kind, size, number, monkeypatch)
            spare.append(number)
        except Unordered:
            pass
    assert not spare, f"of {waits} waits: {spare}"


class Memory(Engine):
    """Copies at once: what the host asks for comes in an order that the streams allow."""

    def __init__(self, size: int) -> None:
        super().__init__(size, None)
        self.copied = 0

    def copy(self, rank, to, source, size) -> None:
        ctypes.memmove(to, source, size)
        self.copied += size


def shown(x) -> np.ndarray:
    """The memory of a DeviceArray of the emulator."""
    start, stop = x.view.span
    return np.ndarray(x.shape, x.dtype.numpy, (ctypes.c_char * (stop - start)).from_address(start), 0, x.strides)


@pytest.mark.parametrize(("size", "rows", "columns"), [(2, 24, 8), (2, 8, 24), (3, 10, 31), (3, 31, 10)])
def test_pieces_make_the_whole_product(size, rows, columns, monkeypatch):
    """Sums cross in float16: half of them are ties, which a ring in another order rounds otherwise."""
    random, engine = np.random.default_rng(rows), Memory(size)

    def multiply(a, b, c=None, *, out=None, stream, **options):
        sums = shown(a).astype("float32") @ shown(b).astype("float32")
        shown(out)[...] = (sums if c is None else sums + shown(c)).astype("float16")

    monkeypatch.setattr(overlap, "MIN_PIECE", 0)
    monkeypatch.setattr(overlap, "matmul", multiply)
    monkeypatch.setattr(
        overlap.GatherPlan, "multiply", lambda plan, a, b, y, stream: multiply(a, b, out=y, stream=stream)
    )
    a, b = random.integers(-40, 40, (rows, 7 * size)), random.integers(-40, 40, (7 * size, columns))
    a, b = a.astype("float16"), b.astype("float16")
    with cs.emulate(devices=size):
        group = Group.local()
        monkeypatch.setattr(group, "copy_engine", lambda streams: engine)
        gathered = np.asarray(cs.matmul(group.shard(a, 0), group.shard(b, 1)))
        assert engine.copied == 2 * (size - 1) * a.size
        engine.copied = 0
        found = cs.matmul(group.shard(a, 1), group.shard(b, 0))
        assert engine.copied == 2 * (size - 1) * rows * columns
        ring = np.asarray(found)
    of = [a[:, 7 * d : 7 * d + 7].astype("float32") @ b[7 * d : 7 * d + 7].astype("float32") for d in range(size)]
    assert np.array_equal(gathered, sum(of).astype("float16"))
    for keeper, at in enumerate(np.split(np.arange(rows), np.cumsum(found.lengths)[:-1])):
        sums = np.zeros((len(at), columns), "float32")
        for turn in range(1, size + 1):
            sums = (sums + of[(keeper + turn) % size][at]).astype("float16").astype("float32")
        assert np.array_equal(ring[at], sums)


def test_pieces_of_a_gathered_product_are_the_same_without_copy_engines(monkeypatch):
    """A piece of another height may have another configuration, and other bits."""
    made: list[list] = []
    monkeypatch.setattr(overlap, "MIN_PIECE", 0)
    monkeypatch.setattr(
        overlap.GatherPlan, "multiply", lambda plan, a, b, y, stream: made[-1].append((stream, a.shape))
    )
    with cs.emulate(devices=3):
        group = Group.local()
        a, b = (np.ones(shape, "float16") for shape in ((20, 8), (8, 24)))
        for engine in (Memory(3), None):
            made.append([])
            monkeypatch.setattr(group, "copy_engine", lambda streams, engine=engine: engine)
            group.plans.clear()
            cs.matmul(group.shard(a, 0, [9, 4, 7]), group.shard(b, 1))
    beside, kernels = (sorted(shape for _, shape in calls) for calls in made)
    assert beside == kernels and len(beside) == 3 * 5
