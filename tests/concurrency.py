"""Threads and graphs, for the tests of calls that run beside other calls."""

from __future__ import annotations

import contextvars
import threading

import pytest

from cutesync.errors import CaptureError


def in_threads(work, count: int = 4) -> None:
    """``work(0)`` to ``work(count - 1)`` in threads that start together, on the backend in force here. The first error
    of any is raised here."""
    start, failures = threading.Barrier(count), []

    def run(k: int) -> None:
        try:
            start.wait()
            work(k)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=contextvars.copy_context().run, args=(run, k)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def captured(call, stream=None):
    """A torch graph of what ``call`` enqueues, captured on ``stream``. It is called once before, which compiles and
    loads."""
    torch = pytest.importorskip("torch")
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        call()
    return graph


def replay_at_once(calls, turns: int) -> None:
    """Graphs of the calls, captured on one stream, each replayed on a stream of its own."""
    torch = pytest.importorskip("torch")
    capture = torch.cuda.Stream()
    graphs = [captured(call, capture) for call in calls]
    streams = [torch.cuda.Stream() for _ in graphs]
    for _ in range(turns):
        for graph, stream in zip(graphs, streams):
            with torch.cuda.stream(stream):
                graph.replay()
    torch.cuda.synchronize()


def capture_names_the_call_to_make(call) -> None:
    """``call`` needs a kernel that is not compiled yet: in a capture that is an error which says so, afterwards the
    call works."""
    torch = pytest.importorskip("torch")
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(CaptureError, match="the same call once before capturing"), torch.cuda.graph(graph):
        torch.zeros(1, device="cuda")
        call()
    torch.cuda.synchronize()
    call()
