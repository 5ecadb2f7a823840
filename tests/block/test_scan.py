"""block.Scan and warp.scan in kernels of one's own, against NumPy."""

import itertools

import cutlass
import cutlass.cute as cute
import numpy as np
import pytest
from cutlass import Float32, Int32

from cutesync import block, warp
from cutesync.errors import ArgumentValueError

from ..cases import bicyclic, brackets, everywhere
from .kernels import blocked, run, vector

DSL = {"int32": Int32, "int64": cutlass.Int64, "float32": Float32}
LAST = lambda a, b: b  # noqa: E731


class BlockScans:
    """Row 0: inclusive, row 1: exclusive, of the tile of one block; ``totals`` gets the aggregate of each thread."""

    def __init__(self, dtype, block_dim, items: int, op, front: str) -> None:
        self.dtype, self.block_dim, self.items, self.op, self.front = dtype, block_dim, items, op, front
        self.threads = block_dim[0] * block_dim[1] * block_dim[2]

    @cute.jit
    def __call__(self, x: cute.Pointer, scanned: cute.Pointer, totals: cute.Pointer, stream):
        self.kernel(x, scanned, totals).launch(grid=(1, 1, 1), block=self.block_dim, stream=stream)

    @cute.kernel(preprocess=False)
    def kernel(self, x: cute.Pointer, scanned: cute.Pointer, totals: cute.Pointer):
        count = self.threads * self.items
        scan = block.Scan(self.dtype, self.block_dim)
        first, mine = blocked(vector(x, count), self.items, self.block_dim, self.dtype)
        options = {"initial": {"initial": 5}, "prefix": {"prefix": lambda aggregate: aggregate}}.get(self.front, {})
        inclusive, total = scan.inclusive(mine, self.op, **options)
        cute.arch.sync_threads()
        if self.front == "none" and self.op not in ("add",):
            exclusive = inclusive
        else:
            exclusive, _ = scan.exclusive(mine, self.op, **options)
        out = vector(scanned, 2 * count)
        for i in range(self.items):
            out[first + i] = inclusive[i]
            out[count + first + i] = exclusive[i]
        vector(totals, self.threads)[first // self.items] = total


def expected(x, fn, front):
    """(inclusive, exclusive, aggregate) by the operator itself."""
    with np.errstate(over="ignore"):
        aggregate = list(itertools.accumulate(x, fn))[-1]
        start = {"none": [], "initial": [x.dtype.type(5)], "prefix": [aggregate]}[front]
        running = list(itertools.accumulate([*start, *x], fn))
    inclusive = running[len(start) :]
    exclusive = running[:-1] if start else ([x.dtype.type(0), *running[:-1]] if fn is np.add else inclusive)
    return np.array([inclusive, exclusive], x.dtype), aggregate


BLOCKS = (((32, 1, 1), 3), ((96, 1, 1), 1), ((8, 4, 4), 2))
FRONTS, OPERATORS = ("none", "initial", "prefix"), ("add", "max", "last", "order")


# the brackets have no value 5 in front
@pytest.mark.drawn(8)
@everywhere(
    "op, block_dim, items, front",
    [
        (op, *block, front)
        for op in OPERATORS
        for block in BLOCKS
        for front in FRONTS
        if op != "order" or front == "none"
    ],
    emulator=lambda op, block_dim, items, front: (OPERATORS.index(op) + items + FRONTS.index(front)) % 2 == 0,
)
def test_agrees_with_numpy(place, op, block_dim, items, front):
    count = int(np.prod(block_dim)) * items
    x = brackets((count,)) if op == "order" else np.random.default_rng(3).integers(-50, 50, count).astype(np.int32)
    fn = {"add": np.add, "max": np.maximum, "last": LAST, "order": bicyclic}[op]
    host = BlockScans(DSL[x.dtype.name], block_dim, items, op if isinstance(fn, np.ufunc) else fn, front)
    _, scanned, totals = run(place, host, x, np.zeros(2 * count, x.dtype), np.zeros(count // items, x.dtype))
    wanted, aggregate = expected(x, fn, front)
    assert np.array_equal(scanned.reshape(2, count), wanted)
    assert (totals == aggregate).all()


class WarpScans:
    """Inclusive and exclusive scans over groups of ``width`` lanes, and both again behind an initial value of 5."""

    def __init__(self, op, width: int) -> None:
        self.op, self.width = op, width

    @cute.jit
    def __call__(self, x: cute.Pointer, out: cute.Pointer, stream):
        self.kernel(x, out).launch(grid=(1, 1, 1), block=(32, 1, 1), stream=stream)

    @cute.kernel
    def kernel(self, x: cute.Pointer, out: cute.Pointer):
        lane = cute.arch.thread_idx()[0]
        value = Int32(vector(x, 32)[lane])
        plain = warp.scan(value, self.op, width=self.width)
        behind = warp.scan(value, self.op, initial=5, width=self.width)
        target = vector(out, 128)
        for row in cutlass.range_constexpr(4):
            target[32 * row + lane] = (*plain, *behind)[row]


@pytest.mark.parametrize("width", [1, 4, 32])
@pytest.mark.parametrize("op", ["add", "last"])
def test_warp_scans(place, op, width):
    x = np.arange(3, 35, dtype=np.int32)
    fn = {"add": np.add, "last": LAST}[op]
    _, out = run(place, WarpScans(op if op == "add" else fn, width), x, np.zeros(128, np.int32))
    inclusive, exclusive, behind, before = out.reshape(4, -1, width)
    for group, values in enumerate(x.reshape(-1, width)):
        wanted = list(itertools.accumulate(values, fn))
        assert inclusive[group].tolist() == wanted
        assert exclusive[group].tolist()[1:] == wanted[:-1]
        wanted = list(itertools.accumulate([np.int32(5), *values], fn))
        assert behind[group].tolist() == wanted[1:] and before[group].tolist() == wanted[:-1]


def test_what_is_refused():
    class Refused:
        def __init__(self, options) -> None:
            self.options = options

        @cute.jit
        def __call__(self, x: cute.Pointer, stream):
            self.kernel(x).launch(grid=(1, 1, 1), block=(32, 1, 1), stream=stream)

        @cute.kernel(preprocess=False)
        def kernel(self, x: cute.Pointer):
            _, mine = blocked(vector(x, 32), 1, (32, 1, 1), Int32)
            block.Scan(Int32, (32, 1, 1)).exclusive(mine, **self.options)

    from cutesync.emulator import check

    for options, named in (({"op": "max"}, "identity"), ({"op": "add", "initial": 1, "prefix": LAST}, "prefix")):
        with pytest.raises(Exception, match=named) as caught:
            check(Refused(options).__call__, np.zeros(32, np.int32), schedules=1)
        error = caught.value
        while error is not None and not isinstance(error, ArgumentValueError):
            error = error.__cause__ or error.__context__
        assert error is not None
