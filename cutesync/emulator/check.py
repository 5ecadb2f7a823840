"""``check``: one call from a ``@cute.jit`` host function and its arguments to a verdict under many schedules."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from ..dtypes import element_type
from ..errors import ArgumentValueError, explain, shown
from ..runtime import arrays, backend, compiler, device as gpus, host_code
from ..runtime.host_arguments import Block, Reader
from ..runtime.host_call import Function
from ..runtime.view import View, in_elements
from . import chains
from .rewind import Rewind
from .run import DEVICE, LOCK, Device, run
from .settings import Settings, emulate


def compile_for_emulator(jit_function, *args, options: str = "") -> host_code.HostCode:
    """Compile a host function for sm_90a, with PTX and line information, for arguments of ``check``."""
    _, examples = _read(jit_function, args, Memory())
    with compiler.alone(), chains.recorded():
        return host_code.compiled(jit_function, examples(), options)


def _read(jit_function, args: tuple, memory: Memory) -> tuple[Reader, Callable[[], list]]:
    function = Function(jit_function, None)
    reader, _, examples = function.read(function.complete(args)[0], memory.view)
    return reader, examples


class Memory:
    """The memory of the arguments on this machine: ``arrays`` are its NumPy arrays. Arrays of a GPU are copied;
    ``write_back`` copies them back."""

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []
        self._copies: list[tuple[View, np.ndarray, int]] = []

    def view(self, x: Any, name: str) -> View:
        """Return the View of an array in host memory."""
        library = arrays.adapter(x, name)
        if library is arrays.NUMPY:
            steps = in_elements(x.strides, x.itemsize) if x.size else None
            writable = bool(x.flags.writeable)
            found = View(
                x.ctypes.data, x.shape, element_type(x.dtype), gpus.HOST, x.flags.c_contiguous, writable, steps
            )
            self.arrays.append(x)
        else:
            found = library.view(x)
            start, stop = found.span
            if not backend.of(found.device).on_host:
                host = self._copied(found, library.stream(found.device))
                found = View(
                    host.ctypes.data + found.ptr - start,
                    *(found.shape, found.dtype, gpus.HOST, found.contiguous, found.writable, found.strides),
                )
                self.arrays.append(host)
            elif library is not arrays.OWN and stop > start:  # a DeviceArray is registered already
                self.arrays.append(np.frombuffer((ctypes.c_uint8 * (stop - start)).from_address(start), np.uint8))
        if found.size and found.ptr % found.dtype.size:
            allowed = f"a multiple of {found.dtype.size} bytes"
            raise ArgumentValueError(
                explain(name, f"address {found.ptr:#x} for {found.dtype}", allowed, "copy it first")
            )
        return found

    def _copied(self, view: View, stream: int) -> np.ndarray:
        """Return a copy of the GPU memory that an array spans, after the work on a stream."""
        start, stop = view.span
        host = np.empty(stop - start, np.uint8)
        with gpus.using(view.device):
            gpus.copy_out(host.ctypes.data, start, host.nbytes, stream)
        self._copies.append((view, host, stream))
        return host

    def write_back(self) -> None:
        for view, host, stream in self._copies:
            if view.writable:
                with gpus.using(view.device):
                    gpus.copy_in(view.span[0], host.ctypes.data, host.nbytes, stream)
                    gpus.synchronize(stream)


def call(compiled, jit_function, *args, device: Device = DEVICE, fresh=(), edit=None, tolerance: float = 0.0) -> None:
    """Run a compiled host function on the arguments of ``check``, under the settings in force.

    Arrays in ``fresh`` are poisoned: to read one of their bytes before the kernel has written it is a fault. ``edit``
    changes the PTX first.
    """
    memory = Memory()
    reader, _ = _read(jit_function, args, memory)
    block = Block(reader.leaves)
    block.put([view.ptr for view in reader.views], reader.numbers, 0)
    close = Close(tolerance, reader.views) if tolerance else None
    with LOCK, device.arrays(*memory.arrays, fresh=fresh):  # another thread may give the same arrays
        run(compiled, block.packed, device, edit, close)
    memory.write_back()


class Close:
    """Whether two schedules leave floats that differ by rounding only: by at most ``tolerance`` times the largest
    magnitude in their array. All other memory must be equal."""

    def __init__(self, tolerance: float, views: list[View]) -> None:
        self.tolerance, self.floats = tolerance, [v for v in views if v.dtype.kind == "f"]

    def __call__(self, rewind: Rewind) -> bool:
        for region, places in rewind.written():
            first = rewind.first.get(region, rewind.before[region][0])
            wrong = places[region.data[places] != first[places]] + region.base
            for view in self.floats:
                start, stop = view.span
                inside = (start <= wrong) & (wrong < stop)
                if inside.any() and self._agree(*(_elements(view, data, region.base) for data in (first, region.data))):
                    wrong = wrong[~inside]
            if len(wrong):
                return False
        return True

    def _agree(self, a: np.ndarray, b: np.ndarray) -> bool:
        finite = np.abs(a[np.isfinite(a)])
        return np.allclose(a, b, rtol=0, atol=self.tolerance * finite.max(initial=0.0), equal_nan=True)


def _elements(view: View, data: np.ndarray, base: int) -> np.ndarray:
    """Return the elements of an array as float64, out of the bytes of a region that begins at ``base``."""
    size = view.dtype.size
    steps = tuple(size * step for step in view.steps)
    return np.ndarray(view.shape, view.dtype.numpy, data, view.ptr - base, steps).astype(np.float64)


def check(
    jit_function, *args, schedules: int = 20, options: str = "", fresh=(), tolerance: float = 0.0, **how: Any
) -> Settings:
    """Compile a ``@cute.jit`` host function for sm_90a and run it under ``schedules`` schedules over all policies.

    ``args`` are those of ``cs.launch``, without the stream. Arrays in host memory are changed in place by the last run,
    with their own strides; those of a GPU are copied there and back. Arrays in ``fresh`` count as unwritten memory.
    ``options`` are those of ``cute.compile``. ``tolerance`` is for kernels with float atomics, whose results differ in
    the last bits between schedules: elements may differ by this times the largest magnitude in their array (1e-6, say).
    All other keywords are those of ``emulate``: one ``policy`` instead of all, ``seed``, ``sanitize``, ``trace``,
    ``resident``, and ``max_steps``, the bound on a launch without end (see ``watchdog``); ``initcheck`` and
    ``unseen_launches`` are off unless asked for. Raises EmulationError on a race, a deadlock, a misuse, or when two
    schedules give different results, and LaunchError for a launch that a GPU would refuse. What it returns counts what
    ran and has the warnings and notes (``findings``).
    """
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)) or not 0 <= tolerance < 1:
        raise ArgumentValueError(explain("tolerance", shown(tolerance), "a number from 0 to below 1"))
    compiled = compile_for_emulator(jit_function, *args, options=options)
    how = {"initcheck": False, "unseen_launches": False, **how}
    with emulate(schedules=schedules, **how) as used:
        call(compiled, jit_function, *args, fresh=fresh, tolerance=tolerance)
    return used
