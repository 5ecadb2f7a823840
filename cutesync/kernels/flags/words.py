"""Flags and differences of one-byte types, four at a time, and flags of two-byte types.

A word (Uint32) holds four keys, or four flags of 0 or 1, or four differences, the first in the lowest byte; or two keys
of two bytes.

An H200 can issue about eight instructions for a byte that its memory delivers; to compare bytes one by one and pack
bits takes more.
"""

from __future__ import annotations

from typing import Any

import cutlass
from cutlass import Int32, Uint8, Uint16, Uint32, cute

from ...dtypes import BOOL
from ...monoid import tree
from ..words import funnel_shift, load_at, shifted as shifted_vectors, word_of_range

BYTES = KEYS = 4  # in a word
VECTOR = 16  # bytes
MARGIN = VECTOR  # no element so far from those that are asked for is loaded with them
ONES = 0x01010101
LOW_BITS = 0x7F7F7F7F
LOW_BITS_OF_HALVES = 0x7FFF7FFF


def fit(marking, cut: bool, vector: int) -> bool:
    """Whether the flags of a vector can be found so; ``cut``: a period may end within one."""
    return marking.compares_bytes and not cut and vector % KEYS == 0


def keys(word, source):
    """A word of four elements of type ``source`` as keys: of bool, 1 for every byte that is not 0."""
    return flags("ne", word, Uint32(0)) if source is BOOL else word


def load_anywhere(start, inside):
    """The word of the four keys from ``start`` on, wherever that is. ``inside``: the aligned words that hold them lie
    in the array."""
    return funnel_shift(*_halves(start, inside))


def halves_of(start) -> tuple:
    """The two aligned words that hold the four keys from ``start`` on, and how many bits of the first are others'."""
    address = start.toint()
    return load_at(Uint32, address & -4), load_at(Uint32, (address + 3) & -4), Int32(address & 3) * 8


@cute.jit
def _halves(start: cute.Pointer, inside):
    """The two aligned words that hold four keys, and how many bits of the first belong to other keys.

    Where the words do not lie in the array: the keys, loaded one by one, and 0."""
    address: Any = start.toint()
    low, high, bits = Uint32(0), Uint32(0), Int32(0)
    if inside:
        low, high, bits = halves_of(start)
    else:
        for i in cutlass.range_constexpr(KEYS):
            low = low | (Uint32(load_at(Uint8, address + i)) << (8 * i))
    return low, high, bits


def vector_anywhere(start, count: int, inside) -> list:
    """``count`` words of keys from an address on, wherever that is. ``inside``: the aligned vectors that hold them lie
    in the array; if not, keys are loaded one by one."""
    found = cute.make_rmem_tensor((max(2, count),), Uint32)
    _fill(start, found, count, inside)
    return [Uint32(found[i]) for i in range(count)]


@cute.jit
def _fill(start: cute.Pointer, found: cute.Tensor, count: cutlass.Constexpr, inside):
    if inside:
        for i, word in enumerate(shifted(start, count)):
            found[i] = word
    else:
        address: Any = start.toint()
        for i in cutlass.range_constexpr(count):
            word = Uint32(0)
            for k in cutlass.range_constexpr(KEYS):
                word = word | (Uint32(load_at(Uint8, address + KEYS * i + k)) << (8 * k))
            found[i] = word


def shifted(start, count: int) -> list:
    """``count`` words from an address on, wherever that is. The aligned words that hold them are loaded; of two
    vectors and more, the aligned vectors."""
    if BYTES * count % VECTOR == 0 and BYTES * count > VECTOR:
        return _from_vectors(start.toint(), BYTES * count // VECTOR)
    loads, bits = aligned_of(start, count)
    return [funnel_shift(low, high, bits) for low, high in zip(loads, loads[1:])]


def aligned_of(start, count: int) -> tuple[list, Any]:
    """The aligned words that hold ``count`` words from an address on, and how many bits of the first are others'."""
    address = start.toint()
    last = (address + (BYTES * count - 1)) & -BYTES
    loads = [load_at(Uint32, (address & -BYTES) + BYTES * i) for i in range(count)] + [load_at(Uint32, last)]
    return loads, Int32(address & (BYTES - 1)) * 8


def shifted_vector(start, count: int) -> list:
    """The same of one vector and more, all from aligned vectors."""
    return _from_vectors(start.toint(), BYTES * count // VECTOR)


def _from_vectors(address, count: int) -> list:
    last = (address + (VECTOR * count - 1)) & -VECTOR
    places = [*((address & -VECTOR) + VECTOR * i for i in range(count)), last]
    loads = [_load_vector(place) for place in places]
    skew = Int32(address & (VECTOR - 1))
    return [word for low, high in zip(loads, loads[1:]) for word in shifted_vectors([*low, *high], skew)]


def run_of_pieces(start, size: int, piece: int, valid):
    """The registers of ``size`` bytes from an address on, as words, of which the first ``valid`` bytes are loaded:
    pieces of so many bytes on their boundaries."""
    each, count = piece // BYTES, size // piece
    found = cute.make_rmem_tensor(cute.make_layout((each, max(2, count)), stride=(1, each)), Int32)
    _load_pieces(start, found, count, piece, valid)
    return cute.make_tensor(found.iterator, cute.make_layout((max(2, size // BYTES),)))


@cute.jit
def _load_pieces(start: cute.Pointer, found, count: cutlass.Constexpr, piece: cutlass.Constexpr, valid):
    for k in cutlass.range_constexpr(count):
        if piece * k < valid:
            address = start.toint() + piece * k
            at = cute.make_ptr(Int32, address, cute.AddressSpace.gmem, assumed_align=piece)
            cute.autovec_copy(cute.make_tensor(at, cute.make_layout((piece // BYTES,))), found[(None, k)])


def run_anywhere(start, size: int, valid):
    """As ``run_of_pieces``, wherever the address is. The aligned words that hold the bytes are loaded; those that hold
    others, too, by bytes."""
    count = -(-size // BYTES)
    base, skip = start.toint() & -BYTES, Int32(start.toint() & (BYTES - 1))
    loads = [word_of_range(base + BYTES * i, skip - BYTES * i, skip + valid - BYTES * i) for i in range(count + 1)]
    found = cute.make_rmem_tensor((max(2, count),), Uint32)
    for i in range(count):
        found[i] = funnel_shift(loads[i], loads[i + 1], skip * 8)
    return found


def element(start, size: int):
    """The element of 1, 2 or 4 bytes at a pointer, in the lowest bytes of a word."""
    return Uint32(load_at({1: Uint8, 2: Uint16, 4: Uint32}[size], start.toint()))


def _load_vector(address) -> list:
    """The words of an aligned vector."""
    at = cute.make_ptr(Uint32, address, cute.AddressSpace.gmem, assumed_align=VECTOR)
    found = cute.make_rmem_tensor((VECTOR // BYTES,), Uint32)
    cute.autovec_copy(cute.make_tensor(at, cute.make_layout((VECTOR // BYTES,))), found)
    return [Uint32(found[i]) for i in range(VECTOR // BYTES)]


def heads(op: str, words, before) -> list:
    """The results of the keys in ``words``; ``before`` (a register of the keys' type) is the key before the first."""
    earlier = [_key(before), *(word >> 24 for word in words[:-1])]
    return [results(op, word, (word << 8) | key) for word, key in zip(words, earlier)]


def tails(op: str, words, behind) -> list:
    """The results of the keys in ``words``; ``behind`` is the key behind the last."""
    later = [*words[1:], _key(behind)]
    return [results(op, word, (word >> 8) | (key << 24)) for word, key in zip(words, later)]


def repeated(value):
    """A key (a register of the keys' type) four times."""
    return _key(value) * ONES


def _key(value):
    return Uint32(value) & 0xFF  # a negative one has its sign in the upper bytes


def results(op: str, a, b):
    """The four results of the keys in ``a`` and their neighbours in ``b``: flags of "ne" and "eq", or differences."""
    if op in ("ne", "eq"):
        return flags(op, a, b)
    if op == "sub":  # no byte borrows from the next; the highest bits are subtracted apart
        return ((a | ~LOW_BITS) - (b & LOW_BITS)) ^ ((a ^ ~b) & ~LOW_BITS)
    if op == "add":
        return ((a & LOW_BITS) + (b & LOW_BITS)) ^ ((a ^ b) & ~LOW_BITS)
    return {"and": a & b, "or": a | b, "xor": a ^ b}[op]


def flags(op: str, a, b):
    """The flags of the four keys in ``a`` and those in ``b``."""
    differing = a ^ b
    # A byte's top bit gets a carry unless its lower bits are 0, and no byte carries into the next.
    ne = ((((differing & LOW_BITS) + LOW_BITS) | differing) >> 7) & ONES
    return ne if op == "ne" else ne ^ ONES


def halves(op: str, source, a, b) -> list:
    """Words of the flags "ne" or "eq" of keys of two bytes in the words ``a`` and ``b``, which have two each."""
    tops = [_differing(source, *pair) for pair in zip(a, b)]
    found = [(_permuted(low, high, 0x7531) >> 7) & ONES for low, high in zip(tops[::2], tops[1::2])]
    return found if op == "ne" else [flags ^ ONES for flags in found]


def _differing(source, a, b):
    """A word whose bits 15 and 31 say whether the keys of two bytes in ``a`` and ``b`` differ; the others are anything.
    Floats that are no numbers differ from all, zeros of either sign are equal."""
    differing = a ^ b
    top = ((differing & LOW_BITS_OF_HALVES) + LOW_BITS_OF_HALVES) | differing
    if source.kind != "f":
        return top
    infinity = 0x7F807F80 if source.name == "bfloat16" else 0x7C007C00
    number = (a & LOW_BITS_OF_HALVES) + (LOW_BITS_OF_HALVES - infinity)
    return (top & (((a | b) & LOW_BITS_OF_HALVES) + LOW_BITS_OF_HALVES)) | number


def packed(words):
    """The flags in ``words`` as bits.

    The product has the flag of byte k at bit 28 + k, and no two terms at one bit."""
    fours = [((word * 0x10204080) >> 28) << (KEYS * k) for k, word in enumerate(words)]
    return tree([(four,) for four in fours], lambda a, b: (a[0] | b[0],))[0]


def columns(rows) -> list:
    """The flags of columns as the bits of a word each: ``rows`` has a list of words of flags for each row, of which
    there are up to 32."""
    found = []
    for k in range(len(rows[0])):
        eights = []  # in every byte the flags of eight rows
        for first in range(0, len(rows), 8):
            terms = [(row[k] << j,) for j, row in enumerate(rows[first : first + 8])]
            eights.append(tree(terms, lambda a, b: (a[0] | b[0],))[0])
        for byte in range(KEYS):
            terms = [(((eight >> (8 * byte)) & 0xFF) << (8 * g),) for g, eight in enumerate(eights)]
            found.append(tree(terms, lambda a, b: (a[0] | b[0],))[0])
    return found


def transposed(rows) -> list:
    """Bytes of columns, four rows to a word: ``rows`` has a list of words for each row, a multiple of 4 of them."""
    found = []
    for k in range(len(rows[0])):
        columns: list[list] = [[] for _ in range(KEYS)]
        for first in range(0, len(rows), KEYS):
            a, b, c, d = (row[k] for row in rows[first : first + KEYS])
            low, high = (
                (_permuted(a, b, 0x5140), _permuted(c, d, 0x5140)),
                (_permuted(a, b, 0x7362), _permuted(c, d, 0x7362)),
            )
            for pair, (left, right) in enumerate((low, high)):
                columns[2 * pair].append(_permuted(left, right, 0x5410))
                columns[2 * pair + 1].append(_permuted(left, right, 0x7632))
        found += columns
    return found


def _permuted(a, b, selector: int):
    """Four bytes of two words; each digit of ``selector`` names one, the lowest first: 0 to 3 of a, 4 to 7 of b."""
    text = f"prmt.b32 {{$w0}}, {{$r0}}, {{$r1}}, {selector};"
    return cute.arch.inline_ptx(text, write_only_types=[Uint32], read_only_args=[a, b])
