"""Second and later calls of ``cs.launch`` give the host function what the first would: addresses, extents, strides,
numbers, constants and stream.

Nothing is compiled and nothing runs, but for what the driver would be told. DeviceArrays stand for arrays of a library
with a guard, as torch's.
"""

from __future__ import annotations

import ctypes
import itertools
import random
import struct
import threading
from types import SimpleNamespace

import pytest

import cutesync as cs
from cutesync.dtypes import BY_NAME
from cutesync.errors import ArgumentTypeError, ArgumentValueError, LaunchError
from cutesync.runtime import arrays, device, emulated, gpu, host_call, host_code
from cutesync.runtime.device import HOST
from cutesync.runtime.device_array import DeviceArray
from cutesync.runtime.host_arguments import Block, Leaf, Number, Tensor

from . import kernels_host as own

STREAM = 7


class Stub:
    """What host functions were given, and how often arrays were identified and guarded."""

    def __init__(self) -> None:
        self.given, self.identified, self.guards, self.mode = [], 0, 0, "one"
        self.places = itertools.count(1 << 40, 1 << 24)

    def host_launcher(self, code, ordinal, make_block, stream):
        block = make_block()

        def run(addresses, numbers, stream):
            block.put(addresses, numbers, stream)
            self.given.append((code, [bytes_at(place) for place in block.packed[:-1]]))

        return run

    def identify(self, x):
        self.identified += 1
        return x.ptr, x.signature

    def guard(self, known):
        """Of arrays that are all different, in one mode, as torch's."""
        self.guards += 1
        mode, signatures = self.mode, [x.signature for x in known]

        def same(*given):
            apart = len(set(map(id, given))) == len(given)
            return apart and self.mode == mode and [x.signature for x in given] == signatures

        return same if same(*known) else None

    def array(self, shape=(1000,), dtype="float32", shift=0, step=1):
        kind = BY_NAME[dtype]
        x = DeviceArray(next(self.places) + shift * kind.size, (shape[0] * step, *shape[1:]), kind, HOST, None)
        return x[::step]


def bytes_at(place):
    return ctypes.string_at(place, 24)


@pytest.fixture(params=["guarded", "plain"])
def stub(request, monkeypatch):
    made = Stub()
    monkeypatch.setattr(emulated._Emulator, "host_launcher", staticmethod(made.host_launcher))
    monkeypatch.setattr(host_code, "get", lambda key, build, stream: key)
    monkeypatch.setattr(arrays._OwnArrays, "identify_strided", staticmethod(made.identify))
    monkeypatch.setattr(host_call, "_functions", {})
    monkeypatch.setattr(host_call, "_known", {})
    if request.param == "guarded":
        monkeypatch.setattr(arrays._OwnArrays, "guard", staticmethod(made.guard), raising=False)
    with cs.emulate():
        yield made


def right(stub, x, y, by, threads, stream):
    """Assert that ``own.scale`` was given these arguments. Return what identifies the compiled function."""
    ((key, found),) = stub.given
    facts = []
    for array, data in zip((x, y), found):
        (step,) = array.view.steps
        facts.append(Tensor(array.dtype, 4 if array.ptr & 15 else 16, (0 if step == 1 else step,), False))
        content = (
            struct.pack("@Qi", array.ptr, *array.shape)
            if step == 1
            else struct.pack("@Qiq", array.ptr, *array.shape, step)
        )
        assert data[: len(content)] == content
    assert found[2][:4] == struct.pack("@f", by) and found[3][:8] == struct.pack("@Q", stream)
    assert key[3].startswith(repr(tuple(facts))[:-1]) and key[2] == "scale"
    return key


def like(a, b):
    return a.signature == b.signature


@pytest.mark.parametrize("seed", range(12))
def test_calls_drawn_at_random(stub, seed):
    """Signatures, alignment, constants, numbers, streams and modes change at any time; functions do what the first
    call of each did."""
    rng, keys = random.Random(seed), {}
    pool = [
        stub.array((length,), dtype, shift, step)
        for length in (1000, 64)
        for dtype in ("float32", "int32")
        for shift in (0, 0, 1)
        for step in (1, 2)
    ]
    compiled = cs.compile(own.scale, pool[0], pool[0], 0.0, 64)
    for _ in range(120):
        x, y = rng.sample(pool, 2) if rng.random() < 0.3 else rng.choices([a for a in pool if like(a, pool[0])], k=2)
        by, threads = rng.choice([0.0, -0.0, 2.5, -1e30]), rng.choice([32, 32, 64])
        stub.given, stub.mode = [], rng.choice(["one", "one", "one", "other"])
        named = rng.choice([{}, {}, {"stream": STREAM}])
        if threads == 64 and all(a.dtype.name == "float32" and not a.steps and not a.ptr & 15 for a in (x, y)):
            compiled(x, y, by, **named)
            right(stub, x, y, by, threads, named.get("stream", 0))
            stub.given = []
        cs.launch(own.scale, x, y, by, threads, **named)
        key = right(stub, x, y, by, threads, named.get("stream", 0))
        signature = x.signature, x.ptr & 15, y.signature, y.ptr & 15, threads
        assert keys.setdefault(signature, key) == key
    assert len(set(keys.values())) > 8


def test_a_second_call_identifies_no_array_with_a_guard(stub):
    pairs = [(stub.array((n,)), stub.array((n,))) for n in (10, 20)]
    for _ in range(3):
        for x, y in pairs:
            cs.launch(own.scale, x, y, 1.0)
    guarded, stub.identified = stub.guards > 0, 0
    for _ in range(3):
        for x, y in pairs:
            cs.launch(own.scale, x, y, 2.0)
    assert (stub.identified == 0) == guarded


def test_a_guard_that_refuses_equal_arrays_is_made_again(stub):
    x, y = stub.array(), stub.array()
    for mode in ("one", "other"):
        stub.mode = mode
        for _ in range(3):
            cs.launch(own.scale, x, y, 1.0)
        stub.identified = 0
        cs.launch(own.scale, y, x, 1.0)
        assert stub.identified == 0 or not stub.guards


def test_arguments_of_other_types_and_numbers(stub):
    x, y = stub.array(), stub.array()
    for _ in range(2):
        for by in (2.0, 3, True):
            stub.given = []
            cs.launch(own.scale, x, y, by)
            right(stub, x, y, by, 32, 0)
        with pytest.raises(ArgumentTypeError, match="arguments of scale"):
            cs.launch(own.scale, x, y)
        with pytest.raises(ArgumentTypeError, match="y: got a str"):
            cs.launch(own.scale, x, "y", 2.0)
        with pytest.raises(ArgumentTypeError, match="stream"):
            cs.launch(own.scale, x, y, 2.0, stream="s")


def test_equal_constants_of_other_types_are_others(stub):
    x, y, keys = stub.array(), stub.array(), {}
    for threads in (1, True, 1, True, None, 1, 1, True):
        stub.given = []
        cs.launch(own.scale, x, y, 1.0, threads)
        assert keys.setdefault((type(threads), threads), stub.given[0][0]) == stub.given[0][0]
    assert len(set(keys.values())) == 3


def test_a_function_without_a_stream_is_refused_on_another(stub):
    x, y = stub.array(), stub.array()
    for _ in range(3):
        cs.launch(own.without_stream, x, y)
        before = len(stub.given)
        with pytest.raises(ArgumentValueError, match="without_stream has no parameter stream"):
            cs.launch(own.without_stream, x, y, stream=STREAM)
        assert len(stub.given) == before


# --- the launcher of the GPU ------------------------------------------------------------------------------------------


@pytest.fixture
def launcher(monkeypatch):
    """``make(entry)``: ``run`` of a host function of one Int64, whose host code is ``entry(place of the number, place
    of the result)``; and the blocks that were made."""
    monkeypatch.setattr(device, "count", lambda: 1)
    monkeypatch.setattr(gpu, "_runtime_failure", lambda code, what: LaunchError(f"{code}: {what}"))
    blocks = []

    def make_block(entry):
        blocks.append(Block([Leaf(Number("Int64"), None, "by")], entry))
        return blocks[-1]

    def make(entry):
        monkeypatch.setattr(gpu, "_host_entry", lambda *given: lambda packed: entry(*packed._obj))
        return gpu.GPU.host_launcher(SimpleNamespace(function_name="f"), 0, make_block, 0)

    return make, blocks


def number_at(place):
    return ctypes.c_int64.from_address(place).value


def test_threads_that_call_at_once_have_blocks_of_their_own(launcher):
    make, blocks = launcher
    inside, wrong = threading.Barrier(4), []

    def entry(place, result):
        first = number_at(place)
        inside.wait()
        wrong.append(number_at(place) != first)

    run = make(entry)
    for _ in range(3):
        threads = [threading.Thread(target=run, args=((), (n,), 0)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == [False] * 12 and len(blocks) == 4


def test_a_call_that_fails_leaves_the_next_one_whole(launcher):
    make, blocks = launcher
    seen, codes = [], [0, 1, 0]

    def entry(place, result):
        seen.append(number_at(place))
        ctypes.c_int32.from_address(result).value = codes[len(seen) - 1]

    run = make(entry)
    run((), (1,), 0)
    with pytest.raises(ArgumentValueError, match="by: got 9223372036854775808"):
        run((), (1 << 63,), 0)
    with pytest.raises(LaunchError, match="1: host function f"):
        run((), (2,), 0)
    run((), (3,), 0)
    assert seen == [1, 2, 3] and len(blocks) == 2


# --- torch's guard ----------------------------------------------------------------------------------------------------


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def test_torch_guards_what_identifies_a_tensor(torch):
    library = arrays.adapter(torch.ones(1))
    if library._guards is None:
        pytest.skip("this torch has no guards")
    x, y = torch.ones(4, 6), torch.ones(4, 6)
    several = [x, y, x.T, x[:, :3], x[:2], x[:, None], x.int(), x.half(), torch._neg_view(x), x.view(torch.int32)]
    several += [torch.ones(4, 6, requires_grad=True), torch.nn.Parameter(torch.ones(4, 6)), torch.ones(0, 6)]
    for a, b in itertools.product(several, repeat=2):
        for grad in (True, False):
            with torch.set_grad_enabled(grad):
                same = library.guard([a, b])
                if same is None:
                    assert grad and (a.requires_grad or b.requires_grad)
                    continue
                for c, d in itertools.product(several, repeat=2):
                    signatures = [(type(t), library.identify_strided(t)[1]) for t in (a, b, c, d)]
                    if same(c, d):
                        assert signatures[:2] == signatures[2:]
                    elif c is not d and not any(t.requires_grad for t in (a, b, c, d)):
                        assert signatures[:2] != signatures[2:]


def test_a_guard_made_without_grad_mode_refuses_in_it(torch):
    library, x = arrays.adapter(torch.ones(1)), torch.ones(4, requires_grad=True)
    if library._guards is None:
        pytest.skip("this torch has no guards")
    with torch.no_grad():
        same = library.guard([x])
        assert same(x) and not same(x.detach())
    assert not same(x) and library.guard([x]) is None


@pytest.mark.parametrize("wrong", ["absent", "raises", "says yes", "says no"])
def test_a_torch_with_other_guards_has_none(torch, wrong):
    from cutesync.runtime import torch_arrays

    class Guards:
        def __init__(self, *tensors, **named):
            if wrong == "raises":
                raise TypeError

        def check(self, *tensors):
            return wrong == "says yes"

    found = SimpleNamespace() if wrong == "absent" else SimpleNamespace(TensorGuards=Guards)
    assert torch_arrays._guards(found) is None
