"""Words of 32 bits in memory, for kernels whose arrays begin anywhere."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64, Uint8, Uint32

from ..monoid import choose
from .hardware import VECTOR_BYTES


def funnel_shift(low, high, bits):
    """The word that begins ``bits`` (0 to 31) after ``low``, of two words that lie side by side."""
    return _funnel("r.wrap", low, high, bits)


def funnel_shift_left(low, high, bits):
    """The word that begins ``bits`` (0 to 31) before ``high``, of two words that lie side by side."""
    return _funnel("l.wrap", low, high, bits)


def moved_in(low, high, bits):
    """As ``funnel_shift``, by up to 32 bits."""
    return _funnel("r.clamp", low, high, bits)


def _funnel(how: str, low, high, bits):
    funnel = f"shf.{how}.b32 {{$w0}}, {{$r0}}, {{$r1}}, {{$r2}};"
    kind = type(low)
    return kind(cute.arch.inline_ptx(funnel, write_only_types=[kind], read_only_args=[low, high, bits]))


def permuted(low, high, chosen):
    """The four bytes of two words that ``chosen`` says, four bits each."""
    text = "prmt.b32 {$w0}, {$r0}, {$r1}, {$r2};"
    return cute.arch.inline_ptx(text, write_only_types=[Uint32], read_only_args=[low, high, chosen])


def dot(bytes_of, factors: int, more):
    """``more``, plus each byte of a word times a byte of ``factors``."""
    text = "dp4a.u32.u32 {$w0}, {$r0}, {$r1}, {$r2};"
    return cute.arch.inline_ptx(text, write_only_types=[Uint32], read_only_args=[bytes_of, Uint32(factors), more])


def shifted(words: list, skew, count: int = 4) -> list:
    """The words, ``count`` (1, 2 or 4) fewer than the given ones, that begin ``skew`` bytes behind the first: its
    lowest bits, modulo so many words."""
    for hop in (2, 1)[2 - count // 2 :]:
        moved = (skew & (4 * hop)) != 0
        words = [Uint32(cutlass.select_(moved, *pair)) for pair in zip(words[hop:], words)]
    return [funnel_shift(*pair, (skew & 3) * 8) for pair in zip(words, words[1:])]


def earlier(words: list, skew, size: int) -> list:
    """The second of two vectors that lie side by side, of 1, 2 or 4 words each, as it begins ``skew`` bytes earlier: a
    multiple of ``size``, and less than a vector has."""
    count = len(words) // 2
    for hop in (2, 1):
        if hop < count and size <= 4 * hop:
            moved = (skew & (4 * hop)) != 0
            words = [choose(moved, *pair) for pair in zip(words, words[hop:])]
    words = words[-count - 1 :]
    return [funnel_shift_left(*pair, (skew & 3) * 8) for pair in zip(words, words[1:])] if size < 4 else words[1:]


def joined(first: list, second: list, count, size: int) -> list:
    """Words whose first ``count`` elements of ``size`` bytes, 1 or 2, are those of ``first``, the others of
    ``second``."""
    each, found = 4 // size, []
    for k, (one, other) in enumerate(zip(first, second)):
        here = cutlass.min(cutlass.max(count - each * k, Int32(0)), Int32(each - 1))
        mask = Uint32(0xFFFFFFFF) << Uint32(8 * size * here)
        found.append(choose(count >= each * (k + 1), one, (one & ~mask) | (other & mask)))
    return found


def four_words(address, space):
    """The four words of a vector at an address."""
    return _words(address, space, 4)


def _words(address, space, count: int):
    """The words of a vector of so many at an address."""
    return cute.make_tensor(cute.make_ptr(Int32, address, space, assumed_align=4 * count), cute.make_layout((count,)))


@cute.jit
def load_pair(pointer: cute.Pointer, target: cute.Tensor, end: Int64):
    """Load the aligned vectors of 16, 8 or 4 bytes, half of the words of ``target``, that hold as many bytes from an
    address on, wherever that is: one vector twice if it holds all. Of a vector that reaches beyond the array, which
    ends at ``end``, those bytes alone."""
    address: Any = pointer.toint()
    count = cute.size(target) // 2
    size = 4 * count
    first, last = address & -size, (address + (size - 1)) & -size
    cute.autovec_copy(_words(first, pointer.memspace, count), _half(target, 0, count))
    if last + size <= end:
        cute.autovec_copy(_words(last, pointer.memspace, count), _half(target, 1, count))
    else:
        for w in cutlass.range_constexpr(count):
            target[count + w] = Int32(word_of_range(last + 4 * w, Int32(0), Int32(address - last) + (size - 4 * w)))


def _half(target, k: int, count: int):
    return cute.make_tensor(target.iterator + count * k, cute.make_layout((count,)))


@cute.jit
def word_of_range(address: Int64, begin: Int32, end: Int32):
    """A word of which bytes ``begin`` to ``end`` may be loaded."""
    word = Uint32(0)
    if (begin <= 0) & (end >= 4):
        word = load_at(Uint32, address)
    else:
        for i in cutlass.range(cutlass.max(begin, Int32(0)), cutlass.min(end, Int32(4)), 1, unroll=1):
            word = word | (Uint32(load_at(Uint8, address + i)) << Uint32(8 * i))
    return word


def load_at(kind, address):
    """A number at an address, a multiple of its size."""
    at = cute.make_ptr(kind, address, cute.AddressSpace.gmem, assumed_align=kind.width // 8)
    return kind(cute.make_tensor(at, cute.make_layout((1,)))[0])


def of_pair(pair, pointer) -> list:
    """The words of those bytes."""
    count = cute.size(pair) // 2
    return shifted([pair[i] for i in range(2 * count)], Int32(pointer.toint() & (4 * count - 1)), count)


def words_from(pointer, size: int) -> list:
    """The four words that begin at an address that is a multiple of ``size`` bytes."""
    word = cute.make_ptr(Int32, pointer.toint() & -4, pointer.memspace, assumed_align=4)
    if size >= 4:
        return [_element(word + i)[0] for i in range(4)]
    skew = Int32(pointer.toint() & 3)
    following = 3 + cutlass.min(skew, Int32(1))
    words = [*(_element(word + i)[0] for i in range(4)), _element(word + following)[0]]
    return [funnel_shift(low, high, skew * 8) for low, high in zip(words, words[1:])]


@cute.jit
def store_run(
    at: cutlass.Constexpr, out: cute.Pointer, size: cutlass.Constexpr, count: Int32, whole, thread: Int32, threads: int
):
    """Store ``count`` elements of shared memory at ``out``, anywhere: in vectors if they are one run of memory
    (``whole``), and those before the first one and behind the last one by themselves. ``at(i)`` points to element i.
    All ``threads`` call. The words that hold elements were written whole."""
    address: Any = out.toint()
    total = count * size
    before = cutlass.min(Int32(-address & (VECTOR_BYTES - 1)), total)
    room = cutlass.max(total // 4 * 4 - before, 0)  # up to the last word that is all results
    vectors = choose(whole, room // VECTOR_BYTES, Int32(0))
    each, ahead = VECTOR_BYTES // size, before // size
    for v in cutlass.range(thread, vectors, threads, unroll=4):
        held = cute.make_rmem_tensor((4,), Int32)
        for i, word in enumerate(words_from(at(ahead + v * each), size)):
            held[i] = word
        cute.autovec_copy(held, four_words(address + Int64(before + v * VECTOR_BYTES), out.memspace))
    for i in cutlass.range(thread, count - vectors * each, threads, unroll=4):
        place = i + choose(i >= ahead, vectors * each, Int32(0))
        _element(out + place)[0] = _element(at(place))[0]


def _element(pointer):
    return cute.make_tensor(pointer, cute.make_layout((1,)))
