"""float32 in three products of tfloat32 (3xTF32), split in the kernel: each stage of float32 elements becomes a stage
of their big parts, in the same place, and a stage of their small parts beside it.

Three warps beside the producer's do it, element by element, so the layout of a stage does not matter. They wait for the
ring's full barrier of a stage, as consumers of the unsplit elements do, and announce its parts on a barrier of their
own, for which the consumers wait:

- ready, one a stage: 1 arrival of each of the 3 warps, first phase 0. The proxy fence before it lets the tensor cores
  read what these warps wrote, and TMA overwrite what they read.

The consumers hand the stage back as any other, when the tensor cores have read all of its parts.

x = big + small. The big part is the nearest number of 11 bits of significand (that of tfloat32), the small part is the
rest, which tfloat32 holds to another 11 bits. The product is big * big' + (small * big' + big * small'); small * small'
is left out, as it is below 2**-22 of the product. Sums of the products in parentheses have a set of accumulators of
their own. Where an element is infinite or NaN they are not finite and mean nothing, and big * big' alone is the result.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32

from ...sync.pipelines import await_filled

WARPS = 3  # that split stages
LANES = 32 * WARPS
VECTOR = 4  # elements of 16 bytes
AT_A_TIME = 4  # vectors that a thread loads before it stores one: a load waits for no store
EXPONENT, LOW = 0x7F800000, 0x1FFF


def two_parts(word):
    """The bits of the big and the small part of a float32. Near the largest float32, where the nearest number of 11
    bits would be infinite, the big part is cut off. Of an infinity or NaN the big part is the same; the small part
    means nothing."""
    nearest = (word + 0x1000) & ~Int32(LOW)  # a carry out of the significand is the next exponent
    big = Int32(cutlass.select_((nearest & EXPONENT) == EXPONENT, word & ~Int32(LOW), nearest))
    return big, (word.bitcast(Float32) - big.bitcast(Float32)).bitcast(Int32)


@cute.jit
def split_words(whole: cute.Pointer, small: cute.Pointer, count: cutlass.Constexpr, thread: Int32):
    """Replace ``count`` float32 of shared memory by their big parts, and write their small parts."""
    vectors = count // VECTOR
    rounds = vectors // (LANES * AT_A_TIME)
    for i in cutlass.range(0, rounds, 1, unroll=1):
        split_vectors(whole, small, i * (LANES * AT_A_TIME) + thread, AT_A_TIME)
    for i in cutlass.range(rounds * (LANES * AT_A_TIME) + thread, vectors, LANES, unroll=1):
        split_vectors(whole, small, i, 1)


@cute.jit
def split_vectors(whole: cute.Pointer, small: cute.Pointer, first: Int32, count: cutlass.Constexpr):
    """Split ``count`` vectors, ``LANES`` apart, of which this is the ``first``."""
    words = cute.make_rmem_tensor((VECTOR, count), Int32)
    for j in cutlass.range_constexpr(count):
        cute.autovec_copy(vector_at(whole, first + j * LANES), words[None, j])
    for j in cutlass.range_constexpr(count):
        rest = cute.make_rmem_tensor((VECTOR,), Int32)
        for i in cutlass.range_constexpr(VECTOR):
            words[i, j], rest[i] = two_parts(words[i, j])
        cute.autovec_copy(words[None, j], vector_at(whole, first + j * LANES))
        cute.autovec_copy(rest, vector_at(small, first + j * LANES))


def vector_at(start: cute.Pointer, i):
    """Vector ``i`` of 16 bytes of shared memory."""
    place = cute.make_ptr(Int32, start.toint() + i * 16, cute.AddressSpace.smem, assumed_align=16)
    return cute.make_tensor(place, cute.make_layout((VECTOR,)))


@cute.jit
def split_stage(operands: tuple, ring, ready, stage, thread: Int32):
    """One stage: wait until it is full, split it, announce it. ``operands`` has (elements, small parts, words of a
    stage) of A and of B."""
    await_filled(ring, stage)
    for whole, small, count in operands:
        at = stage.index * count
        split_words(whole + at, small + at, count, thread)
    cute.arch.fence_proxy("async.shared", space="cta")
    announce_parts(ready, stage)


def await_parts(ready, stage) -> None:
    """Wait until the parts of a stage are announced."""
    ready.await_phase(stage.index, stage.phase)


def announce_parts(ready, stage) -> None:
    """One arrival of this warp: the stage has its parts."""
    ready[stage.index].arrive_once()
