"""States whose device code is written for them: the operators with names of their own, such as var and logsumexp."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from .states import States


@dataclass(frozen=True)
class Named(States):
    """States whose callables are the methods of a class of ``named_monoids``, found by the operator's name.

    A reduction has ``passes``; this is one of them. With ``backward``, ``op`` gets the later state first.
    """

    number: int = 0
    passes: int = 1
    backward: bool = False

    @property
    def key(self) -> tuple:
        """Identifies the machine code in caches."""
        return (*super().key, self.number, self.passes, self.backward)

    def of_pass(self, number: int, passes: int) -> Named:
        """Return what one of several passes computes. Only the first reads elements and only the last writes results;
        between passes, arrays hold the values of states."""
        return replace(
            self,
            sources=self.sources if number == 0 else self.values,
            results=self.results if number == passes - 1 else self.values,
            number=number,
            passes=passes,
        )

    def monoid(self) -> Any:
        """Return the device code (imports the DSL)."""
        from .named_monoids import MONOIDS

        return MONOIDS[self.op.name](self)
