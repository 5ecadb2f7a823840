"""Communicators of other libraries, as a group of several processes uses them: to gather a few bytes of all ranks.

They are asked when a group, its memory or a Sharded is made, and when values are copied to the host; never by a call
whose memory is there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Protocol

import numpy as np

from ..dtypes import element_type
from ..errors import ArgumentTypeError, LaunchError, explain
from ..runtime import device, device_array


class Communicator(Protocol):
    """What a group needs of one. ``allgather`` returns the bytes of all ranks, in order; all ranks call it."""

    rank: int
    size: int

    def allgather(self, data: bytes) -> list[bytes]: ...


class TorchCommunicator:
    """A process group of ``torch.distributed``, by default that of all processes."""

    def __init__(self, process_group: Any) -> None:
        import torch.distributed as distributed

        if not distributed.is_initialized():
            came, advice = "torch.distributed, which is not initialised", "torch.distributed.init_process_group() first"
            raise ArgumentTypeError(explain("process_group", came, "a process group", advice))
        self.distributed, self.group = distributed, process_group
        self.rank, self.size = distributed.get_rank(process_group), distributed.get_world_size(process_group)

    @property
    def ordinal(self) -> int:
        import torch

        return torch.cuda.current_device()

    def allgather(self, data: bytes) -> list[bytes]:
        found: list[Any] = [None] * self.size
        self.distributed.all_gather_object(found, data, group=self.group)
        return found


class MpiCommunicator:
    """A communicator of mpi4py."""

    def __init__(self, comm: Any) -> None:
        if not hasattr(comm, "allgather") or not hasattr(comm, "Get_rank"):
            raise ArgumentTypeError(explain("comm", f"a {type(comm).__name__}", "a communicator of mpi4py"))
        self.comm, self.rank, self.size = comm, comm.Get_rank(), comm.Get_size()

    def allgather(self, data: bytes) -> list[bytes]:
        return self.comm.allgather(data)


class NcclCommunicator:
    """A communicator of nccl4py: bytes go through memory of its GPU, those of all ranks padded to one length."""

    def __init__(self, communicator: Any) -> None:
        if not hasattr(communicator, "allgather") or not hasattr(communicator, "nranks"):
            came = f"a {type(communicator).__name__}"
            raise ArgumentTypeError(explain("communicator", came, "a Communicator of nccl4py"))
        self.communicator, self.rank, self.size = communicator, communicator.rank, communicator.nranks
        self.ordinal = int(communicator.device.device_id)

    def allgather(self, data: bytes) -> list[bytes]:
        lengths = self.gathered(np.array([len(data)], np.int64)).tolist()
        padded = np.zeros(max(lengths), np.uint8)
        padded[: len(data)] = np.frombuffer(data, np.uint8)
        rows = self.gathered(padded).reshape(self.size, -1)
        return [row[:length].tobytes() for row, length in zip(rows, lengths)]

    def gathered(self, host: np.ndarray) -> np.ndarray:
        with device.using(self.ordinal):
            own = device_array.from_numpy(host, element_type(host.dtype), self.ordinal)
            others = device_array.allocate((self.size * host.size,), own.dtype, self.ordinal)
            self.communicator.allgather(own, others, stream=0)
            return device_array.to_numpy(others)


class ThreadCommunicator:
    """One rank of ``in_threads``."""

    def __init__(self, rank: int, table: list, barrier: threading.Barrier, failures: list) -> None:
        self.rank, self.size = rank, len(table)
        self.table, self.barrier, self.failures = table, barrier, failures

    def allgather(self, data: bytes) -> list[bytes]:
        self.table[self.rank] = data
        self.wait()
        found = list(self.table)
        self.wait()
        return found

    def wait(self) -> None:
        try:
            self.barrier.wait()
        except threading.BrokenBarrierError as error:
            raise LaunchError(explain("allgather", "a rank that has failed", "the same calls of all ranks")) from error

    def at_failure(self, call: Callable[[], Any]) -> None:
        """Call this if a rank fails: others may wait for it."""
        self.failures.append(call)


def in_threads(program: Callable[[Communicator], Any], size: int) -> list:
    """Run ``program(communicator)`` for ``size`` ranks, each in a thread of this process; return their results. It
    tries programs for several processes on the emulator: ``cs.dist.Group.of(communicator)`` makes their group. Raise
    the first error of a rank."""
    table: list = [None] * size
    failures: list[Callable[[], Any]] = []
    barrier = threading.Barrier(size)
    results, errors = [None] * size, []  # type: tuple[list, list[BaseException]]

    def run(rank: int) -> None:
        try:
            results[rank] = program(ThreadCommunicator(rank, table, barrier, failures))
        except BaseException as error:
            errors.append(error)
            for call in (barrier.abort, *failures):
                call()

    threads = [threading.Thread(target=copy_context().run, args=(run, rank)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results
