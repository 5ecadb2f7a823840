"""How a kernel reads arrays of any strides: which of them have their coordinates in common, and along which axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ..runtime.call import Views
from ..runtime.kernel import Scalar
from ..runtime.layout import Axis, axes_of, merged
from .axes import NUMBER_BITS, numbers, parameters


@dataclass(frozen=True)
class Layout:
    """What a kernel knows of strided arrays: of each group of arrays, their numbers and how many axes they have.
    ``wide``: positions are counted in 64 bits. ``name`` begins the names of its parameters."""

    groups: tuple[tuple[tuple[int, ...], int], ...]
    wide: bool
    name: str = "axis"

    @property
    def parameters(self) -> list[Scalar]:
        """The parameters of a kernel."""
        return [p for g, (arrays, rank) in enumerate(self.groups) for p in self.of_group(g, rank, len(arrays))]

    def of_group(self, g: int, rank: int, arrays: int) -> tuple[Scalar, ...]:
        return parameters(f"{self.name}{g}_", rank, arrays, self.wide)


class Strided(NamedTuple):
    """A layout, and the axes of each of its groups, outermost first."""

    layout: Layout
    axes: tuple[tuple[Axis, ...], ...]

    @property
    def values(self) -> dict[str, int]:
        """The values of the layout's parameters, by name."""
        found: list[int] = []
        for (arrays, rank), axes in zip(self.layout.groups, self.axes):
            found += numbers(axes, rank, len(arrays), self.layout.wide)
        return dict(zip((p.name for p in self.layout.parameters), found, strict=True))


def strided(views: Views, always: bool = False, name: str = "axis") -> Strided | None:
    """Return the layout of arrays whose elements are counted in C order; None if all of them are contiguous, or have no
    elements, unless ``always``. Arrays of one shape are one group, so that their coordinates are found once."""
    if not always and all(view.contiguous or view.size == 0 for view in views):
        return None
    shapes: dict[tuple[int, ...], list[int]] = {}
    for i, view in enumerate(views):
        shapes.setdefault(view.shape, []).append(i)
    groups, found = [], []
    for shape, arrays in shapes.items():
        axes = merged(axes_of(shape, *(views[i].steps for i in arrays))) or [Axis(1, (0,) * len(arrays))]
        groups.append((tuple(arrays), len(axes)))
        found.append(tuple(axes))
    wide = max((view.size for view in views), default=0) >= 1 << NUMBER_BITS
    return Strided(Layout(tuple(groups), wide, name), tuple(found))
