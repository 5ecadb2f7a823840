"""What is zero: the word of the largest magnitude before a product, and a product over no elements."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np

from ...dtypes import BY_NAME, INT32
from ...runtime import device_array
from ...runtime.device_array import DeviceArray
from ...runtime.kernel import KernelSpec, Pointer
from ...runtime.launch import Launch
from .plan import TMA_BYTES, Operand, Problem


def make_zero(ordinal: int, stream: int) -> Launch:
    """The launch that stores 0 in a word, before blocks look for the largest magnitude."""

    def make() -> Any:
        from .zero import Zero

        return Zero(32, blocks_per_sm=0)

    spec = KernelSpec(("matmul zero",), (Pointer("word", INT32),), make)
    return Launch(spec, ordinal, 1, {}, ("word",), stream=stream)


def without_k(problem: Problem) -> tuple[Problem, DeviceArray]:
    """A product over no elements, computed as one over a single zero: both operands become one zero, which TMA pads
    with zeros. Also returns the array of that zero."""
    unit = TMA_BYTES // problem.elements[0].size
    one = Operand(True, unit, 1, unit, rows=1)
    return replace(problem, k=1, a=one, b=one), _zeros(problem.ordinal)


@functools.cache
def _zeros(ordinal: int) -> DeviceArray:
    return device_array.from_numpy(np.zeros(TMA_BYTES, np.uint8), BY_NAME["uint8"], ordinal)
