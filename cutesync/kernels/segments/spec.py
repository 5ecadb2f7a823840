"""What a call by segments computes: where segments begin, and what is combined inside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...dtypes import INT64, DType
from ...identity import identify
from ...runtime.call import Spec
from ..layouts import Strided
from ..states import Argument, States, words_of

MANY = 1 << 31  # elements from which on segments are counted in 64 bits


@dataclass(frozen=True)
class Heads:
    """Where segments begin. ``kind`` "keys": at elements of the arrays of ``sources`` that are not equal to the ones
    before them, by ``fn``, or by value (with ``equal_nan``, NaN equals NaN); "mask": where a byte is not 0; "offsets":
    at the positions in an array of type ``offsets``, which are in order and may repeat. With ``ends`` that array has
    where segments end, and the first one begins at 0. ``stepped``: its elements do not lie side by side. The first
    position always begins a segment. "bits": at positions, counted in scan order, whose bits an earlier launch has set.
    "ranges": an array of type ``offsets`` has where each segment begins; a second one, of int64, has where each would
    end if they were put one after the other."""

    kind: str
    sources: tuple[DType, ...]
    fn: Callable | None = None
    equal_nan: bool = True
    args: tuple[Argument, ...] = ()
    offsets: DType | None = None
    ends: bool = False
    stepped: bool = False

    @property
    def by_offsets(self) -> bool:
        """Whether the number of segments is that of elements of an array."""
        return self.kind in ("offsets", "ranges")

    @property
    def key(self) -> tuple:
        """Identifies the machine code in caches."""
        fn = "" if self.fn is None else identify(self.fn).key
        return (
            self.kind,
            tuple(t.name for t in self.sources),
            fn,
            self.equal_nan,
            str(self.offsets),
            self.ends,
            self.stepped,
        )


@dataclass(frozen=True)
class SegmentsSpec(Spec):
    """A call: ``operation`` on the segments of ``length`` positions of ``whole``.

    ``reduced``: it writes the key and the result of each segment, ``capacity`` at most, and their number; otherwise a
    result for each position. ``start`` comes before the first element of each segment: a number for each value of a
    state, or None. ``counted``: the number of positions is in device memory. ``fill`` has a number for each key and
    result, with which what lies behind the segments is filled. ``keyed``: keys are written.

    Offsets give ``segments``, which may be empty; ``nothing`` is the state of an empty one. ``strided``: how the arrays
    are read, those of heads before those of the operation; None: all are contiguous. ``stepped``: elements of results
    do not lie side by side. ``zeroed``: a scan stores 0 for positions that are in no segment."""

    heads: Heads
    operation: States
    length: int
    whole: int
    reduced: bool = False
    exclusive: bool = False
    reverse: bool = False
    start: tuple | None = None
    counted: bool = False
    capacity: int = 0
    fill: tuple | None = None
    keyed: bool = True
    args: tuple = ()
    segments: int = 0
    nothing: tuple | None = None
    strided: Strided | None = None
    stepped: bool = False
    zeroed: bool = False

    @property
    def reads_at_once(self) -> bool:
        """Whether a kernel may read memory before its ``body``: how many positions count, or what callables get."""
        return self.counted or self.start is not None or len(self.args) > 0

    @property
    def by_offsets(self) -> bool:
        """Whether offsets, or begins and ends, say where segments are."""
        return self.heads.by_offsets

    @property
    def found(self) -> bool:
        """Whether the kernel finds how many segments there are."""
        return self.reduced and not self.by_offsets

    @property
    def keys(self) -> tuple[DType, ...]:
        """The types of the keys that are written."""
        return self.heads.sources if self.reduced and self.keyed else ()

    @property
    def results(self) -> tuple[tuple[tuple[int, ...], DType], ...]:
        if not self.reduced:
            return tuple(((self.whole,), dtype) for dtype in self.operation.results)
        arrays = tuple(((self.capacity,), dtype) for dtype in (*self.keys, *self.operation.results))
        return (*arrays, ((), INT64)) if self.found else arrays

    @property
    def apart(self) -> tuple[int, ...]:
        """The bytes of each number that is put in shared memory for a position, 0 where it takes the place of an
        element of the operation, of which it has the size: states where segments are reduced, results in scans."""
        sizes = [t.size for t in self.operation.results]
        if self.reduced:
            sizes = [4 * words_of((kind,)) for kind in self.operation.registers]
        sources = [t.size for t in self.operation.sources]
        return tuple(0 if k < len(sources) and sources[k] == size else size for k, size in enumerate(sizes))

    @property
    def counter(self) -> str:
        """The name of the DSL type in which segments are counted."""
        return "Int64" if self.found and self.whole >= MANY else "Int32"

    @property
    def words(self) -> int:
        """32-bit words of what a tile publishes."""
        return words_of((self.counter, *self.operation.registers))

    @property
    def key(self) -> tuple:
        """Identifies the machine code in caches."""
        options = self.reduced, self.exclusive, self.reverse, self.start is not None, self.counted, self.keyed
        form = self.strided.layout if self.strided else None, self.stepped, self.zeroed
        return (*self.heads.key, *self.operation.key, *options, self.fill is not None, self.counter, form)
