"""What a reduction or scan of drawn arguments must give: NumPy's answer, exact or within what rounding allows."""

from __future__ import annotations

import math

import numpy as np

from cutesync import reference
from cutesync.dtypes import INT64, DType

from .. import cases
from .draw import Undefined
from .judge import EPS, LARGEST, Wanted, exactly, within
from .operators import Op


def rounding(numbers: np.ndarray, op: str, accumulate: DType, total, count: int) -> tuple[np.ndarray, np.ndarray]:
    """``(error, free)`` of a sum or product of float64 ``numbers`` that is computed in ``accumulate`` in any order: as
    a factor of the sum of magnitudes (of the product), and where a part of it may leave the range of the type.
    ``total`` adds up an array of as many numbers."""
    finite = np.where(np.isfinite(numbers), np.abs(numbers), 0.0)
    bits = 53 if accumulate.size == 8 else 24
    if op == "add":
        sums = total(finite)
        exact = (finite == np.rint(finite)).all() and np.max(sums, initial=0) <= 2.0 ** (bits - 2)
        return np.where(exact, 0.0, (count + 4) * EPS[accumulate.name] * 2) * sums, sums >= LARGEST[accumulate.name] / 4
    with np.errstate(divide="ignore"):
        octaves = total(np.where(finite > 0, np.abs(np.log2(finite)), 0.0))
    exact = np.isin(finite, (0.0, 1.0)).all()
    return np.broadcast_to(
        np.float64(0.0 if exact else (count + 4) * EPS[accumulate.name] * 2), octaves.shape
    ), octaves > (1000 if accumulate.size == 8 else 100)


def _rounded(center, numbers, op: str, accumulate: DType, result: DType, total, count: int) -> Wanted:
    error, free = rounding(numbers, op, accumulate, total, count)
    with np.errstate(all="ignore"):
        return within(center, error if op == "add" else error * np.abs(center), result, free)


def reduced(x: np.ndarray, op: Op, accumulate: DType, result: DType, options: dict) -> Wanted:
    """What a reduction must give."""
    axis, keepdims, init, mapped = (
        options.get("axis"),
        options.get("keepdims", False),
        options.get("init"),
        options.get("transform"),
    )
    axes = (
        tuple(range(x.ndim))
        if axis is None
        else tuple(a % x.ndim for a in (axis if isinstance(axis, tuple) else (axis,)))
    )
    count = math.prod(x.shape[a] for a in axes)
    shape = tuple(1 if a in axes else n for a, n in enumerate(x.shape) if keepdims or a not in axes)
    if math.prod(shape) == 0:
        return exactly(np.zeros(shape, result.numpy))
    if count == 0 and init is None:
        init = (
            options.get("identity")
            if not op.named
            else {"min": None, "max": None}.get(op.name, _identity(op.name, accumulate))
        )
        if init is None:
            raise Undefined
    with np.errstate(all="ignore"):
        numbers = x.astype(accumulate.numpy)
        numbers = numbers if mapped is None else np.asarray(mapped(numbers)).astype(accumulate.numpy)
        if not op.named:
            rows = np.transpose(numbers, [*(a for a in range(x.ndim) if a not in axes), *sorted(axes)]).reshape(
                math.prod(shape), count
            )
            start = [] if init is None else [np.full((len(rows), 1), init, rows.dtype)]
            return exactly(
                cases.fold(lambda a, b: np.asarray(op.given(a, b)), np.concatenate([*start, rows], -1))
                .reshape(shape)
                .astype(result.numpy)
            )
        if op.name not in ("add", "mul") or accumulate.kind != "f":
            return exactly(
                reference.reduce(numbers, op.name, axis=axes, keepdims=keepdims, init=init)
                .astype(result.numpy)
                .reshape(shape)
            )
        numbers = numbers.astype(np.float64)
        center = reference.reduce(numbers, op.name, axis=axes, keepdims=keepdims, init=init)
        start = None if init is None or not math.isfinite(init) else abs(init) if op.name == "add" else 0.0
        return _rounded(
            center,
            numbers,
            op.name,
            accumulate,
            result,
            lambda v: np.asarray(reference.reduce(v, "add", axis=axes, keepdims=keepdims, init=start)),
            count,
        )


def _identity(name: str, accumulate: DType):
    return {"mul": 1, "all": 1, "and": {"b": 1, "i": -1}.get(accumulate.kind, 2 ** (8 * accumulate.size) - 1)}.get(
        name, 0
    )


def placed(name: str, x: np.ndarray, options: dict) -> Wanted:
    """The index of the least or greatest."""
    axis = options["axis"]
    kept = [n for a, n in enumerate(x.shape) if axis is not None and a != axis % x.ndim]
    if x.size == 0 and math.prod(kept):
        raise Undefined
    x = x.astype(np.float32) if x.dtype.name == "bfloat16" else x
    if x.size == 0:
        shape = (
            tuple(1 if axis is None or a == axis % x.ndim else n for a, n in enumerate(x.shape))
            if options["keepdims"]
            else tuple(kept)
        )
        return exactly(np.zeros(shape, np.int64))
    return exactly(np.asarray(getattr(reference, name)(x, **options), INT64.numpy))


def scanned(x: np.ndarray, op: Op, result: DType, options: dict) -> Wanted:
    """What a scan must give."""
    axis, exclusive, reverse, init = (
        options["axis"],
        options.get("exclusive", False),
        options.get("reverse", False),
        options.get("init"),
    )
    accumulate = result.accumulator
    if exclusive and init is None:
        init = (
            options.get("identity")
            if not op.named
            else {"min": None, "max": None}.get(op.name, _identity(op.name, accumulate))
        )
        if init is None:
            raise Undefined
    ways = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
    with np.errstate(all="ignore"):
        numbers = x.astype(accumulate.numpy)
        if numbers.size == 0:
            return exactly(np.zeros((0,) if axis is None else x.shape, result.numpy))
        if not op.named or op.name not in ("add", "mul") or accumulate.kind != "f":
            return exactly(cases.running(numbers, op.given, init=init, **ways).astype(result.numpy))
        numbers = numbers.astype(np.float64)
        center = cases.running(numbers, op.name, init=init, **ways)
        start = None if init is None or not math.isfinite(init) else abs(init) if op.name == "add" else 0.0
        count = x.size if axis is None else x.shape[axis]
        return _rounded(
            center, numbers, op.name, accumulate, result, lambda v: cases.running(v, "add", init=start, **ways), count
        )
