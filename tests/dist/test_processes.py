"""Groups of several ranks, each with a part of its own: in threads, where the emulator checks what they exchange, and
in processes, which share memory."""

import ctypes
import shutil
import subprocess
import sys

import numpy as np
import pytest

import cutesync as cs
from cutesync.dist import Group, Sharded, in_threads, team
from cutesync.dist.communicators import NcclCommunicator, ThreadCommunicator
from cutesync.dtypes import FLOAT32
from cutesync.errors import ArgumentTypeError, ArgumentValueError, DeviceError, LaunchError
from cutesync.runtime import device, device_array

from ..faults import Bench, each, op
from . import ranks


@pytest.mark.slow
def test_ranks_that_are_threads():
    with cs.emulate(devices=3):
        assert in_threads(ranks.program, 3) == list(range(3))


@pytest.mark.drawn(1)
@pytest.mark.slow
@pytest.mark.parametrize("size, schedules", [(2, 9), (4, 1)])
def test_many_schedules(size, schedules):
    with cs.emulate(devices=size, schedules=schedules):
        in_threads(lambda communicator: ranks.exchanges(Group.of(communicator)), size)


@pytest.mark.parametrize("calls", [ranks.exchanges, pytest.param(ranks.families, marks=pytest.mark.slow)])
def test_ranks_that_are_processes(calls, monkeypatch):
    monkeypatch.setenv("CUTESYNC_BACKEND", "emulator")
    assert ranks.in_processes(2, calls) == [0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["mpi", "torch"])
def test_ranks_that_a_launcher_starts(how, monkeypatch):
    pytest.importorskip({"mpi": "mpi4py.MPI", "torch": "torch"}[how], exc_type=Exception)
    monkeypatch.setenv("CUTESYNC_BACKEND", "emulator")
    start = [shutil.which("mpirun"), "-n", "2", sys.executable]
    if how == "torch":
        start = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    done = subprocess.run([*start, "-m", "tests.dist.ranks", how], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.count("right") == 2, done.stdout + done.stderr


class Nccl:
    """Stands for a Communicator of nccl4py, whose device memory is that of the emulator."""

    device = type("Device", (), {"device_id": 0})

    def __init__(self, of: ThreadCommunicator) -> None:
        self.of, self.rank, self.nranks = of, of.rank, of.size

    def allgather(self, sent, received, *, stream=None) -> None:
        data = b"".join(self.of.allgather(ctypes.string_at(sent.ptr, sent.nbytes)))
        assert len(data) == received.nbytes and stream == 0
        ctypes.memmove(received.ptr, data, len(data))


def test_communicators_of_libraries_gather_bytes(monkeypatch):
    monkeypatch.setattr(team.device, "using", lambda ordinal: pytest.MonkeyPatch.context())

    def gather(communicator):
        return NcclCommunicator(Nccl(communicator)).allgather(b"ab" * communicator.rank)

    with cs.emulate():
        assert in_threads(gather, 3) == [[b"", b"ab", b"abab"]] * 3
    for make in (Group.from_mpi, Group.from_nccl):
        with pytest.raises(ArgumentTypeError, match="int"):
            make(3)


def test_stand_ins_lie_apart_from_other_arrays_without_memory():
    """Their addresses come from one sequence."""
    found = []
    for _ in range(2):
        found.append(team._remote(FLOAT32, (3,), None, 0).ptr)
        found.append(device_array.allocate((3,), FLOAT32, device.REMOTE).ptr)
    assert found == sorted(found) and len(set(found)) == 4


def refused(size, error, words, patch=lambda rank: {}, devices=None, after=lambda group: None):
    """Every rank raises: what it tells the others is changed by ``patch``."""

    def program(communicator):
        told = team.Team.told

        class Changed(team.Team):
            def told(self, what, value):
                return told(self, what, value | patch(self.rank) if what == "group" else value)

        own = team.own_device(communicator, None)
        with pytest.raises(error, match=words):
            made = Changed(communicator, own)
            after(Group(made.ordinals, made))

    with cs.emulate(devices=size if devices is None else devices):
        in_threads(program, size)


def test_what_a_group_of_processes_refuses():
    refused(2, DeviceError, "one device", devices=1)
    refused(2, DeviceError, "rank 1 on another host", lambda rank: {"host": f"{rank}"})
    refused(3, ArgumentValueError, "cutesync 2 on rank 2", lambda rank: {"version": f"{rank // 2 * 2}"})
    refused(9, ArgumentValueError, "1 to 8 ranks", devices=8)
    one = np.ones(3)

    def made(group, x, axis=0):
        return Sharded(group, [group.put(x, group.rank)], axis)

    for error, words, after in (
        (ArgumentValueError, "that of this process", lambda group: Sharded(group, [one, one, one], 0)),
        (ArgumentTypeError, "one type", lambda group: made(group, one.astype(f"f{4 + 4 * group.rank}"))),
        (ArgumentValueError, "one shape", lambda group: made(group, one[group.rank :], None)),
        (LaunchError, "at step", lambda group: made(group, one) if group.rank else np.asarray(group.shard(one))),
        (ArgumentTypeError, "a sequence of 2 streams", lambda group: cs.sum(group.shard(one), stream=[0, 0, 0])),
    ):
        refused(2, error, words, after=after)
    with cs.emulate(), pytest.raises(DeviceError, match="devices=..."):
        in_threads(lambda communicator: Group.of(communicator, 1), 1)


def test_a_rank_that_fails_ends_the_others():
    def program(communicator):
        group = Group.of(communicator)
        x = group.shard(np.arange(6))
        if communicator.rank == 0:
            raise KeyError("of rank 0")
        cs.sum(x)

    with cs.emulate(devices=2), pytest.raises(KeyError, match="of rank 0"):
        in_threads(program, 2)


@pytest.mark.slow
def test_faults_of_the_copies_that_others_read_are_found():
    def right() -> bool:
        with cs.emulate(schedules=9, seed=5, devices=2):
            in_threads(lambda communicator: ranks.exchanges(Group.of(communicator)), 2)
        return True

    bench = Bench(right)
    release = r"st\.release\.sys"
    bench.check(each(release, "st.relaxed.sys"), {"race"})
    bench.check(each(op(release)), {"deadlock"})
