"""The results of a thread that flags an array without gaps. Device code."""

from __future__ import annotations

from typing import Any, NamedTuple


class Vector(NamedTuple):
    """Results side by side, which all count: the number of the first, its digits, and the places of all in their
    slices, of which there are two at most. ``limit``: the places of a slice that count; None if no row begins or ends
    at these, on a side that matters. What is said of a vector to be ``alike``: it lies in one slice, and rows begin or
    end at all of its places or at none; at all if one side alone matters."""

    first: Any
    digits: list
    places: list
    limit: Any = None
