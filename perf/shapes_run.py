"""Time cutesync, torch and CuPy on random cases: shapes, axes, types, strides and operators that no table has.

    python perf/sweep.py random --family reduce|scan|flags [--seed S] [--seconds T] [--cases N] [--rivals torch cupy]
                                [--json FILE] [--dry]

What is drawn stands in shapes.py. All kernels that the cases need are compiled first, in parallel processes; then case
after case is timed until T seconds have passed since the start. Each contestant's calls are captured in a graph, on
buffers that rotate and together are larger than the L2, and contestants take turns. "copy" copies as many bytes as the
case has to move, half of them read and half of them written. Every result is compared with NumPy, or where it is large
with torch. The report has geometric means by class, the worst cases, the kernels compiled, and the bars. ``--dry``
draws and plans the cases without a GPU, and says how many kernels they need. Exits with 1 if a result is wrong.
"""

from __future__ import annotations

import argparse
import collections
import math
import multiprocessing
import os
import statistics
import sys
import time
from pathlib import Path

import report as reporting
import script
import shapes_calls as calls
import shapes_report
from shapes import OPS, SIZES, Drawn, draw

CASES_PER_SECOND = 12  # at most so many are timed
COMPILING = 0.45  # of the seconds, at most
L2S = 2.5  # sizes of the L2 that the buffers of a case have, if they are small
MOST_SLOTS, SPARE_BYTES = 12, 8 << 30
ROUNDS, SAMPLE_US, MOST_CALLS, HOLD_US = 5, 300, 60, 60
SLOW_US, SLOW = 1000, 8  # a rival that takes so long, and so many times as long as ours, is sampled once


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = script.parser(__doc__)
    parser.add_argument("--family", required=True, choices=tuple(OPS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=75)
    parser.add_argument("--cases", type=int, help="how many cases are drawn; default: as many as there may be time for")
    parser.add_argument("--rivals", nargs="*", choices=("torch", "cupy"), default=["torch"])
    parser.add_argument("--json", type=script.output, help="where to write the results")
    parser.add_argument("--dry", action="store_true", help="draw and plan only; needs no GPU")
    return parser.parse_args(argv)


# Kernels


def kernels_of(case: Drawn) -> dict:
    """The kernels that a case needs, by key, from a dry run."""
    import cutesync as cs
    from cutesync.dtypes import dtype
    from cutesync.runtime.device import DRY
    from cutesync.runtime.device_array import DeviceArray
    from cutesync.runtime.kernel import collect

    element, far = dtype(case.dtype), 1 << 40
    with collect() as found:
        x = DeviceArray(far + case.offset * element.size, case.shape, element, DRY, None, case.steps)
        outs = [
            DeviceArray((k + 2) * far, shape, dtype(kind), DRY, None) for k, (shape, kind) in enumerate(case.results)
        ]
        calls.ours(cs, case, x, outs)
    return found


def needed(cases: list[Drawn]) -> tuple[list[tuple[Drawn, int]], dict[int, str], collections.Counter]:
    """The kernels to compile, as a case and their number in it; the cases that are refused and why; and how many
    kernels each type has."""
    jobs, refused, kinds = {}, {}, collections.Counter()
    for case in cases:
        try:
            found = kernels_of(case)
        except Exception as error:  # a call that the family refuses is part of the report
            refused[case.number] = f"{type(error).__name__}: {error}".splitlines()[0][:150]
            continue
        for number, key in enumerate(found):
            if key not in jobs:
                jobs[key] = case, number
                kinds[case.dtype] += 1
    return list(jobs.values()), refused, kinds


def plan_times(cases: list[Drawn]) -> list[float]:
    """Microseconds of CPU time of each plan, of cases that were planned before: nothing is imported."""
    found = []
    for case in cases:
        begin = time.process_time()
        kernels_of(case)
        found.append(1e6 * (time.process_time() - begin))
    return sorted(found)


def compiled(job: tuple[Drawn, int]) -> str:
    """Compile one kernel into the cache on disk; return what fails."""
    case, number = job
    try:
        list(kernels_of(case).values())[number].kernel()
    except Exception as error:
        return f"{case.name}: {type(error).__name__}: {error}".splitlines()[0][:200]
    return ""


def compile_all(jobs: list, seconds: float) -> tuple[int, list[str]]:
    """Compile in parallel processes, as long as there is time; return how many were done and what failed."""
    stop, done, failed = time.monotonic() + seconds, 0, []
    pool = multiprocessing.get_context("spawn").Pool(min(len(jobs), os.cpu_count() or 1) or 1)
    try:
        waiting = pool.imap_unordered(compiled, jobs)
        while done < len(jobs):
            text = waiting.next(timeout=max(0.1, stop - time.monotonic()))
            done += 1
            failed += [text] if text else []
    except multiprocessing.TimeoutError:
        pass
    finally:
        pool.terminate()
    return done, failed


# Timing


class Arrays:
    """The memory of one case, ``slots`` times, as arrays of cutesync and of torch."""

    def __init__(self, torch, case: Drawn, slots: int) -> None:
        from cutesync.dtypes import dtype
        from cutesync.runtime.device_array import DeviceArray

        self.torch, self.case, self.xs, self.theirs, self.outs, self.memory = torch, case, [], [], [], []
        carrier = getattr(torch, calls.CARRIERS.get(case.dtype, case.dtype))
        values = torch.randint(0, 3 if case.dtype != "bool" else 2, (case.span,), dtype=torch.int8, device="cuda")
        base = (values - 1 if carrier.is_floating_point else values).to(carrier)
        for _ in range(slots):
            memory = base.clone()
            pointer = memory.data_ptr() + case.offset * SIZES[case.dtype]
            self.memory.append(memory)
            self.xs.append(DeviceArray(pointer, case.shape, dtype(case.dtype), 0, memory, case.steps))
            self.theirs.append(self.seen(memory, case.steps, case.offset))
            results = [
                torch.empty(shape, dtype=getattr(torch, calls.CARRIERS.get(kind, kind)), device="cuda")
                for shape, kind in case.results
            ]
            ours = [
                DeviceArray(y.data_ptr(), shape, dtype(kind), 0, y) for y, (shape, kind) in zip(results, case.results)
            ]
            self.outs.append((ours, results))

    def seen(self, memory, steps, offset):
        """torch's view. It has no negative strides: of a reversed array it gets the same memory, forwards."""
        offset += sum((n - 1) * step for n, step in zip(self.case.shape, steps) if step < 0)
        return memory.as_strided(self.case.shape, [abs(step) for step in steps], offset)

    def right(self) -> bool:
        """Whether the results of the first slot are right."""
        import cutesync

        torch, case = self.torch, self.case
        x = self.theirs[0].flip([i for i, step in enumerate(case.steps) if step < 0])
        if case.size <= calls.BY_NUMPY and case.dtype != "bfloat16":
            wanted = calls.by_numpy(cutesync.reference, case, x.cpu().numpy().astype(case.dtype))
        else:
            wanted = calls.by_torch(torch, case, x)
        pairs = zip(self.outs[0][1], wanted, case.results)
        return all(
            calls.same(torch, case, found.view(torch.bool) if kind == "bool" else found, one)
            for found, one, (_, kind) in pairs
        )


def contestants(arrays: Arrays, libraries, case: Drawn, rivals: list[str]) -> dict[str, list]:
    """Who takes part: a call for each slot."""
    cs, gpu, stream = libraries.cutesync, libraries.gpu, libraries.stream
    half = max(16, (case.read + case.written) // 2)
    found: dict[str, list] = {"cutesync": [], "copy": []}
    for k, (x, (outs, _)) in enumerate(zip(arrays.xs, arrays.outs)):
        found["cutesync"].append(lambda x=x, outs=outs: calls.ours(cs, case, x, outs, stream=stream))
        source, target = libraries.spare
        shift = (k * (half + 4096)) & -256 if len(arrays.xs) > 1 else 0
        found["copy"].append(lambda s=source + shift, t=target + shift: gpu.copy(t, s, half))
    for name in rivals:
        library = getattr(libraries, name)
        if library is None or (name == "cupy" and case.dtype == "bfloat16"):
            continue
        each = []
        for x, (_, outs) in zip(arrays.theirs, arrays.outs):
            if name == "cupy":
                x, outs = library.from_dlpack(x), [library.from_dlpack(y) for y in outs]
            each.append(getattr(calls, f"{name}_call")(library, case, x, outs))
        if each[0] is not None:
            found[name] = each
    return found


class Pacer:
    """Times graphs of calls, in turns."""

    def __init__(self, gpu) -> None:
        from gpu import Event

        self.gpu, self.start, self.end = gpu, Event(), Event()

    def once(self, enqueue) -> float:
        self.gpu.spin(HOLD_US)
        self.start.record(self.gpu.stream)
        enqueue()
        self.end.record(self.gpu.stream)
        self.gpu.stream.synchronize()
        return self.end.microseconds_since(self.start)

    def race(self, found: dict[str, list]) -> tuple[dict[str, float], dict[str, str]]:
        """Microseconds of a call of each contestant, and what kept others from taking part."""
        from gpu import Graph

        graphs, troubles, times = {}, {}, {}
        for name, each in found.items():
            try:
                each[0]()
                single = self.once(each[-1])
                if single > max(SLOW_US, SLOW * times.get("cutesync", [math.inf])[0]):
                    times[name] = [single]
                    continue
                count = max(2, min(MOST_CALLS, int(SAMPLE_US / max(single, 1))))
                count = -(-count // len(each)) * len(each)
                graphs[name] = Graph(self.gpu.stream, (each * count)[:count]), count
                times[name] = [self.once(graphs[name][0].launch) / count]
            except Exception as error:
                troubles[name] = f"{type(error).__name__}: {error}".splitlines()[0][:150]
                graphs.pop(name, None)
        for _ in range(ROUNDS):
            for name, (graph, count) in graphs.items():
                times[name].append(self.once(graph.launch) / count)
        for graph, _ in graphs.values():
            graph.free()
        return {name: statistics.median(each) for name, each in times.items() if each}, troubles


def run_case(case: Drawn, libraries, pacer: Pacer, rivals: list[str]) -> dict:
    """The record of a case."""
    torch = libraries.torch
    moved = calls.memory_bytes(case) + case.written
    slots = max(1, min(MOST_SLOTS, int(L2S * libraries.gpu.l2_bytes / moved) + 1))
    arrays = Arrays(torch, case, slots)
    found = contestants(arrays, libraries, case, rivals)
    try:
        found["cutesync"][0]()
        libraries.gpu.stream.synchronize()
    except Exception as error:
        return shapes_report.record(
            case, {}, None, {"cutesync": f"{type(error).__name__}: {error}".splitlines()[0][:150]}
        )
    right = arrays.right()
    libraries.gpu.stream.synchronize()
    times, troubles = pacer.race(found)
    return shapes_report.record(case, times, right, troubles)


def measure(cases: list[Drawn], chosen, stop: float) -> tuple[list[dict], str]:
    """The records of the cases for which there is time, and the GPU's name."""
    from rivals import Libraries

    gpu = script.gpu()
    libraries = Libraries(gpu, chosen.family, list(chosen.rivals), compiling=False)
    if libraries.torch is None:
        sys.exit("sweep.py random needs torch, which holds the arrays and says what is right")
    libraries.torch.manual_seed(chosen.seed)
    libraries.spare = [gpu.allocate(SPARE_BYTES // 2) for _ in range(2)]
    pacer, records = Pacer(gpu), []
    for case in cases:
        if time.monotonic() > stop:
            break
        try:
            records.append(run_case(case, libraries, pacer, chosen.rivals))
        except Exception as error:
            trouble = {"cutesync": f"{type(error).__name__}: {error}".splitlines()[0][:150]}
            records.append(shapes_report.record(case, {}, None, trouble))
            if gpu.lost():
                print("The CUDA context is lost: nothing more can be measured")
                break
    return records, gpu.name


def main(argv: list[str]) -> int:
    started = time.monotonic()
    chosen = arguments(argv)
    cases = draw(chosen.family, chosen.seed, chosen.cases or int(CASES_PER_SECOND * chosen.seconds))
    jobs, refused, kinds = needed(cases)
    plans = plan_times([case for case in cases if case.number not in refused])
    planned = time.monotonic() - started
    summary = {
        "family": chosen.family,
        "seed": chosen.seed,
        "drawn": len(cases),
        "refused": refused,
        "kernels": len(jobs),
        "kernels by type": dict(kinds),
        "planning_us": statistics.mean(plans or [0]),
        "planning_us_95": plans[int(0.95 * len(plans))] if plans else 0,
    }
    if chosen.dry:
        print(*shapes_report.lines(summary, []), sep="\n")
        return 0
    done, failed = compile_all(jobs, COMPILING * chosen.seconds)
    summary |= {"compiled": done, "failed": failed, "compile_s": time.monotonic() - started - planned}
    usable = [case for case in cases if case.number not in refused]
    records, name = measure(usable, chosen, started + chosen.seconds)
    report = summary | {"gpu": name, "seconds": time.monotonic() - started, "cases": records}
    day = time.strftime("%Y-%m-%d", time.gmtime())
    path = chosen.json or reporting.result_path(f"random-{chosen.family}", name, day, f"-seed{chosen.seed}")
    reporting.write(report, Path(path))
    print(*shapes_report.lines(summary, records), f"written: {path}", sep="\n")
    return 0 if all(found["right"] for found in records) and not failed else 1
