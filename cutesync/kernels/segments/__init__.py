"""Operations on segments: of equal consecutive keys. Nothing here waits for the host."""

from __future__ import annotations

from .call import reduce_by_key, scan_by_key
from .result import Reduced

__all__ = ["Reduced", "reduce_by_key", "scan_by_key"]
