"""The kernel that joins runs across seams: an exchange of the edges of parts.

The parts before are combined in the order of ranks, as far as they are one run with the first element of this part. A
part of one run that goes on at both ends is handed on from device to device: its device sees none of it in its results.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import cutlass
from cutlass import Boolean, Int16, Int32, Int64, cute

from ..dtypes import DType
from ..kernels.arrays import pointers_of
from ..kernels.coordinates import store
from ..kernels.gather import WORDS
from ..kernels.select.where import Where
from ..kernels.tiled import element
from ..monoid import choose
from ..warp import prepend, select, zeros
from .exchange_kernel import ExchangeKernel
from .link import Late, received


class Runs:
    """The states that are sent: the number of runs of a part, the bits of its first and of its last keys, those of the
    key of its last run, and the state of that run."""

    arg_count = 0

    def __init__(self, seam: Any) -> None:
        self.own, self.where, self.sources = seam.operation.monoid(), Where(seam.heads), seam.heads.sources
        self.own.bind(())
        keys = tuple(Int64 if source.size == 8 else Int32 for source in self.sources)
        self.types = (Int64, *keys, *keys, *keys, *self.own.types)

    def bind(self, args) -> None:
        """There are no run-time arguments."""

    def of(self, state) -> tuple[Any, tuple, tuple, tuple, tuple]:
        """The members of a state: the number, first keys, last keys, keys of the last run, its state."""
        count, *rest = state
        n = len(self.sources)
        first, last, head = (tuple(rest[i * n : (i + 1) * n]) for i in range(3))
        return count, first, last, head, tuple(rest[3 * n :])

    def same(self, before, after) -> Any:
        """Whether keys belong to the run of the keys before them."""
        shown = [[value_of(bits, t) for bits, t in zip(keys, self.sources)] for keys in (before, after)]
        return cutlass.not_(self.where.differ(*shown))

    def value(self, pointers, at) -> tuple:
        """The state of a run."""
        return self.own.lift(*(element(pointer + at) for pointer in pointers), Int64(0))

    def bits(self, pointer, source: DType):
        """The bits of a key in memory."""
        word = element(recast(pointer, source))
        return word if source.size >= 4 else Int32(word)


class RunSeamKernel(ExchangeKernel):
    """``x`` and ``out`` are the arrays of ``RunSeam``. One thread of a device does all."""

    @cute.jit
    def element(self, x, out, init, link: cutlass.Constexpr, at: Int32):
        own = Int64(0)
        if link.call.own != 0:
            own = self.send(x, out, link, at)
        seams, late = _seams(link, self.monoid, link.coming(self.monoid.types, at))
        link.stop_if(late)
        if seams.joined:
            self.join(out, seams)
        for pointer, number in zip(pointers_of(out), (own - seams.given_up, seams.before, seams.total)):
            store(pointer, number)

    def send(self, x, out, link, at):
        """Send what the others need of this part; return the number of its runs."""
        (count, *edges), runs = pointers_of(x), self.monoid
        keys, values = self.results(out)
        own = Int64(element(count))
        ends = [runs.bits(p, t) for p, t in zip(edges, (*runs.sources, *runs.sources))]
        head = [runs.bits(p + (own - 1), t) for p, t in zip(keys, runs.sources)]
        link.send(runs.types, (own, *ends, *head, *runs.value(values, own - 1)), at)
        return own

    def join(self, out, seams) -> None:
        """Put the run before this part in front of its first one."""
        (keys, values), runs = self.results(out), self.monoid
        whole = runs.own.combine(seams.value, runs.value(values, 0))
        for pointer, result in zip(values, runs.own.results_of(whole)):
            store(pointer, result)
        for pointer, bits, source in zip(keys, seams.head, runs.sources):
            store(recast(pointer, source), WORDS[source.size](bits))

    def results(self, out) -> tuple[tuple, tuple]:
        """The pointers to the keys and to the values of states."""
        _, _, _, *results = pointers_of(out)
        count = len(self.monoid.sources)
        return tuple(results[:count]), tuple(results[count:])


class Seams(NamedTuple):
    """What a device knows of the parts of the ranks that it has looked at: the number of runs ``before`` its own part,
    and of all; 1 if the last run of its own part goes on behind it; whether its first one goes on from before it. Of
    the last part with elements: its rank, its last keys, and the key and the state of the run that they end, as it is
    before the own part."""

    before: Any
    total: Any
    given_up: Any
    joined: Any
    near: Any
    last: tuple
    head: tuple
    value: tuple

    @classmethod
    def none(cls, runs: Runs) -> Seams:
        _, _, last, head, value = runs.of(zeros(runs.types))
        return cls(Int64(0), Int64(0), Int64(0), Boolean(False), Int32(-1), last, head, value)


@cute.jit
def _seams(link: cutlass.Constexpr, runs: cutlass.Constexpr, coming: cutlass.Constexpr):
    """The seams between all parts with elements, and what is late."""
    found, late = Seams.none(runs), Late.none()
    for r in cutlass.range_constexpr(link.ranks):
        if (link.call.take >> r) & 1 != 0:
            state, late = received(link, runs.types, coming, r, late)
            found = with_part(runs, link.call.rank, found, r, state)
    return found, late


def with_part(runs: Runs, rank, found: Seams, r: int, state) -> Seams:
    """The same with the part of rank ``r``, which comes next."""
    count, first, last, head, value = runs.of(state)
    goes_on = (found.near >= 0) & runs.same(found.last, first)
    one = choose(goes_on, Int64(1), Int64(0))
    through = goes_on & (count == 1)
    behind = rank <= r  # then what comes before the own part stays as it is
    longer = prepend(through, found.value, value, runs.own.combine)
    return Seams(
        found.before + choose(rank > r, count, Int64(0)) - choose(found.near < rank, one, Int64(0)),
        found.total + count - one,
        found.given_up + choose(found.near == rank, one, Int64(0)),
        found.joined | (goes_on & (rank == r)),
        Int32(r),
        last,
        select(behind | through, found.head, head),
        select(behind, found.value, longer),
    )


def value_of(bits, source: DType):
    """The element that has these bits."""
    kind = source.cutlass
    if source.kind != "f":
        return kind(bits)
    return bits.to(Int16).bitcast(kind) if source.size == 2 else bits.bitcast(kind)


def recast(pointer, source: DType):
    """A pointer to the bits of elements."""
    return cute.make_ptr(WORDS[source.size], pointer.toint(), cute.AddressSpace.gmem, assumed_align=source.size)
