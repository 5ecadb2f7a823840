"""Random reductions, scans, flags and differences, and what NumPy makes of the same arguments."""

from __future__ import annotations

import numpy as np

import cutesync as cs
from cutesync import reference
from cutesync.dtypes import BOOL, DType, sum_dtype

from .draw import Case, Dice
from .judge import Wanted, exactly
from .meaning import placed, reduced, scanned
from .operators import NAMED, Op, difference_operator, elements, fold_operator, pair_operator, transform
from .values import KINDS, NUMBERS, convertible, number, pick, values

ATOMIC = ("add", "min", "max", "and", "or", "xor")


def axis_of(dice: Dice, axes: int, code: int, tuples: bool = True):
    """None, an axis or several, as a number of the theme says."""
    choices = [None, *range(-axes, axes)]
    if tuples and axes > 1:
        choices += [(0, axes - 1), tuple(range(axes)), (axes - 2, axes - 1), (-1, 0)]
    return choices[code % len(choices)]


def _of_name(name: str) -> Op:
    return Op(name, name)


def reduction(dice: Dice) -> Case:
    """``cs.reduce``."""
    theme, rng = dice.theme, dice.rng
    source = pick(theme, NUMBERS)
    result = pick(theme, NUMBERS) if theme.random() < 0.35 else source
    logical = theme.random() < 0.1
    op = _of_name(pick(theme, ("any", "all"))) if logical else fold_operator(theme, result.accumulator, source)
    result = BOOL if logical else result
    accumulate = source.accumulator if logical else result.accumulator
    mapped = transform(theme, accumulate) if theme.random() < 0.2 and op.make is None else None
    has_init = theme.random() < 0.3 and op.make is None
    shapes, codes = dice.shapes((0, 1, 1, 1, 2, 2, 3, 4)), theme.integers(0, 12, 2)
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
    if axis is None and (
        algorithm == "multi_launch"
        or (algorithm == "atomic" and op.named and op.name in ATOMIC and result.kind in "iu" and result.size >= 4)
    ):
        options["algorithm"] = algorithm
    exact = not op.named and op.name not in ("first", "last")
    made = _maker(op, source, accumulate, "exact" if exact and accumulate.kind == "f" else None, axis, extents)
    return Case(
        "cs.reduce",
        cs.reduce,
        made(rng),
        options,
        lambda inputs: (reduced(inputs["x"], op, accumulate, result, options),),
        made,
        {"x": (dice.offset(), None)},
        pick(rng, ("none", "none", "given")),
    )


def _maker(op: Op, source: DType, accumulate: DType, kind: str | None, axis, extents):
    def made(rng) -> dict[str, np.ndarray]:
        chosen = kind or pick(rng, KINDS)
        name = op.name if op.named else "add"
        return {
            "x": elements(
                op,
                rng,
                extents,
                axis,
                lambda: convertible(values(rng, extents, source, chosen, name), source, accumulate),
            )
        }

    return made


def named_reduction(dice: Dice) -> Case:
    """sum, prod, min, max, any, all, argmin, argmax."""
    theme, rng = dice.theme, dice.rng
    name, source = (
        pick(theme, ("sum", "sum", "prod", "min", "max", "any", "all", "argmin", "argmax", "argmin", "argmax")),
        pick(theme, NUMBERS),
    )
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
        return (
            placed(name, inputs["x"], options)
            if name.startswith("arg")
            else reduced(inputs["x"], op, accumulate, result, options),
        )

    return Case(
        f"cs.{name}",
        getattr(cs, name),
        made(rng),
        options,
        wanted,
        made,
        {"x": (dice.offset(), None)},
        pick(rng, ("none", "given")),
    )


def scan(dice: Dice) -> Case:
    """``cs.scan``, ``cs.cumsum`` and ``cs.cumprod``."""
    theme, rng = dice.theme, dice.rng
    source = pick(theme, NUMBERS)
    result = pick(theme, NUMBERS) if theme.random() < 0.3 else source
    named = pick(theme, ("cumsum", "cumprod")) if theme.random() < 0.2 else None
    op = (
        Op(*{"cumsum": ("add", "add"), "cumprod": ("mul", "mul")}[named])
        if named
        else fold_operator(theme, result.accumulator, source, NAMED)
    )
    if named:
        result = sum_dtype(source) if result is source else result
    exclusive, reverse, has_init = (
        theme.random() < 0.35,
        theme.random() < 0.35,
        theme.random() < 0.3 and op.make is None,
    )
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
    made = _maker(
        op, source, result.accumulator, "exact" if exact else None, None if axis is None else int(axis), extents
    )
    outs = ("none", "given", "in place") if result is source and axis is not None else ("none", "given")
    name = named or "scan"
    of_array = result if result.kind == "f" or (has_init and _fits(options.get("init"), result)) else None
    return Case(
        f"cs.{name}",
        getattr(cs, name),
        made(rng),
        options,
        lambda inputs: (scanned(inputs["x"], op, result, options),),
        made,
        {"x": (dice.offset(), None)},
        pick(rng, outs),
        init_of=of_array if has_init and not named else None,
    )


def _fits(value, element: DType) -> bool:
    return value is not None and np.asarray(value).astype(element.numpy) == value


def flags(dice: Dice) -> Case:
    """flag_heads, flag_tails, flag_heads_and_tails."""
    theme, rng = dice.theme, dice.rng
    name, source = pick(theme, ("flag_heads", "flag_tails", "flag_heads_and_tails")), pick(theme, NUMBERS)
    op, wanted_type = (
        pair_operator(theme, source),
        pick(theme, ("uint8", "bits", "bits", "bool", "int32", "int64", "uint16", "int8")),
    )
    ends = [
        end
        for end in {"flag_heads": ("predecessor",), "flag_tails": ("successor",)}.get(
            name, ("predecessor", "successor")
        )
        if theme.random() < 0.4
    ]
    tile, shapes = pick(theme, (None, None, 1, 2, 3, 31, 32, 33, 100, 256, 1000)), dice.shapes((1, 1, 1, 2, 2, 3))
    extents = dice.shape(shapes)
    options = {"op": op, "dtype": wanted_type} | {
        end: pick(rng, (number(rng, source), 0.1)) if source.kind == "f" else number(rng, source) for end in ends
    }
    if tile is not None:
        options["tile"] = tile

    def made(rng) -> dict[str, np.ndarray]:
        return {"x": values(rng, extents, source, pick(rng, ("runs", "runs", "special", "wide")))}

    def wanted(inputs) -> tuple[Wanted, ...]:
        with np.errstate(all="ignore"):
            found = getattr(reference, name)(inputs["x"], **options)
        return tuple(map(exactly, found if isinstance(found, tuple) else (found,)))

    return Case(
        f"cs.{name}",
        getattr(cs, name),
        made(rng),
        options,
        wanted,
        made,
        {"x": (dice.offset(), None)},
        pick(rng, ("none", "given")),
    )


def difference(dice: Dice) -> Case:
    """adjacent_difference."""
    theme, rng = dice.theme, dice.rng
    source = pick(theme, NUMBERS)
    op, reverse, shapes = (
        difference_operator(theme, source),
        bool(theme.random() < 0.4),
        dice.shapes((1, 1, 1, 2, 2, 3)),
    )
    options, extents = {"op": op, "reverse": reverse}, dice.shape(shapes)
    kinds = (
        ("exact",) if callable(op) else KINDS
    )  # a multiplication and an addition may become one instruction, which rounds once

    def made(rng) -> dict[str, np.ndarray]:
        return {"x": values(rng, extents, source, pick(rng, kinds))}

    def wanted(inputs) -> tuple[Wanted]:
        with np.errstate(all="ignore"):
            return (exactly(reference.adjacent_difference(inputs["x"], **options)),)

    return Case(
        "cs.adjacent_difference",
        cs.adjacent_difference,
        made(rng),
        options,
        wanted,
        made,
        {"x": (dice.offset(), None)},
        pick(rng, ("none", "given")),
    )
