"""What a result must be: an interval for every element, of no width where the answer is exact.

Conversions round monotonically. So the ends of the interval around a float64 reference, each converted to the type of
the result, are the least and the greatest result that an arithmetic with those errors can give; infinities and
saturation need no rule of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cutesync.dtypes import FLOAT8, DType

EPS = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
LARGEST = {"float32": 3.4028234e38, "float64": 1.7976931348623157e308}
_SATURATES = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}


@dataclass(frozen=True)
class Wanted:
    """``low`` and ``high`` have the type and shape of the result; a NaN in both must be met by a NaN. ``free``:
    elements that depend on the order of operations, as a sum may overflow on the way. ``ordered`` False: any order of
    the elements will do."""

    low: np.ndarray
    high: np.ndarray
    free: np.ndarray | None = None
    ordered: bool = True

    def fault(self, got: np.ndarray) -> str | None:
        """What is wrong with a result; None if nothing."""
        if got.dtype != self.low.dtype or got.shape != self.low.shape:
            return f"{got.dtype}{list(got.shape)} instead of {self.low.dtype}{list(self.low.shape)}"
        low, high = self.low, self.high
        if not self.ordered:
            got, low, high = np.sort(got), np.sort(low), np.sort(high)
        if got.dtype.kind not in "biu":
            got, low, high = (x.astype(np.float64) for x in (got, low, high))
        with np.errstate(invalid="ignore"):
            right = ((low <= got) & (got <= high)) | ((got != got) & (low != low))
        wrong = ~right if self.free is None else ~(right | self.free)
        if not wrong.any():
            return None
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        span = f"{low[at]!r}" if low[at] == high[at] or low[at] != low[at] else f"{low[at]!r} to {high[at]!r}"
        return f"{int(wrong.sum())} of {got.size} elements wrong, the first at {at}: {got[at]!r}, wanted {span}"


def exactly(result) -> Wanted:
    result = np.asarray(result)
    return Wanted(result, result)


def within(center, error, result: DType, free=None) -> Wanted:
    """Of results that are ``center`` (float64) up to ``error``, before they are rounded to ``result``."""
    center, error = np.asarray(center, np.float64), np.asarray(error, np.float64)
    error = np.where(np.isfinite(center) & np.isfinite(error), error, 0.0)
    with np.errstate(all="ignore"):
        low, high = (converted(np.asarray(end), result) for end in (center - error, center + error))
    return Wanted(low, high, free)


def converted(value: np.ndarray, result: DType) -> np.ndarray:
    """Rounded once to the nearest; saturated where the type has 8 bits or the type is an integer's."""
    with np.errstate(all="ignore"):
        if result.kind in "iu":
            limits = np.iinfo(result.numpy)
            return np.clip(np.rint(np.nan_to_num(value, nan=0.0)), limits.min, limits.max).astype(result.numpy)
        if result.name in FLOAT8:
            value = np.clip(value, -_SATURATES[result.name], _SATURATES[result.name])
        return np.asarray(value.astype(result.numpy))
