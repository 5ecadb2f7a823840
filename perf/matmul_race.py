"""Times of one product in several ways: graphs of calls on rotating buffers, replayed in turns.

Operands are views of pools of random elements: nothing is uploaded or filled for a product. The buffers of the calls of
a graph rotate over three times the L2 where the product is large enough."""

from __future__ import annotations

import math
import statistics

from gpu import Event, Gpu, Graph
from matmul_random import Random
from rivals import Libraries

POOL_BYTES = 1 << 30
ALIGN = 1024  # bytes
MOST_SETS, MOST_CALLS, GRAPH_US, ROUNDS = 12, 20, 250, 5
MOST_ELEMENTS = 1 << 22  # of results that are compared
CHECKED_ROWS = 16


class Race:
    """One GPU, torch, and pools of random elements."""

    def __init__(self, gpu: Gpu, libraries: Libraries) -> None:
        self.gpu, self.libraries, self.torch, self.cs = gpu, libraries, libraries.torch, libraries.cutesync
        self.pools: dict[str, object] = {}
        self.results = self.torch.empty(POOL_BYTES, dtype=self.torch.uint8, device="cuda")
        self.events: list[Event] = []
        self.one = self.torch.ones((), device="cuda")

    def pool(self, dtype: str):
        """Random normal elements (of int8: all values)."""
        if dtype not in self.pools:
            torch, kind = self.torch, getattr(self.torch, dtype)
            if dtype == "int8":
                self.pools[dtype] = torch.randint(-128, 128, (POOL_BYTES,), dtype=kind, device="cuda")
            else:
                self.pools[dtype] = torch.empty(POOL_BYTES // kind.itemsize, dtype=kind, device="cuda")
                for part in self.pools[dtype].split(1 << 26):
                    part.copy_(torch.randn(part.shape, device="cuda"))
        return self.pools[dtype]

    def sets(self, product: Random) -> list[tuple]:
        """``(a, b, bias, out)`` of each set of buffers."""
        torch, batch = self.torch, (product.batch,) if product.batch else ()
        m, n, k = product.m, product.n, product.k
        shapes = [(k, m) if product.layout[0] == "T" else (m, k), (n, k) if product.layout[1] == "T" else (k, n)]
        pool, out = self.pool(product.dtype), self.results.view(getattr(torch, product.out))
        count = max(2, min(MOST_SETS, math.ceil(3 * self.gpu.l2_bytes / product.bytes)))
        found, at, at_out = [], 0, 0

        def take(source, start: int, shape: tuple[int, ...]):
            size, step = math.prod(shape), ALIGN // source.element_size()
            start = 0 if start + size > source.numel() else start
            return source[start : start + size].view(shape), start + -(-size // step) * step

        for _ in range(count):
            a, at = take(pool, at, (*batch, *shapes[0]))
            b, at = take(pool, at, (*batch, *shapes[1]))
            bias, at = take(pool, at, (n,))
            result, at_out = take(out, at_out, (*batch, m, n))
            a = a.mT if product.layout[0] == "T" else a
            found.append((a, b.mT if product.layout[1] == "T" else b, bias, result))
        return found

    def ours(self, product: Random, buffers: tuple, config=None):
        """A call of cutesync."""
        (a, b, bias, out), stream = buffers, self.libraries.stream
        more = {
            "fast": {"fast_accumulation": True},
            "tf32": {"precision": "tf32"},
            "bias gelu": {"bias": bias, "activation": "gelu"},
            "invariant": {"batch_invariant": True},
        }.get(product.op, {})
        return lambda: self.cs.matmul(a, b, out=out, config=config, stream=stream, **more)

    def theirs(self, product: Random, buffers: tuple):
        """A call of torch, or None where it has no such product."""
        torch, (a, b, bias, out) = self.torch, buffers
        if product.op == "bias gelu":
            return lambda: torch.nn.functional.gelu(torch.addmm(bias, a, b))
        if product.dtype.startswith("float8"):
            return lambda: torch._scaled_mm(
                a,
                b,
                scale_a=self.one,
                scale_b=self.one,
                out_dtype=torch.bfloat16,
                use_fast_accum=product.op == "fast",
                out=out,
            )
        if product.dtype == "int8":
            return (lambda: torch._int_mm(a, b, out=out)) if product.m > 16 else None

        def call() -> None:
            torch.backends.cuda.matmul.allow_tf32 = product.op == "tf32"
            torch.matmul(a, b, out=out)

        return call

    def quack(self, product: Random, buffers: tuple):
        """A call of QuACK, or None where it takes no part."""
        a, b, _, out = buffers
        has = self.libraries.quack and product.dtype in ("bfloat16", "float16") and not product.op
        return (lambda: self.libraries.quack.gemm(a, b, out=out)) if has and out.shape[-1] % 8 == 0 else None

    def wrong(self, product: Random, buffers: tuple, calls: list) -> list[str]:
        """What is wrong with the results of the calls; some rows are compared, the last among them."""
        torch, (a, b, bias, out) = self.torch, buffers
        rows = torch.unique(torch.linspace(0, product.m - 1, CHECKED_ROWS, device="cuda").long())
        items = slice(0, 1 if product.batch * product.n * product.k > MOST_ELEMENTS else None)
        a, b, part = (x[items] if product.batch else x for x in (a, b, out))
        bits = a.view(torch.int8) if a.element_size() == 1 else a  # float8 has no indexing
        a, b = bits[..., rows, :].view(a.dtype).float().double(), b.float().double()
        wanted, size = a @ b, a.abs() @ b.abs()
        if product.op == "bias gelu":
            wanted = torch.nn.functional.gelu(wanted + bias.double())
        rounding = {"float32": 2.0**-22, "int32": 0.0, "float16": 2.0**-10}.get(product.out, 2.0**-7)
        sums = {"tf32": 2.0**-9, "fast": 2.0**-7, "promoted": 2.0**-9}.get(product.op, 2.0**-19)
        allowed = rounding * wanted.abs() + (0.0 if product.dtype == "int8" else sums) * size
        found = []
        for call in calls:
            out.view(torch.uint8).fill_(0xFF)  # NaN
            call()
            error = (part[..., rows, :].double() - wanted).abs()
            if not bool((error <= allowed).all()):
                found.append(f"{product.name}: off by {float(error.max()):.3g}")
        return found

    def times(self, product: Random, contestants: list[list], rounds: int = ROUNDS) -> list[float]:
        """Microseconds of a call of each contestant, which is a list of calls, one a set of buffers."""
        floor = max(2 * product.work / 7e8, product.bytes / 4e6) + 4
        count = max(2, min(MOST_CALLS, int(GRAPH_US / floor)))
        graphs = []
        for calls in contestants:
            for call in calls[:count]:
                call()  # loads the kernel, makes its plan and its workspace
            graphs.append(Graph(self.gpu.stream, [calls[i % len(calls)] for i in range(count)]))
        self.events += [Event() for _ in range(2 * rounds * len(graphs) - len(self.events))]
        pairs = iter(zip(self.events[::2], self.events[1::2]))
        events = [[next(pairs) for _ in graphs] for _ in range(rounds)]
        for graph in graphs:
            graph.launch()
        for turn, row in enumerate(events):
            for place in range(len(graphs)):
                i = (turn + place) % len(graphs)
                row[i][0].record(self.gpu.stream)
                graphs[i].launch()
                row[i][1].record(self.gpu.stream)
        self.gpu.stream.synchronize()
        for graph in graphs:
            graph.free()
        laps = [[end.microseconds_since(start) / count for start, end in row] for row in events]
        return [statistics.median(of) for of in zip(*laps)]
