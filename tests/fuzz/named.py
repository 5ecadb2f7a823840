"""Random calls of the operators with names of their own, against the reference: mean, var, cummax and others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import cutesync as cs
from cutesync import reference
from cutesync.dtypes import BY_NAME, DType

from .draw import Case, Dice, Undefined
from .families import axis_of
from .judge import EPS, Wanted, exactly, within
from .values import KINDS, NUMBERS, pick, values

FLOATING = ("mean", "var", "std", "var_mean", "logsumexp")
MOMENTS = ("var", "std", "var_mean")
REDUCTIONS = (*FLOATING, "count_nonzero", "minmax")
SCANS = ("cummax", "cummin", "ffill", "linear_recurrence", "linear_recurrence")
MOST = {"reduce": 400_000, "scan": 30_000}  # elements: the reference scans one by one
FLOAT64 = BY_NAME["float64"]


def reduction(dice: Dice) -> Case:
    """mean, var, std, var_mean, logsumexp, count_nonzero, minmax."""
    theme, rng = dice.theme, dice.rng
    name, source = pick(theme, REDUCTIONS), pick(theme, NUMBERS)
    extents = dice.shape(dice.shapes((0, 1, 1, 2, 2, 3, 4), most=min(MOST["reduce"], dice.place.most)))
    codes = theme.integers(0, 12, 2)
    options = {"axis": axis_of(dice, len(extents), int(pick(rng, codes))), "keepdims": bool(rng.integers(2))}
    result = source if source.kind == "f" else FLOAT64
    if name not in ("logsumexp", "count_nonzero", "minmax") and theme.random() < 0.3:
        result = pick(theme, [t for t in NUMBERS if t.kind == "f"])
        options["dtype"] = result.name
    if name in MOMENTS:
        options["ddof"] = pick(rng, (0, 0, 1, 0.5))

    def made(rng) -> dict[str, np.ndarray]:
        x = values(rng, extents, source, pick(rng, KINDS))
        if name in MOMENTS and x.dtype.kind in "iu" and x.itemsize == 8:
            x >>= 8  # the squares of all differences are within float64's precision
        return {"x": x}

    def wanted(inputs) -> tuple[Wanted, ...]:
        x = inputs["x"]
        if name == "var_mean":
            return _var_mean(x, result, options)
        if name in FLOATING:
            return (_rounded(name, x, result, options),)
        if name == "count_nonzero":
            return (exactly(reference.count_nonzero(x, **options)),)
        if math.prod(_kept(x.shape, options)) and not x.size:
            raise Undefined
        if not x.size:
            return (exactly(np.zeros(_kept(x.shape, options, options["keepdims"]), x.dtype)),) * 2
        return tuple(map(exactly, reference.minmax(x, **options)))

    return _case(dice, name, made, options, wanted, ("none", "given"))


def _kept(shape: tuple[int, ...], options: dict, ones: bool = False) -> tuple[int, ...]:
    axis = options["axis"]
    axes = range(len(shape)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    gone = {range(len(shape))[a] for a in axes}
    return tuple(1 if a in gone else n for a, n in enumerate(shape) if ones or a not in gone)


def _rounded(name: str, x: np.ndarray, result: DType, options: dict) -> Wanted:
    """NumPy's answer in float64, and as far from it as a sum of so many roundings may be."""
    axis, keepdims = options["axis"], options["keepdims"]
    eps = EPS[result.accumulator.name]
    wide = x.astype(np.float64)
    count = math.prod(x.shape) // max(math.prod(_kept(x.shape, options)), 1)
    relative = 4 * (count + 16) * eps
    how = {"axis": axis, "keepdims": keepdims}
    with np.errstate(all="ignore"):
        center = getattr(reference, name)(wide, **{k: v for k, v in options.items() if k != "dtype"})
        finite = np.where(np.isfinite(wide), np.abs(wide), 0.0)
        if name == "logsumexp":  # the reference rounds once an element
            largest = np.max(wide, axis=axis, keepdims=True, initial=-np.inf)
            total = np.log(np.sum(np.exp(wide - largest), **how)) + largest.reshape(np.shape(center))
            center = np.where(np.isfinite(total), total, center)
            return within(center, relative + 8 * eps * np.abs(center), result)
        mean = np.sum(finite, **how) / max(count, 1)
        if name == "mean":
            return within(center, relative * mean, result, _huge(np.sum(finite, **how), result))
        freedom = max(count - options["ddof"], 1e-300) / max(count, 1)
        square = np.sum(finite * finite, **how) / max(count, 1)
        variance = center if name == "var" else center * center * np.sign(center)
        error = (relative * (variance + np.sqrt(np.abs(variance) * square)) + relative**2 * square) / min(freedom, 1)
        if name == "std":
            error = np.minimum(np.sqrt(error), error / np.maximum(np.abs(center), 1e-300)) + 4 * eps * center
        return within(center, error, result, _huge(np.sum(finite * finite, **how), result))


def _var_mean(x: np.ndarray, result: DType, options: dict) -> tuple[Wanted, Wanted]:
    """The mean is NaN where an element is not finite, and free where the variance is."""
    var = _rounded("var", x, result, options)
    mean = _rounded("mean", x, result, {key: value for key, value in options.items() if key != "ddof"})
    finite = np.isfinite(x.astype(np.float64)).all(axis=options["axis"], keepdims=options["keepdims"])
    low, high = (np.where(finite, end, np.asarray(np.nan, end.dtype)) for end in (mean.low, mean.high))
    return var, Wanted(low, high, var.free)


def _huge(total: np.ndarray, result: DType) -> np.ndarray:
    """Where a sum on the way may leave the range of the type."""
    return np.asarray(total >= (1e307 if result.accumulator is FLOAT64 else 1e37))


def scan(dice: Dice) -> Case:
    """cummax, cummin, ffill, linear_recurrence."""
    theme, rng = dice.theme, dice.rng
    name = pick(theme, SCANS)
    source = pick(theme, [t for t in NUMBERS if name != "linear_recurrence" or t.kind != "b"])
    second = pick(theme, [t for t in NUMBERS if t.kind == "f"]) if source.kind == "f" else source
    extents = dice.shape(dice.shapes((1, 1, 1, 2, 2, 3), most=min(MOST["scan"], dice.place.most)))
    options: dict[str, Any] = {"axis": axis_of(dice, len(extents), int(pick(rng, theme.integers(0, 12, 2))), False)}
    if name in ("ffill", "linear_recurrence"):
        options["reverse"] = bool(theme.random() < 0.4)
    if name == "linear_recurrence" and theme.random() < 0.4:
        options["init"] = pick(rng, (1, 3) if source.kind == "u" else (1, -2))

    def made(rng) -> dict[str, np.ndarray]:
        if name != "linear_recurrence":
            return {"x": values(rng, extents, source, pick(rng, KINDS))}
        if source.kind in "iu":
            return {key: values(rng, extents, source, "wide") for key in "ab"}
        a = rng.choice([-1.0, 1.0, 1.0, 0.0], extents).astype(source.numpy)  # sums of small numbers: exact
        return {"a": a, "b": rng.integers(-3, 4, extents).astype(second.numpy)}

    def wanted(inputs) -> tuple[Wanted, ...]:
        with np.errstate(all="ignore"):
            found = getattr(reference, name)(**inputs, **options)
        return tuple(map(exactly, found if isinstance(found, tuple) else (found,)))

    in_place = name == "ffill" and options["axis"] is not None
    return _case(dice, name, made, options, wanted, ("none", "given", *(("in place",) if in_place else ())))


def _case(dice: Dice, name: str, made: Callable, options: dict, wanted: Callable, outs: tuple[str, ...]) -> Case:
    inputs = made(dice.rng)
    layouts = {key: (dice.offset(), None) for key in inputs}
    return Case(f"cs.{name}", getattr(cs, name), inputs, options, wanted, made, layouts, pick(dice.rng, outs))
