"""The constants of a host function: arguments for its parameters annotated ``cutlass.Constexpr``, by value."""

from __future__ import annotations

from typing import Any

from ..identity import identify
from ..identity.walk import Walk

SHORT = (int, bool, str, type(None))
"""Types of constants that equal values of one type replace."""


class Frozen:
    """Stands for a constant that a compiled function holds, whatever becomes of the object that was given."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


def value_key(x: Any, name: str) -> Any:
    """Return a hashable object that is equal for equal values of a Constexpr parameter."""
    kind = type(x)
    if kind in SHORT:
        return kind, x
    if kind is Frozen:
        return x
    if kind is tuple:
        return kind, *(value_key(member, name) for member in x)
    return identify(x, name) if callable(x) else constant_text(x, name)


def constant_text(x: Any, name: str) -> str:
    """Return a text that is equal for equal values, in every process."""
    if isinstance(x, Frozen):
        return x.text
    attributes: set[str] = set()
    while True:
        walk = Walk(f"constant {name}", attributes)
        walk.add(x, "it")
        if walk.attributes == attributes:
            return walk.digest.hexdigest()[:32]
        attributes = walk.attributes
