"""The types of public arguments and results, for signatures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import numpy as np

Array: TypeAlias = Any
"""An array of NumPy, torch or CuPy, a DeviceArray, or an object with DLPack or ``__cuda_array_interface__``."""
A = TypeVar("A")
"""The array type of an input, and of the result: both are of the same library."""
Axis: TypeAlias = int | tuple[int, ...] | None
Scalar: TypeAlias = bool | int | float | np.generic
Operator: TypeAlias = str | Callable[..., Any]
"""The name of an operator, or a callable that the DSL can trace."""
DTypeLike: TypeAlias = Any
"""The name of a type, or a type of NumPy, ml_dtypes or torch."""
Stream: TypeAlias = Any
"""None, the handle of a stream as an int, or an object with ``__cuda_stream__``."""
