"""What a selection computes: the spec of a call, and of its kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...dtypes import INT64, DType
from ...identity import identify
from ...runtime.call import Spec
from ..layouts import Layout, Strided
from ..states import Argument


@dataclass(frozen=True)
class Selection:
    """What a kernel computes. ``sources`` are the types of the arrays that it reads elements of.

    ``kind`` says where it learns which positions are selected: from a byte of ``where`` for each ("mask"), from a bit
    ("bits", the first in the lowest bit of a 32-bit word), from ``fn`` of the elements ("callable"), from the element
    itself ("nonzero"), or from the elements before it, which it is not equal to by ``fn`` ("heads"; without ``fn``, by
    value; with ``equal_nan``, NaN equals NaN).

    ``values``: it writes the selected elements of each array; ``indices``: their indices, in C order, or with ``axes``
    the coordinates along so many axes, in an array for each or ``together`` in the rows of one (``wide``: of positions
    that are counted in 64 bits); ``inverse``: for each position the number of the run that it belongs to; ``lengths``:
    the lengths of runs, in this type. ``counted``: the number of positions is in device memory. ``filled``: what lies
    behind the selected elements is filled.
    ``layout``: how strided arrays are read (those of ``sources``, then ``where``); None: all are contiguous.
    ``stepped``: elements of results do not lie side by side.
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
    inverse: bool = False
    lengths: DType | None = None
    equal_nan: bool = False
    axes: int = 0
    together: bool = False
    wide: bool = False
    layout: Layout | None = None
    stepped: bool = False

    @property
    def results(self) -> tuple[DType, ...]:
        """The types of the arrays of elements that are written."""
        return self.sources if self.values else ()

    @property
    def places(self) -> int:
        """How many arrays of indices are written."""
        return (1 if self.together or not self.axes else self.axes) if self.indices else 0

    @property
    def steps(self) -> int:
        """How many steps of results the kernel takes."""
        places = 2 if self.together else self.places
        return self.stepped * (len(self.results) + places + (self.lengths is not None))

    @property
    def fills(self) -> int:
        """How many numbers there are to fill results with behind the selected elements."""
        return len(self.results) + self.indices + (self.lengths is not None)

    @property
    def key(self) -> tuple:
        """Identifies the machine code in caches."""
        fn = "" if self.fn is None else identify(self.fn).key
        flags = self.values, self.indices, self.counted, self.filled, self.takes_index, self.inverse, self.equal_nan
        form = self.axes, self.together, self.wide, self.layout, self.stepped
        args = tuple((a.dtype.name, a.in_memory) for a in self.args)
        return (self.kind, tuple(t.name for t in self.sources), *flags, str(self.lengths), fn, args, form)


@dataclass(frozen=True)
class SelectSpec(Spec):
    """A call: ``length`` positions of ``whole``, results of ``capacity`` elements. ``fill`` has a number for each
    result, those for indices and lengths last. ``shape`` is that of the arrays."""

    selection: Selection
    length: int
    whole: int
    capacity: int
    fill: tuple = ()
    shape: tuple[int, ...] = ()
    strided: Strided | None = None

    @property
    def results(self) -> tuple[tuple[tuple[int, ...], DType], ...]:
        values = tuple(((self.capacity,), dtype) for dtype in self.selection.results)
        chosen = self.selection
        rows = (self.capacity, chosen.axes) if chosen.together else (self.capacity,)
        places = ((rows, INT64),) * chosen.places
        ranks = (((self.whole,), INT64),) if chosen.inverse else ()
        lengths = () if chosen.lengths is None else (((self.capacity,), chosen.lengths),)
        return (*values, *places, *ranks, *lengths, ((), INT64))
