"""Workspaces of streams: one is never used by two streams, a stream that is gone is never asked, and all of them
together are bounded."""

from __future__ import annotations

import contextlib
import gc
from types import SimpleNamespace

import numpy as np
import pytest

import cutesync as cs
from cutesync.runtime import device, emulated, gpu, workspace

from ..cases import data
from ..concurrency import in_threads


class Streams:
    """A driver of streams and memory: handles come back, numbers do not, and memory is free only once nothing that is
    queued uses it."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self.made, self.memory, self.freed = 0, set(), 0

    def create(self, handle: int) -> int:
        self.made += 1
        self.numbers[handle] = 100 + self.made
        return handle

    def destroy(self, handle: int) -> None:
        del self.numbers[handle]

    def stream_id(self, stream: int) -> int:
        return self.numbers[stream]  # KeyError: a stream that is gone was asked

    def make_workspace(self, size: int, cleared: int, ordinal: int) -> int:
        self.made += 1
        self.memory.add(self.made << 32)
        return self.made << 32

    def cuMemFree(self, base: int):
        self.memory.remove(base)
        self.freed += 1
        return (0,)


@pytest.fixture
def streams(monkeypatch):
    found = Streams()
    for name in ("_by_stream", "_by_capture", "_most", "_without"):
        monkeypatch.setattr(workspace, name, {})
    monkeypatch.setattr(gpu.GPU, "make_workspace", found.make_workspace)
    monkeypatch.setattr(device, "uncaptured", contextlib.nullcontext)
    monkeypatch.setattr(device, "capturing", lambda stream: bool(found.numbers.get(stream, 1) < 0))
    monkeypatch.setattr(device, "stream_id", found.stream_id)
    monkeypatch.setattr(
        device,
        "driver",
        lambda: SimpleNamespace(
            cuMemFree=found.cuMemFree, cuStreamGetCaptureInfo=lambda stream: (0, 1, -found.numbers[stream])
        ),
    )
    monkeypatch.setattr(device, "using", lambda ordinal: contextlib.nullcontext())
    yield found
    for held in (workspace._by_stream, workspace._by_capture, workspace._outgrown, workspace._given_up):
        held.clear()


def test_ten_thousand_streams_in_turn_are_bounded(streams):
    most = 0
    for i in range(10_000):
        handle = streams.create(0x1000 + 16 * (i % 7))
        for _ in range(2):
            workspace.counters_and_slots(0, handle)
            workspace.counters_and_scratch(0, handle, 100, 1000)
        streams.destroy(handle)
        most = max(most, len(streams.memory))
    assert workspace.MOST // 2 <= most <= workspace.MOST and streams.freed > 19_000


def test_a_handle_that_comes_back_is_another_stream(streams):
    """The work of the old one may still be queued."""
    first = workspace.counters_and_slots(0, streams.create(0x1000))
    streams.destroy(0x1000)
    assert workspace.counters_and_slots(0, streams.create(0x1000)) is not first and streams.freed == 0


def test_what_a_caller_holds_is_not_freed(streams):
    """Between its answer and its launch other threads may use as many streams as they like."""
    held = workspace.counters_and_slots(0, streams.create(0x1000))
    for i in range(3 * workspace.MOST):
        workspace.counters_and_slots(0, streams.create(0x2000 + 16 * i))
    assert held not in workspace._by_stream.values() and held.addresses[0] in streams.memory
    base = held.addresses[0]
    del held
    workspace.forget(0, 0x2000)
    assert base not in streams.memory


def test_those_used_longest_ago_go(streams):
    """A stream in use keeps its workspace, and so do the default streams."""
    default, used = workspace.counters_and_slots(0, 0), workspace.counters_and_slots(0, streams.create(0x1000))
    for i in range(500):
        workspace.counters_and_slots(0, streams.create(0x2000 + 16 * i))
        assert workspace.counters_and_slots(0, 0x1000) is used and used.addresses[0] in streams.memory
    assert workspace.counters_and_slots(0, 0) is default and default.addresses[0] in streams.memory


def test_more_streams_in_use_than_that_all_keep_theirs(streams):
    handles = [streams.create(0x1000 + 16 * i) for i in range(3 * workspace.MOST)]
    for _ in range(4):
        for handle in handles:
            workspace.counters_and_slots(0, handle)
    freed = streams.freed
    for handle in handles:
        workspace.counters_and_slots(0, handle)
    assert streams.freed == freed and len(streams.memory) == len(handles)


def test_what_the_driver_will_not_free_is_tried_again(streams, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(device, "driver", lambda: SimpleNamespace(cuMemFree=lambda base: (900,)))
        for i in range(2 * workspace.MOST):
            workspace.counters_and_slots(0, streams.create(0x1000 + 16 * i))
        assert len(streams.memory) == 2 * workspace.MOST
    for i in range(workspace.MOST):
        workspace.counters_and_slots(0, streams.create(0x9000 + 16 * i))
    assert len(streams.memory) <= workspace.MOST


def test_a_capture_keeps_its_own_for_good(streams):
    """A graph holds the addresses, those that the capture outgrew too."""
    streams.numbers[0x1000] = -5  # captures, number 5
    small, large = workspace.scratch(0, 0x1000, 100).addresses, workspace.scratch(0, 0x1000, 1 << 24).addresses
    gc.collect()
    for i in range(3 * workspace.MOST):
        workspace.counters_and_slots(0, streams.create(0x2000 + 16 * i))
    assert (
        small[0] in streams.memory
        and large[0] in streams.memory
        and workspace.scratch(0, 0x1000, 100).addresses == large
    )


def test_ten_thousand_streams_on_the_emulator(on_emulator, monkeypatch):
    monkeypatch.setattr(workspace, "SLOTS", 64)
    x = data(1000, "int32")
    before = len(emulated._workspaces)
    for stream in range(5000, 15_000):
        workspace.counters_and_slots(device.HOST, stream)
        assert len(emulated._workspaces) <= before + workspace.MOST
    for stream in range(15_000, 15_010):
        assert cs.scan(x, stream=stream)[-1] == x.sum(dtype=np.int32)
    for stream in range(5000, 15_010):
        workspace.forget(device.HOST, stream)


@contextlib.contextmanager
def stream_of_ones_own():
    cu = device.driver()
    stream = device.check(cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING), "cuStreamCreate")
    yield int(stream)
    device.check(cu.cuStreamDestroy(stream), "cuStreamDestroy")


@pytest.mark.gpu
class TestOnTheGpu:
    @staticmethod
    def held() -> int:
        """Workspaces not freed yet. (The driver's figure of free memory has what other processes take.)"""
        return len(
            {made.addresses[0] for made in workspace._by_stream.values()} | {base for _, base in workspace._given_up}
        )

    def use(self, streams: int, x, wanted: int, outs) -> None:
        for i in range(streams):
            with stream_of_ones_own() as stream:  # whose work is queued still when it goes
                for k in range(3):
                    cs.reduce(
                        x[(i + i // len(outs)) % 5 :], keepdims=True, out=outs[i % len(outs)][k : k + 1], stream=stream
                    )
            if i % len(outs) == len(outs) - 1:
                device.check(device.driver().cuCtxSynchronize(), "cuCtxSynchronize")
                for j, out in enumerate(outs):
                    assert (np.asarray(out) == wanted[(j + i // len(outs)) % 5]).all()

    def test_ten_thousand_streams_in_turn(self):
        host = data(1 << 20, "int32")
        x, wanted = cs.asarray(host), [host[i:].sum(dtype=np.int32) for i in range(5)]
        outs = [cs.empty((3,), "int32") for _ in range(50)]
        self.use(200, x, wanted, outs)
        self.use(10_000, x, wanted, outs)
        assert self.held() <= 2 * workspace.MOST

    def test_per_thread_streams_are_different_streams(self):
        host = data(1 << 20, "int32")
        x, wanted = cs.asarray(host), host.sum(dtype=np.int32)
        outs = [cs.empty((), "int32") for _ in range(4)]
        cs.reduce(x, out=outs[0], stream=device.PER_THREAD)
        bases = set()

        def work(k: int) -> None:
            for _ in range(200):
                cs.reduce(x, out=outs[k], stream=device.PER_THREAD)
            device.synchronize(device.PER_THREAD)
            bases.add(workspace.counters_and_slots(0, device.PER_THREAD).addresses)

        in_threads(work)
        assert len(bases) == 4 and all(int(np.asarray(out)) == wanted for out in outs)

    def test_streams_come_and_go_while_a_graph_is_captured(self, torch):
        x, side = torch.ones(1 << 20, dtype=torch.int32, device="cuda"), cs.asarray(np.ones(1 << 20, np.int32))
        out, beside = torch.zeros((), dtype=torch.int32, device="cuda"), cs.empty((), "int32")
        cs.reduce(x, out=out)
        cs.reduce(side, out=beside)
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, capture_error_mode="global"):
            cs.reduce(x, out=out)
            for _ in range(2 * workspace.MOST):
                with stream_of_ones_own() as stream:
                    cs.reduce(side, out=beside, stream=stream)
            cs.reduce(x, out=out)
        out.zero_()
        graph.replay()
        torch.cuda.synchronize()
        assert int(out) == int(np.asarray(beside)) == 1 << 20
