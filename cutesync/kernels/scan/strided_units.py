"""Units of elements of one or two bytes that a thread of a strided tile moves at once: words of neighbours, of elements
that run backwards, and of such that lie a few apart, which are picked out of vectors of memory."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int32

from .problem import WORD_BYTES


def element(pointer):
    return cute.make_tensor(pointer, cute.make_layout((1,)))


def put_element(pointer, value) -> None:
    element(pointer)[0] = value


def word_at(pointer):
    """A pointer to the word there."""
    return cute.make_ptr(Int32, pointer.toint(), pointer.memspace, assumed_align=WORD_BYTES)


def some_words(count: int = 1):
    """Registers. The stride is stated: a mode of one element would get stride 0, which recasting spreads."""
    return cute.make_rmem_tensor(cute.make_layout((count,), stride=(1,)), Int32)


def unit_at(pointer, unit: int):
    """The elements of a unit in memory."""
    if unit == 1:
        return element(pointer)
    words = some_words()
    words[0] = element(word_at(pointer))[0]
    return cute.recast_tensor(words, pointer.value_type)


def turned_word(pointer, unit: int):
    """The elements of a word in memory, from the last one to the first."""
    elements, turned = unit_at(pointer, unit), some_words()
    backward = cute.recast_tensor(turned, pointer.value_type)
    for i in range(unit):
        backward[i] = elements[unit - 1 - i]
    return turned[0]


def words_apart(pointers: list, unit: int, pace: int, end) -> list:
    """The words of units whose elements lie ``pace`` apart from each pointer on, in an array that ends at ``end``."""
    loaded, found = [some_words(pace) for _ in pointers], []
    for pointer, words in zip(pointers, loaded):
        load_apart(pointer, words, unit, pace, end)
    for pointer, words in zip(pointers, loaded):
        elements, picked = cute.recast_tensor(words, pointer.value_type), some_words()
        together = cute.recast_tensor(picked, pointer.value_type)
        for i in range(unit):
            together[i] = elements[i * pace]
        found.append(picked[0])
    return found


@cute.jit
def load_apart(pointer: cute.Pointer, words, unit: cutlass.Constexpr, pace: cutlass.Constexpr, end):
    """Load a unit with what lies between its elements; one by one, if it reaches beyond the array."""
    if pointer.toint() + WORD_BYTES * pace <= end:
        source = cute.make_ptr(Int32, pointer.toint(), pointer.memspace, assumed_align=WORD_BYTES * pace)
        cute.autovec_copy(cute.make_tensor(source, words.layout), words)
    else:
        elements = cute.recast_tensor(words, pointer.value_type)
        for i in cutlass.range_constexpr(unit):
            elements[i * pace] = element(pointer + i * pace)[0]
