"""What a selection computes: the spec of a call, and of its kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...dtypes import INT64, DType
from ...errors import ArgumentValueError, explain
from ...identity import identify
from ...runtime.call import Spec, Views
from ..layouts import Layout, Strided
from ..states import Argument

MAX_LENGTH = 1 << 40  # positions: tiles are counted in 32 bits


def length_of(xs: Views, names: Sequence[str]) -> int:
    """Return how many elements each array has, if all have as many, and kernels can count them."""
    length = xs[0].size
    for x, name in zip(xs[1:], names[1:]):
        if x.size != length:
            raise ArgumentValueError(explain(name, f"{x.size} elements", f"{length}, as {names[0]} has"))
    if length > MAX_LENGTH:
        raise ArgumentValueError(explain("x", f"{length} elements", f"at most {MAX_LENGTH}"))
    return length


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
    ``stepped``: elements of results do not lie side by side; ``outer`` is then how the rows of results that lie apart
    are found, and the count of each. ``rejects``: the elements that are not selected come
    behind the others; how many are selected is known. ``rows``: of a selection by rows, what is selected of each goes
    to the start of a row of the results ("apart"), or behind that of the row before ("packed"). ``columns``: neighbours
    in memory lie along the last axis but one. ``resumed``: the last run-time argument says whether the first element
    begins a run; else it does.
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
    rejects: bool = False
    rows: str = ""
    outer: Layout | None = None
    columns: bool = False
    resumed: bool = False

    @property
    def reads_at_once(self) -> bool:
        """Whether a kernel reads memory before its ``body``: how many positions count, or arguments of callables."""
        return self.counted or any(a.in_memory for a in self.args)

    @property
    def results(self) -> tuple[DType, ...]:
        """The types of the arrays of elements that are written."""
        return self.sources if self.values else ()

    @property
    def of_elements(self) -> bool:
        """Whether the elements say which positions are selected."""
        return self.kind in ("callable", "nonzero", "heads")

    @property
    def begins(self) -> bool:
        """Whether there is an array of where parts of the results begin."""
        return self.rows == "packed" or self.columns

    @property
    def located(self) -> bool:
        """Whether results follow from the places of selected elements."""
        return self.indices or self.lengths is not None

    @property
    def places(self) -> int:
        """How many arrays of indices are written."""
        return (1 if self.together or not self.axes else self.axes) if self.indices else 0

    @property
    def steps(self) -> int:
        """How many steps of results the kernel takes."""
        places = 2 if self.together else self.places
        more = self.inverse + (self.lengths is not None) + (self.rows == "packed")
        return self.stepped * (len(self.results) + places + more)

    @property
    def fills(self) -> int:
        """How many numbers there are to fill results with behind the selected elements."""
        return len(self.results) + self.indices + (self.lengths is not None)

    @property
    def key(self) -> tuple:
        """Identifies the machine code in caches."""
        fn = "" if self.fn is None else identify(self.fn).key
        flags = self.values, self.indices, self.counted, self.filled, self.takes_index, self.inverse, self.equal_nan
        form = self.axes, self.together, self.wide, self.layout, self.stepped, self.rejects
        rows = self.rows, self.outer, self.columns, self.resumed
        args = tuple((a.dtype.name, a.in_memory) for a in self.args)
        return (self.kind, tuple(t.name for t in self.sources), *flags, str(self.lengths), fn, args, form, rows)


@dataclass(frozen=True)
class SelectSpec(Spec):
    """A call: ``length`` positions of ``whole``, results of ``capacity`` elements. ``fill`` has a number for each
    result, those for indices and lengths last. ``shape`` is that of the arrays. ``counting``: the call that counts
    the selected elements first; it reads no elements that it does not need. Of a
    selection by rows, lengths and capacity are those of a row (the capacity of packed rows is that of all), and
    ``outer`` is the shape of what has a row each."""

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return math.prod(self.outer)

    selection: Selection
    length: int
    whole: int
    capacity: int
    fill: tuple = ()
    shape: tuple[int, ...] = ()
    strided: Strided | None = None
    counting: SelectSpec | None = None
    outer: tuple[int, ...] = ()

    @property
    def results(self) -> tuple[tuple[tuple[int, ...], DType], ...]:
        chosen, apart = self.selection, self.outer if self.selection.rows == "apart" else ()
        whole = (*self.outer, self.whole)
        row = (*apart, self.capacity)
        values = tuple((row, dtype) for dtype in chosen.results)
        places = (((*row, chosen.axes) if chosen.together else row, INT64),) * chosen.places
        ranks = ((whole, INT64),) if chosen.inverse else ()
        lengths = () if chosen.lengths is None else ((row, chosen.lengths),)
        starts = (((self.rows + 1,), INT64),) if chosen.rows == "packed" else ()
        return (*values, *places, *ranks, *lengths, *starts, (apart, INT64))
