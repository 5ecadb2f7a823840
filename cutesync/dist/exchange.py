"""The host side of an exchange: what each device gives and gets, and the launches of ``exchange_kernel``."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..dtypes import element_type
from ..errors import ArgumentValueError, explain
from ..kernels.reduce.spec import Reduction
from ..kernels.states import States, numbered, parameter_groups
from ..ops import operator
from ..runtime import arrays
from ..runtime.kernel import KernelSpec, Scalar
from ..runtime.launch import Run
from .memory import Call, SymmetricMemory
from .recorder import launcher
from .sharded import Sharded
from .work import Work

if TYPE_CHECKING:
    from .group import Group

THREADS = 256  # of a block, an element each


@dataclass(frozen=True)
class Side:
    """One device's part in an exchange: whether it has states, a bit for each rank whose states it combines, and its
    run-time arguments, None for those that each call gives."""

    own: bool
    take: int
    args: tuple = ()


class Exchange:
    """An exchange of ``count`` states between all devices of a group. ``operation`` makes states of values in memory,
    and results of states. ``init`` comes before the first state, or after the ``last``."""

    def __init__(
        self,
        group: Group,
        operation: Reduction | States,
        count: int,
        sides: Sequence[Side],
        init: tuple | None = None,
        last: bool = False,
    ) -> None:
        self.group, self.operation, self.count, self.sides, self.init = group, operation, count, tuple(sides), init
        self.where = None if init is None else "last" if last else "first"
        sizes = [[t.size for t in types] for types in (operation.sources, operation.results)]
        self.given = [name for name, value in zip(numbered("arg", operation.args), sides[0].args) if value is None]
        self.steps = (*sizes[0], *[0] * len(self.given), *sizes[1])
        self._launches: dict[SymmetricMemory, list[tuple[int, tuple[Run, ...]]]] = {}

    def prepare(self, memory: SymmetricMemory) -> list[tuple[int, tuple[Run, ...]]]:
        """Return the first state of each launch, and the launch on each device. All are made, and their kernels loaded,
        before one runs: a kernel that is loaded while another waits for it might wait for that one."""
        found = self._launches.get(memory)
        if found is None:
            each = memory.capacity // self.operation.slot_words
            starts = range(0, self.count, each)
            found = [(start, self._made(memory, min(each, self.count - start))) for start in starts]
            self._launches[memory] = found
        return found

    def launch_all(self, addresses: Sequence[tuple[int, ...]], work: Work) -> None:
        """Launch on all devices. All memory must be there: to allocate some on one device may wait for a kernel on
        another, which would wait for this launch."""
        prepared = self.prepare(work.memory)
        if len(prepared) == 1:
            ((_, runs),) = prepared
            launch_each(runs, addresses, work)
            return
        for rank, stream in enumerate(work.streams):
            work.at(rank)
            self.launch(work.memory, rank, addresses[rank], stream)

    def launch(self, memory: SymmetricMemory, rank: int, addresses: tuple[int, ...], stream: int) -> None:
        """Launch on one device. ``addresses`` are those of the values of its states (0, if it has none), then the
        run-time arguments of the call, then the addresses of its results."""
        for start, runs in self.prepare(memory):
            places = (
                tuple(p + start * step if step else p for p, step in zip(addresses, self.steps)) if start else addresses
            )
            runs[rank](places, stream)

    def _made(self, memory: SymmetricMemory, count: int) -> tuple[Run, ...]:
        operation = self.operation
        spec = kernel_spec(operation, self.group.size, self.where, count <= THREADS)
        signature = zlib.crc32(repr((spec.key, count, self.init)).encode()) & 0x7FFFFFFF
        shared = {"count": count, "capacity": memory.capacity, "signature": signature}
        shared |= {f"peer{rank}": base for rank, base in enumerate(memory.bases)}
        shared |= dict(zip(numbered("init", operation.registers), self.init or ()))
        names = (*numbered("x", operation.sources), *self.given, *numbered("out", operation.results))
        made = []
        for rank, (ordinal, side) in enumerate(zip(self.group.ordinals, self.sides)):
            values = shared | {"rank": rank, "take": side.take, "own": int(side.own)}
            values |= dict(zip(numbered("arg", operation.args), side.args))
            made.append(launcher(spec, ordinal, -(-count // THREADS), values, names))
        return tuple(made)


def launch_each(runs: Sequence[Run], addresses: Sequence[tuple[int, ...]], work: Work) -> None:
    """Launch on each device, the last one first: it is the current one after results were made on each."""
    at, streams, rank = work.at, work.streams, len(runs)
    while rank:
        rank -= 1
        at(rank)
        runs[rank](addresses[rank], streams[rank])


class AllReduce:
    """The plan of ``Group.all_reduce`` of arrays like the parts of ``given``."""

    def __init__(self, given: Sharded, op: Any, dtype: Any) -> None:
        parsed, group = operator(op), given.group
        parsed.check(given.dtype)
        result = given.dtype if dtype is None else element_type(dtype, "dtype")
        operation = Reduction(parsed, given.dtype, given.dtype.accumulator, result)
        if not all(view.contiguous for view in given.views):
            raise ArgumentValueError(explain("parts", "strided arrays", "contiguous ones", "copy them first"))
        everyone = [Side(True, (1 << group.size) - 1)] * group.size
        self.group, self.exchange = group, Exchange(group, operation, given.size, everyone)
        self.like = group.allocators(given, given.shape, result)

    def run(self, xs: tuple[Sharded, ...], streams: tuple[int, ...], explicit: bool) -> Sharded:
        results, places = [], []
        with Work(self.group, streams, explicit) as work:
            for rank, (library, empty) in enumerate(self.like):
                work.at(rank)
                y = empty(streams[rank], explicit)
                results.append(y)
                part = xs[0].parts[rank]
                places.append((arrays.adapter(part).identify_strided(part)[0], library.address(y)))
            self.exchange.launch_all(places, work)
        return Sharded.of_results(self.group, results, None)


def kernel_spec(operation: Reduction | States, ranks: int, where: str | None, single: bool) -> KernelSpec:
    """Return the kernel of an exchange between so many devices."""
    inputs, outputs, start, args = parameter_groups(operation)
    peers = [Scalar(f"peer{rank}", "Int64") for rank in range(ranks)]
    numbers = [Scalar(name, "Int32") for name in Call._fields]

    def make() -> Any:
        from .by_key_kernel import RunSeamKernel
        from .counted_kernel import CountedExchangeKernel
        from .exchange_kernel import ExchangeKernel
        from .seam_kernel import CountedSeamKernel, SeamKernel
        from .tally_kernel import TallyKernel

        kernels: dict[Any, Any] = {
            "seam": SeamKernel,
            "counted seam": CountedSeamKernel,
            "run seam": RunSeamKernel,
            "counted": CountedExchangeKernel,
            "tally": TallyKernel,
        }
        kernel = kernels.get(operation.key[0], ExchangeKernel)
        return kernel(operation.monoid(), ranks, where, single)

    given = inputs, outputs, [*start, *args], peers, numbers
    return KernelSpec(("exchange", ranks, str(where), single, *operation.key), given, make)
