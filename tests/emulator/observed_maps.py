"""The tensor maps that the DSL's host code builds, seen as the kernel's parameter bytes on a machine with no driver.

A compiled host function is run with its CUDA calls answered by callbacks; the launch callback reads the first kernel
parameter.
"""

import ctypes
import math
from ctypes import c_int32, c_int64, c_void_p
from functools import partial

import cutlass
import cutlass.cute as cute
from cutlass._mlir.execution_engine import ExecutionEngine
from cutlass.cute.nvgpu import cpasync

RUNTIME = (
    "_cudaLibraryLoadData",
    "_cudaLibraryGetKernel",
    "_cudaFuncSetAttribute",
    "_cudaKernelSetAttributeForDevice",
    "_cuKernelGetAttribute",
    "_cudaGetDevice",
    "_cudaDeviceGetAttribute",
)
ADDRESS = 0x7F00_1234_5680


@cute.kernel
def takes_map(atom: cute.CopyAtom, tensor: cute.Tensor):
    cpasync.prefetch_descriptor(atom)


def host_function(build):
    """Launches a kernel that takes the map which ``build`` makes for a pointer."""

    @cute.jit
    def host(pointer: cute.Pointer):
        atom, coordinates = build(pointer)
        takes_map(atom, coordinates).launch(grid=(1, 1, 1), block=(32, 1, 1))

    return host


def tiled(pointer, shape, stride, box, shared_stride, swizzle, store):
    """A tiled map over a tensor of static ``shape`` and ``stride`` (elements)."""
    tensor = cute.make_tensor(pointer, cute.make_layout(shape, stride=stride))
    shared = cute.make_layout(box, stride=shared_stride)
    if swizzle is not None:
        shared = cute.make_composed_layout(cute.make_swizzle(*swizzle), 0, shared)
    operation = cpasync.CopyBulkTensorTileS2GOp() if store else cpasync.CopyBulkTensorTileG2SOp()
    return cpasync.make_tiled_tma_atom(operation, tensor, shared, box)


def im2col(pointer, extents, pixels, channels, lower, upper, strides, swizzle):
    """The same in im2col mode over a compact tensor of ``extents`` (C, W, H, D, N)."""
    spatial = len(extents) - 2
    zeros, ones = (0,) * spatial, (1,) * spatial
    steps = tuple(math.prod(extents[: d + 1]) for d in range(len(extents) - 1))
    tensor = cute.make_tensor(pointer, cute.make_layout((extents[1:], extents[0]), stride=(steps, 1)))
    box = cute.make_layout((pixels, channels), stride=(channels, 1))
    shared = cute.make_composed_layout(cute.make_swizzle(*swizzle), 0, box)
    operation = cpasync.CopyBulkTensorIm2ColG2SOp()
    return cpasync.make_im2col_tma_atom(
        operation, tensor, shared, (pixels, channels), lower, upper, zeros, zeros, strides, zeros, ones
    )


def observe_im2col(dtype: str, **fields) -> bytes:
    return run_host(host_function(partial(im2col, **fields)), getattr(cutlass, dtype), ADDRESS)


def observe(dtype: str, shape, stride, box, swizzle=None, store: bool = False, address: int = ADDRESS) -> bytes:
    """The 128 bytes of the map; the box is contiguous in shared memory along the tensor's order."""
    order = sorted(range(len(shape)), key=lambda d: (stride[d], d))
    shared_stride, pitch = [0] * len(box), 1
    for d in order:
        shared_stride[d] = pitch
        pitch *= box[d]
    build = partial(
        tiled, shape=shape, stride=stride, box=box, shared_stride=tuple(shared_stride), swizzle=swizzle, store=store
    )
    return run_host(host_function(build), getattr(cutlass, dtype), address)


def run_host(host, element, address: int) -> bytes:
    """Compile the host function for a pointer at ``address``, run it, and return the first 128 bytes of its kernel's
    parameters.
    """
    compiled = cute.compile(host, cute.runtime.make_ptr(element, address, cute.AddressSpace.gmem, assumed_align=16))
    engine = ExecutionEngine(compiled.ir_module, opt_level=0, shared_libs=[])
    seen: list[bytes] = []

    def launch(config: int, function: int, parameters: int) -> int:
        first = ctypes.cast(parameters, ctypes.POINTER(c_void_p))[0]
        seen.append(ctypes.string_at(first, 128))
        return 0

    callbacks = [ctypes.CFUNCTYPE(c_int32, *[c_int64] * 3)(launch)]
    callbacks += [ctypes.CFUNCTYPE(c_int32, *[c_int64] * 8)(lambda *_: 0)] * len(RUNTIME)
    for symbol, callback in zip(("_cudaLaunchKernelEx", *RUNTIME), callbacks, strict=True):
        engine.raw_register_runtime(symbol, ctypes.cast(callback, c_void_p))
    entry = ctypes.CFUNCTYPE(None, c_void_p)(engine.raw_lookup("_mlir_ciface_" + compiled.function_name))
    pointer, result = c_void_p(address), c_int32(-1)
    packed = (c_void_p * 2)(ctypes.addressof(pointer), ctypes.addressof(result))
    entry(packed)
    if result.value or len(seen) != 1:
        raise RuntimeError(f"the host function returned {result.value} after {len(seen)} launches")
    return seen[0]
