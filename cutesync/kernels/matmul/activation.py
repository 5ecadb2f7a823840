"""The activations of the matmul's epilogue: functions of a traced float32."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Float32

from ...dtypes import FLOAT32
from ...monoid import traced

SQRT_HALF = 0.7071067811865476
SQRT_2_OVER_PI = 0.7978845608028654


def relu(x):
    """max(x, 0); NaN stays NaN, which max.f32 would drop."""
    return Float32(cutlass.select_(x < 0.0, Float32(0.0), x))


def sigmoid(x):
    return Float32(1.0) / (Float32(1.0) + cute.math.exp(-x))


def silu(x):
    return x * sigmoid(x)


def gelu(x):
    """x times the normal distribution function, as torch's default."""
    return Float32(0.5) * x * (Float32(1.0) + cute.math.erf(x * SQRT_HALF))


def gelu_tanh(x):
    """torch's approximate="tanh"."""
    return Float32(0.5) * x * (Float32(1.0) + cute.math.tanh(SQRT_2_OVER_PI * (x + 0.044715 * x * x * x)))


def tanh(x):
    return cute.math.tanh(x)


def of_user(fn):
    """A callable of the user's, which the DSL may not be able to trace."""
    return lambda x: traced("activation", fn, (x,), Float32, FLOAT32)


BY_NAME = {"relu": relu, "gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu, "sigmoid": sigmoid, "tanh": tanh}
