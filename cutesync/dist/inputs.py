"""The inputs of a call on Sharded arrays. Some are sharded, as the first is. Others are whole on each device: run-time
arguments (``args=``), first operands (``init=``) and ``n=``, the number of elements that count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..dtypes import INT64
from ..errors import ArgumentValueError, explain
from ..kernels import args as args_of
from ..runtime import arrays
from ..runtime.kernel import KernelSpec, Pointer, Scalar
from .recorder import launcher
from .sharded import Ragged, Sharded

if TYPE_CHECKING:
    from .work import Work

WHOLE = ("n", "args", "init", "bins", "offsets", "lengths")


def is_whole(name: str) -> bool:
    """Return whether an input of this name is the same on each device."""
    return name.partition("[")[0] in WHOLE


class More(NamedTuple):
    """What a call gives beside its sharded arrays, by rank: the parts of ``args`` that are arrays, and how many
    elements count, an array of int64; None if all do."""

    args: Sequence[tuple[Any, ...]]
    counts: Sequence[Any] | None

    @classmethod
    def none(cls, ranks: int) -> More:
        return cls([()] * ranks, None)

    def of(self, rank: int) -> tuple[Any, ...]:
        """Return the arrays that the call of a part takes behind those of the part."""
        return self.args[rank] if self.counts is None else (*self.args[rank], self.counts[rank])


class Inputs:
    """Where the inputs of a call are among those given. ``names`` are their names; ``first`` is the first of them, of
    which a Ragged counts elements itself."""

    def __init__(self, names: Sequence[str], given: Sequence[Any], ragged: bool) -> None:
        present = [(i, name) for i, (name, x) in enumerate(zip(names, given)) if x is not None]
        self.arrays = [i for i, name in present if not is_whole(name)]
        self.args = [i for i, name in present if name.startswith("args")]
        self.inits = [i for i, name in present if name.startswith("init")]
        self.n = next((i for i, name in present if name == "n"), None)
        self.n_at = next((i for i, name in enumerate(names) if name == "n"), None)  # in calls that may have it
        self.ragged = ragged
        self._local = None if self.n is None else LocalCounts(given[0], ragged)

    @property
    def counted(self) -> bool:
        """Whether only the devices know how many elements count."""
        return self.ragged or self.n is not None

    def data(self, given: Sequence[Any]) -> tuple[Sharded, ...]:
        """Return the sharded arrays."""
        return tuple([given[i] for i in self.arrays])

    def more(self, given: Sequence[Any], counts: Ragged | None, work: Work) -> More:
        """Return the other inputs, after the launches that find how many elements of each part count."""
        ranks = range(len(work.streams))
        args = [tuple([given[i].parts[rank] for i in self.args]) for rank in ranks]
        if self._local is not None:
            return More(args, self._local.find(given[self.n or 0], counts, work))
        return More(args, None if counts is None else counts.counts)


class LocalCounts:
    """The launches that find how many elements of each part of ``x`` are among the first ``n`` of all. Those of a
    Ragged have their own counts, and offsets, on the devices."""

    def __init__(self, x: Sharded, ragged: bool) -> None:
        spec = kernel_spec(ragged)
        names = ("n", "before", "length", "out") if ragged else ("n", "out")
        self.like = x.group.allocators(x, (), INT64)
        self.runs = []
        for at, before, length in zip(x.group.ordinals, x.offsets, x.lengths):
            values = {} if ragged else {"before": before, "length": length}
            self.runs.append(launcher(spec, at, 1, values, names))

    def find(self, n: Sharded, counts: Ragged | None, work: Work) -> list:
        """Return a 0-d array on each device."""
        found = []
        for rank, (library, empty) in enumerate(self.like):
            work.at(rank)
            out = empty(work.streams[rank], work.explicit)
            bounds = () if counts is None else (counts.offsets[rank], counts.counts[rank])
            addresses = [arrays.adapter(x).address(x) for x in bounds]
            self.runs[rank]((n.pointers[rank], *addresses, library.address(out)), work.streams[rank])
            found.append(out)
        return found


def kernel_spec(ragged: bool) -> KernelSpec:
    """Return the kernel of ``LocalCounts``."""
    bounds = [Pointer(name, INT64) if ragged else Scalar(name, "Int64") for name in ("before", "length")]
    parameters = (Pointer("n", INT64), *bounds, Pointer("out", INT64))

    def make() -> Any:
        from .inputs_kernel import LocalCount

        return LocalCount(ragged)

    return KernelSpec(("local count", ragged), parameters, make)


def bits_of(operation: Any, given: tuple, args: Sequence[Any]) -> list[int]:
    """Return for each run-time argument that calls give what a launch takes: the address of an array, or the bits of a
    number. ``given`` has None for each of these."""
    wanted = [argument for argument, value in zip(operation.args, given) if value is None]
    numbers = iter(args_of.encoded([argument.dtype for argument in wanted if not argument.in_memory]))
    memory = iter(args)
    found = []
    for argument in wanted:
        if argument.in_memory:
            array = next(memory)
            found.append(arrays.adapter(array).identify_strided(array)[0])
        else:
            found.append(next(numbers))
    return found


def places_of(operation: Any, given: tuple) -> tuple[int, ...]:
    """Return where, among the arrays of an operation and its run-time arguments, those stand that are numbers of a
    call."""
    pairs = enumerate(zip(operation.args, given), len(operation.sources))
    return tuple(place for place, (argument, value) in pairs if value is None and not argument.in_memory)


def check_whole(x: Sharded, name: str, first: Sharded) -> None:
    """Raise unless an input is the same on each device, or a first operand sharded as the first input is."""
    if x.axis is not None and not (name.startswith("init") and (x.axis, x.offsets) == (first.axis, first.offsets)):
        advice = "group.shard(x, axis=None) copies an array to each"
        raise ArgumentValueError(explain(name, repr(x), "an array that is whole on each device", advice))
