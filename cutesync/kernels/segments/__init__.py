"""Operations on segments: of equal consecutive keys, or given by offsets, lengths or heads. Nothing here waits."""

from __future__ import annotations

from .call import reduce_by_key, scan_by_key
from .repeat import repeat, run_length_decode
from .result import Reduced
from .search import searchsorted
from .segmented import segmented_reduce, segmented_scan

__all__ = [
    "Reduced",
    "reduce_by_key",
    "repeat",
    "run_length_decode",
    "scan_by_key",
    "searchsorted",
    "segmented_reduce",
    "segmented_scan",
]
