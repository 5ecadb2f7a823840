"""Operands of small integers, whose products are exact in every type and order: any difference is a fault."""

from __future__ import annotations

import numpy as np

import cutesync as cs
from cutesync.dtypes import element_type
from cutesync.kernels import hardware
from cutesync.kernels.matmul.model import shortlist
from cutesync.kernels.matmul.policy import MatmulPolicy
from cutesync.kernels.matmul.workload import Workload
from cutesync.runtime import call, emulated

QUICK = 9  # schedules of the tests that are not slow: each policy once
SMALL = ((64, 64), "pingpong")  # the tile that the emulator multiplies fastest


def integers(*shape: int, dtype: str = "float16", seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).integers(-3, 4, shape).astype(element_type(dtype).numpy)


def operand(rows: int, columns: int, transposed: bool, dtype: str = "float16", seed: int = 0) -> np.ndarray:
    """(rows, columns), lying in memory row by row or column by column."""
    return (
        integers(columns, rows, dtype=dtype, seed=seed).T
        if transposed
        else integers(rows, columns, dtype=dtype, seed=seed)
    )


def agrees(got, a, b, c=None, what: str = "", **terms) -> None:
    """Equality with the reference, element by element."""
    wanted = cs.reference.matmul(*(None if x is None else np.asarray(x) for x in (a, b, c)), **terms)
    assert got.shape == wanted.shape and got.dtype == wanted.dtype, what
    assert np.array_equal(got.astype(np.float64), wanted.astype(np.float64)), what


def multiplied(a, b, c=None, what: str = "", **options) -> None:
    """``cs.matmul`` with these options agrees with the reference, which knows nothing of how to compute."""
    how = ("config", "fast_accumulation", "precision")
    got = cs.matmul(a, b, c, **options)
    agrees(np.asarray(got), a, b, c, what, **{name: value for name, value in options.items() if name not in how})


def few_blocks(monkeypatch, count: int) -> None:
    """The emulator has ``count`` multiprocessors: blocks do several tiles."""
    monkeypatch.setattr(hardware, "SMS", count)
    monkeypatch.setattr(emulated, "_MULTIPROCESSORS", count)
    monkeypatch.setattr(call, "_plans", {})


def agrees_under_schedules(
    monkeypatch, name: str, chosen: MatmulPolicy, shape: tuple[int, int, int], blocks: int, schedules: int
) -> None:
    """A product in this configuration, both operands with K contiguous, ``blocks`` blocks at a time, under hostile
    schedules."""
    m, n, k = shape
    few_blocks(monkeypatch, blocks)
    a, b = operand(m, k, False), operand(k, n, True)
    with cs.emulate(schedules=schedules, seed=5) as ran:
        multiplied(a, b, what=name, config=chosen)
    assert ran.launches == schedules


def choose(*workload, **options) -> MatmulPolicy:
    """What the model chooses."""
    return shortlist(Workload(*workload, **options))[0][1]
