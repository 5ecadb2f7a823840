"""Triton in a checked script: its kernels are compiled for sm_90a without a GPU, and their PTX is launched here.

Triton asks its active driver for the target, and a compiled kernel for a launcher. Both are answered; the compiler, the
autotuner and everything else stay Triton's own.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import prod
from types import SimpleNamespace
from typing import Any

from ...errors import LaunchError, explain
from .. import facts, limits
from ..host_calls import MAX_SHARED, HostCalls
from ..tensor_map import encode, from_encode_arguments
from .session import Session

_FLOATS = {"fp16": "e", "fp32": "f", "f32": "f", "fp64": "d"}
_COOPERATIVE, _PROGRAMMATIC = 2, 6  # launch attributes
_HOST_TYPES = {8: 10, 9: 8, 10: 9}  # data types of tensor maps that the device numbers in another way than the host
_TF32 = 11
_PROPERTIES = {"max_num_regs": 12, "sm_clock_rate": 13, "mem_clock_rate": 36, "mem_bus_width": 37}
_INIT = re.compile(r"([^\n;]*?)mbarrier\.init[^\n;]*;[^\n]*\n")


def install(session: Session) -> None:
    """Answer Triton for the rest of the process, if it is installed."""
    if importlib.util.find_spec("triton") is None:
        return
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import CompiledKernel
    from triton.runtime import driver

    def handles(kernel: Any) -> None:
        if kernel.module is None:
            load(kernel, session)

    CompiledKernel._init_handles = handles
    target = GPUTarget("cuda", 10 * facts.CAPABILITY[0] + facts.CAPABILITY[1], 32)
    properties = {"max_shared_mem": limits.SHARED, "warpSize": 32, "multiprocessor_count": limits.multiprocessors()}
    properties |= {name: facts.attribute(number) for name, number in _PROPERTIES.items()}
    answers: dict[str, Callable] = {
        "is_active": lambda: True,
        "get_current_target": lambda: target,
        "get_current_device": lambda: 0,
        "set_current_device": lambda device: None,
        "get_current_stream": lambda device=None: 0,
        "get_device_capability": lambda device=None: facts.CAPABILITY,
        "get_active_torch_device": lambda: _torch().device("cuda", 0),
        "get_device_interface": lambda: _torch().cuda,
        "get_benchmarker": lambda: importlib.import_module("triton.testing").do_bench,
        "get_empty_cache_for_benchmark": lambda: _torch().empty(0),
        "clear_cache": lambda cache: None,
    }
    utilities = SimpleNamespace(get_device_properties=lambda device: dict(properties))
    driver.set_active(SimpleNamespace(utils=utilities, **answers))


def _torch() -> Any:
    return importlib.import_module("torch")


def load(kernel: Any, session: Session) -> None:
    """Give a compiled kernel what the driver gives it: a module, a function and how to run it."""
    if kernel.metadata.shared > limits.SHARED:  # the autotuner goes on with its next configuration
        from triton.runtime.errors import OutOfResources

        raise OutOfResources(kernel.metadata.shared, limits.SHARED, "shared memory")
    text = kernel.asm["ptx"]
    if "mbarrier.init" in text and "fence.mbarrier_init" not in text:
        text = _INIT.sub(r"\g<0>\1fence.mbarrier_init.release.cluster;\n", text)
        session.note(f"{kernel.name}: Triton puts no fence.mbarrier_init behind mbarrier.init; checked as if it did")
    calls = HostCalls(text, partial(session.launch, copies=True))
    calls.set_attribute(kernel.name, MAX_SHARED, kernel.metadata.shared)

    def run(x: int, y: int, z: int, stream: Any, function: Any, packed: Any, metadata: Any, *rest: Any) -> None:
        enter, leave, *arguments = rest
        if enter is not None:
            enter(metadata)
        _launch(kernel, calls, (int(x), int(y), int(z)), arguments)
        if leave is not None:
            leave(metadata)

    kernel.n_regs = kernel.n_spills = 0
    kernel.n_max_threads = limits.THREADS
    kernel.module = kernel.function = 1
    kernel._run = run


def _launch(kernel: Any, calls: HostCalls, grid: tuple[int, int, int], arguments: list[Any]) -> None:
    """Launch a kernel with the arguments of the Python function, its constants among them."""
    meta = kernel.metadata
    if not all(grid):
        return
    maps = iter(getattr(meta, "tensordesc_meta", None) or ())
    values = list(_flat(tuple(kernel.src.signature.values()), arguments, maps))
    parameters = calls.program(kernel.name).function.params
    for use in ("global", "profile")[: len(parameters) - len(values)]:  # older versions have none, or the first
        values.append(("*i8", _scratch(kernel, use, prod(grid) * meta.num_ctas)))
    if len(values) != len(parameters):
        came = f"{len(values)} parameters"
        raise LaunchError(explain(f"launch of {kernel.name}", came, f"{len(parameters)}"))
    cells = [ctypes.create_string_buffer(_bytes(*value), p.size) for value, p in zip(values, parameters)]
    places = (ctypes.c_void_p * len(cells))(*map(ctypes.addressof, cells))
    given = {
        number: (int(bool(getattr(meta, name, False))), 0, 0)
        for number, name in ((_COOPERATIVE, "launch_cooperative_grid"), (_PROGRAMMATIC, "launch_pdl"))
    }
    extents = grid[0] * meta.num_ctas, *grid[1:]
    calls.launch(kernel.name, extents, (32 * meta.num_warps, 1, 1), meta.shared, ctypes.addressof(places), given)
    calls.reraise()


def _scratch(kernel: Any, use: str, blocks: int) -> Any:
    """What the script's allocator gives a kernel for the tensor maps that it makes itself."""
    size, align = (getattr(kernel.metadata, f"{use}_scratch_{name}", 0) for name in ("size", "align"))
    if not size:
        return None
    given = importlib.import_module("triton.runtime._allocation")
    allocator = given._allocator if use == "global" else given._profile_allocator
    return allocator.get()(size * blocks, align, 0)


def _flat(kinds: Iterable[Any], values: Iterable[Any], maps: Iterator[Any]) -> Iterator[tuple[str, Any]]:
    """The parameters of a kernel: type and value. ``maps`` has what the compiler says about tensor maps."""
    for kind, value in zip(kinds, values):
        if isinstance(kind, tuple):
            yield from _flat(kind, value, maps)
        elif kind.startswith("tensordesc"):
            yield from _descriptor(value, next(maps, None))
        elif kind != "constexpr":
            yield kind, value


def _descriptor(tensor: Any, how: dict | None) -> Iterator[tuple[str, Any]]:
    """A tensor descriptor made by the host: a tensor map if the kernel copies by it (``how``), or a pointer."""
    extents = [("i32", n) for n in tensor.shape], [("i64", n) for n in tensor.strides]
    if how is None:
        yield "*i8", tensor.base
        yield from (("i64", n) for n in (*tensor.shape, *tensor.strides))
        yield from (("i1", tensor.padding == "nan"), ("i1", getattr(tensor, "round_f32_to_tf32", False)))
    else:
        shape, strides = list(tensor.shape), [n * how["elem_size"] for n in tensor.strides[:-1]]
        if how["fp4_padded"]:
            shape[-1] *= 2
        box = tuple(reversed(how["block_size"]))
        number = _HOST_TYPES.get(how["elem_type"], how["elem_type"])
        number = _TF32 if getattr(tensor, "round_f32_to_tf32", False) else number
        sizes = tuple(reversed(shape)), tuple(reversed(strides)), box, (1,) * len(box)
        modes = 0, how["swizzle"], int(tensor.padding == "nan")
        yield "map", encode(from_encode_arguments(number, tensor.base.data_ptr(), *sizes, *modes))
    yield from (*extents[0], *extents[1])


def _bytes(kind: str, value: Any) -> bytes:
    """A parameter as the kernel reads it."""
    if isinstance(value, bytes):
        return value
    if kind.startswith("*") or kind == "nvTmaDesc":
        return int(value.data_ptr() if hasattr(value, "data_ptr") else value or 0).to_bytes(8, "little")
    if kind == "bf16":
        return struct.pack("<f", value)[2:]
    if kind in _FLOATS:
        return struct.pack("<" + _FLOATS[kind], value)
    bits = max(int(kind[1:]), 8)
    return (int(value) & ((1 << bits) - 1)).to_bytes(bits // 8, "little")
