"""CUDA graphs of torch in a checked script: operators on device tensors are captured as kernels are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from . import graphs
from .session import Graph, Session


def install(session: Session) -> None:
    """Answer for the rest of the process."""

    class CUDAGraph:
        """What torch.cuda.CUDAGraph is. ``keep_graph`` says how long the driver keeps a graph: here, always."""

        def __init__(self, keep_graph: bool = False) -> None:
            self.held: Graph | None = None

        def capture_begin(self, *_: Any, **__: Any) -> None:
            graphs.begin(session)

        def capture_end(self) -> None:
            self.held = graphs.end(session)

        def replay(self) -> None:
            if self.held is None:
                raise RuntimeError("replay of a CUDA graph that has not been captured")
            self.held.launch(session)

        def reset(self) -> None:
            self.held = None

        def pool(self) -> tuple[int, int]:
            return _pool()

        def _nothing(self, *_: Any, **__: Any) -> None:
            """Nothing is left to do."""

        instantiate = enable_debug_mode = debug_dump = _nothing

    class graph:
        """The context in which a graph is captured."""

        def __init__(self, cuda_graph: CUDAGraph, *_: Any, **__: Any) -> None:
            self.cuda_graph = cuda_graph

        def __enter__(self) -> None:
            self.cuda_graph.capture_begin()

        def __exit__(self, *_: Any) -> None:
            self.cuda_graph.capture_end()

    cuda: Any = torch.cuda
    cuda.CUDAGraph, cuda.graph, cuda.graph_pool_handle = CUDAGraph, graph, _pool
    cuda.is_current_stream_capturing = lambda: session.capture is not None
    cuda.synchronize = graphs.outside(session, "torch.cuda.synchronize", lambda *_, **__: None)


def _pool() -> tuple[int, int]:
    """A memory pool: a graph keeps its own tensors, so all are one."""
    return (0, 1)


def captured(graph: Graph, func: Any, run: Callable, arguments: tuple, there: Callable) -> Any:
    """Leave an operator to a graph. Return tensors for its results, which nobody has written.

    ``run`` computes the operator. ``arguments`` are its positional and its named ones. ``there`` makes device memory
    like a tensor without any. Sizes come from the operator's own computation for the device ``meta``.
    """
    given: dict[int, torch.Tensor] = {}

    def sizes_of(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return torch.device("meta") if isinstance(x, torch.device) else x
        stand_in = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")
        given[id(stand_in)] = x
        kept.append(stand_in)
        return stand_in

    kept: list[torch.Tensor] = []
    args, named = tree_map(sizes_of, arguments)
    named.pop("generator", None)
    result = tree_map(lambda x: given.get(id(x), x), func(*args, **named))
    result = tree_map(lambda x: there(x) if isinstance(x, torch.Tensor) and x.is_meta else x, result)
    places = tree_leaves(result)
    mine = {id(x) for x in given.values()}

    def work() -> None:
        with torch.no_grad():
            values = tree_leaves(run(*arguments[0], **arguments[1]))
            for place, value in zip(places, values):
                if isinstance(place, torch.Tensor) and id(place) not in mine:
                    place.copy_(value)

    graph.work.append(work)
    return result
