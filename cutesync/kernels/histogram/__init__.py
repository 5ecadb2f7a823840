"""Counts of elements by their values. Nothing here waits for the host."""

from __future__ import annotations

from .call import bincount, histogram

__all__ = ["bincount", "histogram"]
