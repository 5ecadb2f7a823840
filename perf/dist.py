"""Several GPUs: exchanges, reductions, scans and flags of sharded arrays, with torch and NCCL in the same run.

    python perf/dist.py [--sizes 12 20 28]

Times are microseconds a call: of a CUDA graph on each GPU with many calls, the slower GPU counts. "host" is the time
that a call takes before it returns. Every result is compared with torch's first.
"""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable
from typing import Any

import script
from cuda.bindings import driver

import cutesync as cs
from cutesync.dist import Group, Sharded

torch: Any = None  # imported when there is something to measure

MESSAGES = (8, 1 << 10, 1 << 12, 1 << 14, 1 << 16)  # bytes
CALLS = 50  # in a graph, of small arrays
REPEATS = 5


class Bench:
    """All GPUs of this process, a stream on each."""

    def __init__(self) -> None:
        self.group = Group.local()
        self.ranks = range(self.group.size)
        self.streams = [torch.cuda.Stream(rank) for rank in self.ranks]
        self.raw = [stream.cuda_stream for stream in self.streams]

    def current(self) -> contextlib.ExitStack:
        """Make the streams torch's current ones."""
        stack = contextlib.ExitStack()
        for stream in reversed(self.streams):
            stack.enter_context(torch.cuda.stream(stream))
        return stack

    def synchronize(self) -> None:
        for rank in self.ranks:
            torch.cuda.synchronize(rank)

    def arrays(self, count: int) -> list:
        """float32 of small integers, so that sums are exact in any order."""
        made = [torch.randint(-3, 4, (count,), device=f"cuda:{rank}").float() for rank in self.ranks]
        self.synchronize()
        return made

    def graphs(self, call: Callable, calls: int) -> list:
        """Capture calls on the streams of all GPUs at the same time."""
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        for raw in self.raw:
            checked(driver.cuStreamBeginCapture(raw, mode))
        try:
            for _ in range(calls):
                call()
        finally:
            captured = [driver.cuStreamEndCapture(raw) for raw in self.raw]
        return [checked(driver.cuGraphInstantiate(checked(graph), 0)) for graph in captured]

    def time(self, call: Callable, calls: int = CALLS) -> float:
        """Return the microseconds of a call, of which a graph on each GPU has ``calls``."""
        for _ in range(2):
            call()
        self.synchronize()
        graphs, best = self.graphs(call, calls), float("inf")
        for _ in range(REPEATS + 1):
            events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in self.ranks]
            for rank, (start, _) in enumerate(events):
                start.record(self.streams[rank])
            for raw, graph in zip(self.raw, graphs):
                checked(driver.cuGraphLaunch(graph, raw))
            for rank, (_, end) in enumerate(events):
                end.record(self.streams[rank])
            self.synchronize()
            best = min(best, *(start.elapsed_time(end) for start, end in events))
        return best * 1e3 / calls

    def host(self, call: Callable, calls: int = 100) -> float:
        """Return the microseconds of the host for a call that it does not wait for."""
        for _ in range(5):
            call()
        self.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        taken = time.perf_counter() - start
        self.synchronize()
        return taken * 1e6 / calls


def checked(result: tuple):
    code, *values = result
    if int(code):
        raise RuntimeError(code.name)
    return values[0] if values else None


def attempt(measure: Callable, *arguments) -> float:
    """Return a rival's time; NaN if it cannot run here."""
    try:
        return measure(*arguments)
    except RuntimeError as error:
        print(f"a rival failed: {str(error)[:100]}", flush=True)
        return float("nan")


def messages(bench: Bench) -> None:
    print("| all_reduce | cutesync | NCCL | of it | host |\n|---|---|---|---|---|", flush=True)
    for size in MESSAGES:
        parts = bench.arrays(size // 4)
        expected = sum(part.cpu() for part in parts)
        found = bench.group.all_reduce(parts)
        bench.synchronize()
        assert all(torch.equal(part.cpu(), expected) for part in found.parts), size
        ours = bench.time(lambda parts=parts: bench.group.all_reduce(parts))
        nccl = attempt(bench.time, lambda parts=parts: torch.cuda.nccl.all_reduce(parts))
        host = bench.host(lambda parts=parts: bench.group.all_reduce(parts))
        print(f"| {size} B | {ours:.2f} | {nccl:.2f} | {ours / nccl:.2f} | {host:.1f} |", flush=True)


def _summed(parts: list) -> None:
    torch.cuda.nccl.all_reduce([torch.sum(part).reshape(1) for part in parts])


# name: call, the same of torch on the whole array, a rival or None
CALLS_OF = {
    "sum": (cs.sum, lambda x: torch.sum(x), _summed),
    "argmax": (cs.argmax, lambda x: torch.argmax(x), None),
    "scan": (cs.scan, lambda x: torch.cumsum(x, 0), None),
    "heads": (cs.flag_heads, lambda x: torch.cat([x[:1] == x[:1], x[1:] != x[:-1]]).to(torch.uint8), None),
}


def families(bench: Bench, exponents: list[int]) -> None:
    print("| call | elements a GPU | one part alone | cutesync | more | torch and NCCL | host |", flush=True)
    print("|---|---|---|---|---|---|---|", flush=True)
    for exponent in exponents:
        parts = bench.arrays(1 << exponent)
        for name in CALLS_OF:
            row(bench, name, parts, exponent)


def row(bench: Bench, name: str, parts: list, exponent: int) -> None:
    call, reference, rival = CALLS_OF[name]
    check(bench, name, call, reference, min(exponent, 22))
    sharded, calls = Sharded(bench.group, parts, 0), CALLS if exponent < 26 else 8
    alone = bench.time(lambda: [call(part) for part in parts], calls)
    ours = bench.time(lambda: call(sharded), calls)
    other = float("nan") if rival is None else attempt(bench.time, lambda: rival(parts), calls)
    host = bench.host(lambda: call(sharded), 20)
    times = f"{alone:.2f} | {ours:.2f} | {ours - alone:+.2f} ({ours / alone:.3f}) | {other:.2f} | {host:.1f}"
    print(f"| {name} | 2^{exponent} | {times} |", flush=True)


def check(bench: Bench, name: str, call: Callable, reference: Callable, exponent: int) -> None:
    """Compare a call on parts of different lengths with torch on the whole array."""
    parts = bench.arrays(1 << exponent)
    parts[0] = parts[0][: (1 << exponent) - 3]
    found = call(Sharded(bench.group, parts, 0))
    bench.synchronize()
    whole = torch.cat([part.to("cuda:0") for part in parts])
    bench.synchronize()
    expected = reference(whole).cpu()
    got = [part.cpu() for part in found.parts]
    if found.axis is None:
        values = whole.cpu()
        same = all(
            torch.equal(values[part], values[expected]) if name == "argmax" else part == expected for part in got
        )
    else:
        same = torch.equal(torch.cat(got), expected)
    assert same, name


def main() -> None:
    global torch
    parser = script.parser(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[12, 20, 28], help="exponents of the elements a GPU")
    sizes = parser.parse_args().sizes
    torch = importlib.import_module("torch")
    bench = Bench()
    print(f"{bench.group.size} x {torch.cuda.get_device_name(0)}, torch {torch.__version__}", flush=True)
    with bench.current():
        messages(bench)
        families(bench, sizes)


if __name__ == "__main__":
    script.run(main)
