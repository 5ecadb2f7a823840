"""A module ``cupy`` in place of CuPy, which needs a GPU: NumPy's functions, with results in device memory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from .. import facts
from . import cupy_kernels
from .host_arrays import DeviceArray, device_array, plain
from .session import Session


class ndarray(DeviceArray):
    """What the functions of the module return."""

    def get(self, *_: Any, **__: Any) -> np.ndarray:
        return plain(self).copy()

    @property
    def device(self) -> SimpleNamespace:  # type: ignore[override]
        return SimpleNamespace(id=0)


class _Module(ModuleType):
    """``cupy`` or one of its modules: what it does not have itself is NumPy's."""

    def __init__(self, name: str, source: Any) -> None:
        super().__init__(name)
        self.__dict__["_source"] = source
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(self._source, name)
        return found if isinstance(found, type) or not callable(found) else _there(found, name)


def _there(function: Callable, name: str) -> Callable:
    def call(*arguments: Any, **named: Any) -> Any:
        named.pop("blocking", None)
        result = function(*plain(arguments), **{key: plain(value) for key, value in named.items()})
        return device_array(result, ndarray, fresh=name in ("empty", "empty_like"))

    call.__name__ = name
    return call


class _Stream:
    """A stream; all of them are one to the emulator."""

    null: Any = None
    ptr = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def synchronize(self) -> None:
        """Nothing is under way."""


def install(session: Session) -> None:
    """Put the modules where ``import`` finds them."""
    cupy = _Module("cupy", np)
    cuda = ModuleType("cupy.cuda")
    stream = _Stream.null = _Stream()
    runtime = SimpleNamespace(getDeviceCount=lambda: 1, getDevice=lambda: 0, deviceSynchronize=lambda: None)
    device = SimpleNamespace(id=0, synchronize=lambda: None, compute_capability="90", attributes={"Name": facts.NAME})
    cuda.__dict__.update(Stream=_Stream, runtime=runtime, Device=lambda *_: device, get_current_stream=lambda: stream)
    own: dict[str, Any] = {
        "ndarray": ndarray,
        "cuda": cuda,
        "asnumpy": lambda x, **_: plain(x).copy(),
        "random": _Module("cupy.random", np.random),
        "linalg": _Module("cupy.linalg", np.linalg),
        "testing": np.testing,
        **cupy_kernels.classes(session),
    }
    cupy.__dict__.update(own)
    sys.modules.update({"cupy": cupy, "cupy.cuda": cuda})
    for name in ("random", "linalg", "testing"):
        sys.modules[f"cupy.{name}"] = own[name]
