"""The kernel's parameters: their names in order, and the records that group them. Without the DSL, for the host as well.

``NAMES`` is the order in which the kernel takes them. A TMA descriptor is 128 bytes, followed by the extents of its tensor in 12 bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Order(NamedTuple):
    """The order of tiles (see ``scheduler``), and which operands have a batch: all Int32."""

    along_n: Any
    group: Any
    a_batched: Any
    b_batched: Any


class Split(NamedTuple):
    """Split-K: how many slices of K, the k-tiles of each (Int32); for the turnstile the partial sums and the counters in global memory."""

    splits: Any
    k_tiles: Any
    scratch: Any
    counters: Any


class Operands(NamedTuple):
    """What the epilogue reads. Strides are Int64, in elements; what a variant lacks is not read.

    ``d_pointer`` is where the result goes when TMA cannot store it; ``bias`` has an element a row or a column of the result,
    the scales one in all, or one a row (A) and a column (B)."""

    alpha: Any
    beta: Any
    c: Any
    c_row: Any
    c_column: Any
    c_batch: Any
    bias: Any
    d_pointer: Any
    d_row: Any
    d_column: Any
    d_batch: Any
    scale_a: Any
    scale_b: Any


MAPS = ("a", "a_extents", "b", "b_extents", "d", "d_extents")
NAMES = (*MAPS, *Order._fields, *Split._fields, *Operands._fields)
