"""Sharded arrays on several GPUs: every kind of call agrees with NumPy, with arrays of this package and of torch, on
streams of their own, in graphs, and several at a time."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.dist import Group, Sharded
from cutesync.runtime import device

from . import ranks

pytestmark = [pytest.mark.gpu, pytest.mark.multi_gpu]
LENGTHS = (1, 1000, 1 << 20)


@pytest.fixture(scope="module")
def group() -> Group:
    return Group.local()


def spread(group: Group, x: np.ndarray, axis: int | None, library: str) -> Sharded:
    """The array in uneven parts, of a library."""
    if axis is None:
        held = Sharded(group, [group.put(x, rank) for rank in range(group.size)], None)
    else:
        first = x.shape[axis] // group.size // 2
        each, more = divmod(x.shape[axis] - first, group.size - 1)
        held = group.shard(x, axis, [first, *(each + (r < more) for r in range(group.size - 1))])
    if library == "own":
        return held
    torch = pytest.importorskip("torch")
    parts = [torch.from_numpy(np.asarray(part)).to(f"cuda:{rank}") for rank, part in enumerate(held.parts)]
    for rank in range(group.size):
        torch.cuda.synchronize(rank)
    return Sharded(group, parts, axis)


CALLS = {
    "sum": (lambda x: cs.sum(x), lambda x: x.sum()),
    "argmax": (lambda x: cs.argmax(x), lambda x: x.argmax()),
    "var": (lambda x: cs.var(x), lambda x: x.var()),
    "cumsum": (lambda x: cs.cumsum(x), lambda x: x.cumsum()),
    "heads": (lambda x: cs.flag_heads(x), lambda x: np.r_[1, x[1:] != x[:-1]]),
    "differences": (lambda x: cs.adjacent_difference(x), lambda x: np.r_[x[0], x[1:] - x[:-1]]),
    "select": (lambda x: cs.select(x, lambda v: v > 0).values, lambda x: x[x > 0]),
    "unique": (lambda x: cs.unique_consecutive(x), lambda x: x[np.r_[True, x[1:] != x[:-1]]]),
    "runs": (lambda x: cs.reduce_by_key(x, x).keys, lambda x: x[np.r_[True, x[1:] != x[:-1]]]),
    "sums of runs": (
        lambda x: cs.reduce_by_key(x, x).values,
        lambda x: np.add.reduceat(x, np.flatnonzero(np.r_[True, x[1:] != x[:-1]])),
    ),
    "sum of one run": (
        lambda x: cs.reduce_by_key(x, x, equal=lambda a, b: a == a).values,
        lambda x: x.sum(keepdims=True),
    ),
    "top": (lambda x: cs.topk(x, 2)[0], lambda x: np.sort(x)[::-1][:2]),
    "places of the top": (lambda x: cs.argtopk(x, 2, largest=False), lambda x: x.argsort(kind="stable")[:2]),
    "cumsum of the first": (lambda x: cs.cumsum(x, n=x.size), lambda x: x.cumsum()),
    "whole": (lambda x: x.reshard(None), lambda x: x),
    "gathered": (lambda x: x.gather(1), lambda x: x),
}


@pytest.mark.parametrize("library", ["own", "torch"])
@pytest.mark.parametrize("name", CALLS)
def test_calls_agree_with_numpy(name, library, group):
    call, expected = CALLS[name]
    for length in LENGTHS:
        x = np.random.default_rng(length).integers(-3, 4, length * group.size)
        sharded = spread(group, x, 0, library)
        for _ in range(5):  # slots of either parity
            found = call(sharded)
        found = found if isinstance(found, Sharded) and found.axis is None else [found]
        for part in getattr(found, "parts", found):
            host = part.cpu().numpy() if hasattr(part, "cpu") else np.asarray(part)
            np.testing.assert_allclose(host, expected(x), rtol=1e-12)


def test_ranks_that_are_processes():
    size = device.count()
    assert ranks.in_processes(size, ranks.everything) == list(range(size))


@pytest.mark.parametrize("library", ["own", "torch"])
def test_reshard_and_reduce_scatter(library, group):
    random = np.random.default_rng(3)
    for shape, dtype in (((64, 96), "float32"), ((33, 5, 70), "int8"), ((1 << 10, 1 << 11), "float64")):
        x = random.integers(0, 100, shape).astype(dtype)
        for axis, to in ((0, 1), (1, 0), (0, None), (None, 1)):
            found = spread(group, x, axis, library).reshard(to)
            for part in found.parts if to is None else [found]:
                assert np.array_equal(part.cpu().numpy() if hasattr(part, "cpu") else np.asarray(part), x)
        parts = spread(group, x, None, library).parts
        assert np.array_equal(np.asarray(group.reduce_scatter(parts, axis=1)), (x * group.size).astype(dtype))


@pytest.mark.parametrize("library", ["own", "torch"])
def test_products(library, group):
    random = np.random.default_rng(5)
    a, b = (random.integers(-2, 3, shape).astype("float16") for shape in ((512, 1024), (1024, 768)))
    want = (a.astype("float32") @ b.astype("float32")).astype("float16")
    for of_a in (None, 0, 1):
        for of_b in (None, 0, 1):
            given = spread(group, a, of_a, library), spread(group, b, of_b, library)
            first, again = cs.matmul(*given), cs.matmul(*given)
            for found in (first, again):
                for part in found.parts if found.axis is None else [found]:
                    host = part.cpu().numpy() if hasattr(part, "cpu") else np.asarray(part)
                    assert np.array_equal(host, want), (of_a, of_b)


def test_streams_and_graphs(group):
    """Calls on streams that are not torch's current ones, then captured on all devices and replayed."""
    torch = pytest.importorskip("torch")
    cu, x = device.driver(), np.arange(1 << 12)
    sharded = spread(group, x, 0, "torch")
    streams = [torch.cuda.Stream(rank) for rank in range(group.size)]
    raw = [stream.cuda_stream for stream in streams]
    for stream in (streams, raw):
        total, sums = cs.sum(sharded, stream=stream), cs.cumsum(sharded, stream=stream)
        for rank in range(group.size):
            torch.cuda.synchronize(rank)
        assert int(total) == x.sum() and np.array_equal(np.asarray(sums), x.cumsum())
    outs = spread(group, np.zeros((), np.int64), None, "torch"), spread(group, np.zeros_like(x), 0, "torch")
    calls = [lambda: cs.sum(sharded, out=outs[0], stream=raw), lambda: cs.cumsum(sharded, out=outs[1], stream=raw)]
    for call in calls:
        call()
    for rank in range(group.size):
        torch.cuda.synchronize(rank)
    for handle in raw:
        mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        device.check(cu.cuStreamBeginCapture(cu.CUstream(handle), mode), "capture")
    for call in calls:
        with_memory = call()
    captured = [device.check(cu.cuStreamEndCapture(cu.CUstream(handle)), "capture") for handle in raw]
    graphs = [device.check(cu.cuGraphInstantiate(graph, 0), "graph") for graph in captured]
    for part in sharded.parts:
        part.add_(1)
    for rank in range(group.size):
        torch.cuda.synchronize(rank)
    for _ in range(5):
        for graph, handle in zip(graphs, raw):
            device.check(cu.cuGraphLaunch(graph, cu.CUstream(handle)), "replay")
    for rank in range(group.size):
        torch.cuda.synchronize(rank)
    assert int(outs[0]) == (x + 1).sum() and np.array_equal(np.asarray(with_memory), (x + 1).cumsum())


def test_results_are_the_same_bits_in_every_run(group):
    x = np.random.default_rng(9).standard_normal(1 << 22).astype("float32")
    sharded = group.shard(x)
    first = float(cs.sum(sharded))
    assert all(float(part) == first for _ in range(20) for part in cs.sum(sharded).parts)
