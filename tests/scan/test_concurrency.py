"""Streams, threads, graphs, repeats and a GPU that is busy: nothing that runs beside a call or before it changes its
result."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs

from ..cases import bicyclic, brackets, data, same, scanned
from ..concurrency import capture_names_the_call_to_make, captured, in_threads, replay_at_once

pytestmark = pytest.mark.gpu

# arrays, axes and operators whose kernels share the workspace: waves, rows, columns split among blocks, the pipeline
PROBLEMS = {
    "wave": lambda: (data(1 << 20, "int32"), 0, "add"),
    "rows": lambda: (data((3, 400_000), "int64"), 1, "xor"),
    "columns": lambda: (data((20_000, 40), "int32"), 0, "add"),
    "pipeline": lambda: (data((1 << 23) + 5, "int32"), 0, "add"),
    "order": lambda: (brackets(300_007), 0, bicyclic),
    "order in columns": lambda: (brackets((4000, 65)), 0, bicyclic),
}


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def test_eight_streams_at_once(torch):
    streams = [torch.cuda.Stream() for _ in range(8)]
    inputs = [
        torch.randint(-1000, 1000, (n + 8 * k,), device="cuda", dtype=torch.int32)
        for k in range(4)
        for n in (1 << 20, 300_007, 9_000_000)
    ]
    wanted = [x.cumsum(0, dtype=torch.int32) for x in inputs]
    tall = torch.randint(-9, 9, (20_000, 40), device="cuda", dtype=torch.int32)
    tall_wanted = tall.cumsum(0, dtype=torch.int32)
    wrong = [torch.zeros((), dtype=torch.int64, device="cuda") for _ in streams]
    torch.cuda.synchronize()
    for turn in range(40):
        for k, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                i = (turn + k) % len(inputs)
                wrong[k] += (cs.scan(inputs[i]) != wanted[i]).sum() + (cs.scan(tall, axis=0) != tall_wanted).sum()
    torch.cuda.synchronize()
    assert [int(count) for count in wrong] == [0] * 8


@pytest.mark.parametrize(
    "shape",
    [
        (37,),
        (2500,),
        (70_001,),
        (10**6 + 3,),
        (10**7 + 19,),
        (1 << 24,),
        (3000, 700),
        (40, 30_011),
        (20_000, 40),
        (4, 5_000_011),
    ],
    ids=str,
)
def test_a_thousand_repeats_are_bitwise_equal(torch, shape):
    """Random float32, whose sums depend on the order of additions."""
    x = torch.randn(shape, device="cuda", generator=torch.Generator("cuda").manual_seed(1))
    for axis in range(len(shape)):
        wanted = cs.scan(x, axis=axis).clone()
        differ = torch.zeros((), dtype=torch.int64, device="cuda")
        out = torch.empty_like(x)
        for _ in range(1000):
            cs.scan(x, axis=axis, out=out)
            differ += (out.view(torch.int32) != wanted.view(torch.int32)).any()
        assert int(differ) == 0


def test_float_products_and_halves_repeat_bitwise(torch):
    for dtype, op in (
        (torch.float16, "add"),
        (torch.bfloat16, "add"),
        (torch.float64, "add"),
        (torch.float32, "mul"),
        (torch.float32, lambda a, b: a + b + a * b),
    ):
        x = torch.rand(10**7 + 19, device="cuda", generator=torch.Generator("cuda").manual_seed(2)).to(dtype) * 1e-3
        wanted = cs.scan(x, op)
        bits = torch.int16 if x.element_size() == 2 else torch.int32
        assert all(bool((cs.scan(x, op).view(bits) == wanted.view(bits)).all()) for _ in range(50))


class TestBesideOtherWork:
    """A scan waits for its own blocks, so it must go on when most of the GPU is taken: another kernel holds SMs while
    it runs."""

    @pytest.mark.parametrize("name", PROBLEMS)
    def test_a_kernel_that_takes_sms_away(self, torch, name):
        x, axis, op = PROBLEMS[name]()
        source = torch.from_numpy(x).cuda()
        wanted = torch.from_numpy(scanned(x, op, axis=axis)).cuda()
        cs.scan(source, op, axis=axis)
        busy, side = torch.cuda.Stream(), torch.cuda.Stream()
        a = torch.randn(8192, 8192, device="cuda", dtype=torch.float16)
        wrong = torch.zeros((), dtype=torch.int64, device="cuda")
        torch.cuda.synchronize()
        for _ in range(10):
            with torch.cuda.stream(busy):
                for _ in range(4):
                    torch.mm(a, a)
            with torch.cuda.stream(side):
                for _ in range(10):
                    wrong += (cs.scan(source, op, axis=axis) != wanted).sum()
        torch.cuda.synchronize()
        assert int(wrong) == 0

    def test_scans_on_many_streams_take_each_others_sms(self, torch):
        """Persistent blocks of several launches share the SMs; none may wait for a block that cannot start."""
        x = torch.randint(-9, 9, (1 << 24,), device="cuda", dtype=torch.int32)
        wanted = x.cumsum(0, dtype=torch.int32)
        streams = [torch.cuda.Stream() for _ in range(6)]
        outs = [torch.empty_like(x) for _ in streams]
        for stream in streams:
            cs.scan(x, stream=stream)
        torch.cuda.synchronize()
        for _ in range(30):
            for stream, out in zip(streams, outs):
                cs.scan(x, out=out, stream=stream)
        torch.cuda.synchronize()
        assert all(bool((out == wanted).all()) for out in outs)


def test_threads_share_a_plan():
    arrays = [cs.asarray(np.full(700_001, k, np.int32)) for k in range(4)]
    cs.scan(arrays[0])

    def work(k: int) -> None:
        for _ in range(100):
            result = np.asarray(cs.scan(arrays[k]))
            assert result[-1] == 700_001 * k and result[350_000] == 350_001 * k

    in_threads(work)


class TestGraphs:
    @pytest.mark.parametrize("name", PROBLEMS)
    def test_a_hundred_replays_with_changing_input(self, torch, name):
        x, axis, op = PROBLEMS[name]()
        source = torch.from_numpy(x).cuda()
        out = torch.zeros_like(source)
        graph = captured(lambda: cs.scan(source, op, axis=axis, out=out))
        for turn in range(100):
            if turn % 10 == 0:
                moved = np.roll(x, 7 * turn, axis=0)
                source.copy_(torch.from_numpy(moved))
            out.zero_()
            graph.replay()
            if turn % 10 == 0:
                same(out.cpu().numpy(), scanned(moved, op, axis=axis), f"replay {turn}")

    def test_two_graphs_captured_on_one_stream_replay_at_once(self, torch):
        inputs = [torch.randint(-9, 9, (1 << 23,), device="cuda", dtype=torch.int32) for _ in range(2)]
        outs = [torch.zeros_like(x) for x in inputs]
        replay_at_once([lambda x=x, out=out: cs.scan(x, out=out) for x, out in zip(inputs, outs)], 100)
        assert all(bool((out == x.cumsum(0, dtype=torch.int32)).all()) for x, out in zip(inputs, outs))

    def test_a_device_scalar_is_read_when_the_graph_runs(self, torch):
        x = torch.ones(9_000_000, dtype=torch.int32, device="cuda")
        start = torch.zeros(1, dtype=torch.int32, device="cuda")
        out = torch.zeros_like(x)
        graph = captured(lambda: cs.scan(x, init=start, out=out))
        for value in (5, -7):
            start.fill_(value)
            graph.replay()
            assert int(out[0]) == value + 1 and int(out[-1]) == value + x.numel()

    def test_a_kernel_not_compiled_yet_says_what_to_call_first(self, torch):
        x = torch.ones(70_001, dtype=torch.int32, device="cuda")
        out = torch.zeros_like(x)

        def never_seen(a, b):
            return a + b + 0

        capture_names_the_call_to_make(lambda: cs.scan(x, never_seen, out=out))
        assert int(out[-1]) == 70_001
