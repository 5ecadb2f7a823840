"""A program for the ranks of a group: every kind of call agrees with NumPy. ``python -m tests.dist.ranks torch`` (or
``mpi``, ``nccl``) runs it in a process that torchrun (mpirun, torchrun) has started; tests run it in threads, and in
processes with pipes between them."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable

import numpy as np

import cutesync as cs
from cutesync.dist import Group, Sharded
from cutesync.dist.communicators import Communicator
from cutesync.runtime import device


def shards(group: Group, x: np.ndarray, axis: int = 0, first: int | None = None) -> Sharded:
    """The array in parts, of which this process gives its own; that of rank 0 has ``first`` elements."""
    lengths = group.lengths(x.shape[axis] - (first or 0))
    lengths = lengths if first is None else (lengths[0] + first, *lengths[1:])
    start = sum(lengths[: group.rank])
    own = x[(slice(None),) * axis + (slice(start, start + lengths[group.rank]),)]
    return Sharded(group, [group.put(own, group.rank)], axis)


def same(found, wanted: np.ndarray) -> bool:
    return np.array_equal(np.asarray(found), wanted)


def families(group: Group) -> None:
    x = np.random.default_rng(group.size).integers(-3, 4, 900)
    heads = np.r_[True, x[1:] != x[:-1]]
    for first in (None, 40):
        given = shards(group, x, 0, first)
        assert int(cs.sum(given)) == x.sum() and int(cs.argmax(given)) == x.argmax()
        assert same(cs.cumsum(given), x.cumsum()) and same(cs.flag_heads(given), heads)
        assert same(cs.select(given, lambda v: v > 0).values, x[x > 0])
    by_key = cs.reduce_by_key(given, given)
    assert same(by_key.keys, x[heads]) and same(by_key.values, np.add.reduceat(x, np.flatnonzero(heads)))
    assert same(cs.topk(given, 3)[0], np.sort(x)[::-1][:3])


def exchanges(group: Group) -> None:
    """Calls in flight: what others read is overwritten by the next."""
    random, rank = np.random.default_rng(3), group.rank
    with group.together():
        found = []
        for turn in range(3):
            x = random.integers(0, 100, (12, 10)).astype(("float32", "int8", "int64")[turn])
            given = shards(group, x, turn % 2)
            found += [(given.reshard(1 - turn % 2), x), (given.reshard(None), x)]
            whole = given.gather(turn % group.size)
            assert (whole is None) == (rank != turn % group.size)
            found += [] if whole is None else [(whole, x)]
        xs = [random.integers(0, 9, (6, 5)) for _ in range(group.size)]
        strided = group.put(np.repeat(xs[rank], 2, axis=1), rank)[:, ::2]
        found += [(group.reduce_scatter([strided], axis=1), sum(xs))]
        found += [(group.all_reduce([group.put(xs[rank], rank)]), sum(xs))]
        a, b = (random.integers(-2, 3, shape).astype("float16") for shape in ((16, 24), (24, 16)))
        for of_a, of_b in ((1, 0), (0, 1)):
            found.append((cs.matmul(shards(group, a, of_a), shards(group, b, of_b)), a @ b))
    assert all(same(*pair) for pair in found)


def everything(group: Group) -> None:
    families(group)
    exchanges(group)


def program(communicator: Communicator) -> int:
    everything(Group.of(communicator))
    return communicator.rank


class Pipes:
    """A communicator of processes with pipes to rank 0."""

    def __init__(self, rank: int, size: int, pipes: list) -> None:
        self.rank, self.size, self.pipes = rank, size, pipes

    def allgather(self, data: bytes) -> list[bytes]:
        if self.rank:
            self.pipes[0].send_bytes(data)
            return [self.pipes[0].recv_bytes() for _ in range(self.size)]
        found = [data, *(pipe.recv_bytes() for pipe in self.pipes)]
        for pipe in self.pipes:
            for one in found:
                pipe.send_bytes(one)
        return found


def run(calls: Callable[[Group], None], rank: int, size: int, pipes: list, answers) -> None:
    try:
        calls(Group.of(Pipes(rank, size, pipes)))
        answers.put(rank)
    except BaseException as error:
        answers.put(f"rank {rank}: {error!r}")
        raise


def in_processes(size: int, calls: Callable[[Group], None]) -> list:
    """What the ranks answer that have made these calls, each in a process of its own."""
    spawn = multiprocessing.get_context("spawn")
    pipes, answers = [spawn.Pipe() for _ in range(size - 1)], spawn.Queue()
    ends = [[near for near, _ in pipes], *([far] for _, far in pipes)]
    started = [spawn.Process(target=run, args=(calls, rank, size, ends[rank], answers)) for rank in range(size)]
    for process in started:
        process.start()
    found = [answers.get(timeout=300) for _ in started]
    for process in started:
        process.join()
    return sorted(found, key=str)


def nccl_communicator():
    """A Communicator of nccl4py for the processes of torchrun: gloo brings the identifier of rank 0 to the others."""
    import nccl.core
    import torch.distributed

    torch.distributed.init_process_group("gloo")
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    device.using(rank).__enter__()
    identifier = [bytes(nccl.core.get_unique_id()) if rank == 0 else None]
    torch.distributed.broadcast_object_list(identifier)
    return nccl.core.Communicator.init(size, rank, nccl.core.UniqueId.from_bytes(identifier[0]))


def main(how: str) -> None:
    if how == "mpi":
        from mpi4py import MPI

        group = Group.from_mpi(MPI.COMM_WORLD)
    elif how == "nccl":
        group = Group.from_nccl(nccl_communicator())
    else:
        import torch.distributed

        torch.distributed.init_process_group("gloo")
        if torch.cuda.is_available():
            torch.cuda.set_device(torch.distributed.get_rank())
        group = Group.from_torch()
    everything(group)
    print(f"rank {group.rank} of {group.size}: right", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
