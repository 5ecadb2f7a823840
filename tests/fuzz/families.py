"""Random reductions, scans, flags and differences, and what NumPy makes of the same arguments."""

from __future__ import annotations

import math

import numpy as np

import cutesync as cs
from cutesync import reference
from cutesync.dtypes import BOOL, INT64, DType, sum_dtype

from .. import cases
from .draw import Case, Dice, Undefined
from .judge import EPS, LARGEST, Wanted, exactly, within
from .operators import NAMED, Op, difference_operator, elements, fold_operator, pair_operator, transform
from .values import KINDS, NUMBERS, convertible, number, pick, values

ATOMIC = ("add", "min", "max", "and", "or", "xor")


def rounding(numbers: np.ndarray, op: str, accumulate: DType, total, count: int) -> tuple[np.ndarray, np.ndarray]:
    """``(error, free)`` of a sum or product of float64 ``numbers`` that is computed in ``accumulate`` in any order: as a factor of the sum of magnitudes
    (of the product), and where a part of it may leave the range of the type. ``total`` adds up an array of as many numbers."""
    finite = np.where(np.isfinite(numbers), np.abs(numbers), 0.0)
    bits = 53 if accumulate.size == 8 else 24
    if op == "add":
        sums = total(finite)
        exact = (finite == np.rint(finite)).all() and np.max(sums, initial=0) <= 2.0 ** (bits - 2)
        return np.where(exact, 0.0, (count + 4) * EPS[accumulate.name] * 2) * sums, sums >= LARGEST[accumulate.name] / 4
    with np.errstate(divide="ignore"):
        octaves = total(np.where(finite > 0, np.abs(np.log2(finite)), 0.0))
    exact = np.isin(finite, (0.0, 1.0)).all()
    return np.broadcast_to(np.float64(0.0 if exact else (count + 4) * EPS[accumulate.name] * 2), octaves.shape), octaves > (1000 if accumulate.size == 8 else 100)


def _rounded(center, numbers, op: str, accumulate: DType, result: DType, total, count: int) -> Wanted:
    error, free = rounding(numbers, op, accumulate, total, count)
    with np.errstate(all="ignore"):
        return within(center, error if op == "add" else error * np.abs(center), result, free)


def axis_of(dice: Dice, axes: int, code: int, tuples: bool = True):
    """None, an axis or several, as a number of the theme says."""
    choices = [None, *range(-axes, axes)]
    if tuples and axes > 1:
        choices += [(0, axes - 1), tuple(range(axes)), (axes - 2, axes - 1), (-1, 0)]
    return choices[code % len(choices)]


def reduction(dice: Dice) -> Case:
    """``cs.reduce``."""
    theme, rng = dice.theme, dice.rng
    source = pick(theme, NUMBERS)
    result = pick(theme, NUMBERS) if theme.random() < 0.35 else source
    op = Op("any", "any") if theme.random() < 0.05 else Op("all", "all") if theme.random() < 0.05 else fold_operator(theme, result.accumulator, source)
    logical = op.name in ("any", "all")
    result = BOOL if logical else result
    accumulate = source.accumulator if logical else result.accumulator
    mapped = transform(theme, accumulate) if theme.random() < 0.2 and op.make is None else None
    has_init, shapes, codes = theme.random() < 0.3 and op.make is None, dice.shapes((0, 1, 1, 1, 2, 2, 3, 4)), theme.integers(0, 12, 2)
    algorithm = pick(theme, ("multi_launch", "atomic")) if theme.random() < 0.12 else "auto"
    extents = dice.shape(shapes)
    axis, keepdims = axis_of(dice, len(extents), int(pick(rng, codes))), bool(rng.integers(2))
    options = {"op": op.given, "axis": axis, "keepdims": keepdims}
    if not logical and result is not source:
        options["dtype"] = pick(rng, (result.name, result.numpy))
    if mapped is not None:
        options["transform"] = mapped
    if has_init:
        options["init"] = number(rng, accumulate)
    if op.identity is not None and rng.random() < 0.7:
        options["identity"] = op.identity
    if axis is None and (algorithm == "multi_launch" or (algorithm == "atomic" and op.named and op.name in ATOMIC and result.kind in "iu" and result.size >= 4)):
        options["algorithm"] = algorithm
    exact = not op.named and op.name not in ("first", "last")
    made = _maker(op, source, accumulate, "exact" if exact and accumulate.kind == "f" else None, axis, extents)
    return Case("cs.reduce", cs.reduce, made(rng), options, lambda inputs: (reduced(inputs["x"], op, accumulate, result, options),), made,
                {"x": (dice.offset(), None)}, pick(rng, ("none", "none", "given")))  # fmt: skip


def _maker(op: Op, source: DType, accumulate: DType, kind: str | None, axis, extents):
    def made(rng) -> dict[str, np.ndarray]:
        chosen = kind or pick(rng, KINDS)
        name = op.name if op.named else "add"
        return {"x": elements(op, rng, extents, axis, lambda: convertible(values(rng, extents, source, chosen, name), source, accumulate))}

    return made


def reduced(x: np.ndarray, op: Op, accumulate: DType, result: DType, options: dict) -> Wanted:
    """What a reduction must give."""
    axis, keepdims, init, mapped = options.get("axis"), options.get("keepdims", False), options.get("init"), options.get("transform")
    axes = tuple(range(x.ndim)) if axis is None else tuple(a % x.ndim for a in (axis if isinstance(axis, tuple) else (axis,)))
    count = math.prod(x.shape[a] for a in axes)
    shape = tuple(1 if a in axes else n for a, n in enumerate(x.shape) if keepdims or a not in axes)
    if math.prod(shape) == 0:
        return exactly(np.zeros(shape, result.numpy))
    if count == 0 and init is None:
        init = options.get("identity") if not op.named else {"min": None, "max": None}.get(op.name, _identity(op.name, accumulate))
        if init is None:
            raise Undefined
    with np.errstate(all="ignore"):
        numbers = x.astype(accumulate.numpy)
        numbers = numbers if mapped is None else np.asarray(mapped(numbers)).astype(accumulate.numpy)
        if not op.named:
            rows = np.transpose(numbers, [*(a for a in range(x.ndim) if a not in axes), *sorted(axes)]).reshape(math.prod(shape), count)
            start = [] if init is None else [np.full((len(rows), 1), init, rows.dtype)]
            return exactly(cases.fold(lambda a, b: np.asarray(op.given(a, b)), np.concatenate([*start, rows], -1)).reshape(shape).astype(result.numpy))
        if op.name not in ("add", "mul") or accumulate.kind != "f":
            return exactly(reference.reduce(numbers, op.name, axis=axes, keepdims=keepdims, init=init).astype(result.numpy).reshape(shape))
        numbers = numbers.astype(np.float64)
        center = reference.reduce(numbers, op.name, axis=axes, keepdims=keepdims, init=init)
        start = None if init is None or not math.isfinite(init) else abs(init) if op.name == "add" else 0.0
        return _rounded(center, numbers, op.name, accumulate, result, lambda v: np.asarray(reference.reduce(v, "add", axis=axes, keepdims=keepdims, init=start)), count)


def _identity(name: str, accumulate: DType):
    return {"mul": 1, "all": 1, "and": {"b": 1, "i": -1}.get(accumulate.kind, 2 ** (8 * accumulate.size) - 1)}.get(name, 0)


def named_reduction(dice: Dice) -> Case:
    """sum, prod, min, max, any, all, argmin, argmax."""
    theme, rng = dice.theme, dice.rng
    name, source = pick(theme, ("sum", "sum", "prod", "min", "max", "any", "all", "argmin", "argmax", "argmin", "argmax")), pick(theme, NUMBERS)
    wider, shapes, codes = theme.random() < 0.3, dice.shapes((0, 1, 1, 2, 2, 3, 4)), theme.integers(0, 12, 2)
    op = Op({"sum": "add", "prod": "mul"}.get(name, name), {"sum": "add", "prod": "mul"}.get(name, name))
    result = BOOL if name in ("any", "all") else sum_dtype(source) if name in ("sum", "prod") else source
    accumulate = source.accumulator if name in ("any", "all") else result.accumulator
    extents = dice.shape(shapes)
    axis = axis_of(dice, len(extents), int(pick(rng, codes)), tuples=not name.startswith("arg"))
    options = {"axis": axis, "keepdims": bool(rng.integers(2))}
    if wider and name in ("sum", "prod"):
        result = pick(theme, NUMBERS)
        accumulate, options["dtype"] = result.accumulator, result.name
    made = _maker(op, source, accumulate, None, axis, extents)

    def wanted(inputs) -> tuple[Wanted]:
        return (placed(name, inputs["x"], options) if name.startswith("arg") else reduced(inputs["x"], op, accumulate, result, options),)

    return Case(f"cs.{name}", getattr(cs, name), made(rng), options, wanted, made, {"x": (dice.offset(), None)}, pick(rng, ("none", "given")))


def placed(name: str, x: np.ndarray, options: dict) -> Wanted:
    """The index of the least or greatest."""
    axis = options["axis"]
    kept = [n for a, n in enumerate(x.shape) if axis is not None and a != axis % x.ndim]
    if x.size == 0 and math.prod(kept):
        raise Undefined
    x = x.astype(np.float32) if x.dtype.name == "bfloat16" else x
    if x.size == 0:
        shape = tuple(1 if axis is None or a == axis % x.ndim else n for a, n in enumerate(x.shape)) if options["keepdims"] else tuple(kept)
        return exactly(np.zeros(shape, np.int64))
    return exactly(np.asarray(getattr(reference, name)(x, **options), INT64.numpy))


def scan(dice: Dice) -> Case:
    """``cs.scan``, ``cs.cumsum`` and ``cs.cumprod``."""
    theme, rng = dice.theme, dice.rng
    source = pick(theme, NUMBERS)
    result = pick(theme, NUMBERS) if theme.random() < 0.3 else source
    named = pick(theme, ("cumsum", "cumprod")) if theme.random() < 0.2 else None
    op = Op(*{"cumsum": ("add", "add"), "cumprod": ("mul", "mul")}[named]) if named else fold_operator(theme, result.accumulator, source, NAMED)
    if named:
        result = sum_dtype(source) if result is source else result
    exclusive, reverse, has_init = theme.random() < 0.35, theme.random() < 0.35, theme.random() < 0.3 and op.make is None
    shapes, codes, tiered = dice.shapes((1, 1, 1, 2, 2, 3, 4)), theme.integers(0, 12, 2), theme.random() < 0.1
    extents = dice.shape(shapes)
    axis = axis_of(dice, len(extents), int(pick(rng, codes)), tuples=False)
    options = {"axis": axis}
    if result is not (sum_dtype(source) if named else source):
        options["dtype"] = result.name
    if not named:
        options |= {"op": op.given, "exclusive": exclusive, "reverse": reverse}
        if has_init:
            options["init"] = number(rng, result.accumulator)
        if op.identity is not None and rng.random() < 0.8:
            options["identity"] = op.identity
        if tiered and (axis is None or axis % len(extents) == len(extents) - 1):
            options["algorithm"] = "tiered"
    exact = not op.named and op.name not in ("first", "last") and result.kind == "f"
    made = _maker(op, source, result.accumulator, "exact" if exact else None, None if axis is None else int(axis), extents)
    outs = ("none", "given", "in place") if result is source and axis is not None else ("none", "given")
    name = named or "scan"
    of_array = result if result.kind == "f" or has_init and _fits(options.get("init"), result) else None
    return Case(f"cs.{name}", getattr(cs, name), made(rng), options, lambda inputs: (scanned(inputs["x"], op, result, options),), made,
                {"x": (dice.offset(), None)}, pick(rng, outs), init_of=of_array if has_init and not named else None)  # fmt: skip


def _fits(value, element: DType) -> bool:
    return value is not None and np.asarray(value).astype(element.numpy) == value


def scanned(x: np.ndarray, op: Op, result: DType, options: dict) -> Wanted:
    """What a scan must give."""
    axis, exclusive, reverse, init = options["axis"], options.get("exclusive", False), options.get("reverse", False), options.get("init")
    accumulate = result.accumulator
    if exclusive and init is None:
        init = options.get("identity") if not op.named else {"min": None, "max": None}.get(op.name, _identity(op.name, accumulate))
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
        return _rounded(center, numbers, op.name, accumulate, result, lambda v: cases.running(v, "add", init=start, **ways), count)


def flags(dice: Dice) -> Case:
    """flag_heads, flag_tails, flag_heads_and_tails."""
    theme, rng = dice.theme, dice.rng
    name, source = pick(theme, ("flag_heads", "flag_tails", "flag_heads_and_tails")), pick(theme, NUMBERS)
    op, wanted_type = pair_operator(theme, source), pick(theme, ("uint8", "bits", "bits", "bool", "int32", "int64", "uint16", "int8"))
    ends = [end for end in {"flag_heads": ("predecessor",), "flag_tails": ("successor",)}.get(name, ("predecessor", "successor")) if theme.random() < 0.4]
    tile, shapes = pick(theme, (None, None, 1, 2, 3, 31, 32, 33, 100, 256, 1000)), dice.shapes((1, 1, 1, 2, 2, 3))
    extents = dice.shape(shapes)
    options = {"op": op, "dtype": wanted_type} | {end: pick(rng, (number(rng, source), 0.1)) if source.kind == "f" else number(rng, source) for end in ends}
    if tile is not None:
        options["tile"] = tile

    def made(rng) -> dict[str, np.ndarray]:
        return {"x": values(rng, extents, source, pick(rng, ("runs", "runs", "special", "wide")))}

    def wanted(inputs) -> tuple[Wanted, ...]:
        with np.errstate(all="ignore"):
            found = getattr(reference, name)(inputs["x"], **options)
        return tuple(map(exactly, found if isinstance(found, tuple) else (found,)))

    return Case(f"cs.{name}", getattr(cs, name), made(rng), options, wanted, made, {"x": (dice.offset(), None)}, pick(rng, ("none", "given")))


def difference(dice: Dice) -> Case:
    """adjacent_difference."""
    theme, rng = dice.theme, dice.rng
    source = pick(theme, NUMBERS)
    op, reverse, shapes = difference_operator(theme, source), bool(theme.random() < 0.4), dice.shapes((1, 1, 1, 2, 2, 3))
    options, extents = {"op": op, "reverse": reverse}, dice.shape(shapes)
    kinds = ("exact",) if callable(op) else KINDS  # a multiplication and an addition may become one instruction, which rounds once

    def made(rng) -> dict[str, np.ndarray]:
        return {"x": values(rng, extents, source, pick(rng, kinds))}

    def wanted(inputs) -> tuple[Wanted]:
        with np.errstate(all="ignore"):
            return (exactly(reference.adjacent_difference(inputs["x"], **options)),)

    return Case("cs.adjacent_difference", cs.adjacent_difference, made(rng), options, wanted, made, {"x": (dice.offset(), None)}, pick(rng, ("none", "given")))


