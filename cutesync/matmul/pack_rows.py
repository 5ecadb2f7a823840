"""Copies rows that begin anywhere into rows that begin on cache lines: what packs an operand whose K is contiguous (see ``pack``).

A warp copies a run of a row, ``WORDS`` words a lane. Its lanes read aligned words side by side, wherever the row begins; what a word of the
copy needs of the next one comes from the next lane, and both are shifted into place. So elements of 8 and 16 bits cost as much as those of 32,
and nothing waits for shared memory. Words that lie beside the array in part are put together from the elements that do not.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint32

from ..sync.overlap import await_launches, let_next_start
from ..warp import LANES
from .config import PACK_RUN
from .pack import THREADS, parts_of

WORDS = PACK_RUN // LANES  # of a lane


class PackRows:
    """``out[line, :inner] = x[line, :inner]``, zeros up to ``span`` words, for the lines (items, rows) of ``x``, whose elements have 8, 16 or 32
    bits and are moved as bits. With ``parts`` "left" or "right" a line of ``out`` is three spans long, and gets the parts of float32."""

    threads, smem = THREADS, 0

    def __init__(self, element, parts: str = "") -> None:
        self.element, self.parts = element, parts
        self.size = element.width // 8

    @cute.jit
    def __call__(self, x: cute.Pointer, out: cute.Pointer, lines: Int64, rows: Int64, inner: Int64, steps, edges, span: Int64, across: Uint32, grid: Int32, stream):
        self.kernel.set_name_prefix("cutesync_matmul_pack", remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(x, out, lines, rows, inner, steps, edges, span, across).launch(
            grid=(grid, 1, 1), block=(THREADS, 1, 1), smem=self.smem, min_blocks_per_mp=8, preferred_smem_carveout=-1, stream=stream
        )

    @cute.kernel
    def kernel(self, x: cute.Pointer, out: cute.Pointer, lines: Int64, rows: Int64, inner: Int64, steps, edges, span: Int64, across: Uint32):
        """``steps`` are the strides of ``x``, (item, row), and ``edges`` where its memory begins and ends, all in bytes from ``x`` on.
        ``inner`` is in bytes too; ``across`` counts the runs of a line."""
        await_launches()
        let_next_start()
        warp = Uint32(cute.arch.block_idx()[0]) * (THREADS // LANES) + cute.arch.thread_idx()[0] // LANES
        line, lane = Int64(warp // across), cute.arch.lane_idx()
        if line < lines:
            item = line // rows
            word = Int64(warp % across) * PACK_RUN + lane  # of the line, the lane's first
            begin = x.toint() + (item * steps[0] + (line - item * rows) * steps[1])
            shift = Int32(begin & 3) * 8
            words = self.read((begin & -4) + word * 4, x.toint() + edges[0], x.toint() + edges[1], lane)
            left = inner - word * 4  # bytes of the line from the lane's first word on
            target = out.toint() + (line * (span * (3 if self.parts else 1)) + word) * 4
            for j in cutlass.range_constexpr(WORDS):
                following = self.from_next(words[j], words[j + 1], lane)
                value = self.only(shifted(words[j], following, shift), left - j * LANES * 4)
                if word + j * LANES < span:
                    self.write(target + j * LANES * 4, value, span)

    @cute.jit
    def read(self, start, low, high, lane):
        """The lane's words of a run at ``start``, ``LANES`` apart, and the one behind the run, which lane 0 alone needs. Memory begins at ``low`` and ends at ``high``."""
        words = [Uint32(0) for _ in range(WORDS + 1)]
        first = start - lane * 4
        if (first >= low) & (first + 4 * (PACK_RUN + 1) <= high):
            for j in cutlass.range_constexpr(WORDS):
                words[j] = load(Uint32, start + j * LANES * 4)
            if lane == 0:
                words[WORDS] = load(Uint32, start + PACK_RUN * 4)
        else:
            for j in cutlass.range_constexpr(WORDS + 1):
                words[j] = self.piece(start + j * LANES * 4, low, high)
        return words

    @cute.jit
    def piece(self, address, low, high):
        """The word at ``address``, with zeros for the elements that are not in memory."""
        word = Uint32(0)
        for i in cutlass.range_constexpr(4 // self.size):
            at = address + i * self.size
            if (at >= low) & (at < high):
                word = word | (Uint32(load(self.element, at)) << (8 * self.size * i))
        return word

    def from_next(self, mine, following, lane):
        """The word behind this lane's: the next lane's, or lane 0's next one."""
        return Uint32(cute.arch.shuffle_sync(cutlass.select_(lane == 0, following, mine), (lane + 1) % LANES))

    def only(self, word, left):
        """The word with zeros behind its first ``left`` bytes."""
        bits = Int32(cutlass.min(cutlass.max(left, Int64(0)), Int64(4))) * 8
        return word & Uint32(cutlass.select_(bits == 32, Uint32(0xFFFFFFFF), (Uint32(1) << Uint32(bits)) - 1))

    def write(self, address, value, span) -> None:
        parts = parts_of(Int32(value), self.parts) if self.parts else (value,)
        for i, part in enumerate(parts):
            at = cute.make_ptr(Int32, address + span * (4 * i), cute.AddressSpace.gmem, assumed_align=4)
            cute.make_tensor(at, cute.make_layout((1,)))[0] = Int32(part)


def load(kind, address):
    at = cute.make_ptr(kind, address, cute.AddressSpace.gmem, assumed_align=kind.width // 8)
    return kind(cute.make_tensor(at, cute.make_layout((1,)))[0])


def shifted(low, high, bits):
    """Four bytes of two words that lie side by side, from bit ``bits`` on."""
    funnel = "shf.r.wrap.b32 {$w0}, {$r0}, {$r1}, {$r2};"
    return Uint32(cute.arch.inline_ptx(funnel, write_only_types=[Uint32], read_only_args=[low, high, bits]))
