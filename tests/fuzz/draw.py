"""From an integer to a call: ``draw(seed, place)`` is one random public call, its arguments and what must come out.

``PLACE.calls`` seeds in turn share a theme, which decides what machine code depends on: the family, operator, types and
a few shapes. So a process that plays neighbouring seeds compiles few kernels, calls each with other values, and meets
the plans of the calls before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cutesync.dtypes import DType

from .judge import Wanted
from .values import extent, pick, shape


@dataclass(frozen=True)
class Place:
    """Sizes for a machine: ``most`` elements of an array, ``side`` of a matrix, ``calls`` of a theme, ``shapes`` among
    which they choose."""

    name: str
    most: int
    side: int
    calls: int
    shapes: int

    def themes(self, seed: int, calls: int) -> list[range]:
        """The seeds from ``seed`` on, those of a theme together."""
        starts = [seed, *range(seed + self.calls - seed % self.calls, seed + calls, self.calls)]
        return [range(start, min(seed + calls, start + self.calls - start % self.calls)) for start in starts]


EMULATOR = Place("emulator", 1500, 40, 20, 2)
GPU = Place("gpu", 3_000_000, 900, 25, 6)


class Undefined(Exception):
    """The call has no answer: it must raise a typed error."""


@dataclass
class Case:
    """``function(**arrays, **options)``: its arrays by argument, as values and (element offset, strides or None), and
    ``wanted(inputs)``, which makes of any such values what must come out, one Wanted a result. ``fresh(rng)`` makes
    other values of the same shapes. ``out`` is "none", "given" or "in place". ``host``: results are NumPy's, whatever
    the library."""

    name: str
    function: Callable
    inputs: dict[str, np.ndarray]
    options: dict[str, Any]
    wanted: Callable[[dict[str, np.ndarray]], tuple[Wanted, ...]]
    fresh: Callable[[np.random.Generator], dict[str, np.ndarray]]
    layouts: dict[str, tuple] = field(default_factory=dict)
    out: str = "none"
    targets: tuple[str, ...] = ("x",)  # what a call in place writes over
    numpy_out: bool = True  # whether NumPy arrays may be given as out
    host: bool = False
    init_of: DType | None = None  # the scalar ``init`` may also be an array of one element of this type on the device
    repeats: bool = True  # the same bits in a second call
    captures: bool = True  # may go into a graph

    def __repr__(self) -> str:
        arrays = ", ".join(
            f"{name}={x.dtype}{list(x.shape)}{self.layouts.get(name, '')}" for name, x in self.inputs.items()
        )
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"{self.name}({arrays}{options}, out={self.out!r})"


class Dice:
    """What a family draws from: ``theme`` is the same for all calls of a theme, ``rng`` is the call's own."""

    def __init__(self, seed: int, place: Place) -> None:
        self.place = place
        self.theme = np.random.default_rng([seed // place.calls, 1])
        self.rng = np.random.default_rng([seed, 2])
        self._offsets = (0, pick(np.random.default_rng([seed // place.calls, 3]), (0, 1, 1, 2, 3, 5, 8)))

    def shapes(self, axes, least: int = 0, most: int = 0) -> list[tuple[int, ...]]:
        """The theme's: of as many axes as ``axes`` has numbers to choose from, with extents of at least ``least``, and
        of at most ``most`` elements (0: as many as the place allows)."""
        found = []
        while len(found) < self.place.shapes:
            made = shape(self.theme, pick(self.theme, axes), most or self.place.most)
            if min(made, default=least) >= least:
                found.append(made)
        return found

    def shape(self, shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
        """One of the theme's shapes, or one beside it."""
        found = list(pick(self.rng, shapes))
        if found and self.rng.random() < 0.4:
            axis = int(self.rng.integers(len(found)))
            found[axis] = max(0, found[axis] + int(self.rng.integers(-2, 3)))
        return tuple(found)

    def offset(self) -> int:
        """Elements past an aligned address, one of two in a theme."""
        return pick(self.rng, self._offsets)

    def vector(self, shapes: list[tuple[int, ...]]) -> tuple[int]:
        return (int(np.prod(self.shape(shapes), dtype=np.int64)),)

    def side(self, most: int | None = None) -> int:
        return extent(self.theme, most or self.place.side)


def draw(seed: int, place: Place) -> Case:
    """The call of this number; themes take the families in turn, the last two each second time."""
    from . import families, ladder, matrices, named, order, ranges, selections, states

    theme = seed // place.calls
    makers = (
        families.reduction,
        families.scan,
        matrices.product,
        families.flags,
        families.named_reduction,
        ladder.pattern,
        states.reduction,
        states.scan,
        matrices.product,
        families.difference,
        named.reduction,
        named.scan,
        order.ordered,
        None,
    )
    made = makers[theme % len(makers)] or (selections.selection, ranges.segments)[theme // len(makers) % 2]
    return made(Dice(seed, place))
