"""What a call of this family computes."""

from __future__ import annotations

from dataclasses import dataclass

from ...dtypes import BY_NAME, INT64, DType
from ...runtime.call import Spec
from ..layouts import Layout, Strided

FLOAT64 = BY_NAME["float64"]


@dataclass(frozen=True)
class Counting:
    """Elements of type ``dtype`` are counted, or their ``weights`` of this type are added. ``form`` says how a bin is
    found: "index" (the element is its number), "uniform" (edges at equal distances) or "edges". ``result`` is the type
    of the results. With a ``layout`` elements and weights are strided. ``counted``: how many elements count is in
    memory."""

    dtype: DType
    form: str
    weights: DType | None = None
    result: DType = INT64
    density: bool = False
    layout: Layout | None = None
    counted: bool = False

    @property
    def finished(self) -> bool:
        """Whether results are made of sums in memory of their own."""
        return self.density or self.weights is not None

    @property
    def key(self) -> tuple:
        """Identifies the machine code in caches."""
        weights = None if self.weights is None else self.weights.name
        return self.dtype.name, self.form, weights, self.result.name, self.density, self.layout, self.counted


@dataclass(frozen=True)
class CountSpec(Spec):
    """A call: the first ``length`` of ``whole`` elements, ``bins`` bins. Edges at equal distances lie between ``low``
    and ``high``. ``strided`` has the axes of the elements and the weights, unless both are contiguous.
    """

    counting: Counting
    length: int
    whole: int
    bins: int
    low: float = 0.0
    high: float = 0.0
    strided: Strided | None = None

    @property
    def results(self) -> tuple[tuple[tuple[int, ...], DType], ...]:
        counts = ((self.bins,), self.counting.result)
        return (counts,) if self.counting.form == "index" else (counts, ((self.bins + 1,), FLOAT64))
