"""CUDA graphs of a checked script. What streams are given during a capture is not done then: the graph keeps it, and
each launch of the graph does it in the same order, its kernels checked as those of any other launch.

``GraphAnswers`` has the calls of ``cuda.bindings``; ``torch_graphs`` does the same for torch.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from ...errors import LaunchError, explain
from .session import Graph, Session, caller

_NONE, _ACTIVE = 0, 1  # CUstreamCaptureStatus


class GraphAnswers:
    """Answers of ``cuda.bindings``: a capture of a stream, graphs that are instantiated and launched."""

    driver: ModuleType
    runtime: ModuleType
    session: Session
    graphs: dict[int, Graph]

    def begin_capture(self, *_: Any) -> tuple:
        begin(self.session)
        return ()

    def capturing(self, *_: Any) -> tuple:
        return (self.driver.CUstreamCaptureStatus(_NONE if self.session.capture is None else _ACTIVE),)

    def runtime_capturing(self, *_: Any) -> tuple:
        return (self.runtime.cudaStreamCaptureStatus(_NONE if self.session.capture is None else _ACTIVE),)

    def end_capture(self, *_: Any) -> tuple:
        return (self.driver.CUgraph(self._number(end(self.session))),)

    def runtime_end_capture(self, *_: Any) -> tuple:
        return (self.runtime.cudaGraph_t(self._number(end(self.session))),)

    def instantiate(self, graph: Any, *_: Any) -> tuple:
        return (self.driver.CUgraphExec(self._number(self.graphs[int(graph)])),)

    def runtime_instantiate(self, graph: Any, *_: Any) -> tuple:
        return (self.runtime.cudaGraphExec_t(self._number(self.graphs[int(graph)])),)

    def launch_graph(self, graph: Any, *_: Any) -> tuple:
        self.graphs[int(graph)].launch(self.session)
        return ()

    def _number(self, graph: Graph) -> int:
        """A handle of a graph."""
        self.graphs[len(self.graphs) + 1] = graph
        return len(self.graphs)


def begin(session: Session) -> Graph:
    """Begin a capture. All streams are one to the emulator, so it has the work of all."""
    if session.capture is not None:
        raise LaunchError(explain("a capture", f"another one at {caller()}", "one at a time"))
    session.capture = Graph()
    return session.capture


def end(session: Session) -> Graph:
    """End the capture under way."""
    if session.capture is None:
        raise LaunchError(explain("the end of a capture", f"none under way at {caller()}", "a capture that has begun"))
    graph, session.capture = session.capture, None
    return graph


def outside(session: Session, name: str, answer: Callable) -> Callable:
    """``answer``, but an error during a capture: the call waits for work that is not done then."""

    def call(*arguments: Any, **named: Any) -> Any:
        if session.capture is not None:
            came = f"{name} at {caller()}, while a CUDA graph is captured"
            raise RuntimeError(explain("the call", came, "calls that wait for nothing, during a capture"))
        return answer(*arguments, **named)

    return call


DRIVER: dict[Callable, str] = {
    GraphAnswers.begin_capture: "StreamBeginCapture",
    GraphAnswers.capturing: "StreamIsCapturing",
    GraphAnswers.end_capture: "StreamEndCapture",
    GraphAnswers.instantiate: "GraphInstantiate GraphInstantiateWithFlags",
    GraphAnswers.launch_graph: "GraphLaunch",
}
RUNTIME: dict[Callable, str] = {
    GraphAnswers.begin_capture: "StreamBeginCapture",
    GraphAnswers.runtime_capturing: "StreamIsCapturing",
    GraphAnswers.runtime_end_capture: "StreamEndCapture",
    GraphAnswers.runtime_instantiate: "GraphInstantiate GraphInstantiateWithFlags",
    GraphAnswers.launch_graph: "GraphLaunch",
}
