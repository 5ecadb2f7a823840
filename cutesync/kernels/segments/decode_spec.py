"""What is decoded: the specs of calls and of kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...dtypes import INT64, DType
from ...runtime.call import Spec
from ..layouts import Layout, Strided


@dataclass(frozen=True)
class Lengths:
    """An array of how often values are repeated, of integers of type ``dtype``, read as ``layout`` says (None: it is
    contiguous). ``counted``: how many of them count is in device memory."""

    dtype: DType
    counted: bool
    layout: Layout | None


@dataclass(frozen=True)
class Decoding:
    """What a kernel repeats: values of type ``dtype``, as often as ``lengths`` say, or all of them as often as a number
    says (None). ``layout`` says how values, and lengths, are read (None: they are contiguous). ``counted``: how many
    values there are is in device memory."""

    dtype: DType
    lengths: DType | None
    counted: bool
    layout: Layout | None

    @property
    def alike(self) -> bool:
        return self.lengths is None


@dataclass(frozen=True)
class DecodeSpec(Spec):
    """A call: the first ``runs`` values make ``size`` results, each of them ``times`` ones if they are alike."""

    decoding: Decoding
    runs: int
    size: int
    fill: Any
    times: int
    strided: Strided | None

    @property
    def results(self) -> tuple[tuple[tuple[int, ...], DType], ...]:
        return ((self.size,), self.decoding.dtype), ((), INT64)
