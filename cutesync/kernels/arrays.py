"""Several arrays that a kernel addresses together, as one pointer. Device code.

``Arrays`` points to one position of each of its arrays: ``a + n`` points ``n`` positions further on in all of them. The
last member may be a number in place of a pointer: the index of the position in its row.
"""

from __future__ import annotations

from typing import Any

import cutlass
from cutlass import Int64


class Arrays:
    """Pointers to the same position of several arrays, and its index if ``indexed``."""

    def __init__(self, members, indexed: bool = False) -> None:
        self.members, self.indexed = tuple(members), indexed

    def __add__(self, offset) -> Arrays:
        return Arrays((member + offset for member in self.members), self.indexed)

    def __sub__(self, offset) -> Arrays:
        return Arrays((member - offset for member in self.members), self.indexed)

    def __extract_mlir_values__(self) -> list:
        return [value for member in self.members for value in cutlass.extract_mlir_values(member)]

    def __new_from_mlir_values__(self, values) -> Arrays:
        members, values = [], list(values)
        for member in self.members:
            count = len(cutlass.extract_mlir_values(member))
            members.append(cutlass.new_from_mlir_values(member, values[:count]))
            values = values[count:]
        return Arrays(members, self.indexed)


def together(pointers, indexed: bool = False) -> Any:
    """Return one pointer to all of ``pointers``: the pointer itself if it is the only one. With ``indexed`` they point
    to index 0."""
    if not isinstance(pointers, tuple):
        pointers = (pointers,)
    if len(pointers) == 1 and not indexed:
        return pointers[0]
    return Arrays((*pointers, Int64(0)) if indexed else pointers, indexed)


def pointers_of(place) -> tuple:
    """Return the pointers of a place."""
    if not isinstance(place, Arrays):
        return (place,)
    return place.members[:-1] if place.indexed else place.members


def index_of(place) -> Any:
    """Return the index of a place; None if it has none."""
    return place.members[-1] if isinstance(place, Arrays) and place.indexed else None


def at_index(place, index) -> Any:
    """Return the same place with another index, if it has one. ``index`` may be a place with an index."""
    if not (isinstance(place, Arrays) and place.indexed):
        return place
    return Arrays((*place.members[:-1], index.members[-1] if isinstance(index, Arrays) else Int64(index)), True)
