"""block.Compact, block.RunLengthDecode and block.merge_path in kernels of one's own, against NumPy; planted faults."""

import functools

import cutlass
import cutlass.cute as cute
import numpy as np
import pytest
from cutlass import Int32

from cutesync import block
from cutesync.emulator import POLICIES
from cutesync.errors import ArgumentValueError

from .. import faults
from ..faults import each, op
from .kernels import blocked, run, thread_rank, vector

DSL = {"int8": cutlass.Int8, "int32": Int32, "float64": cutlass.Float64, "float16": cutlass.Float16}


class Compacted:
    """Row 0 of ``out``: the selected items, row 1: the partition, of one block; ``counts`` has each thread's count."""

    def __init__(self, dtype, block_dim, items: int) -> None:
        self.dtype, self.block_dim, self.items = dtype, (*block_dim, 1, 1)[:3], items
        self.threads = int(np.prod(block_dim))

    @cute.jit
    def __call__(self, x: cute.Pointer, flags: cute.Pointer, out: cute.Pointer, counts: cute.Pointer, stream):
        self.kernel(x, flags, out, counts).launch(grid=(1, 1, 1), block=self.block_dim, stream=stream)

    @cute.kernel(preprocess=False)
    def kernel(self, x: cute.Pointer, flags: cute.Pointer, out: cute.Pointer, counts: cute.Pointer):
        compact, size = block.Compact(self.dtype, self.block_dim, self.items), self.threads * self.items
        _, mine = blocked(vector(x, size), self.items, self.block_dim, self.dtype)
        _, chosen = blocked(vector(flags, size), self.items, self.block_dim, cutlass.Uint8)
        store = block.Store(self.block_dim, self.items, "striped")
        kept, count = compact.select(mine, chosen)
        store(vector(out, size), 0, kept)
        store(vector(out + size, size), 0, compact.partition(mine, chosen)[0])
        vector(counts, self.threads)[thread_rank(self.block_dim)] = count


class Decoded:
    """The items of ``windows`` windows, and their places in their runs; ``totals`` has each thread's total."""

    def __init__(self, dtype, block_dim, runs: int, items: int, windows: int) -> None:
        self.dtype, self.block_dim, self.runs, self.items = dtype, (*block_dim, 1, 1)[:3], runs, items
        self.windows, self.threads = windows, int(np.prod(block_dim))

    @cute.jit
    def __call__(self, values: cute.Pointer, lengths: cute.Pointer, out: cute.Pointer, places: cute.Pointer, stream):
        self.kernel(values, lengths, out, places).launch(grid=(1, 1, 1), block=self.block_dim, stream=stream)

    @cute.kernel(preprocess=False)
    def kernel(self, values: cute.Pointer, lengths: cute.Pointer, out: cute.Pointer, places: cute.Pointer):
        decoder = block.RunLengthDecode(self.dtype, self.block_dim, self.runs, self.items)
        count, window = self.threads * self.runs, self.threads * self.items
        _, mine = blocked(vector(values, count), self.runs, self.block_dim, self.dtype)
        _, many = blocked(vector(lengths, count), self.runs, self.block_dim, Int32)
        total = decoder.start(mine, many)
        store = block.Store(self.block_dim, self.items)
        for number in range(self.windows):
            items, at = decoder.decode(number * window)
            store(vector(out + number * window, window), 0, items)
            store(vector(places + number * window, window), 0, at)
        vector(places + self.windows * window, self.threads)[thread_rank(self.block_dim)] = total


class Merged:
    """Two sorted arrays of Int32 merged: each thread takes ``items`` members."""

    def __init__(self, threads: int, items: int, counts: tuple[int, int]) -> None:
        self.threads, self.items, self.counts = threads, items, counts

    @cute.jit
    def __call__(self, a: cute.Pointer, b: cute.Pointer, out: cute.Pointer, stream):
        self.kernel(a, b, out).launch(grid=(1, 1, 1), block=(self.threads, 1, 1), stream=stream)

    @cute.kernel
    def kernel(self, a: cute.Pointer, b: cute.Pointer, out: cute.Pointer):
        x, y = vector(a, self.counts[0]), vector(b, self.counts[1])
        member = Int32(thread_rank((self.threads, 1, 1)) * self.items)
        stop = cutlass.min(member + self.items, Int32(sum(self.counts)))
        i = block.merge_path(cutlass.min(member, stop), *self.counts, lambda i, j: y[j] < x[i])
        merge(x, y, vector(out, sum(self.counts)), member, stop, i)


@cute.jit
def merge(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor, member, stop, i):
    """Store the members from ``member`` to ``stop`` of the merged list; ``i`` of the earlier ones come from ``x``."""
    while member < stop:
        j, value = member - i, Int32(0)
        takes = j >= cute.size(y)
        if (i < cute.size(x)) & (j < cute.size(y)):
            takes = y[j] >= x[i]
        if takes:
            value = Int32(x[i])
            i += 1
        else:
            value = Int32(y[j])
        out[member] = value
        member += 1


def flags_of(size: int) -> list[np.ndarray]:
    half = np.random.default_rng(5).random(size) < 0.5
    return [half, np.zeros(size, bool), np.ones(size, bool)]


@pytest.mark.parametrize(
    ("dtype", "block_dim", "items"), [("int32", (96,), 3), ("int8", (8, 8), 1), ("float64", (32,), 7)]
)
def test_compact(place, dtype, block_dim, items):
    threads = int(np.prod(block_dim))
    x = np.random.default_rng(2).integers(-99, 99, threads * items).astype(dtype)
    for mask in flags_of(threads * items):
        out, counts = np.full((2, x.size), 7, dtype), np.zeros(threads, np.int32)
        arrays = x, mask.astype(np.uint8) * 3, out, counts
        _, _, out, counts = run(place, Compacted(DSL[dtype], block_dim, items), *arrays, schedules=len(POLICIES))
        assert (counts == mask.sum()).all()
        assert np.array_equal(out[0, : mask.sum()], x[mask])
        assert np.array_equal(out[1], np.append(x[mask], x[~mask]))


@pytest.mark.parametrize(("dtype", "runs", "items"), [("int32", 1, 4), ("float16", 3, 1)])
def test_run_length_decode(place, dtype, runs, items):
    values = np.arange(64 * runs).astype(dtype)
    rng = np.random.default_rng(1)
    for lengths in (rng.integers(0, 4, 64 * runs), np.eye(1, 64 * runs, 7, int)[0] * 300, np.zeros(64 * runs, int)):
        total, window = lengths.sum(), 64 * items
        windows = -(-total // window) + 1
        out, places = np.full(windows * window, 9, dtype), np.full(windows * window + 64, 9, np.int32)
        host = Decoded(DSL[dtype], (64,), runs, items, int(windows))
        arrays = values, lengths.astype(np.int32), out, places
        _, _, out, places = run(place, host, *arrays, schedules=len(POLICIES))
        assert (places[-64:] == total).all()
        assert np.array_equal(out[:total], np.repeat(values, lengths))
        assert np.array_equal(places[:total], np.arange(total) - np.repeat(np.cumsum(lengths) - lengths, lengths))
        assert not out[total:].any() and not places[total:-64].any()


@pytest.mark.parametrize("counts", [(100, 83), (1, 300), (64, 64)])
def test_merge_path(place, counts):
    rng = np.random.default_rng(counts)
    a, b = (np.sort(rng.integers(0, 50, count)).astype(np.int32) for count in counts)
    threads = 64
    items = -(-sum(counts) // threads)
    *_, out = run(place, Merged(threads, items, counts), a, b, np.zeros(sum(counts), np.int32), schedules=2)
    assert np.array_equal(out, np.sort(np.append(a, b), kind="stable"))


def test_refused():
    for make in (
        lambda: block.Compact(Int32, (64,), 0),
        lambda: block.RunLengthDecode(Int32, (64,), 1, 0),
        lambda: block.RunLengthDecode(Int32, (64,), 0, 1),
    ):
        with pytest.raises(ArgumentValueError, match="1 or more"):
            make()


@functools.cache
def bench(what: str) -> faults.Bench:
    rng = np.random.default_rng(4)
    if what == "compact":
        x, mask = np.arange(192, dtype=np.int32), (rng.random(192) < 0.5).astype(np.uint8)
        host, arrays = Compacted(Int32, (96,), 2), [x, mask, np.zeros((2, 192), np.int32), np.zeros(96, np.int32)]
        return faults.of_function(host.__call__, arrays, {2: None}, len(POLICIES))
    lengths = rng.integers(0, 4, 96).astype(np.int32)
    arrays = [np.arange(96, dtype=np.int32) + 5, lengths, np.zeros(192, np.int32), np.zeros(288, np.int32)]
    return faults.of_function(Decoded(Int32, (96,), 1, 2, 1).__call__, arrays, {2: None, 3: None}, len(POLICIES))


@pytest.mark.slow
@pytest.mark.parametrize("what", ["compact", "decode"])
def test_every_barrier_is_needed(what):
    assert bench(what).finds(each(op(r"bar(rier)?\.sync"))).count("") == 0
