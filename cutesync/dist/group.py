"""Group: the devices that work together, and their exchanges."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..dtypes import element_type
from ..errors import ArgumentTypeError, ArgumentValueError, DeviceError, explain
from ..kernels.reduce.spec import Reduction
from ..kernels.states import States, numbered, parameter_groups
from ..ops import operator
from ..runtime import arrays, backend, device_array, workspace
from ..runtime.kernel import KernelSpec, Scalar
from ..runtime.launch import Launch, Run
from .memory import MAX_RANKS, SymmetricMemory
from .sharded import Sharded

THREADS = 256  # of a block of ``exchange``, an element each


class Side(NamedTuple):
    """What one device gives to an exchange: addresses of the values of its states (none, if it has none) and of its
    results, a bit for each rank whose states it combines, and its run-time arguments."""

    inputs: tuple[int, ...]
    outs: tuple[int, ...]
    take: int
    args: tuple = ()


class Group:
    """Devices that work together. ``ordinals`` are their numbers, by rank.

    All calls on a group's arrays come from one thread at a time, and in one order. Each uses a stream a device: the
    current one of the arrays' library, or those of ``stream=``, a sequence.
    """

    def __init__(self, ordinals: Sequence[int]) -> None:
        self.ordinals = tuple(ordinals)
        self.place = backend.of(self.ordinals[0])
        self.place.connect(self.ordinals)
        self._memories: dict[Hashable, SymmetricMemory] = {}
        self._launches: dict[tuple, tuple[Run, ...]] = {}

    @classmethod
    def local(cls, devices: int | Sequence[int] | None = None) -> Group:
        """Return the group of all devices of this process: of the first ``devices``, or of those with these numbers.

        On the emulator there are as many as ``cs.emulate(devices=...)`` says. Raise DeviceError if there are fewer, or
        if they cannot access each other's memory."""
        found = backend.current().devices()
        if devices is None:
            wanted: list[int] = list(range(len(found)))[:MAX_RANKS]
        else:
            wanted = list(range(devices)) if isinstance(devices, int) else list(devices)
        if not 0 < len(wanted) <= MAX_RANKS or len(set(wanted)) != len(wanted):
            raise ArgumentValueError(explain("devices", devices, f"1 to {MAX_RANKS} different devices"))
        if any(not isinstance(number, (int, np.integer)) or isinstance(number, bool) for number in wanted):
            raise ArgumentTypeError(explain("devices", devices, "an int, or a sequence of ints"))
        if any(not 0 <= number < len(found) for number in wanted):
            advice = "cs.emulate(devices=...) sets their number on the emulator"
            raise DeviceError(explain("devices", devices, f"numbers of the {len(found)} devices here", advice))
        return cls([found[number] for number in wanted])

    @property
    def size(self) -> int:
        """The number of devices."""
        return len(self.ordinals)

    def __repr__(self) -> str:
        return f"Group({self.size} devices)"

    def shard(self, x: Any, axis: int = 0, lengths: Sequence[int] | None = None) -> Sharded:
        """Copy a NumPy array to the devices, spread along ``axis``: in parts of ``lengths``, by default as equal as
        ``np.array_split`` makes them."""
        host = np.asarray(x)
        if not -host.ndim <= axis < host.ndim:
            raise ArgumentValueError(explain("axis", axis, f"an axis of {host.ndim} dimensions"))
        if lengths is None:
            each, more = divmod(host.shape[axis], self.size)
            lengths = [each + (rank < more) for rank in range(self.size)]
        if len(lengths) != self.size or sum(lengths) != host.shape[axis] or min(lengths) < 0:
            allowed = f"{self.size} lengths that add up to {host.shape[axis]}"
            raise ArgumentValueError(explain("lengths", tuple(lengths), allowed))
        pieces = np.split(host, np.cumsum(lengths)[:-1], axis)
        return Sharded(self, [self.put(piece, rank) for rank, piece in enumerate(pieces)], axis)

    def put(self, x: Any, rank: int) -> device_array.DeviceArray:
        """Copy a NumPy array to the device of a rank."""
        host = np.asarray(x)
        with self.place.using(self.ordinals[rank]):
            return device_array.from_numpy(host, element_type(host.dtype, "x"), self.ordinals[rank])

    def all_reduce(self, parts: Any, op: Any = "add", *, stream: Any = None) -> Sharded:
        """Combine arrays of one shape, ``parts[r]`` on device ``r``, element by element in the order of ranks: every
        device gets ``parts[0] op parts[1] op ...``, the same bits on all. ``op`` is as in ``cs.reduce``.

        The parts are a sequence of contiguous arrays, or a Sharded. 64 KiB go out at a time."""
        given = Sharded(self, parts.parts if isinstance(parts, Sharded) else parts, None)
        parsed = operator(op)
        parsed.check(given.dtype)
        operation = Reduction(parsed, given.dtype, given.dtype.accumulator, given.dtype)
        if not all(view.contiguous for view in given.views):
            raise ArgumentValueError(explain("parts", "strided arrays", "contiguous ones", "copy them first"))
        streams = self.streams(given, stream)
        results = self.empty(given, given.shape, given.dtype, streams, stream is not None)
        everyone = (1 << self.size) - 1
        sides = [
            Side((view.ptr,), (arrays.adapter(result).address(result),), everyone)
            for view, result in zip(given.views, results)
        ]
        with self.together():
            self.exchange(operation, sides, given.size, streams)
        return Sharded(self, results, None)

    # --- what the functions of this package use -----------------------------------------------------------------------

    def streams(self, like: Sharded, stream: Any) -> tuple[int, ...]:
        """Return the stream of each device, as raw handles."""
        if stream is None:
            pairs = zip(like.parts, self.ordinals)
            return tuple(arrays.adapter(part).stream(ordinal) for part, ordinal in pairs)
        if not isinstance(stream, (tuple, list)) or len(stream) != self.size:
            raise ArgumentTypeError(explain("stream", repr(stream), f"None, or a sequence of {self.size} streams"))
        return tuple(map(arrays.stream_handle, stream))

    def empty(self, like: Sharded, shape: tuple[int, ...], dtype: Any, streams: tuple, explicit: bool) -> list:
        """Return an array of the library of ``like`` on each device."""
        made = []
        for part, ordinal, stream in zip(like.parts, self.ordinals, streams):
            with self.place.using(ordinal):
                made.append(arrays.adapter(part).allocator(shape, dtype, ordinal)(stream, explicit))
        return made

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Launches inside, of all devices, may wait for each other. If they fail, the next ones begin anew."""
        try:
            with self.place.at_once():
                yield
        except BaseException:
            self._memories.clear()
            self._launches.clear()
            for ordinal in self.ordinals:
                workspace.forget(ordinal, 0)
            raise

    def exchange(
        self,
        operation: Reduction | States,
        sides: Sequence[Side],
        count: int,
        streams: tuple[int, ...],
        init: tuple | None = None,
        last: bool = False,
    ) -> None:
        """Launch the kernel of ``exchange`` on each device, for ``count`` states. ``operation`` makes states of values
        and results of states; ``init`` comes before the first state, or after the ``last``."""
        memory = self._memory(streams)
        each = memory.capacity // operation.slot_words
        for start in range(0, count, each):
            length = min(each, count - start)
            runs = self._prepared(memory, operation, sides, length, (init, last))
            for rank, (run, side) in enumerate(zip(runs, sides)):
                inputs = side.inputs or (0,) * len(operation.sources)
                sources = [p + start * t.size for p, t in zip(inputs, operation.sources)]
                targets = [p + start * t.size for p, t in zip(side.outs, operation.results)]
                with self.place.using(self.ordinals[rank]):
                    run((*sources, *targets), streams[rank])

    def _memory(self, streams: tuple[int, ...]) -> SymmetricMemory:
        """Return the symmetric memory of these streams, or of their captures."""
        key = []
        for ordinal, stream in zip(self.ordinals, streams):
            with self.place.using(ordinal):
                capture = self.place.capture(stream)
                key.append(("capture", capture) if capture is not None else self.place.stream_number(stream))
        found = self._memories.get(tuple(key))
        if found is None:
            found = self._memories[tuple(key)] = SymmetricMemory(self.ordinals)
        return found

    def _prepared(
        self,
        memory: SymmetricMemory,
        operation: Reduction | States,
        sides: Sequence[Side],
        count: int,
        start: tuple[tuple | None, bool],
    ) -> tuple[Run, ...]:
        """Return the launch of each device. All are made, and their kernels loaded, before one runs: a kernel that is
        loaded while another waits for it may wait for that one."""
        own = tuple((bool(side.inputs), side.take, side.args) for side in sides)
        key = (memory.bases, operation, count, start, own)
        found = self._launches.get(key)
        if found is None:
            init, last = start
            where = None if init is None else "last" if last else "first"
            spec = kernel_spec(operation, self.size, where, count <= THREADS)
            signature = zlib.crc32(repr((spec.key, count, init)).encode()) & 0x7FFFFFFF
            shared = {"count": count, "capacity": memory.capacity, "signature": signature}
            shared |= {f"peer{rank}": base for rank, base in enumerate(memory.bases)}
            shared |= dict(zip(numbered("init", operation.registers), init or ()))
            names = (*numbered("x", operation.sources), *numbered("out", operation.results))
            made = []
            for rank, side in enumerate(sides):
                values = shared | {"rank": rank, "take": side.take, "own": int(bool(side.inputs))}
                values |= dict(zip(numbered("arg", operation.args), side.args))
                made.append(Launch(spec, self.ordinals[rank], -(-count // THREADS), values, names).run)
            found = self._launches[key] = tuple(made)
        return found


def kernel_spec(operation: Reduction | States, ranks: int, where: str | None, single: bool) -> KernelSpec:
    """Return the kernel of an exchange between so many devices."""
    inputs, outputs, start, args = parameter_groups(operation)
    peers = [Scalar(f"peer{rank}", "Int64") for rank in range(ranks)]
    numbers = [Scalar(name, "Int32") for name in ("rank", "count", "capacity", "take", "own", "signature")]

    def examples() -> Sequence:
        groups = (inputs, outputs, [*start, *args], peers)
        return *(tuple(p.example() for p in group) for group in groups), *(p.example() for p in numbers)

    def make() -> Any:
        from .exchange import Exchange

        return Exchange(operation.monoid(), ranks, where, single)

    parameters = (*inputs, *outputs, *start, *args, *peers, *numbers)
    return KernelSpec(("exchange", ranks, str(where), single, *operation.key), parameters, make, examples=examples)
