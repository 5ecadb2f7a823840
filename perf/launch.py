"""What one call costs on the host, and what the first call of a process costs.

    python perf/launch.py [--quick] [--json FILE]

Host cost: perf_counter over batches of calls on small arrays, without a wait inside a batch. The queue is emptied
before each batch, so no call waits for room in it. Contestants take turns; the table gives the median and the 5th and
95th percentile of the batches in microseconds a call.

First call: a new process imports everything, makes its arrays, and times its first ``cs.reduce(x, out=o)`` up to the
finished result, once with an empty cache folder (cold) and then with the folder that this left behind (warm).
"""

from __future__ import annotations

import argparse
import datetime
import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
import report as reporting
import script
from cuda.bindings import driver
from gpu import Probe, check
from measure import summary
from rivals import versions

COUNT = 4096  # elements: the kernel is over before the next call is enqueued
CALLS = 200  # a batch: well below the depth of the launch queue
TORCH, ARRAY, THEIRS = "cutesync on torch tensors", "cutesync on DeviceArray", "torch.sum(x, 0, out=o)"
NEW, THEIR_NEW = "cs.sum(x) on torch tensors", "torch.sum(x)"
NAMED, WRITTEN = 'cs.scan(x, "add", out=y) on torch tensors', "cs.scan(x, lambda a, b: a + b, out=y) on torch tensors"
PRODUCT, THEIR_PRODUCT = "cs.matmul(a, b, out=o) on torch tensors", "torch.matmul(a, b, out=o)"
HOST_BARS = ((TORCH, THEIRS, 0.75), (ARRAY, THEIRS, 0.60), (PRODUCT, THEIR_PRODUCT, 0.75), (NEW, THEIR_NEW, 1.0))
LAMBDA_US = 2.0  # more than a named operator: a callable written in the call
FIRST_BARS = (("cold", 1.0), ("warm", 0.15))  # seconds


def contestants() -> tuple[dict, dict[str, str]]:
    """Zero-argument calls by name, and why the missing ones are missing."""
    found, missing = {}, {}
    data = np.random.default_rng(3).random(COUNT, np.float32)
    for maker in (ours_on_array, ours_on_torch, own_function, torch, products, cupy, compute):
        try:
            calls = maker(data)
            for call in calls.values():
                call()
            found |= calls
        except Exception as error:  # a library that is absent or broken leaves the others to be measured
            missing[maker.__name__] = f"{type(error).__name__}: {error}".splitlines()[0]
    return found, missing


def ours_on_array(data) -> dict:
    cs = importlib.import_module("cutesync")
    x, out = cs.asarray(data), cs.empty((), "float32")
    reduce = cs.reduce
    return {ARRAY: lambda: reduce(x, out=out)}


def torch_arrays(library, data):
    x = library.from_numpy(data).cuda()
    return x, library.empty((), dtype=x.dtype, device=x.device)


def ours_on_torch(data) -> dict:
    cs = importlib.import_module("cutesync")
    reduce, scan, total = cs.reduce, cs.scan, cs.sum
    x, out = torch_arrays(importlib.import_module("torch"), data)
    y = x.clone()
    return {
        TORCH: lambda: reduce(x, out=out),
        NEW: lambda: total(x),
        NAMED: lambda: scan(x, "add", out=y),
        WRITTEN: lambda: scan(x, lambda a, b: a + b, out=y),
    }


def own_function(data) -> dict:
    return importlib.import_module("own").calls(data)


def torch(data) -> dict:
    library = importlib.import_module("torch")
    x, out = torch_arrays(library, data)
    return {THEIRS: lambda: library.sum(x, 0, out=out), THEIR_NEW: lambda: library.sum(x)}


def products(data) -> dict:
    """Both multiply 64 x 64 matrices of bfloat16."""
    library, matmul = importlib.import_module("torch"), importlib.import_module("cutesync").matmul
    a, b = (library.from_numpy(data[: 64 * 64]).cuda().reshape(64, 64).bfloat16() for _ in range(2))
    out = library.empty_like(a)
    return {PRODUCT: lambda: matmul(a, b, out=out), THEIR_PRODUCT: lambda: library.matmul(a, b, out=out)}


def cupy(data) -> dict:
    library = importlib.import_module("cupy")
    x, out = library.asarray(data), library.empty((), "float32")
    return {"cupy.sum(x, out=o)": lambda: library.sum(x, out=out)}


def compute(data) -> dict:
    library, arrays = importlib.import_module("cuda.compute"), importlib.import_module("cupy")
    x, out, init = arrays.asarray(data), arrays.empty(1, "float32"), np.zeros(1, np.float32)
    arguments = {"d_in": x, "d_out": out, "num_items": COUNT, "op": library.OpKind.PLUS, "h_init": init}
    reducer = library.make_reduce_into(d_in=x, d_out=out, op=library.OpKind.PLUS, h_init=init)
    storage = arrays.empty(max(reducer(temp_storage=None, **arguments), 1), "uint8")
    return {
        "cuda.compute reduce_into": lambda: library.reduce_into(**arguments),
        "cuda.compute prepared reducer": lambda: reducer(temp_storage=storage, **arguments),
    }


def host_cost(calls: dict, batches: int) -> dict[str, dict]:
    """Microseconds a call, summarised over the batches."""
    times = {name: [] for name in calls}
    for batch in range(-2, batches):  # the first two warm up
        for name, call in calls.items():
            check(driver.cuCtxSynchronize())
            gc.disable()
            begin = time.perf_counter()
            for _ in range(CALLS):
                call()
            took = time.perf_counter() - begin
            gc.enable()
            if batch >= 0:
                times[name].append(1e6 * took / CALLS)
    check(driver.cuCtxSynchronize())
    return {name: summary(values, 0) for name, values in times.items()}


def first_call() -> None:
    """Run in a process of its own: print the seconds of the first and the second call as JSON."""
    for module in ("cutlass", "cutlass.cute", "cuda.core", "cutesync"):
        importlib.import_module(module)
    cs = importlib.import_module("cutesync")
    reduce = cs.reduce
    data = np.random.default_rng(4).random(1 << 20, np.float32)
    x, out = cs.asarray(data), cs.empty((), "float32")
    check(driver.cuCtxSynchronize())
    seconds = []
    for _ in range(2):
        begin = time.perf_counter()
        reduce(x, out=out)
        check(driver.cuCtxSynchronize())
        seconds.append(time.perf_counter() - begin)
    error = abs(float(np.asarray(out)) - float(data.sum(dtype=np.float64))) / float(data.sum(dtype=np.float64))
    print(json.dumps({"first": seconds[0], "second": seconds[1], "error": error}))


def first_calls(repeats: int) -> dict[str, list[float]]:
    """Seconds of the first call with an empty cache (cold) and with one that an earlier process filled (warm)."""
    seconds: dict[str, list[float]] = {"cold": [], "warm": []}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            caches = {"CUTESYNC_CACHE_DIR": folder, "CUTE_DSL_CACHE_DIR": f"{folder}/dsl"}
            for state in ("cold", "warm", "warm"):
                command = [sys.executable, __file__, "--first-call"]
                answer = subprocess.run(command, env=os.environ | caches, capture_output=True, text=True, timeout=300)
                if answer.returncode:
                    raise RuntimeError(f"the {state} first call failed: {answer.stderr.strip()[-400:]}")
                found = json.loads(answer.stdout.splitlines()[-1])
                if found["error"] > 1e-5:
                    raise RuntimeError(f"the {state} first call gave a wrong sum: {found}")
                seconds[state].append(found["first"])
                print(
                    f"first call, {state} cache: {found['first']:.3f} s, second call {found['second'] * 1e6:.0f} us",
                    flush=True,
                )
    return seconds


def bars(host: dict, first: dict[str, list[float]]) -> list[dict]:
    judged = []
    for name, against, limit in HOST_BARS:
        value = host[name]["median_us"] / host[against]["median_us"] if name in host and against in host else None
        met = None if value is None else value <= limit
        judged.append({"text": f"host cost of {name} <= {limit} x {against}", "value": value, "met": met})
    value = host[WRITTEN]["median_us"] - host[NAMED]["median_us"] if WRITTEN in host else None
    met = None if value is None else value <= LAMBDA_US
    judged.append(
        {
            "text": f"a callable written in the call <= {LAMBDA_US} us more than a named operator",
            "value": value,
            "met": met,
        }
    )
    for state, limit in FIRST_BARS:
        value = sorted(first[state])[len(first[state]) // 2] if first.get(state) else None
        met = None if value is None else value <= limit
        judged.append({"text": f"first call, {state} cache <= {limit} s", "value": value, "met": met})
    return judged


def main(argv=None) -> int:
    parser = script.parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer batches and processes")
    parser.add_argument("--json", type=script.output, help="where to write the results")
    parser.add_argument("--first-call", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args(argv)
    gpu = script.gpu()
    if chosen.first_call:
        first_call()
        return 0
    first = first_calls(1 if chosen.quick else 3)
    calls, missing = contestants()
    host = host_cost(calls, 10 if chosen.quick else 40)
    today = datetime.datetime.now(datetime.timezone.utc)
    report = {
        "family": "launch",
        "gpu": gpu.name,
        "date": today.isoformat(timespec="seconds"),
        "versions": versions(),
        "missing": missing,
        "clocks": Probe(gpu).read(),
        "cpus": os.cpu_count(),
        "host_us": host,
        "first_call_s": first,
        "bars": bars(host, first),
    }
    path = chosen.json or reporting.result_path(
        "launch", gpu.name, today.date().isoformat(), "-quick" if chosen.quick else ""
    )
    reporting.write(report, path)
    print(f"{'call':<56} {'us':>8}  [5 % 95 %]")
    for name, numbers in sorted(host.items(), key=lambda item: item[1]["median_us"]):
        print(f"{name:<56} {numbers['median_us']:>8.2f}  [{numbers['p5_us']:.2f} {numbers['p95_us']:.2f}]")
    for name, reason in missing.items():
        print(f"without {name}: {reason}")
    for bar in report["bars"]:
        print(reporting.verdict(bar))
    print(f"written: {path}")
    return 0


if __name__ == "__main__":
    script.run(main)
