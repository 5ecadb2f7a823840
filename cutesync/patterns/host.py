"""The host side of the patterns: arrays in, one launch after another, arrays of the same library out.

A pattern's ``run`` makes a ``Call`` from its array, asks it for a result, launches, and returns ``call.result(...)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cutesync.arguments import whole
from cutesync.dtypes import INT64, DType
from cutesync.errors import ArgumentTypeError, ArgumentValueError, DeviceError, explain, shown
from cutesync.identity import identify
from cutesync.runtime import arrays, backend, device_array, workspace
from cutesync.runtime.kernel import KernelSpec, Pointer, Scalar
from cutesync.runtime.launch import Launch


class Call:
    """One call of a pattern: ``x`` as a checked device array, its stream, and results in the caller's library."""

    def __init__(self, x, stream=None, *, dtypes: tuple[str, ...] = (), ndim: int = 1) -> None:
        self.from_numpy = isinstance(x, np.ndarray)  # a plain one, or the adapter refuses it
        found = arrays.adapter(x).view(x)
        if dtypes and found.dtype.name not in dtypes:
            raise ArgumentTypeError(explain("dtype of x", str(found.dtype), " or ".join(dtypes)))
        if len(found.shape) != ndim:
            raise ArgumentValueError(explain("x", f"an array of {len(found.shape)} dimensions", f"{ndim}"))
        chosen = None if stream is None else arrays.stream_handle(stream)
        if self.from_numpy:
            x = device_array.from_numpy(x, found.dtype, stream=chosen or 0)
        self.library = arrays.adapter(x)
        self.x = arrays.checked(x, "x")
        self._keep: list[Any] = [x]
        self.device = self.x.device
        self.other = chosen is not None
        self.stream: int = self.library.stream(self.device) if chosen is None else chosen

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
        """What the caller gets: a NumPy array if ``x`` was one."""
        return device_array.to_numpy(array, self.stream) if self.from_numpy else array

    def launch(
        self, host: Callable, pointers: tuple[int, ...], types, *, n: int = 0, m: int = 0, grid: int = 1, counted=False
    ) -> None:
        """Compile (once) and launch.

        ``host()`` makes the PatternKernel. The kernel is named by all that ``host`` reaches: its source, what it is
        made with, the user's callables. ``pointers`` are x, out and, where there is one, the state; ``types`` the
        DTypes that they point to. ``counted``: the state is the workspace of the stream, its counters first.
        """
        x, out, state = (*pointers, 0)[:3]
        launch(host, (x, out, state, n, m), types, grid, self.device, self.stream, counted)


def launch(host: Callable, values: tuple, types, grid: int, ordinal: int, stream: int, counted: bool = False) -> None:
    """One launch of a pattern kernel with its five arguments.

    ``counted``: the workspace of the stream takes the place of ``state`` and ``m``.
    """
    names = ("x", "out", "counters", "n", "scratch") if counted else ("x", "out", "state", "n", "m")
    spec = KernelSpec(
        ("patterns", identify(host, "the kernel of").key, *(t.name for t in types)),
        (*(Pointer(name, kind) for name, kind in zip(names, types)), Scalar("n", "Int64"), Scalar(names[4], "Int64")),
        host,
    )
    claim = workspace.counters_and_slots if counted else None
    given = {name: value for name, value in zip(names, values) if name not in ("counters", "scratch")}
    Launch(spec, ordinal, grid, given, claim=claim, stream=stream).run(values[:2], stream)


def persistent(call: Call, consumers: int, blocks: int | None, tile_bytes: int, per_sm: int) -> int:
    """The grid of a kernel of a producer warp and ``consumers`` warps whose blocks take one tile after another."""
    if not 1 <= consumers <= 31:
        raise ArgumentValueError(
            explain("consumers", f"{consumers} consumer warps + 1 producer warp", "2 to 32 warps a block")
        )
    if blocks is not None and not 1 <= whole(blocks, "blocks") < 2**31:
        raise ArgumentValueError(explain("blocks", blocks, "1 to 2**31 - 1"))
    return blocks or min(-(-call.x.nbytes // max(tile_bytes, 1)), per_sm * multiprocessors(call.device))


def traceable(fn, argument: str) -> Callable:
    """``fn``, checked."""
    if not callable(fn):
        raise ArgumentTypeError(explain(argument, shown(fn), "a callable of one value that the DSL can trace"))
    return fn


def multiprocessors(ordinal: int) -> int:
    """How many multiprocessors a persistent kernel's grid is made for; few on the emulator: blocks do several tiles."""
    place = backend.of(ordinal)
    return 3 if place.on_host else place.multiprocessors(ordinal)
