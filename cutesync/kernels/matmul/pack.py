"""Copies an operand that TMA or the tensor cores cannot read as it lies, to rows that begin on 16-byte boundaries.

There are three reasons: a base or strides that are no multiples of 16 bytes; elements of 8 or 32 bits whose K is not
contiguous; and float32 operands of full precision, which are split for 3xTF32 (``three_terms``). Where K is contiguous
``pack_rows`` does it; the kernel here takes all other strides.

Neither lets the product start before it ends: a block of the product takes a whole SM, and would keep it from blocks of
the copy that have not started (1023x2047x4093 in bfloat16, both operands packed: 41.3 us, and 46.9 with the product let
in at the start).
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, Uint32
from cutlass.memory import SmemAllocator

from ..plain import PlainKernel
from .policy import PACK_ROWS, PACK_WORDS

THREADS = 256
_WARPS = THREADS // 32
# words between rows of the tile: one more than there are banks, so that a column lies in 32 different ones
_PITCH = PACK_WORDS + 1


class Pack(PlainKernel):
    """``out[item, row, :inner] = x[item, row, :inner]``, zeros up to ``span`` elements; ``x`` has any strides, a row of
    ``out`` is a multiple of 16 bytes. Elements of 8, 16 or 32 bits are moved as bits through a tile of 32 rows by 128
    bytes in shared memory, one a block.

    The 32 lanes of a warp read along the rows of ``x`` if ``transposed``, else along ``inner``: whichever is
    contiguous. They write words along ``inner``. With ``side`` "left" or "right" a row of ``out`` is three spans long,
    one for each of ``three_terms``."""

    name, threads = "matmul_pack", THREADS
    smem, blocks_per_sm = 4 * PACK_ROWS * _PITCH, 8

    def __init__(self, element, transposed: bool, side: str = "") -> None:
        self.element, self.transposed, self.side = element, transposed, side
        self.width = PACK_WORDS * 32 // element.width  # elements of a tile's row

    @cute.jit
    def main(self, x: cute.Pointer, out: cute.Pointer, numbers: tuple):
        """``steps`` are the strides of ``x``: (item, row, element). ``span`` is in words here; ``across`` and ``down``
        count the tiles of an item. A thread moves only 16 bytes in all, so its other instructions must be few: they
        would limit the copy."""
        rows, inner, *steps, span, across, down = numbers
        thread, block = cute.arch.thread_idx()[0], Uint32(cute.arch.block_idx()[0])
        warp, lane = thread // 32, thread % 32
        line = block // across
        item = Int64(line // down)
        column, row = Int64(block % across) * self.width, Int64(line % down) * PACK_ROWS
        store = SmemAllocator().allocate_array(Int32, PACK_ROWS * _PITCH)
        rows_left = Int32(cutlass.min(rows - row, PACK_ROWS))
        source = x + (item * steps[0] + row * steps[1] + column * steps[2])
        inner_left = Int32(cutlass.min(inner - column, self.width))
        self.read(source, steps, (rows_left, inner_left), store, warp, lane)
        cute.arch.barrier()
        word = Int64(block % across) * PACK_WORDS + lane
        words = cute.make_tensor(store, cute.make_layout((PACK_ROWS, PACK_WORDS), stride=(_PITCH, 1)))
        count = 3 if self.side else 1
        at = cute.make_ptr(Int32, out.toint(), cute.AddressSpace.gmem, assumed_align=4) + (
            (item * rows + row + warp) * (count * span) + word
        )
        if word < span:
            for i in cutlass.range_constexpr(PACK_ROWS // _WARPS):
                if warp + i * _WARPS < rows_left:
                    bits = words[warp + i * _WARPS, lane]
                    terms = three_terms(bits, self.side) if self.side else (bits,)
                    for term in cutlass.range_constexpr(count):
                        cute.make_tensor(at + term * span, cute.make_layout((1,)))[0] = terms[term]
                at = at + _WARPS * count * span

    @cute.jit
    def read(self, source, steps, left, store, warp, lane):
        """Fill the tile from ``source``, where ``left`` = (rows, elements of each) exist. All loads are in flight
        before the first is stored."""
        rows, inner = left
        tile = cute.make_tensor(
            cute.recast_ptr(store, dtype=self.element),
            cute.make_layout((PACK_ROWS, self.width), stride=(_PITCH * 32 // self.element.width, 1)),
        )
        lines = 1 if self.transposed else PACK_ROWS // _WARPS  # rows that a thread has elements of, or the one
        hops = PACK_ROWS * self.width // THREADS // lines
        loaded = cute.make_rmem_tensor((lines * hops,), self.element)
        for i in cutlass.range_constexpr(lines * hops):
            row, place = self.spot(i // hops, i % hops, warp, lane)
            if cutlass.const_expr(i % hops == 0):
                at = source + (row * steps[1] + place * steps[2])
            loaded[i] = self.element(0)
            if row < rows and place < inner:
                loaded[i] = cute.make_tensor(at, cute.make_layout((1,)))[0]
            at = at + (_WARPS if self.transposed else 32) * steps[2]
        for i in cutlass.range_constexpr(lines * hops):
            row, place = self.spot(i // hops, i % hops, warp, lane)
            tile[row, place] = loaded[i]

    def spot(self, line: int, hop: int, warp, lane) -> tuple:
        """(row, element) in the tile of what a thread reads."""
        return (lane, warp + hop * _WARPS) if self.transposed else (warp + line * _WARPS, hop * 32 + lane)


def three_terms(word, side: str) -> tuple:
    """The bits of three float32 numbers whose products with those of the other side add up to the product of the two
    numbers, up to an error of 2**-22 or so (3xTF32).

    x = big + small. The big part is the nearest number of 11 bits of significand (that of tfloat32), the small part is
    the rest, which tfloat32 holds to another 11 bits. The product is small * big' + big * small' + big * big', in this
    order; small * small' is left out, as it is below 2**-22 of the product. Infinities and NaN are in the last term
    alone, and the others are 0: infinity times a small number of either sign would make a NaN.
    """
    exponent, low = Int32(0x7F800000), Int32(0x1FFF)
    nearest = (word + 0x1000) & ~low  # a carry out of the significand is the next exponent
    finite = (word & exponent) != exponent
    overflows = (nearest & exponent) == exponent
    big = Int32(cutlass.select_(overflows, word & ~low, nearest))
    rest = (word.bitcast(Float32) - big.bitcast(Float32)).bitcast(Int32)
    # near the largest float32 both parts are cut off: no sum of them overflows
    rest = Int32(cutlass.select_(overflows, rest & ~low, rest))
    finite_big, small = (Int32(cutlass.select_(finite, part, Int32(0))) for part in (big, rest))
    big = Int32(cutlass.select_(finite, big, word))
    return (small, finite_big, big) if side == "left" else (finite_big, small, big)
