"""Operands of small integers, whose products are exact in every type and order: any difference is a fault."""

from __future__ import annotations

import numpy as np

import cutesync as cs
from cutesync.dtypes import element_type

SMALL = ((64, 64), "pingpong")  # the tile that the emulator multiplies fastest


def integers(*shape: int, dtype: str = "float16", seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).integers(-3, 4, shape).astype(element_type(dtype).numpy)


def operand(rows: int, columns: int, transposed: bool, dtype: str = "float16", seed: int = 0) -> np.ndarray:
    """(rows, columns), lying in memory row by row or column by column."""
    return integers(columns, rows, dtype=dtype, seed=seed).T if transposed else integers(rows, columns, dtype=dtype, seed=seed)


def agrees(got, a, b, c=None, what: str = "", **terms) -> None:
    """Equality with the reference, element by element."""
    wanted = cs.reference.matmul(a, b, c, **terms)
    assert got.shape == wanted.shape and got.dtype == wanted.dtype, what
    assert np.array_equal(got.astype(np.float64), wanted.astype(np.float64)), what
