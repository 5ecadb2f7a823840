"""Which arrays of short rows are flagged as bits by blocks that have several whole ones, with which sizes."""

from __future__ import annotations

from ...sizes import ceil_div
from ..axes import NUMBER_BITS
from .form import Form
from .strided_choice import Facts, PackedPolicy, StridedChoice, TilePolicy

# Bytes of an element and of a row, elements of an array: blocks of rows vote on some 680 elements a ns, which is beyond
# what memory brings of wide ones (H200, bits int32 (288235, 35): 27.9 us, so 15.9 us; int64 (351573, 54), whose tiles
# load vectors: 59.8 us, so 40.5 us; but float32 (128386, 8): 2.6 and 2.9 us; int8 (191055, 45): 9.6 and 11.2 us).
MIN_SIZE, MIN_ROW_BYTES, MIN_ELEMENTS = 4, 96, 1 << 16
# Elements of a block: of fewer than MANY; of more (int32 (288235, 35), in blocks of 2048: 17.0 us)
MANY, FEW_OF_BLOCK, OF_BLOCK = 1 << 22, 2048, 4096


def choose_packed(form: Form, facts: Facts, tiles: StridedChoice) -> StridedChoice | None:
    """Return the launch with whole rows, which lie side by side, in place of ``tiles`` of threads; None for others."""
    length, total = form.flagged.extent, form.rows * form.flagged.extent
    if not form.bits or len(form.others) != 1 or facts.counted or facts.periodic:
        return None
    (rows,) = form.others
    beside = set(form.flagged.steps) == {1} and rows.steps[0] == length and isinstance(tiles.policy, TilePolicy)
    wide = facts.size >= MIN_SIZE and length * facts.size >= MIN_ROW_BYTES
    if not (beside and wide and MIN_ELEMENTS <= total < 1 << NUMBER_BITS):
        return None
    most = OF_BLOCK if total >= MANY else FEW_OF_BLOCK
    counts = length, ceil_div(rows.extent, most // length)
    return StridedChoice(PackedPolicy(2, most, False), (form.flagged, rows), counts)
