"""Group: the devices that work together, and their exchanges."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from ..dtypes import element_type
from ..errors import ArgumentTypeError, ArgumentValueError, DeviceError, explain
from ..identity import identify
from ..runtime import arrays, backend, device, device_array, workspace
from ..runtime.copy_engine import CopyEngine
from .communicators import Communicator, MpiCommunicator, NcclCommunicator, TorchCommunicator
from .exchange import AllReduce
from .memory import MAX_RANKS, SymmetricMemory
from .recorder import allocator
from .repeat import Prepared
from .sharded import Sharded, Signature, axis_number
from .team import Team, own_device
from .work import Together


class Group:
    """Devices that work together. ``ordinals`` are their numbers, by rank.

    All calls on a group's arrays come from one thread at a time, and in one order. Each uses a stream a device: the
    current one of the arrays' library, or those of ``stream=``, a sequence.
    """

    def __init__(self, ordinals: Sequence[int], team: Team | None = None) -> None:
        self.ordinals, self.team = tuple(ordinals), team
        own = self.ordinals[0] if team is None else team.ordinal
        self._contexts = tuple(own if ordinal == device.REMOTE else ordinal for ordinal in self.ordinals)
        self.place = backend.of(own)
        if team is None:
            self.place.connect(self.ordinals)
        self._engine: CopyEngine | None = None
        self._memories: dict[Hashable, SymmetricMemory] = {}
        self._default_memories: dict[Hashable, SymmetricMemory] = {}  # those of the default streams
        self.plans: dict[tuple, Any] = {}  # of calls, by what they depend on
        self.signature = Signature()

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

    @classmethod
    def of(cls, communicator: Communicator, device: int | None = None) -> Group:
        """Return the group of several processes of one host, each with one GPU: ``device``, by default the one with the
        number of the rank. All ranks call it.

        ``communicator`` is any object with ``rank``, ``size`` and ``allgather(data)``, which returns the bytes of all
        ranks in order. Every process makes the same calls in the same order, and has its own part of each array: the
        only one in ``Sharded(group, parts, axis)``. Each has memory that the others map (CUDA's interprocess handles).
        Raise DeviceError if ranks are on different hosts, share a device, or cannot access each other's memory."""
        team = Team(communicator, own_device(communicator, device))
        return cls(team.ordinals, team)

    @classmethod
    def from_torch(cls, process_group: Any = None, device: int | None = None) -> Group:
        """Return the group of the ranks of a ``torch.distributed`` process group, by default of all processes, each
        with torch's current device; see ``of``. Its backend must be able to exchange objects; in captures of graphs,
        with gloo."""
        return cls.of(TorchCommunicator(process_group), device)

    @classmethod
    def from_mpi(cls, comm: Any, device: int | None = None) -> Group:
        """Return the group of the ranks of a communicator of mpi4py; see ``of``."""
        return cls.of(MpiCommunicator(comm), device)

    @classmethod
    def from_nccl(cls, communicator: Any) -> Group:
        """Return the group of the ranks of a Communicator of nccl4py, each with its device; see ``of``."""
        return cls.of(NcclCommunicator(communicator))

    @property
    def rank(self) -> int | None:
        """The rank of this process; None if it has all devices."""
        return None if self.team is None else self.team.rank

    @property
    def size(self) -> int:
        """The number of devices."""
        return len(self.ordinals)

    def __repr__(self) -> str:
        return f"Group({self.size} devices)"

    def shard(self, x: Any, axis: int | None = 0, lengths: Sequence[int] | None = None) -> Sharded:
        """Copy a NumPy array to the devices, spread along ``axis``: in parts of ``lengths``, by default as equal as
        ``np.array_split`` makes them. With ``axis`` None each device gets the whole array."""
        host = np.asarray(x)
        if axis is None:
            return Sharded(self, [self.put(host, rank) for rank in range(self.size)], None)
        axis = axis_number(axis, host.ndim)
        pieces = np.split(host, np.cumsum(self.lengths(host.shape[axis], lengths))[:-1], axis)
        return Sharded(self, [self.put(piece, rank) for rank, piece in enumerate(pieces)], axis)

    def lengths(self, total: int, given: Sequence[int] | None = None) -> tuple[int, ...]:
        """Return the lengths of parts that add up to ``total``: those given, or equal ones, of which the first are one
        longer where that is needed."""
        if given is None:
            each, more = divmod(total, self.size)
            return tuple(each + (rank < more) for rank in range(self.size))
        found = tuple(given)
        if not all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in found):
            raise ArgumentTypeError(explain("lengths", found, f"{self.size} ints"))
        if len(found) != self.size or sum(found) != total or min(found) < 0:
            raise ArgumentValueError(explain("lengths", found, f"{self.size} lengths that add up to {total}"))
        return tuple(map(int, found))

    def put(self, x: Any, rank: int) -> device_array.DeviceArray:
        """Copy a NumPy array to the device of a rank."""
        host = np.asarray(x)
        with self.place.using(self._contexts[rank]):
            return device_array.from_numpy(host, element_type(host.dtype, "x"), self.ordinals[rank])

    def all_reduce(self, parts: Any, op: Any = "add", *, dtype: Any = None, stream: Any = None) -> Sharded:
        """Combine arrays of one shape, ``parts[r]`` on device ``r``, element by element in the order of ranks: every
        device gets ``parts[0] op parts[1] op ...``, the same bits on all. ``op`` is as in ``cs.reduce``.

        The parts are a sequence of contiguous arrays, or a Sharded. 64 KiB go out at a time. Results have the type
        ``dtype``, by default that of the parts, and are rounded once."""
        return self._of_alike(("all_reduce",), parts, (op, dtype), stream, AllReduce)

    def reduce_scatter(
        self, parts: Any, op: Any = "add", axis: int = 0, lengths: Any = None, *, dtype: Any = None, stream: Any = None
    ) -> Sharded:
        """Combine arrays of one shape as ``all_reduce`` does, and leave a part of the result on each device: along
        ``axis``, of ``lengths`` (by default as equal as ``np.array_split`` makes them). Each device reads its part of
        all arrays in place, in one launch. The arrays may have any strides with which they have few axes."""
        from .reshard import reduce_scatter_plan

        cuts = None if lengths is None else tuple([(n, type(n)) for n in lengths])
        what = "reduce_scatter", axis, type(axis), cuts
        found = self._of_alike(
            what, parts, (op, dtype), stream, lambda x, op, dtype: reduce_scatter_plan(x, (op, dtype), axis, lengths)
        )
        return Sharded.of_results(self, found, axis_number(axis, len(found[0].shape)))

    def _of_alike(self, what: tuple, parts: Any, how: tuple[Any, Any], stream: Any, plan_of: Callable) -> Any:
        """Make a call on arrays of one shape, which combines them. ``how``: the operator and the type of the result;
        ``plan_of(x, *how)`` returns the plan, which ``what`` identifies beside these."""
        op, dtype = how
        given = self._like_parts(parts)
        libraries = [arrays.adapter(part) for part in given]
        found = [library.identify_strided(part) for library, part in zip(libraries, given)]
        meaning = [(type(part), at & 15, signature) for part, (at, signature) in zip(given, found)]
        key = (*what, op if type(op) is str else identify(op), dtype, *meaning)
        plan = self.plans.get(key)
        if plan is None:
            plan = self.plans[key] = Prepared(plan_of(Sharded(self, given, None), op, dtype))
        if stream is None:
            streams = tuple([library.stream(at) for library, at in zip(libraries, self.ordinals)])
        else:
            streams = self.given_streams(stream)
        x, addresses = Sharded.of_results(self, given, None), [at for at, _ in found]
        return plan.run((x,), (self, streams, stream is not None), addresses=addresses)

    def _like_parts(self, parts: Any) -> tuple[Any, ...]:
        """Return arrays of one shape, one for each rank; other processes have arrays like that of this one."""
        given = parts.parts if type(parts) is Sharded else tuple(parts)
        return given if self.team is None or len(given) == self.size else self.team.alike(given)

    # --- what the functions of this package use -----------------------------------------------------------------------

    def streams(self, x: Sharded, stream: Any) -> tuple[int, ...]:
        """Return the stream of each device, as raw handles; by default the current ones of the libraries of ``x``."""
        if stream is None:
            return tuple([current(ordinal) for current, ordinal in x.facts.streams])
        return self.given_streams(stream)

    def given_streams(self, stream: Any) -> tuple[int, ...]:
        """Return the streams of ``stream=``, a sequence, as raw handles."""
        if self.team is not None:
            given = stream if isinstance(stream, (tuple, list)) else (stream,)
            own = {1: 0, self.size: self.team.rank}.get(len(given))
            if own is not None:
                handle = arrays.stream_handle(given[own])
                return tuple([handle if rank == self.team.rank else 0 for rank in range(self.size)])
        if not isinstance(stream, (tuple, list)) or len(stream) != self.size:
            raise ArgumentTypeError(explain("stream", repr(stream), f"None, or a sequence of {self.size} streams"))
        return tuple(map(arrays.stream_handle, stream))

    def allocators(self, like: Sharded, shape: tuple[int, ...], dtype: Any) -> list[tuple[Any, Any]]:
        """Return the adapter of each part's library, and the function that makes such an array beside the part."""
        libraries = [arrays.adapter(part) for part in like.parts]
        return [(library, allocator(library, shape, dtype, at)) for library, at in zip(libraries, self.ordinals)]

    def at_once(self) -> contextlib.AbstractContextManager[Callable[[int], None]]:
        """Return a context for launches that wait for each other (see ``Backend.at_once``)."""
        return self.place.at_once(self._contexts, None if self.team is None else self.team.meeting)

    def copy_engine(self, streams: tuple[int, ...]) -> CopyEngine | None:
        """Return what copies between the devices beside kernels; None where kernels copy: between processes, on the
        emulator, and in captures of graphs."""
        if self.team is not None or any(self.place.capture(stream) is not None for stream in streams):
            return None
        if self._engine is None:
            self._engine = self.place.copy_engine(self.ordinals)
        return self._engine

    def hosts(self, copy: Callable[[int], np.ndarray]) -> list[np.ndarray]:
        """Return ``copy(rank)`` of all ranks; each process makes its own and sends it to the others."""
        if self.team is None:
            return [copy(rank) for rank in range(self.size)]
        return self.team.hosts(copy(self.team.rank))

    def together(self) -> Together:
        """Return a context for several calls, all of whose launches may wait for each other."""
        return Together(self)

    def forget(self) -> None:
        """Let the next launches begin with new memory: those before have failed."""
        self._memories.clear()
        self._default_memories.clear()
        self.plans.clear()
        for ordinal in self.ordinals:
            workspace.forget(ordinal, 0)

    def at(self, ordinal: int, stream: int) -> contextlib.AbstractContextManager:
        """Return a context for calls about a stream of a device. Only the thread's own stream needs one: its handle is
        the same on all devices."""
        return self.place.using(ordinal) if stream == device.PER_THREAD else contextlib.nullcontext()

    def memory(self, streams: tuple[int, ...]) -> SymmetricMemory:
        """Return the symmetric memory of these streams, or of their captures."""
        found = self._default_memories.get(streams)
        if found is not None:
            return found
        key = tuple(map(self._number, self.ordinals, streams))
        found = self._memories.get(key)
        if found is None:
            of_graph = any(type(part) is tuple and part[0] == "capture" for part in key)
            found = self._memories[key] = SymmetricMemory(self.ordinals, of_graph, self.team)
        if key == streams and all(stream in device.DEFAULT for stream in streams):
            self._default_memories[streams] = found
        return found

    def _number(self, ordinal: int, stream: int) -> Hashable:
        """Return what tells a stream of a device, or its capture, from others."""
        if stream in device.DEFAULT:
            return stream
        with self.at(ordinal, stream):
            capture = self.place.capture(stream)
            return ("capture", capture) if capture is not None else self.place.stream_number(stream)
