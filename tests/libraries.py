"""Arrays of other libraries: how to make them, and what type the results have."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs

from .cases import Capsule


class Interface:
    """An array of which nothing is known but ``__cuda_array_interface__``."""

    def __init__(self, owner, **changes) -> None:
        self.owner = owner
        self.__cuda_array_interface__ = owner.__cuda_array_interface__ | changes


def torch_tensor(x):
    return pytest.importorskip("torch").from_numpy(x).cuda()


def cupy_array(x):
    return pytest.importorskip("cupy").asarray(x)


MAKERS = {
    "numpy": lambda x: x,
    "own": lambda x: cs.asarray(x),
    "torch": torch_tensor,
    "cupy": cupy_array,
    "interface": lambda x: Interface(cs.asarray(x)),
    "interface_of_torch": lambda x: Interface(torch_tensor(x)),
    "capsule": lambda x: Capsule(cs.asarray(x)),
    "capsule_of_torch": lambda x: Capsule(torch_tensor(x)),
}
RESULTS = {"numpy": "numpy", "torch": "torch", "cupy": "cupy"}  # the others give DeviceArrays


def host(result) -> np.ndarray:
    return (
        result.cpu().numpy()
        if hasattr(result, "cpu")
        else result.get()
        if hasattr(result, "get")
        else np.asarray(result)
    )


def captured(torch, call, stream=None):
    """A graph of what ``call`` enqueues, captured on ``stream``, and what it returned. It is called once before, which
    compiles and loads; in the capture, a wait is an error."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    torch.cuda.set_sync_debug_mode("error")
    try:
        with torch.cuda.graph(graph, stream=stream):
            found = call()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return graph, found
