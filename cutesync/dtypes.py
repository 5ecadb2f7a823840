"""Element types: one table from names to the types of NumPy and the DSL, and the types that reductions and scans
accumulate in.

NumPy has no bfloat16. If ``ml_dtypes`` is installed, its type is used. Without it, bfloat16 arrays of other libraries
(torch, DLPack) work, but there are no NumPy arrays of bfloat16.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import ArgumentTypeError, ArgumentValueError, explain, shown


@dataclass(frozen=True, eq=False)
class DType:
    """One element type. ``kind`` is NumPy's letter (b, i, u, f), ``size`` is in bytes, ``dsl`` the name of the DSL's
    class.

    There is one object per type: compare with ``is``.
    """

    name: str
    kind: str
    size: int
    dsl: str

    def __str__(self) -> str:
        return self.name

    @property
    def numpy(self) -> np.dtype:
        """The NumPy type of the same bits and meaning."""
        if self.name not in _NOT_IN_NUMPY:
            return np.dtype(self.name)
        try:
            import ml_dtypes
        except ImportError:
            raise ArgumentTypeError(
                explain(
                    "dtype",
                    self.name,
                    "a type that NumPy knows",
                    "install ml_dtypes (pip install 'cutesync[ml-dtypes]')",
                )
            ) from None
        return np.dtype(getattr(ml_dtypes, self.name))

    @property
    def storage(self) -> np.dtype:
        """A NumPy type of the same width that always exists: bfloat16 is stored as its uint16 bits, float8 as uint8."""
        return np.dtype(f"u{self.size}") if self.name in _NOT_IN_NUMPY else np.dtype(self.name)

    @property
    def accumulator(self) -> DType:
        """The type that ``reduce`` and ``scan`` accumulate in: float32 for 16-bit floats, else the type itself."""
        return FLOAT32 if self.kind == "f" and self.size <= 2 else self

    @property
    def cutlass(self) -> Any:
        """The DSL's class (imports the DSL). bool is loaded and stored as its byte."""
        import cutlass

        return getattr(cutlass, self.dsl)


_TABLE = (
    DType("bool", "b", 1, "Uint8"),
    DType("int8", "i", 1, "Int8"),
    DType("int16", "i", 2, "Int16"),
    DType("int32", "i", 4, "Int32"),
    DType("int64", "i", 8, "Int64"),
    DType("uint8", "u", 1, "Uint8"),
    DType("uint16", "u", 2, "Uint16"),
    DType("uint32", "u", 4, "Uint32"),
    DType("uint64", "u", 8, "Uint64"),
    DType("float16", "f", 2, "Float16"),
    DType("bfloat16", "f", 2, "BFloat16"),
    DType("float32", "f", 4, "Float32"),
    DType("float64", "f", 8, "Float64"),
)
BY_NAME = {dtype.name: dtype for dtype in _TABLE}
FLOAT8 = {
    dtype.name: dtype
    for dtype in (DType("float8_e4m3fn", "f", 1, "Float8E4M3FN"), DType("float8_e5m2", "f", 1, "Float8E5M2"))
}
"""The types that only ``matmul`` takes."""
TFLOAT32 = DType("tfloat32", "f", 4, "TFloat32")
"""float32 as ``matmul``'s tensor cores read it, with 11 bits of significand. No array has this type."""
_NOT_IN_NUMPY = ("bfloat16", *FLOAT8)
BOOL, INT32, INT64, UINT64, FLOAT32 = (BY_NAME[name] for name in ("bool", "int32", "int64", "uint64", "float32"))


def register(dtype: DType, wide: bool = True) -> str:
    """Return the name of the DSL type that holds a ``dtype`` in a register. With ``wide``, 1- and 2-byte integers use
    32 bits; the result wraps in the same way when it is stored. bool always uses 32 bits, and 16-bit floats use
    float32."""
    if dtype.kind == "f":
        return "Float64" if dtype.size == 8 else "Float32"
    if dtype.kind == "b":
        return "Int32"
    if wide and dtype.size < 4:
        return "Uint32" if dtype.kind == "u" else "Int32"
    return dtype.dsl


def dtype(spec: Any, argument: str = "dtype") -> DType:
    """Return the DType that ``spec`` means: a DType, a name, a NumPy or ml_dtypes type, or a torch dtype."""
    try:
        found = _known(spec)
    except Exception:  # unhashable, or a user's object that raises when NumPy examines it
        found = None
    if found is None:
        raise ArgumentTypeError(explain(argument, shown(spec), "one of " + ", ".join(BY_NAME)))
    return found


@functools.lru_cache(maxsize=256)
def _known(spec: Any) -> DType | None:
    """Return the DType, or None for an object that is no type. (NumPy would accept any object with a ``dtype``, and the
    cache would take 1 for ``np.int64(1)``.)"""
    if isinstance(spec, DType):
        return spec
    name = str(spec).removeprefix("torch.") if type(spec).__module__.partition(".")[0] == "torch" else spec
    if name == "bfloat16" or getattr(name, "__name__", None) == "bfloat16":
        return BY_NAME["bfloat16"]
    if not isinstance(name, (str, type, np.dtype, type(None))):
        return None
    parsed = np.dtype(name)
    return BY_NAME.get(parsed.name) if parsed.isnative else None


def element_type(spec: Any, argument: str = "dtype") -> DType:
    """Return the DType of the elements of an array, which may also be float8."""
    try:
        name = str(getattr(spec, "name", None) or getattr(spec, "__name__", None) or spec).removeprefix("torch.")
    except Exception:  # a user's ``str`` that fails, or an int of more digits than Python prints
        name = ""
    return FLOAT8.get(name) or dtype(spec, argument)


def number(value: Any, argument: str, allowed: str = "a number") -> bool | int | float:
    """Return a scalar of Python, NumPy or ml_dtypes, or a 0-d NumPy array, as Python's bool, int or float. Raise
    ArgumentTypeError for other objects."""
    if isinstance(value, (np.generic, np.ndarray)) and not value.shape:
        kind = "f" if value.dtype.name in _NOT_IN_NUMPY else value.dtype.kind
        value = value.item() if kind in "biu" else float(value) if kind == "f" else value
    if not isinstance(value, (bool, int, float)):
        raise ArgumentTypeError(explain(argument, shown(value), allowed))
    return value


def scalar(value: Any, target: DType, argument: str) -> Any:
    """Return ``value`` as a Python number of type ``target``: a float, an int, or for bool its truth value, 0 or 1.
    Raise ArgumentTypeError or ArgumentValueError for other values."""
    found, kind = number(value, argument, f"a number of type {target}"), target.kind
    if kind == "b":
        return int(bool(found))
    if kind == "f":
        return as_float(found, argument)
    if isinstance(found, float):
        raise ArgumentTypeError(explain(argument, shown(value), f"a number of type {target}"))
    info = np.iinfo(target.numpy)
    if not info.min <= found <= info.max:
        raise ArgumentValueError(explain(argument, shown(value), f"a value of {target}, {info.min} to {info.max}"))
    return int(found)


def as_float(value: bool | int | float, argument: str) -> float:
    """Return the nearest float; raise ArgumentValueError for an int beyond all floats."""
    try:
        return float(value)
    except OverflowError:
        raise ArgumentValueError(explain(argument, shown(value), "a number that a float64 can hold")) from None


PROMOTED = object()
"""As ``dtype=`` of a call, stands for ``sum_dtype`` of the elements' type."""


def sum_dtype(source: DType) -> DType:
    """Return the result type of sum, prod, cumsum and cumprod, as in NumPy: bool and small integers widen to 64 bits,
    floats keep their type."""
    if source.kind in "bi":
        return INT64
    return UINT64 if source.kind == "u" else source


def result_dtype(source: DType, wanted: Any) -> DType:
    """Return the type of a result for ``dtype=wanted``: that of the elements if it is None."""
    return source if wanted is None else sum_dtype(source) if wanted is PROMOTED else dtype(wanted)
