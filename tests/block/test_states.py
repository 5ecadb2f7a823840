"""Collectives of states of several values in kernels of one's own, against NumPy."""

import re

import cutlass
import cutlass.cute as cute
import numpy as np
import pytest
from cutlass import Boolean, Float16, Float32, Int8, Int32

import cutesync as cs
from cutesync import block, warp
from cutesync.dtypes import BY_NAME
from cutesync.errors import ArgumentTypeError, ArgumentValueError, OperatorError

from .. import states
from ..states import CASES
from .kernels import SCHEDULES, thread_rank

DSL = {t: getattr(cutlass, "Boolean" if t == "bool" else BY_NAME[t].dsl) for case in CASES.values() for t in case.types}
ROWS = (
    "inclusive",
    "exclusive",
    "total",
    "reduced",
    "all reduced",
    "of a warp",
    "warp's inclusive",
    "warp's exclusive",
)


class Collected:
    """One row of results for each collective, an array for each value of a state. ``front`` is what comes first:
    "initial", a tuple of numbers, or "prefix", which returns the aggregate."""

    def __init__(self, case: str, block_dim, items: int, width: int, front: str) -> None:
        self.case, self.block_dim, self.items, self.width, self.front = case, block_dim, items, width, front
        self.threads = block_dim[0] * block_dim[1] * block_dim[2]
        self.types = tuple(DSL[t] for t in CASES[case].types)

    @cute.jit
    def __call__(self, xs: list, outs: list, stream):
        self.kernel(xs, outs).launch(grid=(1, 1, 1), block=self.block_dim, stream=stream)

    @cute.kernel(preprocess=False)
    def kernel(self, xs: list, outs: list):
        case, thread = CASES[self.case], thread_rank(self.block_dim)
        items = tuple(cute.make_rmem_tensor((self.items,), t) for t in self.types)
        for i in range(self.items):
            for item, x, t in zip(items, xs, self.types):
                item[i] = t(x[thread * self.items + i])
        options = {"initial": case.identity} if self.front == "initial" else {"prefix": lambda aggregate: aggregate}
        scan, reduce = block.Scan(self.types, self.block_dim), block.Reduce(self.types, self.block_dim)
        inclusive, total = scan.inclusive(items, case.op, **options)
        cute.arch.sync_threads()
        exclusive, _ = scan.exclusive(items, case.op, **options)
        first = tuple(item[0] for item in inclusive)
        first = tuple(t(value) for t, value in zip(self.types, first))
        reduced = warp.broadcast(reduce(first, case.op))
        cute.arch.sync_threads()
        everywhere = reduce.all_reduce(first, case.op)
        of_warp = warp.reduce(first, case.op, self.width)
        scans = warp.scan(first, case.op, initial=case.identity, width=self.width)
        for out, *found in zip(outs, inclusive, exclusive, total, reduced, everywhere, of_warp, *scans):
            for row, value in enumerate(found):
                for i in range(self.items):
                    stored = value[i] if row < 2 else value
                    out[(row * self.threads + thread) * self.items + i] = out.element_type(stored)


def run(place, host, xs: list, outs: list) -> list:
    """The outputs as ``host`` leaves them."""
    if place.name == "emulator":
        cs.emulator.check(host, xs, outs, schedules=SCHEDULES)
        return outs
    given = [[cs.asarray(array) for array in arrays] for arrays in (xs, outs)]
    cs.launch(host, *given)
    return [np.asarray(out) for out in given[1]]


def expected(case, xs, items: int, width: int, front: str) -> list:
    """The rows, each of an array for each value."""
    whole = states.reduced(case, xs, (0,))
    start = case.identity if front == "initial" else whole
    inclusive, exclusive = (states.scanned(case, xs, 0, exclusive=exclusive, init=start) for exclusive in (False, True))
    total = [np.full_like(x, value) for x, value in zip(xs, whole)]
    first = [x[::items] for x in inclusive]
    groups = [x.reshape(-1, width) for x in first]
    scans = [states.scanned(case, groups, 1, exclusive=e, init=case.identity) for e in (False, True)]
    of_warp = [np.repeat(x, width) for x in states.reduced(case, groups, (1,))]
    reduced = states.reduced(case, first, (0,))
    each = [np.full_like(x, value) for x, value in zip(first, reduced)]
    spread = [[np.repeat(x.ravel(), items) for x in row] for row in (each, each, of_warp, *scans)]
    return [inclusive, exclusive, total, *spread]


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("case", "block_dim", "items", "width", "front"),
    [
        ("matrices", (8, 4, 3), 2, 8, "prefix"),
        ("maps", (64, 1, 1), 1, 32, "initial"),
        ("segments", (32, 1, 1), 3, 1, "initial"),
        ("bool segments", (32, 2, 1), 2, 16, "prefix"),
    ],
)
def test_agree_with_numpy(place, case, block_dim, items, width, front):
    host = Collected(case, block_dim, items, width, front)
    count = host.threads * items
    xs = states.data(CASES[case], (count,), 7)
    outs = [np.zeros(len(ROWS) * count, x.dtype) for x in xs]
    outs = run(place, host, list(xs), outs)
    wanted = expected(CASES[case], list(xs), items, width, front)
    for number, name in enumerate(ROWS):
        for out, value in zip(outs, wanted[number]):
            found = out.reshape(len(ROWS), count)[number]
            if name == "reduced":  # only the first warp has thread 0's
                found, value = found[: 32 * items], value[: 32 * items]
            assert np.array_equal(found, value), name


class Named:
    """``warp.reduce`` and ``block.Reduce`` of (float16, int8, bool) by a name, and the largest with its thread."""

    @cute.jit
    def __call__(self, xs: list, outs: list, stream):
        self.kernel(xs, outs).launch(grid=(1, 1, 1), block=(64, 1, 1), stream=stream)

    @cute.kernel
    def kernel(self, xs: list, outs: list):
        thread = cute.arch.thread_idx()[0]
        reduce = block.Reduce((Float16, Int8, Boolean), (64,))
        value = (Float16(xs[0][thread]), Int8(xs[1][thread]), Boolean(xs[2][thread]))
        sums = warp.reduce(value, "add")
        largest = reduce(value, "max")
        best, at, one = warp.reduce((value[0], thread, 1), lambda p, q: (*(q if q[0] > p[0] else p)[:2], p[2] + q[2]))
        if thread == 0:
            for i in cutlass.range_constexpr(3):
                outs[i][0] = outs[i].element_type(sums[i])
                outs[i][1] = outs[i].element_type(largest[i])
            outs[3][0] = best
            outs[3][1] = Float32(at)
            outs[3][2] = Float32(one)


def test_names_narrow_values_and_constants(place):
    rng = np.random.default_rng(5)
    xs = [rng.integers(-60, 60, 64).astype(t) for t in ("float16", "int8")] + [rng.random(64) < 0.1]
    outs = run(place, Named(), xs, [np.zeros(2, x.dtype) for x in xs] + [np.zeros(3, np.float32)])
    for x, out in zip(xs, outs):
        assert out.tolist() == [x[:32].sum(dtype=x.dtype), x.max()]
    assert outs[3].tolist() == [xs[0][:32].max(), xs[0][:32].argmax(), 32]


def wrong(what: str):
    """A collective that is used wrongly."""
    pair, add = (Int32, Float32), lambda p, q: (p[0] + q[0], p[1] + q[1])
    items = lambda *counts: tuple(cute.make_rmem_tensor((n,), t) for n, t in zip(counts, pair))  # noqa: E731
    calls = {
        "one number": lambda v: warp.reduce((v, 1.0), lambda p, q: p[0] + q[0]),
        "three": lambda v: block.Reduce(pair, (32,))((v, 1.0), lambda p, q: (*p, 1)),
        "value": lambda v: block.Reduce(pair, (32,))(v, add),
        "dtype": lambda v: block.Reduce((Int32, "float32"), (32,)),
        "float name": lambda v: warp.scan((v, 1.0), "xor"),
        "identity": lambda v: block.Scan(pair, (32,)).exclusive(items(2, 2), add),
        "items": lambda v: block.Scan(pair, (32,)).inclusive(items(2, 3), add),
        "initial": lambda v: warp.scan((v, 1.0), add, initial=0),
        "prefix": lambda v: block.Scan(pair, (32,)).inclusive(items(1, 1), add, prefix=lambda p: p[0]),
        "no types": lambda v: block.Reduce((), (32,)),
        "text": lambda v: warp.reduce((v, "1"), add),
        "width": lambda v: warp.reduce(v, "add", width=3),
        "wider": lambda v: warp.scan(v, "add", width=64),
        "no items": lambda v: block.Load((32,), 0),
    }
    return calls[what]


@cute.kernel(preprocess=False)
def _refused(x: cute.Tensor, what: cutlass.Constexpr):
    wrong(what)(Int32(x[cute.arch.thread_idx()[0]]))


@cute.jit
def _launch_refused(x: cute.Tensor, what: cutlass.Constexpr):
    _refused(x, what).launch(grid=(1, 1, 1), block=(32, 1, 1))


@pytest.mark.parametrize(
    ("what", "kind", "said"),
    [
        ("one number", OperatorError, "not a tuple of 2 numbers"),
        ("three", OperatorError, "it returned 3 values, not 2"),
        ("value", ArgumentTypeError, "value: .*a tuple of 2"),
        ("dtype", ArgumentTypeError, "dtype: .*float32"),
        ("float name", ArgumentTypeError, "float32"),
        ("identity", ArgumentValueError, "no identity"),
        ("items", ArgumentValueError, "items: .*2, 3"),
        ("initial", ArgumentTypeError, "initial: .*a tuple of 2"),
        ("prefix", OperatorError, "prefix.*not a tuple of 2 numbers"),
        ("no types", ArgumentValueError, "at least one"),
        ("text", ArgumentTypeError, "str"),
        ("width", ArgumentValueError, "width: got 3; needs a power of two"),
        ("wider", ArgumentValueError, "width: got 64"),
        ("no items", ArgumentValueError, "items_per_thread: got 0"),
    ],
)
def test_refusals_say_why(what, kind, said):
    with pytest.raises(Exception) as caught:
        cs.emulator.check(_launch_refused, np.zeros(32, np.int32), what, schedules=1)
    error = caught.value
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    assert error is not None, caught.value
    assert re.search(said, str(error)), error
