"""What a call of this family computes."""

from __future__ import annotations

from dataclasses import dataclass

from ...dtypes import INT64, DType
from ...runtime.call import Spec


@dataclass(frozen=True)
class TopK:
    """The largest or the smallest elements of type ``dtype``: their indices, and with ``values`` themselves. With
    ``counted``, the length of rows is in memory."""

    dtype: DType
    largest: bool
    values: bool
    counted: bool

    @property
    def key(self) -> tuple:
        """Identifies the machine code in caches."""
        return self.dtype.name, self.largest, self.values, self.counted


@dataclass(frozen=True)
class TopKSpec(Spec):
    """A call: ``k`` elements of the first ``length`` along ``axis`` of an array of ``shape``."""

    operation: TopK
    shape: tuple[int, ...]
    axis: int
    length: int
    k: int

    @property
    def results(self) -> tuple[tuple[tuple[int, ...], DType], ...]:
        shape = (*self.shape[: self.axis], self.k, *self.shape[self.axis + 1 :])
        return (((shape, self.operation.dtype),) if self.operation.values else ()) + ((shape, INT64),)
