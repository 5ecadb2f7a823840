"""``check``: one call from a ``@cute.jit`` host function and NumPy arrays to a verdict under many schedules."""

from __future__ import annotations

import ctypes
import inspect
from typing import Any

import numpy as np

from ..errors import ArgumentTypeError, ArgumentValueError, explain
from ..runtime import compiler
from .run import DEVICE, LOCK, Device, run
from .settings import Settings, emulate

_TYPES = {f"{kind}{bits}": f"{kind.title()}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
_TYPES |= {"float16": "Float16", "bfloat16": "BFloat16", "float32": "Float32", "float64": "Float64", "bool": "Uint8"}
_TYPES |= {"float8_e4m3fn": "Float8E4M3FN", "float8_e5m2": "Float8E5M2"}


def dsl_type(dtype: np.dtype):
    """The CuTe element type of a NumPy dtype."""
    import cutlass

    if dtype.name not in _TYPES or not dtype.isnative:
        raise ArgumentTypeError(explain("dtype", dtype, "one of " + ", ".join(_TYPES)))
    return getattr(cutlass, _TYPES[dtype.name])


def compile_for_emulator(jit_function, *args, options: str = ""):
    """``cute.compile`` for sm_90a, with PTX and line information. NumPy arrays stand for pointers or tensors."""
    with compiler.alone():
        return compiler.compile_alone(jit_function, arguments(jit_function, args), options)


def arguments(jit_function, args, run_time: bool = False) -> list:
    """The arguments as the DSL takes them, a stream added if it is missing; ``run_time``: no compile-time constants."""
    import cuda.bindings.driver as driver
    import cutlass.cute as cute
    from cutlass.cute.runtime import from_dlpack, make_ptr

    parameters = list(inspect.signature(getattr(jit_function, "__wrapped__", jit_function)).parameters.values())
    if len(args) > len(parameters):
        raise ArgumentTypeError(
            explain(f"arguments of {jit_function.__name__}", len(args), f"{len(parameters)} at most")
        )
    out = []
    for p, a in zip(parameters, args):
        if run_time and "Constexpr" in str(p.annotation):
            continue
        if not isinstance(a, np.ndarray):
            out.append(a)
        elif isinstance(a, np.ma.MaskedArray):
            raise ArgumentTypeError(explain(p.name, "a masked array", "an array without a mask"))
        elif "Tensor" in str(p.annotation):
            out.append(from_dlpack(a).mark_layout_dynamic())
        elif not a.flags.c_contiguous:
            advice = "give np.ascontiguousarray(x), or annotate the parameter as cute.Tensor"
            came = f"strides {a.strides} for shape {a.shape}"
            raise ArgumentValueError(explain(p.name, came, "a C-contiguous array: a pointer has no strides", advice))
        else:
            align = next(n for n in (16, 8, 4, 2, 1) if a.ctypes.data % n == 0)
            out.append(
                make_ptr(dsl_type(a.dtype), a.ctypes.data, cute.AddressSpace.gmem, assumed_align=max(align, a.itemsize))
            )
    for p in parameters[len(args) :]:
        if p.default is inspect.Parameter.empty and "stream" in str(p.annotation).lower() + p.name.lower():
            out.append(driver.CUstream(0))
    return out


def call(compiled, jit_function, *args, device: Device = DEVICE, fresh=(), edit=None) -> None:
    """Run a compiled cute function with NumPy arrays as memory, under the settings in force.

    Arrays in ``fresh`` are poisoned: to read one of their bytes before the kernel has written it is a fault.
    """
    with compiler.alone():
        values = arguments(jit_function, args, run_time=True)  # hold the memory that the packed pointers point to
        pointers, keep = compiled.generate_execution_args(*values)
    result = ctypes.c_int32(0)
    addresses = [ctypes.cast(p, ctypes.c_void_p) for p in (*pointers, ctypes.pointer(result))]
    packed = (ctypes.c_void_p * len(addresses))(*addresses)
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    with LOCK, device.arrays(*arrays, fresh=fresh):  # another thread may give the same arrays
        run(compiled, packed, device, edit)
    del values, keep


def check(jit_function, *args, schedules: int = 20, options: str = "", fresh=(), **how: Any) -> Settings:
    """Compile a ``@cute.jit`` host function for sm_90a and run it under ``schedules`` schedules over all policies.

    NumPy arrays are passed as pointers (or tensors, where the parameter is annotated so) and are changed in place by
    the last run. A stream parameter may be left out. Arrays in ``fresh`` count as unwritten memory. ``options`` are
    those of ``cute.compile``. All other keywords are those of ``emulate``: one ``policy`` instead of all, ``seed``,
    ``sanitize``, ``trace``, ``resident``, and ``max_steps``, the bound on a launch without end (see ``watchdog``).
    Raises EmulationError on a race, a deadlock, a misuse, or when two schedules give different results, and LaunchError
    for a launch that a GPU would refuse.
    """
    compiled = compile_for_emulator(jit_function, *args, options=options)
    with emulate(schedules=schedules, **how) as used:
        call(compiled, jit_function, *args, fresh=fresh)
    return used
