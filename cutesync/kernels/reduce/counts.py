"""``n=`` of a reduction: how many elements of the reduced axis count."""

from __future__ import annotations

from typing import Any

from ...errors import ArgumentValueError, explain
from ...runtime.view import View
from ..count import check, split
from .spec import IN_MEMORY


def count_of(n: Any) -> tuple[int | str | None, tuple]:
    """Return what identifies ``n`` in a call, and the array that has it, if one has."""
    number, array = split(n)
    return (number, ()) if array is None else (IN_MEMORY, (array,))


def check_count(n: int | str | None, view: View | None, shape: tuple[int, ...], axes: frozenset[int]) -> None:
    """Raise unless one axis is reduced, and ``n`` in memory is a 0-d array of int64."""
    if n is not None and len(axes) != 1:
        raise ArgumentValueError(explain("n", f"with {len(axes)} axes of shape {shape} reduced", "one reduced axis"))
    check(view)
