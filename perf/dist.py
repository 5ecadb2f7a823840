"""Several GPUs: exchanges, calls and products of sharded arrays, with torch, NCCL and torch's symmetric memory in the
same run.

    python perf/sweep.py dist [--sizes 12 20 28] [--only messages families copies products] [--json FILE]

Times are microseconds a call: of a CUDA graph on each GPU with many calls, of products of calls outside a graph (where
copy engines work beside kernels); the slower GPU counts. "host" is the time
that a call takes before it returns, with the driver (``perf/dist_host.py`` has it without). Every result is compared
with torch's first. A call or a rival that fails leaves its row to NaN and is named. "NCCL" is called in this process;
what torch's own processes take, one a GPU, is beside it: ``dist_rivals.py``.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import time
from collections.abc import Callable
from typing import Any

import dist_rivals
import numpy as np
import script
from cuda.bindings import driver

import cutesync as cs
from cutesync.dist import Group, Sharded

torch: Any = None  # imported when there is something to measure

MESSAGES = (8, 1 << 10, 1 << 12, 1 << 14, 1 << 16)  # bytes
CALLS, REPEATS = 50, 5  # in a graph, of small arrays
SLEEP = 1_000_000  # clocks: half a millisecond


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
            checked(driver.cuStreamBeginCapture(driver.CUstream(raw), mode))
        try:
            for _ in range(calls):
                call()
        finally:
            captured = [driver.cuStreamEndCapture(driver.CUstream(raw)) for raw in self.raw]
        return [checked(driver.cuGraphInstantiate(checked(graph), 0)) for graph in captured]

    def time(self, call: Callable, calls: int = CALLS) -> float:
        """Return the microseconds of a call, of which a graph on each GPU has ``calls``."""
        for _ in range(2):
            call()
        self.synchronize()
        graphs = self.graphs(call, calls)

        def launch() -> None:
            for raw, graph in zip(self.raw, graphs):
                checked(driver.cuGraphLaunch(graph, driver.CUstream(raw)))

        return self.measured(launch) / calls

    def time_in_turns(self, each: list[Callable], calls: int = 8) -> list[float]:
        """Return the microseconds of each of several long calls, of ``calls`` one after the other outside a graph. They
        take turns: the clock of a GPU depends on what it did before."""
        best = [float("inf")] * len(each)
        for _ in range(REPEATS + 1):
            for i, call in enumerate(each):
                taken = attempt(self.measured, lambda call=call: [call() for _ in range(calls)], 1)
                best[i] = taken / calls if taken != taken else min(best[i], taken / calls)
        return best

    def measured(self, launch: Callable, repeats: int = REPEATS + 1) -> float:
        """Return the least microseconds of what is launched on all streams; the slower GPU counts. The GPUs sleep
        first, so that the host is ahead of them."""
        best = float("inf")
        for _ in range(repeats):
            events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in self.ranks]
            for rank, (start, _) in enumerate(events):
                with torch.cuda.stream(self.streams[rank]):
                    torch.cuda._sleep(SLEEP)
                start.record(self.streams[rank])
            launch()
            for rank, (_, end) in enumerate(events):
                end.record(self.streams[rank])
            self.synchronize()
            best = min(best, max(start.elapsed_time(end) for start, end in events))
        return best * 1e3

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


def attempt(measure: Callable, *arguments, failed: Any = float("nan")) -> Any:
    """Return a time; ``failed`` if what is measured cannot run here."""
    try:
        return measure(*arguments)
    except Exception as error:  # of any library: the rest is still worth measuring
        print(f"failed: {type(error).__name__}: {str(error)[:200]}", flush=True)
        return failed


def keep(what: str, **figures: float) -> None:
    """Remember a row for ``--json``."""
    ROWS.append({"what": what, **{name: None if x != x else round(x, 3) for name, x in figures.items()}})


ROWS: list[dict] = []
RIVALS: dict[str, dict[str, float]] = {}  # of torch's processes


def of_processes(what: str) -> dict[str, float]:
    """Return what the rivals take in processes of their own; NaN if they failed."""
    found = RIVALS.get(what, {})
    return {f"torchrun_{name}": found.get(name, float("nan")) for name in ("nccl", "symmetric")}


def messages(bench: Bench) -> None:
    print("| all_reduce | cutesync | NCCL | of it | NCCL, symmetric memory in processes | host |", flush=True)
    print("|---|---|---|---|---|---|", flush=True)
    for size in MESSAGES:
        parts = bench.arrays(size // 4)
        expected = sum(part.cpu() for part in parts)
        found = bench.group.all_reduce(parts)
        bench.synchronize()
        assert all(torch.equal(part.cpu(), expected) for part in found.parts), size
        ours = attempt(bench.time, lambda parts=parts: bench.group.all_reduce(parts))
        nccl = attempt(bench.time, lambda parts=parts: torch.cuda.nccl.all_reduce(parts))
        host = bench.host(lambda parts=parts: bench.group.all_reduce(parts))
        what = f"all_reduce of {size} B"
        more = of_processes(what)
        keep(what, ours=ours, nccl=nccl, host=host, **more)
        others = ", ".join(f"{time:.2f}" for time in more.values())
        print(f"| {size} B | {ours:.2f} | {nccl:.2f} | {ours / nccl:.2f} | {others} | {host:.1f} |", flush=True)


def _summed(parts: list) -> None:
    torch.cuda.nccl.all_reduce([torch.sum(part).reshape(1) for part in parts])


# name: call, the same of torch on the whole array, a rival or None
CALLS_OF = {
    "sum": (cs.sum, lambda x: torch.sum(x), _summed),
    "argmax": (cs.argmax, lambda x: torch.argmax(x), None),
    "scan": (cs.scan, lambda x: torch.cumsum(x, 0), None),
    "heads": (cs.flag_heads, lambda x: torch.cat([x[:1] == x[:1], x[1:] != x[:-1]]).to(torch.uint8), None),
    "select": (lambda x: cs.select(x, positive), lambda x: x[x > 0], None),
    "unique": (lambda x: cs.unique_consecutive(x), lambda x: torch.unique_consecutive(x), None),
    "sums of runs": (lambda x: cs.reduce_by_key(x, x).values, lambda x: sums_of_runs(x), None),
    "top 64": (lambda x: cs.topk(x, 64)[0], lambda x: torch.topk(x, 64)[0], None),
}


def positive(value):
    return value > 0


def sums_of_runs(x: Any) -> Any:
    values, counts = torch.unique_consecutive(x, return_counts=True)
    return values * counts


def families(bench: Bench, exponents: list[int]) -> None:
    print("| call | elements a GPU | one part alone | cutesync | more | torch and NCCL | host |", flush=True)
    print("|---|---|---|---|---|---|---|", flush=True)
    for exponent in exponents:
        parts = bench.arrays(1 << exponent)
        for name in CALLS_OF:
            row(bench, name, parts, exponent)


def row(bench: Bench, name: str, parts: list, exponent: int) -> None:
    call, reference, rival = CALLS_OF[name]
    try:
        check(bench, name, call, reference, min(exponent, 22))
    except Exception as error:  # a wrong or failed call is named, and not timed
        print(f"| {name} | 2^{exponent} | failed: {type(error).__name__}: {str(error)[:200]} |", flush=True)
        return
    sharded, calls = Sharded(bench.group, parts, 0), CALLS if exponent < 26 else 8
    alone = attempt(bench.time, lambda: [call(part) for part in parts], calls)
    ours = attempt(bench.time, lambda: call(sharded), calls)
    other = float("nan") if rival is None else attempt(bench.time, lambda: rival(parts), calls)
    host = attempt(bench.host, lambda: call(sharded), 20)
    keep(f"{name} of 2^{exponent} a GPU", alone=alone, ours=ours, rival=other, host=host)
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
    if not isinstance(found, Sharded):  # a selection: values that lie on both
        values = np.asarray(found.values if hasattr(found, "values") else found)
        assert np.array_equal(values, expected.numpy()), name
        return
    got = [part.cpu() for part in found.parts]
    if found.axis is None:
        values = whole.cpu()
        same = all(
            torch.equal(values[part], values[expected]) if name == "argmax" else torch.equal(part, expected)
            for part in got
        )
    else:
        same = torch.equal(torch.cat(got), expected)
    assert same, name


def copies(bench: Bench, exponents: list[int]) -> None:
    """All-gather, reduce-scatter and all-to-all; "GB/s" counts what a GPU reads from the others."""
    print("| call | elements a GPU | cutesync | GB/s | torch and NCCL |\n|---|---|---|---|---|", flush=True)
    for exponent in exponents:
        copies_of(bench, exponent, bench.arrays(1 << exponent))


def copies_of(bench: Bench, exponent: int, parts: list) -> None:
    nccl, size, count = torch.cuda.nccl, bench.group.size, 1 << exponent
    gathered = [torch.empty(size * count, device=f"cuda:{rank}") for rank in bench.ranks]
    scattered = [torch.empty(count // size, device=f"cuda:{rank}") for rank in bench.ranks]
    sharded = Sharded(bench.group, parts, 0)
    square = Sharded(bench.group, [part.reshape(1 << exponent // 2, -1) for part in parts], 0)
    cases: dict[str, tuple[Callable, Callable | None, float]] = {
        "all-gather": (lambda: sharded.reshard(None), lambda: nccl.all_gather(parts, gathered), size - 1),
        "reduce-scatter": (
            lambda: bench.group.reduce_scatter(parts),
            lambda: nccl.reduce_scatter(parts, scattered),
            (size - 1) / size,
        ),
        "all-to-all": (lambda: square.reshard(1), None, (size - 1) / size),
    }
    for name, (call, rival, share) in cases.items():
        right = attempt(lambda name=name, call=call: copied(bench, name, call(), parts))
        ours = attempt(bench.time, call, 4 if exponent >= 26 else CALLS) if right == 1 else float("nan")
        other = float("nan") if rival is None else attempt(bench.time, rival, 4 if exponent >= 26 else CALLS)
        keep(f"{name} of 2^{exponent} a GPU", ours=ours, rival=other)
        print(f"| {name} | 2^{exponent} | {ours:.1f} | {4e-3 * share * count / ours:.0f} | {other:.1f} |", flush=True)


def copied(bench: Bench, name: str, found: Sharded, parts: list) -> float:
    """Return 1 if a copy is right."""
    bench.synchronize()
    host = [part.cpu() for part in parts]
    if name == "all-gather":
        return float(all(torch.equal(part.cpu(), torch.cat(host)) for part in found.parts))
    if name == "reduce-scatter":
        return float(torch.equal(torch.cat([part.cpu() for part in found.parts]), sum(host)))
    return float(np.array_equal(np.asarray(found).reshape(-1), torch.cat(host).numpy()))


SHAPES = ((8192, 8192, 8192), (16384, 4096, 4096), (2048, 28672, 8192))  # M, N, K


def products(bench: Bench) -> None:
    """bf16: rows of A times columns of B (A is gathered), and K sharded (the sums are scattered). "bare" is the product
    of each GPU alone, of the same shapes and with no exchange."""
    print("| product | M N K | bare | cutesync | of bare | torch and NCCL | NCCL, fused in processes |", flush=True)
    print("|---|---|---|---|---|---|---|", flush=True)
    for m, n, k in SHAPES:
        for name, measure in (("all-gather +", gathered_product), ("+ reduce-scatter", scattered_product)):
            bare, ours, rival = attempt(measure, bench, m, n, k, failed=(float("nan"),) * 3)
            more = of_processes(f"{name} {m} {n} {k}")
            keep(f"{name} {m} {n} {k}", bare=bare, ours=ours, rival=rival, **more)
            times = f"{bare:.0f} | {ours:.0f} | {ours / bare:.3f} | {rival:.0f}"
            print(f"| {name} | {m} {n} {k} | {times} | {', '.join(f'{t:.0f}' for t in more.values())} |", flush=True)


def matrices(bench: Bench, *shape: int) -> list:
    made = [torch.randint(-2, 3, shape, device=f"cuda:{rank}").bfloat16() for rank in bench.ranks]
    bench.synchronize()
    return made


def gathered_product(bench: Bench, m: int, n: int, k: int) -> tuple:
    size = bench.group.size
    a, b = matrices(bench, m // size, k), matrices(bench, k, n // size)
    rows, columns = Sharded(bench.group, a, 0), Sharded(bench.group, b, 1)
    whole = matrices(bench, m, k)
    found = cs.matmul(rows, columns)
    bench.synchronize()
    left = torch.cat([part.to("cuda:0") for part in a]).float()  # sums of small integers are exact in float32
    for part, right in zip(found.parts, b):
        expected = (left @ right.to("cuda:0").float()).bfloat16()
        assert torch.equal(part.to("cuda:0"), expected), "all-gather + product"

    def rival() -> None:
        torch.cuda.nccl.all_gather(a, whole)
        for x, y in zip(whole, b):
            torch.matmul(x, y)

    return tuple(
        bench.time_in_turns(
            [lambda: [cs.matmul(x, y) for x, y in zip(whole, b)], lambda: cs.matmul(rows, columns), rival]
        )
    )


def scattered_product(bench: Bench, m: int, n: int, k: int) -> tuple:
    size = bench.group.size
    a, b = matrices(bench, m, k // size), matrices(bench, k // size, n)
    left, right = Sharded(bench.group, a, 1), Sharded(bench.group, b, 0)
    found, again = cs.matmul(left, right), cs.matmul(left, right)
    bench.synchronize()
    products = [x.to("cuda:0").float() @ y.to("cuda:0").float() for x, y in zip(a, b)]  # exact
    for keeper, part in enumerate(found.parts):
        rows = slice(keeper * m // size, (keeper + 1) * m // size)
        sums = products[(keeper + 1) % size][rows]
        for turn in range(1, size):  # a ring: what crosses is rounded
            sums = sums.bfloat16().float() + products[(keeper + 1 + turn) % size][rows]
        assert torch.equal(part.to("cuda:0"), sums.bfloat16()), "product + reduce-scatter"
    del products
    assert all(torch.equal(x, y) for x, y in zip(found.parts, again.parts)), "other bits"
    out = [torch.empty(m // size, n, dtype=torch.bfloat16, device=f"cuda:{rank}") for rank in bench.ranks]
    return tuple(
        bench.time_in_turns(
            [
                lambda: [cs.matmul(x, y) for x, y in zip(a, b)],
                lambda: cs.matmul(left, right),
                lambda: torch.cuda.nccl.reduce_scatter([x @ y for x, y in zip(a, b)], out),
            ]
        )
    )


def main(argv: list[str] | None = None) -> None:
    global torch
    parser = script.parser(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[12, 20, 28], help="exponents of the elements a GPU")
    parts = ("messages", "families", "copies", "products")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    parser.add_argument("--json", type=script.output, help="where to write the figures")
    given = parser.parse_args(argv)
    torch = importlib.import_module("torch")
    shapes = SHAPES if "products" in given.only else ()
    sizes = MESSAGES if "messages" in given.only else ()
    if sizes or shapes:
        RIVALS.update(attempt(dist_rivals.run, sizes, shapes, failed={}))
    bench = Bench()
    machine = f"{bench.group.size} x {torch.cuda.get_device_name(0)}, torch {torch.__version__}"
    print(machine, flush=True)
    with bench.current():
        for name in given.only:
            {
                "messages": lambda: messages(bench),
                "families": lambda: families(bench, given.sizes),
                "copies": lambda: copies(bench, given.sizes),
                "products": lambda: products(bench),
            }[name]()
            if given.json:  # what there is so far
                given.json.write_text(json.dumps({"machine": machine, "rows": ROWS}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    script.run(main)
