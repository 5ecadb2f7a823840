"""The host side of the patterns: arrays in, one launch after another, arrays of the same library out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..dtypes import INT64, DType
from ..errors import ArgumentTypeError, ArgumentValueError, DeviceError, explain, shown
from ..identity import identify
from ..runtime import arrays, backend, device_array, workspace
from ..runtime.kernel import KernelSpec, Pointer, Scalar
from ..runtime.launch import Launch


class Call:
    """One call of a pattern: ``x`` as a checked device array, its device, the stream, and results in the caller's library."""

    def __init__(self, x, stream=None, *, dtypes: tuple[str, ...] = (), ndim: int = 1) -> None:
        self.from_numpy = isinstance(x, np.ndarray)  # a plain one, or the adapter refuses it
        found = arrays.adapter(x).view(x)
        if dtypes and found.dtype.name not in dtypes:
            raise ArgumentTypeError(explain("dtype of x", str(found.dtype), " or ".join(dtypes)))
        if len(found.shape) != ndim:
            raise ArgumentValueError(explain("x", f"an array of {len(found.shape)} dimensions", f"{ndim}"))
        self.stream = None if stream is None else arrays.stream_handle(stream)
        if self.from_numpy:
            x = device_array.from_numpy(x, found.dtype, stream=self.stream or 0)
        self.library = arrays.adapter(x)
        self.x = arrays.checked(x, "x")
        self._keep: list[Any] = [x]
        self.device = self.x.device
        self.other = self.stream is not None
        if self.stream is None:
            self.stream = self.library.stream(self.device)

    @property
    def size(self) -> int:
        return self.x.size

    def array(self, shape, dtype: DType):
        """An uninitialised array of the caller's library."""
        self._keep.append(self.library.allocator(tuple(shape), dtype, self.device)(self.stream, self.other))
        return self._keep[-1]

    def out(self, out, shape, dtype: DType):
        """``out`` checked, or a new array."""
        if out is None:
            return self.array(shape, dtype)
        if self.from_numpy:
            raise DeviceError(
                explain(
                    "out", f"a {type(out).__name__} for a NumPy x", "no out: the result of a NumPy x is a new array"
                )
            )
        view = arrays.checked(out, "out", writable=True)
        arrays.same_device(self.x, view, "out")
        if view.shape != tuple(shape) or view.dtype is not dtype:
            raise ArgumentValueError(explain("out", f"{view.dtype}{list(view.shape)}", f"{dtype}{list(shape)}"))
        if -self.x.nbytes < self.x.ptr - view.ptr < view.nbytes:
            raise ArgumentValueError(explain("out", "memory that overlaps x", "memory of its own"))
        return out

    def zeros(self, count: int):
        """A DeviceArray of int64 zeros, for state."""
        self._keep.append(device_array.from_numpy(np.zeros(count, np.int64), INT64, self.device, self.stream))
        return self._keep[-1]

    def read(self, array) -> np.ndarray:
        """A state array on the host, once this call's launches are over."""
        return device_array.to_numpy(array, self.stream)

    def pointer(self, array) -> int:
        return self.library.identify(array)[0]

    def result(self, array):
        """What the caller gets: NumPy if it gave NumPy."""
        return device_array.to_numpy(array, self.stream) if self.from_numpy else array

    def launch(
        self,
        host: Callable,
        x: int,
        out: int,
        *,
        types,
        state: int = 0,
        n: int = 0,
        m: int = 0,
        grid: int = 1,
        counted=False,
    ) -> None:
        """Compile (once) and launch. ``host()`` makes the PatternKernel, and names it by what it reaches: the source of the kernel, what it is
        made with, the user's callables. ``types`` are the DTypes that ``x``, ``out`` and ``state`` point to. ``counted``: ``state`` is the
        stream's workspace, its counters first."""
        launch(host, (x, out, state, n, m), types, grid, self.device, self.stream, counted)


def launch(host: Callable, values: tuple, types, grid: int, ordinal: int, stream: int, counted: bool = False) -> None:
    """One launch of a pattern kernel with its five arguments; ``counted``: the workspace of the stream takes the place of
    ``state`` and ``m``."""
    names = ("x", "out", "counters", "n", "scratch") if counted else ("x", "out", "state", "n", "m")
    spec = KernelSpec(
        ("patterns", identify(host, "the kernel of").key, *(t.name for t in types)),
        (*(Pointer(name, kind) for name, kind in zip(names, types)), Scalar("n", "Int64"), Scalar(names[4], "Int64")),
        host,
    )
    claim = workspace.counters_and_slots if counted else None
    given = {name: value for name, value in zip(names, values) if name not in ("counters", "scratch")}
    Launch(spec, ordinal, grid, given, claim=claim, stream=stream).run(values[:2], stream)


def traceable(fn, argument: str) -> Callable:
    """``fn``, checked."""
    if not callable(fn):
        raise ArgumentTypeError(explain(argument, shown(fn), "a callable of one value that the DSL can trace"))
    return fn


def multiprocessors(ordinal: int) -> int:
    """How many multiprocessors the grid of a persistent kernel is made for; on the emulator a few, so that blocks do several tiles."""
    place = backend.of(ordinal)
    return 3 if place.on_host else place.multiprocessors(ordinal)
