"""The activations of the matmul's epilogue: functions of a traced float32, or of two (see ``TermsSpec.gated``)."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32

from ...dtypes import FLOAT32
from ...monoid import traced

math: Any = cute.math  # type checkers do not see its functions
SQRT_HALF = 0.7071067811865476
SQRT_2_OVER_PI = 0.7978845608028654


def relu(x):
    """max(x, 0); NaN stays NaN, which max.f32 would drop."""
    return Float32(cutlass.select_(x < 0.0, Float32(0.0), x))


def sigmoid(x):
    return Float32(1.0) / (Float32(1.0) + math.exp(-x))


def silu(x):
    return x * sigmoid(x)


def gelu(x):
    """x times the normal distribution function, as torch's default."""
    return Float32(0.5) * x * (Float32(1.0) + math.erf(x * SQRT_HALF))


def gelu_tanh(x):
    """torch's approximate="tanh"."""
    return Float32(0.5) * x * (Float32(1.0) + math.tanh(SQRT_2_OVER_PI * (x + 0.044715 * x * x * x)))


def tanh(x):
    return math.tanh(x)


BY_NAME = {"relu": relu, "gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu, "sigmoid": sigmoid, "tanh": tanh}


def activation_of(activation):
    """The function of a name, of a user's callable, which the DSL may not be able to trace, or None."""
    if callable(activation):
        return lambda *values: traced("activation", activation, values, Float32, FLOAT32)
    return BY_NAME.get(activation)
