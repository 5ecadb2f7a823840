"""Which arrays of short rows are flagged as bits by threads that have several whole ones, with which sizes."""

from __future__ import annotations

import math

from ...sizes import ceil_div
from ..axes import NUMBER_BITS
from ..hardware import WORD_BYTES
from .form import Form
from .policy import alignment
from .strided_choice import Facts, ShortPolicy, StridedChoice

MAX_LENGTH = 32  # items whose flags are a word
# Of a row (H200, bits float64 (3000000, 2): in threads with one row 16.6 us, with four 15.6 us; rows of 24 bytes: no
# change; float64 (512, 16384, 4): 72 and 87 us)
MAX_BYTES = 16
ROWS = 4, 2  # of a thread, which stores their words at once
MIN_GROUPS = 1 << 16  # of rows: with fewer, threads have one row each
KEYS = 4
MAX_LOADS = 8  # of a thread: each of a warp's touches as many lines as all threads have of memory


def choose_short(form: Form, facts: Facts) -> StridedChoice | None:
    """Return the launch with whole rows that lie side by side, as their words do; None for others."""
    length, columns = form.flagged.extent, form.others[-1] if form.others else None
    if not form.bits or columns is None or facts.counted or facts.periodic:
        return None
    if length > MAX_LENGTH or length * facts.size > MAX_BYTES:
        return None
    if form.flagged.steps[0] != 1 or columns.steps[0] != length or set(columns.steps[1:]) != {1}:
        return None
    others = form.others[:-1]
    for rows in ROWS:
        size = rows * length * facts.size
        starts = math.gcd(size, *(axis.steps[0] * facts.size for axis in others))
        piece = min(facts.aligned, alignment(starts))
        stores = facts.result_aligned % (rows * facts.result) == 0
        stores &= all(step % rows == 0 for axis in others for step in axis.steps[1:])
        if piece < max(WORD_BYTES, facts.size) or not stores or size > MAX_LOADS * piece:
            continue
        counts = ceil_div(columns.extent, rows), *(axis.extent for axis in others[::-1])
        if math.prod(counts) < MIN_GROUPS:
            continue
        by_words = facts.by_words and facts.size == 1 and length % KEYS == 0
        wide = math.prod(counts) >> NUMBER_BITS > 0
        policy = ShortPolicy(len(counts), length, rows, piece // facts.size, by_words, wide)
        return StridedChoice(policy, (columns, *others[::-1]), counts)
    return None
