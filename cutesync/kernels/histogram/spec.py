"""What a call of this family computes."""

from __future__ import annotations

from dataclasses import dataclass

from ...dtypes import BY_NAME, INT64, DType
from ...runtime.call import Spec

FLOAT64 = BY_NAME["float64"]


@dataclass(frozen=True)
class Counting:
    """Elements of type ``dtype`` are counted. ``form`` says how a bin is found: "index" (the element is its number),
    "uniform" (edges at equal distances) or "edges"."""

    dtype: DType
    form: str

    @property
    def key(self) -> tuple:
        """Identifies the machine code in caches."""
        return self.dtype.name, self.form


@dataclass(frozen=True)
class CountSpec(Spec):
    """A call: ``length`` elements, ``bins`` bins; ``low`` and ``high`` are the first and the last edge, if they are at
    equal distances."""

    counting: Counting
    length: int
    bins: int
    low: float = 0.0
    high: float = 0.0

    @property
    def results(self) -> tuple[tuple[tuple[int, ...], DType], ...]:
        counts = ((self.bins,), INT64)
        return (counts,) if self.counting.form == "index" else (counts, ((self.bins + 1,), FLOAT64))
