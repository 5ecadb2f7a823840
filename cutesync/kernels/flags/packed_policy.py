"""Which arrays of short rows are flagged as bits by blocks that have several whole ones, with which sizes."""

from __future__ import annotations

from ...sizes import ceil_div
from ..axes import NUMBER_BITS
from .form import Form
from .strided_choice import Facts, PackedPolicy, StridedChoice, TilePolicy

WORD_BYTES = 4
MIN_LENGTH, MAX_PIECE = 5, 4  # items of a row, and bytes that the threads of tiles load at once
MIN_ELEMENTS, MANY = 1 << 16, 1 << 22
FEW_OF_BLOCK, OF_BLOCK = 1024, 2048  # elements, of fewer than MANY; of more, of four bytes each


def choose_packed(form: Form, facts: Facts, tiles: StridedChoice) -> StridedChoice | None:
    """Return the launch with whole rows, which lie side by side; None for others, and where the threads of ``tiles``
    have rows that they load in vectors."""
    policy, length, total = tiles.policy, form.flagged.extent, form.rows * form.flagged.extent
    if not form.bits or len(form.others) != 1 or facts.counted or facts.periodic or not isinstance(policy, TilePolicy):
        return None
    (rows,) = form.others
    beside = set(form.flagged.steps) == {1} and rows.steps[0] == length
    singly = policy.loads in ("vector", "spaced") or (policy.loads == "run" and policy.piece <= MAX_PIECE)
    if not (beside and singly and length >= MIN_LENGTH and MIN_ELEMENTS <= total < 1 << NUMBER_BITS):
        return None
    most = OF_BLOCK * max(1, WORD_BYTES // facts.size) if total >= MANY else FEW_OF_BLOCK
    counts = length, ceil_div(rows.extent, most // length)
    return StridedChoice(PackedPolicy(2, most, False), (form.flagged, rows), counts)
