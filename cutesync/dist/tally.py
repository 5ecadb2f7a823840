"""The exchange of how many values each device has: every device gets how many there are on lower ranks, and in all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..dtypes import INT64, DType
from ..kernels.states import Argument
from .exchange import Exchange, Side

if TYPE_CHECKING:
    from .group import Group


@dataclass(frozen=True)
class Tally:
    """What the kernel computes, of a number in memory."""

    sources: tuple[DType, ...] = (INT64,)
    results: tuple[DType, ...] = (INT64, INT64)
    registers: tuple[str, ...] = ("Int64",)
    args: tuple[Argument, ...] = ()
    slot_words: int = 2
    key: tuple = ("tally",)

    def monoid(self) -> Any:
        from .tally_kernel import Numbers

        return Numbers()


def tally(group: Group) -> Exchange:
    """Return the exchange of a group."""
    operation: Any = Tally()
    return Exchange(group, operation, 1, [Side(True, (1 << group.size) - 1)] * group.size)
