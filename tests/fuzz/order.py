"""Random calls of top-k and of counts, of arrays of any strides, against the reference."""

from __future__ import annotations

import numpy as np

import cutesync as cs
from cutesync import reference
from cutesync.dtypes import BY_NAME

from .draw import Case, Dice, Undefined
from .judge import Wanted, exactly, within
from .selections import steps_of
from .values import KINDS, NUMBERS, pick, values

FLOAT64 = BY_NAME["float64"]


def ordered(dice: Dice) -> Case:
    """One of this module's."""
    return pick(dice.theme, (top, top, bincount, histogram))(dice)


def top(dice: Dice) -> Case:
    """topk and argtopk."""
    theme, rng = dice.theme, dice.rng
    name, source = pick(theme, ("topk", "topk", "argtopk")), pick(theme, NUMBERS)
    largest, most = bool(theme.random() < 0.6), pick(theme, (3, 40, 3000))
    extents = dice.shape(dice.shapes((1, 1, 2, 2, 3)))
    axis = int(rng.integers(-len(extents), len(extents)))
    k = int(rng.integers(0, min(most, extents[axis]) + 1)) + int(rng.random() < 0.03)
    options = {"k": k, "axis": axis, "largest": largest}

    def made(rng) -> dict[str, np.ndarray]:
        return {"x": values(rng, extents, source, pick(rng, KINDS))}

    def wanted(inputs) -> tuple[Wanted, ...]:
        if k > extents[axis]:
            raise Undefined
        found = reference.topk(inputs["x"], k, axis, largest=largest)
        return tuple(map(exactly, found if name == "topk" else found[1:]))

    layouts = {"x": (dice.offset(), None)}
    return Case(
        f"cs.{name}", getattr(cs, name), made(rng), options, wanted, made, layouts, pick(rng, ("none", "given"))
    )


def bincount(dice: Dice) -> Case:
    """bincount, with weights or without."""
    theme, rng = dice.theme, dice.rng
    source = pick(theme, [dtype for dtype in NUMBERS if dtype.kind in "iu"])
    weights = pick(theme, (None, *NUMBERS))
    (length,) = dice.vector(dice.shapes((1,)))
    options = {"length": int(rng.integers(0, pick(theme, (3, 70, 3000))))}
    few = bool(rng.random() < 0.7)

    def made(rng) -> dict[str, np.ndarray]:
        x = values(rng, (length,), source, "wide")
        found = {"x": (np.abs(x) % 50).astype(x.dtype) if few else x}
        return found | ({} if weights is None else {"weights": values(rng, (length,), weights, pick(rng, KINDS))})

    def wanted(inputs) -> tuple[Wanted, ...]:
        return (exactly(reference.bincount(**inputs, **options)),)

    layouts = {name: (dice.offset(), (int(rng.integers(1, 4)),)) for name in ("x", "weights")}
    return Case("cs.bincount", cs.bincount, made(rng), options, wanted, made, layouts | {"out": (0, None)})


def histogram(dice: Dice) -> Case:
    """histogram: edges or a range, weights or none, densities."""
    theme, rng = dice.theme, dice.rng
    source, weights = pick(theme, NUMBERS), pick(theme, (None, *(dtype for dtype in NUMBERS if dtype.size > 2)))
    extents, density = dice.shape(dice.shapes((0, 1, 2, 3))), bool(theme.random() < 0.3)
    order, step = theme.permutation(3), int(theme.integers(1, 3))
    options = pick(
        theme, ({"bins": 7, "range": (-2, 3)}, {"bins": [-4.5, -1, 0, 0, 1.5, 60]}, {"bins": 1, "range": (0, 9)})
    )
    options |= {"density": density}

    def made(rng) -> dict[str, np.ndarray]:
        found = {"x": values(rng, extents, source, pick(rng, KINDS))}
        return found | ({} if weights is None else {"weights": values(rng, extents, weights, "exact")})

    def wanted(inputs) -> tuple[Wanted, ...]:
        found, edges = reference.histogram(**inputs, **options)
        if not density:
            return exactly(found), exactly(edges)
        with np.errstate(invalid="ignore"):
            parts = np.nansum(np.abs(found * np.diff(edges)))  # large where weights cancel
        return within(found, 1e-14 * np.abs(found) * parts, FLOAT64), exactly(edges)

    layouts = {name: (dice.offset(), steps_of(extents, order, step)) for name in ("x", "weights")}
    return Case("cs.histogram", cs.histogram, made(rng), options, wanted, made, layouts | {"out": (0, None)})
