"""Scans of small elements as scans of words of 32 bits, each of which holds several neighbouring columns.

An instruction then combines two or four columns. Operators that have word arithmetic: all on bools; "add", "and", "or",
"xor", "min" and "max" on integers of one or two bytes; "min" and "max" on 16-bit floats. Others on integers of one
byte, callables too, get the elements of words one by one: states are words for them, too, which are loaded, exchanged,
published and stored as such.

Of a few bytes a position that are an even number, words of 16 bits hold two columns; states have 32 bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...dtypes import BY_NAME, DType
from ...runtime.call import Views
from ...runtime.layout import Axis
from ..hardware import WORD_BYTES
from ..states import Single
from .layout import Layout
from .problem import MIN_RAGGED_ROW
from .spec import ScanSpec

UINT16, UINT32 = BY_NAME["uint16"], BY_NAME["uint32"]
BITWISE = {"add": "or", "max": "or", "or": "or", "mul": "and", "min": "and", "and": "and", "xor": "xor"}  # on bools
INTEGERS, FLOATS = ("add", "and", "or", "xor", "min", "max"), ("min", "max")
# Of elements that are combined one by one, from so many positions and columns on (H200, lambda int8 (2097152, 128): 467
# us, so 169 us; (540863, 96): 86.3 and 39.2 us; uint8 (2698, 1368, 12): 37.8 and 33.0 us; but (32, 128, 2048): 7.2 and
# 9.1 us; (131072, 8): 4.7 and 5.0 us; and of two bytes int16 (65536, 2048): 142 and 148 us), and of rows that words do
# not hold whole in arrays of so many bytes (uint8 (588, 282, 413): 139 us, so 73 us; (65102, 624) off by one:
# 66.9 and 38.4 us; but (8, 354, 2191): 10.6 us, in clusters, and 11.2 us).
MIN_POSITIONS, MIN_COLUMNS, MIN_ODD_BYTES = 256, 12, 8 << 20
# Of an even number of columns of bytes up to MAX_PAIRED, in arrays of at least so many bytes (H200, bool (749303, 18):
# 17.9 us, so 14.5 us; max bool (209, 1452, 26): 12.1 and 10.6 us; int8 (59176, 62): 9.15 and 8.82 us; but max bool (90,
# 405, 6): 2.79 and 2.85 us; bool (2094745, 3, 2): 8.7 and 13.0 us).
MAX_PAIRED, MIN_PAIRED_POSITIONS, MIN_PAIRED_BYTES = 62, 16, 1 << 19
# Rows of pairs: those in views that are whole vectors, and up to so many bytes long (reverse bool (4096, 1024, 2): 14.0
# us, so 7.1 us; max uint8 (1917, 357, 2): 3.4 and 1.9 us). A longer one by itself is one of bools, of up to so many
# bytes (bool (3559841, 2): 10.9 us, so 7.7 us; but uint8 (4680840, 2): 11.4 and 14.4 us; int8 (1487637, 2): 6.4 and 7.0
# us; others are not measured).
ROW_UNIT, MAX_PAIRED_ROW, MAX_LONG_PAIRED = 8, 1 << 13, 8 << 20
# Smaller arrays, too, of rows that are no whole vectors and that warps have as words (bool (164, 465, 2): 2.8 us, so
# 1.5 us; int8 (94, 1329, 2): 2.9 and 2.1 us; but shorter rows are slices in either case: bool (1500, 139, 2): 2.8 and
# 2.9 us; and int8 (1730, 48, 2), of whole vectors: 1.4 and 1.6 us).
MIN_PAIRED_ROWS = 1 << 17


@dataclass(frozen=True)
class Packed(Single):
    """``op`` on the elements of type ``element`` in each word; ``one_by_one``: words have no arithmetic for it. States
    of one-byte extrema have two words: 16 bits an element, of which the upper ones count."""

    element: DType = UINT32

    @property
    def one_by_one(self) -> bool:
        return self.element.kind in "iu" and (self.op.fn is not None or self.op.name not in INTEGERS)

    @property
    def key(self) -> tuple:
        return "packed", self.source.name, self.element.name, self.op.key

    @property
    def registers(self) -> tuple[str, ...]:
        return ("Uint32",) * (2 if self.is_spread and not self.is_pair else 1)

    @property
    def is_pair(self) -> bool:
        return self.source is UINT16

    @property
    def has_numbers(self) -> bool:
        """Whether words hold integers of one byte, which take several instructions."""
        return self.element.kind in "iu" and self.element.size == 1

    @property
    def is_spread(self) -> bool:
        return self.has_numbers and self.op.fn is None and self.op.name in FLOATS

    def start_of(self, number: Any) -> tuple[int, ...]:
        """Return the state of a number of the operation's type."""
        if self.element.kind == "b":
            one = bool(number) != (BITWISE[self.op.name] == "and")  # states of "and" are the opposites
            return (0x01010101 * one,)
        size = self.element.size
        bits = int.from_bytes(self.element.storage.type(number).tobytes(), "little")
        if self.is_spread:
            return (bits << 24 | bits << 8,) * len(self.registers)
        return (bits * (0x01010101 if size == 1 else 0x00010001),)

    def monoid(self) -> Any:
        from .packed_monoid import PackedMonoid

        return PackedMonoid(self)


def packed_single(single: Single, word: DType = UINT32) -> Packed | None:
    """Return the operation on words of a type; None if it has none."""
    if single.source.size > 2 or single.source is not single.output or isinstance(single, Packed):
        return None
    kind, size = single.source.kind, single.source.size
    name = single.op.name if single.op.fn is None else None
    exact = (kind == "b" and name in BITWISE) or (kind in "iu" and (size == 1 or name in INTEGERS))
    if not (exact and single.source is single.accumulate) and not (kind == "f" and name in FLOATS):
        return None
    return Packed(single.op, word, UINT32, word, single.source)


def packs(spec: ScanSpec) -> bool:
    """Return whether the operation has word arithmetic for small elements, also after a first operand, or large arrays
    of columns are faster without it."""
    single = spec.operation
    operation = packed_single(single) if isinstance(single, Single) else None
    if operation is None or spec.start_kind not in (None, "value"):
        return False
    return not operation.one_by_one or (spec.extents[2] > 1 and math.prod(spec.extents) >= MIN_ODD_BYTES)


def packed(
    spec: ScanSpec, layout: Layout, inputs: Views, outs: Views, backward: bool = False
) -> tuple[ScanSpec, Layout, Views, Views] | None:
    """Return a scan of columns as one of words; None if words do not hold whole columns of each position, or the
    operator has no word arithmetic. ``backward``: of inputs that run backwards along columns, whose first words begin
    before their first elements."""
    single, columns = spec.operation, layout.columns
    if not isinstance(single, Single) or not columns or spec.algorithm != "auto":
        return None
    if columns[-1].steps != ((-1,) * len(inputs) + (1,) * len(outs) if backward else (1,) * len(columns[-1].steps)):
        return None
    operation = packed_single(single)
    if operation is None or spec.start_kind in ("memory", "rows"):
        return None
    if spec.start is not None and operation.element.kind == "f":
        return None
    if operation.one_by_one and (layout.length < MIN_POSITIONS or columns[-1].extent < MIN_COLUMNS):
        return None
    if backward:
        inputs = tuple(replace(view, ptr=view.ptr - (WORD_BYTES - view.dtype.size)) for view in inputs)
    if not _holds(layout, (*inputs, *outs), UINT32, operation.element):
        if backward or operation.one_by_one or not _in_pairs(layout, inputs, outs, operation.element):
            return None
        operation = replace(operation, source=UINT16, output=UINT16)
    word = operation.source
    width = word.size // operation.element.size
    *others, last = columns
    divided = [*_divided(others, width), *([Axis(last.extent // width, last.steps)] if last.extent > width else [])]
    offsets = tuple(offset // width for offset in layout.offsets)
    words = replace(layout, scanned=tuple(_divided(layout.scanned, width)), columns=tuple(divided), offsets=offsets)
    start = None if spec.start is None else operation.start_of(spec.start[0])
    views, results = (tuple(replace(view, dtype=word) for view in group) for group in (inputs, outs))
    return replace(spec, operation=operation, start=start), words, views, results


def _in_pairs(layout: Layout, inputs: Views, outs: Views, element: DType) -> bool:
    """Return whether columns of bytes are scanned as words of 16 bits."""
    extent, size = layout.columns[-1].extent, layout.length * layout.count
    row = layout.length * extent
    ragged = extent == 2 and layout.length >= MIN_RAGGED_ROW and layout.length % ROW_UNIT and row <= MAX_PAIRED_ROW
    least = MIN_PAIRED_ROWS if ragged else MIN_PAIRED_BYTES
    if element.size > 1 or extent > MAX_PAIRED or layout.length < MIN_PAIRED_POSITIONS or size < least:
        return False
    form = layout.form(len(inputs))
    if form is None or any(0 in axis.steps for axis in layout.scanned):
        return False
    if not _holds(layout, (*inputs, *outs), UINT16, element):
        return False
    if extent > 2:
        return True
    if row <= MAX_PAIRED_ROW:
        return form.view is None or layout.length % ROW_UNIT == 0
    return form.view is None and form.extents[0] == 1 and element.kind == "b" and size <= MAX_LONG_PAIRED


def _holds(layout: Layout, views: Views, word: DType, element: DType) -> bool:
    """Return whether words of a type hold whole columns of each position, and begin on their boundaries."""
    width = word.size // element.size
    *others, last = layout.columns
    strides = [step for axis in (*layout.scanned, *others) for step in axis.steps]
    if any(n % width for n in (last.extent, *strides, *layout.offsets)):
        return False
    return not any(view.ptr % word.size for view in views)


def _divided(axes: Sequence[Axis], width: int) -> list[Axis]:
    return [Axis(axis.extent, tuple(step // width for step in axis.steps)) for axis in axes]
