"""From accumulators to elements of the result: rounding to the nearest, ties to even, and for 8 bits saturation."""

from __future__ import annotations

import cutlass.cute as cute
from cutlass import Float8E4M3FN, Float32, Int16, Int32, Uint8


def converted(values: list, shape, out):
    """A register tensor of ``shape`` that holds ``values`` (float32 or int32) as elements of type ``out``, those of 8
    bits as bits."""
    if out.width == 8:
        pairs = cute.make_rmem_tensor((len(values) // 2,), Int16)
        for i in range(len(values) // 2):
            pairs[i] = pair(values[2 * i], values[2 * i + 1], out)
        return cute.make_tensor(cute.recast_ptr(pairs.iterator, dtype=Uint8), cute.make_layout(shape))
    finished = cute.make_rmem_tensor(shape, out)
    for i in range(len(values)):
        finished[i] = values[i].to(out)
    return finished


def pair(low, high, out):
    """Two elements of 8 bits as one word. float8: beyond the largest finite element is that element, NaN stays.
    Integers: clamped, NaN is 0."""
    if out.is_float:
        kind = "e4m3x2" if out is Float8E4M3FN else "e5m2x2"
        return cute.arch.inline_ptx(
            f"cvt.rn.satfinite.{kind}.f32 {{$w0}}, {{$r0}}, {{$r1}};",
            write_only_types=[Int16],
            read_only_args=[high, low],
        )
    low, high = (rounded(value) if value.dtype is Float32 else value for value in (low, high))
    kind = "u8" if out is Uint8 else "s8"
    packed = cute.arch.inline_ptx(
        f"cvt.pack.sat.{kind}.s32.b32 {{$w0}}, {{$r0}}, {{$r1}}, {{$r2}};",
        write_only_types=[Int32],
        read_only_args=[high, low, Int32(0)],
    )
    return packed.to(Int16)


def rounded(value):
    """The nearest int32; beyond its range its ends, for NaN 0."""
    return cute.arch.inline_ptx("cvt.rni.s32.f32 {$w0}, {$r0};", write_only_types=[Int32], read_only_args=[value])
