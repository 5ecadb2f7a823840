"""Devices that make different calls, or none: what is reported, and that the next call is right."""

import gc

import numpy as np
import pytest

import cutesync as cs
from cutesync import emulator
from cutesync.dist import Group, Sharded
from cutesync.dist.exchange import Exchange, Side
from cutesync.dtypes import BY_NAME
from cutesync.errors import ArgumentTypeError, ArgumentValueError, DeviceError
from cutesync.kernels.reduce.spec import Reduction
from cutesync.ops import operator

INT32 = BY_NAME["int32"]


def exchange(group: Group, op: str) -> Exchange:
    return Exchange(group, Reduction(operator(op), INT32, INT32, INT32), 4, [Side(True, 3)] * 2)


def run(group: Group, calls: dict[int, str]) -> None:
    """Rank r launches an exchange with the operator ``calls[r]``."""
    arrays = [
        (group.put(np.arange(4, dtype=np.int32), rank), group.put(np.zeros(4, np.int32), rank)) for rank in (0, 1)
    ]
    with group.together():
        memory = group.memory((0, 0))
        for rank, op in calls.items():
            exchange(group, op).launch(memory, rank, tuple(array.ptr for array in arrays[rank]), 0)


@pytest.mark.parametrize(
    "calls, words",
    [({0: "add", 1: "max"}, "another call"), ({0: "add"}, "device 0 block"), ({1: "add"}, "device 1 block")],
)
def test_a_rank_that_makes_another_call_or_none_is_reported(calls, words, capfd):
    with cs.emulate(devices=2):
        group = Group.local()
        run(group, {0: "add", 1: "add"})
        with pytest.raises(emulator.EmulationError) as found:
            run(group, calls)
        assert words in str(found.value) + "".join(capfd.readouterr())
        assert int(cs.sum(group.shard(np.arange(9)))) == 36  # the memory of the exchanges is new


@pytest.mark.slow
def test_a_debug_build_says_who_waits_for_whom(capfd, monkeypatch):
    monkeypatch.setenv("CUTESYNC_DEBUG", "1")
    with cs.emulate(devices=2):
        group = Group.local()
        run(group, {0: "add", 1: "add"})
        with pytest.raises(emulator.EmulationError) as found:
            run(group, {1: "add"})
        said = str(found.value) + "".join(capfd.readouterr())
        assert "rank 1 waits for rank 0: epoch tag 2 has not come" in said, said


def test_what_a_group_refuses():
    x = np.arange(6, dtype=np.float32)
    with pytest.raises(DeviceError, match="devices=..."), cs.emulate(devices=2):
        Group.local(3)
    with cs.emulate(devices=3):
        group, pair = Group.local(), Group.local([2, 0])
        assert pair.ordinals == (group.ordinals[2], group.ordinals[0])
        sharded = group.shard(x)
        for error, words, call in (
            (ArgumentValueError, "3, one for each device", lambda: Sharded(group, sharded.parts[:2])),
            (DeviceError, "device", lambda: Sharded(group, sharded.parts[::-1])),
            (DeviceError, "NumPy", lambda: Sharded(group, [x, x, x])),
            (
                ArgumentTypeError,
                "one type",
                lambda: Sharded(group, [group.put(x.astype(f"f{4 + 4 * (r > 1)}"), r) for r in range(3)]),
            ),
            (ArgumentValueError, "one shape", lambda: group.all_reduce((*sharded.parts[:2], group.put(x, 2)))),
            (ArgumentValueError, "add up to", lambda: group.shard(x, 0, [1, 2, 4])),
            (ArgumentTypeError, "beside a Sharded", lambda: cs.linear_recurrence(sharded, cs.asarray(x))),
            (DeviceError, "sharded alike", lambda: cs.linear_recurrence(cs.asarray(x), sharded)),
            (ArgumentValueError, "sharded as", lambda: cs.linear_recurrence(sharded, group.shard(x, 0, [0, 3, 3]))),
            (ArgumentValueError, "whole on each", lambda: cs.searchsorted(sharded, sharded)),
            (ArgumentTypeError, "stream", lambda: cs.sum(sharded, stream=0)),
            (ArgumentTypeError, "init.*beside a Sharded", lambda: cs.scan(sharded, init=pair.put(1.0, 1))),
        ):
            with pytest.raises(error, match=words):
                call()


def test_the_memory_of_a_group_that_is_gone_is_freed():
    with cs.emulate(devices=2):
        gc.collect()
        for _ in range(3):
            group = Group.local()
            assert int(cs.sum(group.shard(np.arange(9)))) == 36
            del group
            gc.collect()
        held = [region for region in emulator.DEVICE.memory.regions if region.name == "the workspace"]
        Group.local().memory((0, 0))
        assert len([r for r in emulator.DEVICE.memory.regions if r.name == "the workspace"]) <= len(held)
