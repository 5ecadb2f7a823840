"""Operations on segments: of equal consecutive keys, or given by offsets, lengths or heads. Nothing here waits."""

from __future__ import annotations

from .call import reduce_by_key, scan_by_key
from .result import Reduced
from .segmented import segmented_reduce, segmented_scan

__all__ = ["Reduced", "reduce_by_key", "scan_by_key", "segmented_reduce", "segmented_scan"]
