"""Scans; the public functions are those of ``call``."""

from .call import cumprod, cumsum, scan

__all__ = ["cumprod", "cumsum", "scan"]
