"""The largest or smallest elements of arrays, in order. Nothing here waits for the host."""

from __future__ import annotations

from .call import argtopk, topk

__all__ = ["argtopk", "topk"]
