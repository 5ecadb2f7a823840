"""Random calls of top-k, against the reference."""

from __future__ import annotations

import numpy as np

import cutesync as cs
from cutesync import reference

from .draw import Case, Dice, Undefined
from .judge import Wanted, exactly
from .values import KINDS, NUMBERS, pick, values


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
