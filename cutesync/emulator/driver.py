"""Runs a compiled cute function's own host code without a driver.

The DSL's host entry computes grids and packs parameters. The engine that runs it loads no shared library; each CUDA
symbol it needs is a callback of ``HostCalls``. ``Executable`` is one compiled function made runnable: it records the
launches of a call, which then run in order.
"""

from __future__ import annotations

import ctypes

from ..errors import LaunchError
from . import ptx
from .host_calls import HostCalls, Launch, calls_of

__all__ = ["Executable", "Launch"]

_P, _I = ctypes.c_void_p, ctypes.c_int


class Executable:
    """One compiled cute function. ``record(packed)`` runs its host code and returns the launches it made.

    It refers to nothing of the compiled object, with which it is kept (``run.executable``). The engine keeps the
    callbacks, unseen by the garbage collector, so they must not lead back to it.
    """

    def __init__(self, compiled):
        self.text = getattr(compiled, "__ptx__", None)
        if not self.text or compiled.ir_module is None:
            raise LaunchError(
                "the emulator needs the PTX and the host module of a kernel: compile it with the option --keep-ptx"
            )
        self.launches: list[Launch] = []
        self.calls = HostCalls(self.text, self.launches.append)
        self.callbacks = self.calls.callbacks(calls_of(str(compiled.ir_module)))
        self.entry = self._engine(compiled)

    def _engine(self, compiled):
        from cutlass._mlir.execution_engine import ExecutionEngine

        self.engine = ExecutionEngine(compiled.ir_module, opt_level=2, shared_libs=[])
        for symbol, callback in self.callbacks.items():
            self.engine.raw_register_runtime(symbol, ctypes.cast(callback, _P))
        self._load_library()
        address = self.engine.raw_lookup("_mlir_ciface_" + compiled.function_name)
        if not address:
            raise LaunchError(f"the compiled module has no entry {compiled.function_name}")
        return ctypes.CFUNCTYPE(None, _P)(address)

    def _load_library(self) -> None:
        """Let the module fetch its kernel handles, as it would from a driver."""
        library, device, error = _P(), _I(0), _I(0)
        library_at = ctypes.pointer(library)
        for name, values in (("cuda_init", (library_at, error)), ("cuda_load_to_device", (library_at, device, error))):
            address = self.engine.raw_lookup(name)
            if not address:
                continue
            cells = [ctypes.pointer(v) for v in values]
            packed = (_P * len(cells))(*[ctypes.cast(c, _P) for c in cells])
            ctypes.CFUNCTYPE(_I, _P)(address)(packed)

    def record(self, packed, edit=None) -> list[Launch]:
        """Run the host code with its packed arguments and return its launches.

        ``packed`` holds pointers to the values, the last one to the result. ``edit`` changes the PTX of these launches
        first: tests plant faults with it.
        """
        self.launches.clear()
        self.calls.failure = None
        original = self.calls.parsed, self.calls.programs
        if edit is not None:
            self.calls.parsed, self.calls.programs = ptx.parse(edit(self.text)), {}
        try:
            self.entry(packed)
        finally:
            if edit is not None:
                self.calls.parsed, self.calls.programs = original
        self.calls.reraise()
        return list(self.launches)
