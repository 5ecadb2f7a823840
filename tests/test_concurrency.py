"""Streams, threads, graphs, repeats and a GPU that is busy: nothing that runs beside a call or before it changes its
result."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

import cutesync as cs
from cutesync import reference
from cutesync.errors import CaptureError
from cutesync.runtime import call, compiler, device, workspace

from .cases import bicyclic, brackets, data, reduced, same, scanned
from .concurrency import in_threads
from .flags.cases import keys
from .libraries import captured, host

pytestmark = pytest.mark.gpu


class Family(NamedTuple):
    """A call along axis 0, what it must give, and arrays, axes and operators whose kernels share the workspace."""

    call: Callable
    wanted: Callable
    problems: dict[str, Callable]


IN_ORDER = {
    "order": lambda: (brackets(300_007), 0, bicyclic),
    "order in columns": lambda: (brackets((4000, 65)), 0, bicyclic),
}
FAMILIES = {
    "reduce": Family(
        cs.reduce,
        reduced,
        {
            "one row": lambda: (data(1 << 20, "int32"), 0, "add"),
            "rows": lambda: (data((3, 200_000), "int64"), 1, "xor"),
            "columns": lambda: (data((20_000, 40), "int32"), 0, "add"),
            "few columns": lambda: (data((100_000, 3), "float32"), 0, "add"),
            **IN_ORDER,
        },
    ),
    "scan": Family(
        cs.scan,
        scanned,
        {
            "wave": lambda: (data(1 << 20, "int32"), 0, "add"),
            "rows": lambda: (data((3, 400_000), "int64"), 1, "xor"),
            "columns": lambda: (data((20_000, 40), "int32"), 0, "add"),
            "pipeline": lambda: (data((1 << 23) + 5, "int32"), 0, "add"),
            **IN_ORDER,
        },
    ),
}
PROBLEMS = [(family, problem) for family in FAMILIES for problem in FAMILIES[family].problems]
every_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


def test_streams_do_not_share_a_workspace(torch):
    streams = [torch.cuda.Stream() for _ in range(4)]
    x = cs.asarray(data(1 << 20, "int32"))
    for stream in streams:
        cs.reduce(x, stream=stream)
    torch.cuda.synchronize()
    assert len({workspace._by_stream[(0, device.stream_id(stream.cuda_stream))] for stream in streams}) == 4


SUMS = {
    "reduce": (lambda x: cs.reduce(x, dtype="int64", axis=0), lambda x: x.sum(0)),
    "scan": (lambda x: cs.scan(x, axis=0), lambda x: x.cumsum(0, dtype=x.dtype)),
}


@pytest.mark.parametrize("name", SUMS)
def test_eight_streams_at_once(torch, name):
    summed, wanted_of = SUMS[name]
    streams = [torch.cuda.Stream() for _ in range(8)]
    inputs = [
        torch.randint(-1000, 1000, (n + 8 * k,), device="cuda", dtype=torch.int32)
        for k in range(4)
        for n in (1 << 20, 300_007, 9_000_000)
    ]
    tall = torch.randint(-9, 9, (20_000, 40), device="cuda", dtype=torch.int32)
    wanted, tall_wanted = [wanted_of(x) for x in inputs], wanted_of(tall)
    wrong = [torch.zeros((), dtype=torch.int64, device="cuda") for _ in streams]
    torch.cuda.synchronize()
    for turn in range(60):
        for k, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                i = (turn + k) % len(inputs)
                wrong[k] += (summed(inputs[i]) != wanted[i]).sum() + (summed(tall) != tall_wanted).sum()
    torch.cuda.synchronize()
    assert [int(count) for count in wrong] == [0] * 8


@pytest.mark.parametrize("call", [cs.reduce, cs.scan])
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
        (100_003, 3),
        (40, 30_011),
        (20_000, 40),
        (4, 5_000_011),
    ],
    ids=str,
)
def test_a_thousand_repeats_are_bitwise_equal(torch, call, shape):
    """Random float32, whose sums depend on the order of additions."""
    x = torch.randn(shape, device="cuda", generator=torch.Generator("cuda").manual_seed(1))
    for axis in range(len(shape)):
        wanted = call(x, axis=axis).clone()
        differ, out = torch.zeros((), dtype=torch.int64, device="cuda"), torch.empty_like(wanted)
        for _ in range(1000):
            call(x, axis=axis, out=out)
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


@pytest.mark.parametrize("name", FAMILIES["scan"].problems)
def test_a_kernel_that_takes_sms_away(torch, name):
    """A scan waits for its own blocks, so it must go on when most of the GPU is taken."""
    x, axis, op = FAMILIES["scan"].problems[name]()
    source, wanted = torch.from_numpy(x).cuda(), torch.from_numpy(scanned(x, op, axis=axis)).cuda()
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


def test_scans_on_many_streams_take_each_others_sms(torch):
    """Persistent blocks of several launches share the SMs; none may wait for a block that cannot start."""
    x = torch.randint(-9, 9, (1 << 24,), device="cuda", dtype=torch.int32)
    wanted = x.cumsum(0, dtype=torch.int32)
    streams = [torch.cuda.Stream() for _ in range(6)]
    outs = [torch.empty_like(x) for _ in streams]
    for stream in streams:
        cs.scan(x, stream=stream)
    torch.cuda.synchronize()
    for stream, out in [*zip(streams, outs)] * 30:
        cs.scan(x, out=out, stream=stream)
    torch.cuda.synchronize()
    assert all(bool((out == wanted).all()) for out in outs)


@pytest.mark.parametrize(
    ("run", "wanted"),
    [(cs.reduce, reduced), (cs.scan, scanned), (cs.flag_heads, reference.flag_heads)],
    ids=["reduce", "scan", "flags"],
)
def test_threads_share_a_plan(run, wanted):
    """Two threads in one plan would mix up its argument block if they did not take turns."""
    values = [keys(700_001, "int32", seed) for seed in range(8)]
    arrays, results = [cs.asarray(x) for x in values], [wanted(x) for x in values]
    run(arrays[0])

    def work(k: int) -> None:
        for _ in range(100):
            same(np.asarray(run(arrays[k])), results[k])

    in_threads(work, 8)


def test_a_thread_that_never_used_cuda_may_call():
    x, found = cs.asarray(np.ones(70_001, np.int32)), []
    thread = threading.Thread(target=lambda: found.append(int(np.asarray(cs.reduce(x)))))
    thread.start()
    thread.join()
    assert found == [70_001]


class TestGraphs:
    @pytest.mark.parametrize(("family", "problem"), PROBLEMS)
    def test_a_hundred_replays_with_changing_input(self, torch, family, problem):
        call, wanted, problems = FAMILIES[family]
        x, axis, op = problems[problem]()
        source = torch.from_numpy(x).cuda()
        out = torch.zeros_like(call(source, op, axis=axis))
        graph, _ = captured(torch, lambda: call(source, op, axis=axis, out=out))
        for turn in range(100):
            moved = np.roll(x, 7 * turn, axis=0)
            source.copy_(torch.from_numpy(moved))
            out.zero_()
            graph.replay()
            if turn % 10 == 0:
                same(host(out), wanted(moved, op, axis=axis), f"replay {turn}")

    def test_flags_of_changing_input(self, torch):
        x, *outs = (torch.zeros(5000, dtype=kind, device="cuda") for kind in (torch.int32, torch.uint8, torch.uint8))
        graph, _ = captured(torch, lambda: cs.flag_heads_and_tails(x, out=tuple(outs)))
        for seed in range(3):
            values = keys(5000, "int32", seed)
            x.copy_(torch.from_numpy(values))
            graph.replay()
            for found, wanted in zip(outs, reference.flag_heads_and_tails(values)):
                same(host(found), wanted)

    def test_launches_with_results_between_them(self, torch):
        """Axes that are not neighbours, and results in another order: what lies between two launches is scratch memory
        of the capture."""
        x = torch.randint(-9, 9, (4, 4, 1 << 20), device="cuda", dtype=torch.int32)
        sums, turned = (torch.zeros(n, dtype=torch.int32, device="cuda") for n in (4, (4, 4)))

        def call():
            cs.reduce(x, lambda a, b: a + b, axis=(0, 2), out=sums)
            cs.reduce(x.permute(1, 0, 2), axis=2, out=turned)

        graph, _ = captured(torch, call)
        for _ in range(3):
            x.random_(-9, 9)
            graph.replay()
            same(host(sums), host(x.sum((0, 2), dtype=torch.int32)))
            same(host(turned), host(x.sum(2, dtype=torch.int32).T.contiguous()))

    def test_replays_beside_eager_calls(self, torch):
        """A graph has a workspace of its own: its replays may overlap the capturing stream's later work."""
        x, y = (torch.randint(-9, 9, (1 << 20,), device="cuda", dtype=torch.int32) for _ in range(2))
        out = torch.zeros((), dtype=torch.int32, device="cuda")
        side, other = torch.cuda.Stream(), torch.cuda.Stream()
        with torch.cuda.stream(side):
            graph, _ = captured(torch, lambda: cs.reduce(x, out=out), side)
        totals = []
        for _ in range(100):
            with torch.cuda.stream(other):
                graph.replay()
            with torch.cuda.stream(side):
                totals.append(cs.reduce(y))
        torch.cuda.synchronize()
        assert int(out) == int(x.sum()) and {int(t) for t in totals} == {int(y.sum())}

    @every_family
    def test_two_graphs_captured_on_one_stream_replay_at_once(self, torch, family):
        inputs = [torch.randint(-9, 9, (1 << 23,), device="cuda", dtype=torch.int32) for _ in range(2)]
        outs = [torch.zeros_like(family.call(x)) for x in inputs]
        capture = torch.cuda.Stream()
        graphs = [
            captured(torch, lambda x=x, out=out: family.call(x, out=out), capture)[0] for x, out in zip(inputs, outs)
        ]
        for graph, stream in [*zip(graphs, (torch.cuda.Stream(), torch.cuda.Stream()))] * 200:
            with torch.cuda.stream(stream):
                graph.replay()
        torch.cuda.synchronize()
        for x, out in zip(inputs, outs):
            same(host(out), family.wanted(host(x)))

    def test_a_device_scalar_is_read_when_the_graph_runs(self, torch):
        x = torch.ones(9_000_000, dtype=torch.int32, device="cuda")
        start, out = torch.zeros(1, dtype=torch.int32, device="cuda"), torch.zeros_like(x)
        graph, _ = captured(torch, lambda: cs.scan(x, init=start, out=out))
        for value in (5, -7):
            start.fill_(value)
            graph.replay()
            assert int(out[0]) == value + 1 and int(out[-1]) == value + x.numel()

    @every_family
    def test_a_kernel_not_compiled_yet_says_what_to_call_first(self, torch, family):
        x = torch.ones(70_001, dtype=torch.int32, device="cuda")
        out = torch.zeros_like(family.call(x))

        def never_seen(a, b):
            return a + b + 0

        with (
            pytest.raises(CaptureError, match="the same call once before capturing"),
            torch.cuda.graph(torch.cuda.CUDAGraph()),
        ):
            torch.zeros(1, device="cuda")
            family.call(x, never_seen, out=out)
        torch.cuda.synchronize()
        family.call(x, never_seen, out=out)
        assert int(out.reshape(-1)[-1]) == 70_001

    def test_numpy_input_cannot_be_captured(self, torch):
        """Copying from host memory would wait, which a capture forbids; the error must be ours or the driver's, and the
        next call works."""
        x, side = np.ones(2500, np.int32), torch.cuda.Stream()
        cs.reduce(x)
        with pytest.raises(RuntimeError), torch.cuda.graph(torch.cuda.CUDAGraph(), stream=side):
            torch.zeros(1, device="cuda")
            cs.reduce(x, stream=side)
        assert cs.reduce(x) == 2500


def test_plans_are_found_again():
    """The second call with equal arguments compiles nothing and plans nothing."""
    x = cs.asarray(data(2500, "int32"))
    cs.reduce(x)
    before = len(call._plans), compiler.counts()
    for _ in range(5):
        cs.reduce(x)
    assert (len(call._plans), compiler.counts()) == before


def test_more_plans_than_are_kept():
    x = cs.asarray(np.ones(6000, np.int32))
    for n in range(129, 129 + call._MOST_PLANS + 20):  # one kernel, many plans
        cs.reduce(x[:n], out=None)
    assert int(np.asarray(cs.reduce(x[:200]))) == 200
