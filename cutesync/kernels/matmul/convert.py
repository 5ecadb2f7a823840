"""From accumulators to elements of the result: rounding to the nearest, ties to even, and for 8 bits saturation. And
from elements of any type to float32."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Float8E4M3FN, Float16, Float32, Int16, Int32, Uint8

from ...dtypes import FLOAT8, DType


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


def loaded(pointer, place, dtype: DType):
    """One element of any type as float32; those of 8 bits lie in memory as bits. True is 1."""
    value = cute.make_tensor(pointer + place, cute.make_layout((1,)))[0]
    if dtype.name in FLOAT8:
        kind = dtype.name[7:11]
        pair = cute.arch.inline_ptx(
            f"cvt.rn.f16x2.{kind}x2 {{$w0}}, {{$r0}};", write_only_types=[Int32], read_only_args=[Int16(value)]
        )
        return pair.to(Int16).bitcast(Float16).to(Float32)
    if dtype.kind == "b":
        return Float32(cutlass.select_(value != 0, Float32(1.0), Float32(0.0)))
    return dtype.cutlass(value).to(Float32)  # a tensor forgets whether its integers are signed
