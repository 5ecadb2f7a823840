"""What a selection computes: the spec of a call, and of its kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...dtypes import INT64, DType
from ...identity import identify
from ...runtime.call import Spec
from ..states import Argument

KINDS = ("mask", "bits", "callable", "nonzero")


@dataclass(frozen=True)
class Selection:
    """What a kernel computes. ``sources`` are the types of the arrays that it reads elements of.

    ``kind`` says where it learns which positions are selected: from a byte of ``where`` for each ("mask"), from a bit
    ("bits", the first in the lowest bit of a 32-bit word), from ``fn`` of the elements ("callable"), or from the
    element itself ("nonzero"). ``values``: it writes the selected elements of each array; ``indices``: it writes their
    indices. ``counted``: the number of positions is in device memory. ``filled``: what lies behind the selected
    elements is filled.
    """

    kind: str
    sources: tuple[DType, ...]
    values: bool = True
    indices: bool = False
    counted: bool = False
    filled: bool = False
    fn: Callable | None = None
    takes_index: bool = False
    args: tuple[Argument, ...] = ()

    @property
    def results(self) -> tuple[DType, ...]:
        """The types of the arrays of elements that are written."""
        return self.sources if self.values else ()

    @property
    def key(self) -> tuple:
        """Identifies the machine code in caches."""
        fn = "" if self.fn is None else identify(self.fn).key
        flags = self.values, self.indices, self.counted, self.filled, self.takes_index
        args = tuple((a.dtype.name, a.in_memory) for a in self.args)
        return (self.kind, tuple(t.name for t in self.sources), *flags, fn, args)


@dataclass(frozen=True)
class SelectSpec(Spec):
    """A call: ``length`` positions, results of ``capacity`` elements. ``fill`` has a number for each result, the one
    for indices last; ``args`` has the run-time arguments that are numbers, and None for each that is an array."""

    selection: Selection
    length: int
    capacity: int
    fill: tuple = ()
    args: tuple = ()

    @property
    def results(self) -> tuple[tuple[tuple[int, ...], DType], ...]:
        values = tuple(((self.capacity,), dtype) for dtype in self.selection.results)
        places = (((self.capacity,), INT64),) if self.selection.indices else ()
        return (*values, *places, ((), INT64))
