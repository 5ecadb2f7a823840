"""The aggregates of the columns of several rows at once: small elements, several to a 32-bit word. Device code.

A row is a tensor of words, or a list of them. An element of one or two bytes takes more instructions to unpack than to
combine, so words are combined whole: any and all by bits, sums by dot products with ones of words that are transposed
first, min and max by the instructions of pairs of 16 bits. All of these are exact, so the order of the rows does not
matter. For argmin and argmax each element becomes a key of twice its size: the element, then a code of its place, by
which the first of equal elements wins.
"""

from __future__ import annotations

from typing import Any

import cutlass
from cutlass import Int32, Uint32, cute

from ...monoid import ArgMonoid, Monoid, convert, nonzero, tree
from ..words import permuted
from .spec import packed_kind

ONES = {1: 0x01010101, 2: 0x00010001}
LOW_BITS = {1: 0x7F7F7F7F, 2: 0x7FFF7FFF}  # all but the highest bit of each element


def kind_of(monoid) -> str:
    """What packed rows are combined with (``spec.packed_kind``); "" if they must be unpacked."""
    if not isinstance(monoid, Monoid) or monoid.transform is not None or len(monoid.sources) > 1:
        return ""
    return packed_kind(monoid.op, monoid.source, monoid.accumulate)


def columns(monoid, rows: list) -> tuple:
    """The state of each column of ``rows``, of a monoid that has a kind."""
    kind, size, words = kind_of(monoid), monoid.source.size, range(_words_of(rows[0]))
    found: list[Any] = []
    for w in words:
        column = [row[w] for row in rows]
        if kind in ("any", "all"):
            found += _elements(monoid, tree(*_bits(kind, column, monoid.source)), size)
        elif kind == "add":
            found += _sums(monoid, column, size)
        else:
            found += _extremes(monoid, kind, column, size)
    return tuple((monoid.types[0](value),) for value in found)


def of_vectors(monoid, vectors: list):
    """The state of the elements of vectors in any order."""
    if kind_of(monoid) in ("add", ""):
        return tree([monoid.fold(words, 0) for words in vectors], monoid.combine)
    rows = [[words[w]] for words in vectors for w in range(cute.size(words))]
    return tree(list(columns(monoid, rows)), monoid.combine)


def without_effect(monoid) -> int:
    """A word of elements that change no state (``Reduction.is_masked``): of argmin and argmax, of which others that are
    as great count if they come first."""
    argument, source = isinstance(monoid, ArgMonoid), monoid.source
    kind = kind_of(monoid) or (("max" if monoid.largest else "min") if argument else monoid.op.name)
    if kind == "any" or (kind == "add" and source.kind != "f"):
        return 0
    if kind == "all":
        return -1
    bits = 8 * source.size
    highest = 1 << (bits - 1)
    if source.kind == "f":  # -0.0, or an infinity
        infinity = 0x7C00 if source.name == "float16" else 0x7F80
        element = highest if kind == "add" else infinity + (highest if kind == "max" else 0)
    else:
        least = highest if source.kind == "i" else 0
        element = least if kind == "max" else 1 if source.kind == "b" else (1 << bits) - 1 - least
    word = element * ONES[source.size]
    return word - (1 << 32) if word >> 31 else word


def has_keys(monoid) -> bool:
    """Whether the elements of an argmin or argmax are combined as keys: integers and bools of one or two bytes."""
    return isinstance(monoid, ArgMonoid) and monoid.source.size <= 2 and monoid.source.kind in "biu"


def first_of_columns(monoid, rows: list) -> list:
    """The state of each column of ``rows``, of an argmin or argmax that has keys; places are numbers of rows."""
    found: list[Any] = []
    for w in range(_words_of(rows[0])):
        words = [_shown(monoid, row[w]) for row in rows]
        codes = [_code(monoid, u) * (0x01010101 if monoid.source.size == 1 else 0x00010001) for u in range(len(rows))]
        keys = [_keys(monoid, word, code) for word, code in zip(words, codes)]
        best = [tree(list(group), lambda a, b: _better(monoid, a, b)) for group in zip(*keys)]
        if monoid.source.size == 2:
            found += [_opened(monoid, key) for key in best]
        else:
            found += [_opened(monoid, _half(best[i % 2], i // 2, monoid.source.kind == "i")) for i in range(4)]
    return found


def of_vector(monoid, words, index):
    """The state of consecutive elements in words, the first of which has ``index``."""
    if has_keys(monoid) and monoid.source.kind != "b":
        return first_of_vector(monoid, words, index)
    return monoid.fold(words, index)


def first_of_vector(monoid, words, index):
    """The same, of an argmin or argmax that has keys; at most as many elements as a key has codes for."""
    each = 4 // monoid.source.size
    keys: list[Any] = []
    for w in range(cute.size(words)):
        code = sum(_code(monoid, w * each + i) << (8 * monoid.source.size * i) for i in range(each))
        keys += _keys(monoid, _shown(monoid, words[w]), code)
    best = tree(keys, lambda a, b: _better(monoid, a, b))
    if monoid.source.size == 1:  # the key that wins of the two of a word
        pair = [_half(best, i, monoid.source.kind == "i") for i in range(2)]
        best = (cutlass.max if monoid.largest else cutlass.min)(*pair)
    value, place = _opened(monoid, best)
    return value, index + place


def _words_of(row) -> int:
    """How many words a row has, a list of them or a tensor."""
    return len(row) if isinstance(row, list) else cute.size(row)


def _shown(monoid, word):
    return _ones(word, 1) if monoid.source.kind == "b" else word


def _code(monoid, place: int) -> int:
    """What the key of an element at a place has in its lower half."""
    last = (1 << 8 * monoid.source.size) - 1
    return last - place if monoid.largest != monoid.flipped else place


def _keys(monoid, word, codes: int) -> list:
    """The keys of the elements of a word: of bytes, two words of two keys each, of bytes 0 and 2, then 1 and 3; of
    halves, two words. ``codes`` has the code of each element."""
    held = Int32(codes - (1 << 32) if codes >> 31 else codes)
    return [_bytes(held, word, order) for order in ((0x6240, 0x7351) if monoid.source.size == 1 else (0x5410, 0x7632))]


def _better(monoid, a, b):
    """The keys that win, of two words of keys."""
    kind, signed = "max" if monoid.largest else "min", monoid.source.kind == "i"
    if monoid.source.size == 1:
        return _pairs(f"{kind}.{'s' if signed else 'u'}16x2", a, b)
    return _pairs(f"{kind}.{'s' if signed else 'u'}32", a, b)


def _opened(monoid, key):
    """The value and the place of a key."""
    bits = 8 * monoid.source.size
    number = Int32 if monoid.source.kind == "i" else Uint32
    place = Int32(key) & ((1 << bits) - 1)
    if monoid.largest != monoid.flipped:
        place = place ^ ((1 << bits) - 1)
    return monoid.types[0](number(key) >> number(bits)), place


def _bits(kind: str, words: list, source) -> tuple:
    """Words whose bits are combined, and how. For any, an element is not zero; for all, it is 1 or 0."""
    if source.kind == "f":
        words = [word & LOW_BITS[source.size] for word in words]  # without the sign of zero
    if kind == "any":
        return words, lambda a, b: a | b
    return [_ones(word, source.size) for word in words], lambda a, b: a & b


def _ones(word, size: int):
    """1 in each element that is not zero, else 0."""
    high = ((word & LOW_BITS[size]) + LOW_BITS[size]) | word
    return Int32((Uint32(high) >> Uint32(8 * size - 1)) & Uint32(ONES[size]))


def _elements(monoid, word, size: int) -> list:
    """Whether each element of a word is not zero, as 1 or 0."""
    mask = (1 << 8 * size) - 1
    return [nonzero((Uint32(word) >> Uint32(8 * size * i)) & Uint32(mask)) for i in range(4 // size)]


def _sums(monoid, words: list, size: int) -> list:
    """The sums of the columns of one-byte or two-byte integers, in 32 bits; ``words`` are few rows."""
    signed = monoid.source.kind == "i"
    register = Int32 if signed else Uint32
    if monoid.source.kind == "b":
        words = [_ones(word, size) for word in words]
    sign = "s32" if signed else "u32"
    dot = f"dp4a.{sign}.{sign}" if size == 1 else f"dp2a.lo.{sign}.{sign}"
    each = 4 // size
    words = words + [Int32(0)] * (-len(words) % each)
    totals = [register(0)] * each
    for i in range(0, len(words), each):
        for c, column in enumerate(_transposed(words[i : i + each])):
            totals[c] = cute.arch.inline_ptx(
                f"{dot} {{$w0}}, {{$r0}}, {{$r1}}, {{$r2}};",
                write_only_types=[register],
                read_only_args=[column, Int32(ONES[1]), totals[c]],
            )
    return [convert(total, monoid.types[0]) for total in totals]


def _transposed(words: list) -> list:
    """Four words of four bytes, or two of two 16-bit halves: the rows and columns of this matrix exchanged."""
    if len(words) == 2:
        return [_bytes(words[0], words[1], order) for order in (0x5410, 0x7632)]
    a, b, c, d = words
    left, right = [_bytes(a, b, 0x5140), _bytes(c, d, 0x5140)], [_bytes(a, b, 0x7362), _bytes(c, d, 0x7362)]
    return [_bytes(p, q, order) for p, q in (left, right) for order in (0x5410, 0x7632)]


def _bytes(a, b, order: int):
    """Four bytes of two words: hexadecimal digit i of ``order`` says which is byte i; 8 more repeats its sign."""
    return Int32(permuted(Uint32(a), Uint32(b), Uint32(order)))


def _extremes(monoid, kind: str, words: list, size: int) -> list:
    """The least or the greatest elements of the columns, in their register type."""
    signed = monoid.source.kind == "i"
    halves = [words]
    if size == 1:  # bytes 0 and 2, and bytes 1 and 3, as 16-bit integers
        orders = (0xA280, 0xB391) if signed else (0x4240, 0x4341)
        halves = [[_bytes(word, Int32(0), order) for word in words] for order in orders]
    found = [tree(group, lambda a, b: _pairs(f"{kind}.{'s' if signed else 'u'}16x2", a, b)) for group in halves]
    pairs = [[_half(word, i, signed) for i in range(2)] for word in found]
    return pairs[0] if size == 2 else [pairs[i % 2][i // 2] for i in range(4)]


def _pairs(operation: str, a, b):
    return cute.arch.inline_ptx(
        f"{operation} {{$w0}}, {{$r0}}, {{$r1}};", write_only_types=[Int32], read_only_args=[a, b]
    )


def _half(word, i: int, signed: bool):
    """Half ``i`` of a word, as an integer of 32 bits."""
    if signed:
        return (word << (16 * (1 - i))) >> 16
    return (Uint32(word) >> Uint32(16 * i)) & Uint32(0xFFFF)
