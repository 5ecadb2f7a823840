"""Scans; the public functions are those of ``call`` and ``named``."""

from .call import cumprod, cumsum, scan
from .named import cummax, cummin, ffill, linear_recurrence

__all__ = ["cummax", "cummin", "cumprod", "cumsum", "ffill", "linear_recurrence", "scan"]
