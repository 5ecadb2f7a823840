"""What a call does on the host: how often it looks for a plan, and how many launches it makes."""

from types import SimpleNamespace

import numpy as np
import pytest

import cutesync as cs
from cutesync import emulator
from cutesync.dist import Group, sharded as sharded_arrays
from cutesync.dtypes import FLOAT32
from cutesync.runtime import arrays, call, torch_arrays

# call of a Sharded: launches a device
CALLS = {
    "sum": (lambda group, x: cs.sum(x), 1),
    "mean": (lambda group, x: cs.mean(x), 1),
    "argmax": (lambda group, x: cs.argmax(x), 1),
    "all_reduce": (lambda group, x: group.all_reduce(x), 1),
    "cumsum": (lambda group, x: cs.cumsum(x), 2),
    "cumsum, in place": (lambda group, x: cs.cumsum(x, out=x), 2),
    "flag_heads": (lambda group, x: cs.flag_heads(x), 2),
    "unique_consecutive": (lambda group, x: cs.unique_consecutive(x), 3),
}


class Counted(dict):
    """A table of plans that counts look-ups."""

    looks = 0

    def __getitem__(self, key):
        self.looks += 1
        return super().__getitem__(key)

    def get(self, key, default=None):
        self.looks += 1
        return super().get(key, default)


@pytest.mark.parametrize("name", CALLS)
def test_launches_and_plans_of_a_call_made_before(name, monkeypatch):
    make, launches = CALLS[name]
    ran: list[int] = []
    with cs.emulate(devices=2):
        group = Group.local()
        sharded = group.shard(np.arange(600, dtype=np.int64))
        make(group, sharded)
        plans, group.plans = Counted(call._plans), Counted(group.plans)
        monkeypatch.setattr(call, "_plans", plans)
        make(group, sharded)
        plans.looks = group.plans.looks = 0
        monkeypatch.setattr(emulator, "launch", lambda *given, device, **facts: ran.append(device))
        known, memories = len(group.plans), dict(group._memories)
        make(group, sharded)
        assert sorted(ran) == [0] * launches + [1] * launches
        assert plans.looks == 0 and group.plans.looks <= 1
        assert len(group.plans) == known and group._memories == memories


def test_later_calls_take_what_they_are_given(monkeypatch):
    """Calls of parts are made from the plans of the call before, unless parts are less aligned, or plans are lost."""
    rng = np.random.default_rng(7)
    with cs.emulate(devices=2):
        group = Group.local()
        for turn in range(5):
            x = rng.integers(-3, 4, 600)
            shift = turn // 2 % 2  # elements of 8 bytes
            parts = [group.put(np.pad(half, (shift, 0)), rank)[shift:] for rank, half in enumerate(np.split(x, 2))]
            sharded = cs.dist.Sharded(group, parts)
            assert np.array_equal(np.asarray(cs.cumsum(sharded)), x.cumsum())
            assert np.array_equal(np.asarray(cs.flag_heads(sharded)), np.append(True, x[1:] != x[:-1]))
            found = cs.select(sharded, lambda v: v > 0)
            assert np.array_equal(np.asarray(found.values), x[x > 0]) and int(found.count) == (x > 0).sum()
            if turn == 3:
                monkeypatch.setattr(call, "_plans", {})


@pytest.mark.parametrize("guarded", [False, True])
def test_a_part_that_changed_is_looked_at_again(guarded, monkeypatch):
    """Libraries can give an array other memory, or another shape, in place. A guard tells of the shape alone."""
    x, looks = np.arange(12, dtype=np.int64), []

    def guard(xs):
        known = [part.signature for part in xs]
        return lambda *parts: looks.append(0) or [part.signature for part in parts] == known

    if guarded:
        monkeypatch.setattr(arrays._OwnArrays, "guard", staticmethod(guard))
        monkeypatch.setattr(sharded_arrays, "_signatures", {})
    with cs.emulate(devices=2):
        group = Group.local()
        sharded = group.shard(x)
        assert int(cs.sum(sharded)) == 66 and bool(looks) == guarded
        other, moved = group.put(x[:3], 1), group.put(x[:6], 1)
        part = sharded.parts[1]
        part.ptr, part.owner = moved.ptr, moved.owner
        assert int(cs.sum(sharded)) == 30
        part.ptr, part.shape, part.owner, part.signature = other.ptr, other.shape, other.owner, other.signature
        assert int(cs.sum(sharded)) == 18 and sharded.shape == (9,)
        part.device = group.ordinals[0]
        part.signature = sharded.parts[0].signature
        with pytest.raises(cs.errors.DeviceError, match=r"parts\[1\]"):
            cs.sum(sharded)


class Library:
    """Stands for torch with two devices: what is called, and which stream and device are current."""

    def __init__(self, functions: bool) -> None:
        self.made, self.here, self.streams = [], 0, [0, 0]
        self.Tensor = SimpleNamespace(data_ptr=lambda x: 0)
        self._C = SimpleNamespace(_cuda_getCurrentRawStream=self.streams.__getitem__, _cuda_getDevice=lambda: self.here)
        if functions:
            self._C._cuda_getCurrentStream = lambda ordinal: (self.streams[ordinal], ordinal, 1)
            self._C._cuda_setStream = self.set_stream
        self._C._dynamo = SimpleNamespace(guards=SimpleNamespace(_empty_strided_cuda=self.quick))
        self.float32, self.device = "float32", lambda name: int(name[-1])
        self.cuda = SimpleNamespace(
            device_count=lambda: 2,
            ExternalStream=lambda handle, device: SimpleNamespace(stream_id=handle, device_type=1, device=device),
            default_stream=lambda device: SimpleNamespace(stream_id=0, device_type=1, device=device),
            stream=self.stream,
        )

    def set_stream(self, *, stream_id, device_index, device_type):
        self.here, self.streams[device_index] = device_index, stream_id

    def quick(self, shape, steps, element):
        self.made.append(("quick", self.here, self.streams[self.here]))

    def empty_strided(self, shape, steps, *, dtype, device):
        self.made.append(("made", device, self.streams[device]))

    def stream(self, wanted):
        library, before = self, (self.here, list(self.streams))

        class Context:
            def __enter__(self):
                library.set_stream(stream_id=wanted.stream_id, device_index=wanted.device, device_type=1)

            def __exit__(self, *error):
                library.here, library.streams[:] = before

        return Context()


@pytest.mark.parametrize("functions", [True, False])
def test_results_of_torch_are_made_on_the_stream_of_their_device(functions, monkeypatch):
    library = Library(functions)
    monkeypatch.setitem(torch_arrays.sys.modules, "torch", library)
    adapter = torch_arrays.Torch()
    for ordinal in (0, 1):
        empty = adapter.allocator((), FLOAT32, ordinal)
        for here in (0, 1):
            library.here, library.streams[:] = here, [5, 6]
            for stream, explicit in ((5 + ordinal, True), (5 + ordinal, False), (70, True), (0, True)):
                empty(stream, explicit)
                how, device, current = library.made.pop()
                assert (device, current) == (ordinal, stream) and (how == "made" or here == ordinal)
                assert not library.made and (library.here, library.streams) == (here, [5, 6])
