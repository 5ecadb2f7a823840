"""Streams, threads, graphs and repeats: nothing that runs beside a call or before it changes its result."""

from __future__ import annotations

import importlib
import threading

import numpy as np
import pytest

import cutesync as cs
from cutesync.runtime import call, device, workspace

from ..cases import bicyclic, brackets, data, fold, same
from ..concurrency import capture_names_the_call_to_make, captured, in_threads, replay_at_once

pytestmark = pytest.mark.gpu


def split_problems():
    """Arrays, axes and operators whose kernels share the workspace: long rows, many columns, few columns, argmax."""
    return [
        (data(1 << 20, "int32"), None, "add"),
        (data((3, 200_000), "int64"), 1, "xor"),
        (data((20_000, 40), "int32"), 0, "add"),
        (data((100_000, 3), "float32"), 0, "add"),
        (brackets(300_007), None, bicyclic),
        (brackets((4000, 65)), 0, bicyclic),
    ]


def expected(x, axis, op):
    if op is bicyclic:
        return fold(bicyclic, x if axis is None else np.moveaxis(x, axis, -1))
    return cs.reference.reduce(x, op, axis=axis)


def test_streams_do_not_share_a_workspace():
    torch = pytest.importorskip("torch")
    streams = [torch.cuda.Stream() for _ in range(4)]
    x = cs.asarray(data(1 << 20, "int32"))
    for stream in streams:
        cs.reduce(x, stream=stream)
    torch.cuda.synchronize()
    assert len({workspace._by_stream[(0, device.stream_id(stream.cuda_stream))] for stream in streams}) == 4


@pytest.mark.parametrize("sizes", [(1 << 20, 300_007)], ids=["grids"])
def test_eight_streams_at_once(sizes):
    torch = pytest.importorskip("torch")
    streams = [torch.cuda.Stream() for _ in range(8)]
    inputs = [
        torch.randint(-1000, 1000, (n + 8 * k,), device="cuda", dtype=torch.int32) for k in range(8) for n in sizes
    ]
    wanted = [int(x.sum()) for x in inputs]
    tall = torch.randint(-9, 9, (20_000, 40), device="cuda", dtype=torch.int32)
    tall_sum = tall.sum(0, dtype=torch.int32)
    torch.cuda.synchronize()
    results, columns = [], []
    for turn in range(60):
        for k, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                i = (turn + k) % len(inputs)
                results.append((i, cs.reduce(inputs[i], dtype="int64")))
                columns.append(cs.reduce(tall, axis=0))
    torch.cuda.synchronize()
    assert all(int(total) == wanted[i] for i, total in results)
    assert all(bool((column == tall_sum).all()) for column in columns)


@pytest.mark.parametrize(
    "shape", [(37,), (2500,), (70_001,), (10**6 + 3,), (1 << 24,), (3000, 700), (100_003, 3), (40, 30_011)], ids=str
)
def test_a_thousand_repeats_are_bitwise_equal(shape):
    """Random float32, whose sum depends on the order of additions."""
    torch = pytest.importorskip("torch")
    x = torch.randn(shape, device="cuda", generator=torch.Generator("cuda").manual_seed(1))
    for axis in range(len(shape)):
        wanted = cs.reduce(x, axis=axis).clone()
        differ = torch.zeros((), dtype=torch.int64, device="cuda")
        for _ in range(1000 if x.numel() <= 1 << 20 else 300):
            differ += (cs.reduce(x, axis=axis).view(torch.int32) != wanted.view(torch.int32)).sum()
        assert int(differ) == 0


def test_threads_share_a_plan():
    """Two threads in one plan would mix up its argument block if they did not take turns."""
    arrays = [cs.asarray(np.full(70_001, k, np.int32)) for k in range(4)]
    cs.reduce(arrays[0])

    def work(k: int) -> None:
        for _ in range(300):
            assert int(np.asarray(cs.reduce(arrays[k]))) == 70_001 * k

    in_threads(work)


def test_a_thread_that_never_used_cuda_may_call():
    x, found = cs.asarray(np.ones(70_001, np.int32)), []
    thread = threading.Thread(target=lambda: found.append(int(np.asarray(cs.reduce(x)))))
    thread.start()
    thread.join()
    assert found == [70_001]


class TestGraphs:
    @pytest.mark.parametrize("case", range(6))
    def test_a_hundred_replays_with_changing_input(self, case):
        torch = pytest.importorskip("torch")
        x, axis, op = split_problems()[case]
        source = torch.from_numpy(x).cuda()
        out = torch.zeros(
            () if axis is None else tuple(n for a, n in enumerate(x.shape) if a != axis),
            dtype=source.dtype,
            device="cuda",
        )
        graph = captured(lambda: cs.reduce(source, op, axis=axis, out=out))
        for turn in range(100):
            moved = np.roll(x, 7 * turn, axis=0)
            source.copy_(torch.from_numpy(moved))
            out.zero_()
            graph.replay()
            if turn % 5 == 0:
                same(out.cpu().numpy(), expected(moved, axis, op), f"replay {turn}")

    def test_replays_beside_eager_calls(self):
        """A graph has a workspace of its own: its replays may overlap the capturing stream's later work."""
        torch = pytest.importorskip("torch")
        x = torch.randint(-9, 9, (1 << 20,), device="cuda", dtype=torch.int32)
        y = torch.randint(-9, 9, (1 << 20,), device="cuda", dtype=torch.int32)
        out = torch.zeros((), dtype=torch.int32, device="cuda")
        side, other = torch.cuda.Stream(), torch.cuda.Stream()
        with torch.cuda.stream(side):
            graph = captured(lambda: cs.reduce(x, out=out), side)
        totals = []
        for _ in range(100):
            with torch.cuda.stream(other):
                graph.replay()
            with torch.cuda.stream(side):
                totals.append(cs.reduce(y))
        torch.cuda.synchronize()
        assert int(out) == int(x.sum()) and {int(t) for t in totals} == {int(y.sum())}

    def test_two_graphs_captured_on_one_stream_replay_at_once(self):
        torch = pytest.importorskip("torch")
        inputs = [torch.randint(-9, 9, (1 << 20,), device="cuda", dtype=torch.int32) for _ in range(2)]
        outs = [torch.zeros((), dtype=torch.int32, device="cuda") for _ in range(2)]
        replay_at_once([lambda x=x, out=out: cs.reduce(x, out=out) for x, out in zip(inputs, outs)], 200)
        assert [int(out) for out in outs] == [int(x.sum()) for x in inputs]

    def test_a_kernel_not_compiled_yet_says_what_to_call_first(self):
        torch = pytest.importorskip("torch")
        x = torch.ones(70_001, dtype=torch.int32, device="cuda")
        out = torch.zeros((), dtype=torch.int32, device="cuda")

        def never_seen(a, b):
            return a + b + 0

        capture_names_the_call_to_make(lambda: cs.reduce(x, never_seen, out=out))
        assert int(out) == 70_001

    def test_numpy_input_cannot_be_captured(self):
        """Copying from host memory would wait, which a capture forbids; the error must be ours or the driver's, and the
        next call works."""
        torch = pytest.importorskip("torch")
        host = np.ones(2500, np.int32)
        cs.reduce(host)
        side = torch.cuda.Stream()
        graph = torch.cuda.CUDAGraph()
        with pytest.raises(RuntimeError), torch.cuda.graph(graph, stream=side):
            torch.zeros(1, device="cuda")
            cs.reduce(host, stream=side)
        assert cs.reduce(host) == 2500


def test_plans_are_found_again():
    """The second call with equal arguments compiles nothing and plans nothing."""
    plans = call._plans
    compiler = importlib.import_module("cutesync.runtime.compiler")
    x = cs.asarray(data(2500, "int32"))
    cs.reduce(x)
    before, counts = len(plans), compiler.counts()
    for _ in range(5):
        cs.reduce(x)
    assert len(plans) == before and compiler.counts() == counts


def test_more_plans_than_are_kept():
    limit = call._MOST_PLANS
    x = cs.asarray(np.ones(6000, np.int32))
    for n in range(129, 129 + limit + 20):  # one kernel, many plans
        cs.reduce(x[:n], out=None)
    assert int(np.asarray(cs.reduce(x[:200]))) == 200
