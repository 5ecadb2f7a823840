"""Time a family of cutesync against its rivals on this GPU, over sizes and dtypes, all in one interleaved run.

    python perf/sweep.py reduce [--quick] [--bars] [--sizes 2**12 2**20 ...] [--dtypes int8 ...]
                                [--rivals cub torch cupy compute] [--cases sum rows ...] [--json FILE]
    python perf/sweep.py random --family reduce [--seed S] [--seconds T] ...      random shapes: see shapes_run.py
    python perf/sweep.py dist ...                                                 several GPUs: see dist.py

Every case is checked against NumPy before and after it is timed. The table gives the median time, the range from the
5th to the 95th percentile in per cent of it, the rate, the share of the floor (fewest bytes over the copy rate of this
run) and the rivals' times over ours; ``--bars`` adds whether each bar is met. How time is taken stands in measure.py;
what the cases are, in the file of the family. Exits with 1 if a result of cutesync is wrong.

``--quick`` takes at most a minute: fewer cases, smaller arrays, fewer rounds, one check, and no rival that compiles for
minutes. No case begins after QUICK_SECONDS; the last lines name those left out.

The JSON (by default ``perf/results/<family>-<gpu>-<date>.json``) also holds versions, clocks and power. It is rewritten
after every case. A run that is interrupted (Ctrl-C, SIGTERM) prints and keeps what it has; its ``left_out`` names the
cases that are missing, and no table of a README is made from it.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import sys
import time
from pathlib import Path

import numpy as np
import report as reporting
import script
from case import Slot
from gpu import Probe
from measure import REPEATS, Contestant, Timer
from rivals import ROOFS, Libraries, versions

ROUNDS = {"event": 40, "event hot": 40, "graph": 20, "graph hot": 20}
QUICK_ROUNDS, QUICK_SECONDS = 10, 45
CALIBRATION_BYTES = 1 << 30
MOST_ELEMENTS = 1 << 36


def count(text: str) -> int:
    """An element count: 4096, 2**20, 2^20 or 1e6."""
    base, _, exponent = text.replace("^", "**").partition("**")
    try:
        value = int(base) ** min(int(exponent), 99) if exponent and abs(int(base)) <= MOST_ELEMENTS else float(text)
    except ValueError:
        value = 0
    if not 1 <= value <= MOST_ELEMENTS:
        raise argparse.ArgumentTypeError(f"got {text[:40]!r}; needs from 1 to 2**36 elements")
    return int(value)


def arguments(argv=None) -> argparse.Namespace:
    parser = script.parser(__doc__)
    parser.add_argument("family", help="the family to time: a file beside this one, e.g. reduce")
    parser.add_argument("--quick", action="store_true", help="at most a minute: fewer cases, sizes, rivals and rounds")
    parser.add_argument("--bars", action="store_true", help="also say which bars are met")
    parser.add_argument("--sizes", nargs="+", type=count, help="element counts of the dtype x size group")
    parser.add_argument("--dtypes", nargs="+", help="only these dtypes")
    parser.add_argument("--rivals", nargs="*", help="only these rivals (none: cutesync, the copy and the read alone)")
    parser.add_argument("--cases", nargs="+", help="only these groups of cases")
    random = parser.add_argument_group("matmul --cases random [CLASS ...]")
    random.add_argument("--seed", type=int, default=1, help="of the random products")
    random.add_argument("--seconds", type=float, default=100, help="how long to draw and time them")
    random.add_argument("--brute", action="store_true", help="also time many configurations of each")
    random.add_argument("--waves", nargs=2, type=float, metavar=("LEAST", "MOST"), help="only results of so many waves")
    parser.add_argument("--json", type=script.output, help="where to write the results")
    chosen = parser.parse_args(argv)
    if not (Path(__file__).parent / f"{chosen.family}.py").exists():
        parser.error(f"there is no family {chosen.family!r}")
    family = importlib.import_module(chosen.family)
    if not hasattr(family, "RIVALS"):
        parser.error(f"{chosen.family} is no family")
    chosen.random = (chosen.cases or [""])[0] == "random" and hasattr(family, "run_random")
    groups = family.RANDOM_GROUPS if chosen.random else family.GROUPS
    for option, allowed in (("rivals", family.RIVALS), ("cases", groups), ("dtypes", family.DTYPES)):
        unknown = set(getattr(chosen, option) or ()) - set(allowed)
        if unknown:
            parser.error(f"--{option}: got {', '.join(sorted(unknown))}; needs any of {', '.join(allowed)}")
    if chosen.rivals is None:
        chosen.rivals = list(getattr(family, "QUICK_RIVALS", family.RIVALS) if chosen.quick else family.RIVALS)
    return chosen


def calibrate(gpu, timer) -> tuple[float, float]:
    """Copy rate (read plus written) and read rate in bytes a microsecond, and the read kernel's best grid, on 1 GiB."""
    source, target = gpu.allocate(CALIBRATION_BYTES), gpu.allocate(CALIBRATION_BYTES)
    noise = np.random.default_rng(1).integers(0, 1 << 32, 1 << 24, "uint32")
    for start in range(0, CALIBRATION_BYTES, noise.nbytes):
        gpu.upload(source + start, noise)

    def median(call) -> float:
        return timer.run([Contestant("roof", [call])], "event", 15)["roof"]["median_us"]

    copy_time = median(lambda: gpu.copy(target, source, CALIBRATION_BYTES))
    read_times = {}
    for blocks in (2, 4, 8, 16, 64):
        gpu.read_blocks = blocks * gpu.processors
        read_times[gpu.read_blocks] = median(lambda: gpu.read_all(source, CALIBRATION_BYTES))
    gpu.read_blocks = min(read_times, key=read_times.get)
    gpu.free(source)
    gpu.free(target)
    return 2 * CALIBRATION_BYTES / copy_time, CALIBRATION_BYTES / read_times[gpu.read_blocks]


def verify(contestant, slot, reference, family, libraries) -> dict:
    """Poison the outputs, call once, and compare with NumPy."""
    gpu, slot.result = libraries.gpu, None
    for output in slot.outputs:
        gpu.poison(output)
    contestant.calls[0]()
    gpu.stream.synchronize()
    got = gpu.download(slot.outputs[0]) if slot.result is None else libraries.to_host(slot.result)
    error, ok = family.accuracy(reference, got)
    return {"error": error, "ok": ok}


def run_case(case, family, libraries, timer, copy_rate: float, quick: bool) -> dict:
    """The record of one case: data, checks before (unless ``quick``) and after, and every measure."""
    factories = {**ROOFS, **family.CONTESTANTS}
    slots = [Slot(timer.gpu, case) for _ in range(REPEATS if "graph" in case.measures else 1)]
    try:
        hosts = family.data(case)
        slots[0].fill(hosts)
        for slot in slots[1:]:
            slot.fill_like(slots[0])
        reference = family.reference(case, hosts)
        contestants, checks, troubles = [], {}, {}

        def check(contestant) -> None:
            if (
                contestant.name not in (*family.ROOFS, *family.BASELINES)
                and checks.get(contestant.name, {"ok": True})["ok"]
            ):
                checks[contestant.name] = verify(contestant, slots[0], reference, family, libraries)

        for name in case.contestants:
            if name in family.RIVALS and getattr(libraries, name) is None:
                continue
            try:
                calls = [factories[name](case, slot, libraries) for slot in slots]
                if calls[0] is None:  # this rival has no such operation
                    continue
                contestants.append(Contestant(name, calls))
                if not quick:
                    check(contestants[-1])
                timer.calibrate(contestants[-1])
            except Exception as error:  # one contestant that fails does not stop the others
                troubles[name] = f"{type(error).__name__}: {error}".splitlines()[0][:200]
                contestants = [c for c in contestants if c.name != name]
                checks.pop(name, None)
                timer.gpu.stream.synchronize()
        probe = Probe(timer.gpu)
        measured = {m: timer.run(contestants, m, QUICK_ROUNDS if quick else ROUNDS[m]) for m in case.measures}
        clocks = probe.read()
        for contestant in contestants:
            check(contestant)
            if contestant.trouble:
                troubles[contestant.name] = contestant.trouble
        return reporting.entry(case, measured, checks, troubles, clocks, copy_rate)
    finally:
        for slot in slots:
            slot.free()


def heading(chosen, gpu, libraries, rates: tuple[float, float], argv) -> dict:
    """The report before the first case: what was asked for, on what, with which versions."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return {
        "family": chosen.family,
        "gpu": gpu.name,
        "date": now.isoformat(timespec="seconds"),
        "arguments": [Path(a).name if "/" in a else a for a in argv or sys.argv[1:]],
        "versions": versions() | ({"CUB": libraries.cub.version} if libraries.cub else {}),
        "missing": libraries.missing,
        "clocks": Probe(gpu).read(),
        "l2_bytes": gpu.l2_bytes,
        "copy_bytes_per_us": rates[0],
        "read_bytes_per_us": rates[1],
        "left_out": [],
        "failures": {},
        "cases": [],
    }


def run_cases(cases, family, libraries, timer, report: dict, keep, last: float, chosen) -> None:
    """Every case into ``report``, printed and kept; none begins after the time ``last``."""
    for number, case in enumerate(cases, 1):
        report["left_out"] = [later.name for later in cases[number - 1 :]]
        if time.monotonic() > last:
            return
        print(f"[{number}/{len(cases)}] {case.name}", end="\r", file=sys.stderr, flush=True)
        try:
            found = run_case(case, family, libraries, timer, report["copy_bytes_per_us"], chosen.quick)
        except Exception as error:
            report["failures"][case.name] = f"{type(error).__name__}: {error}"
            print(*reporting.wrapped(f"{case.name}: {report['failures'][case.name]}"), sep="\n", flush=True)
            if timer.gpu.lost():
                print("The CUDA context is lost: nothing more can be measured")
                return
            continue
        report["cases"].append(found)
        report["left_out"].pop(0)
        keep()
        print(*reporting.lines(found, chosen.bars), sep="\n", flush=True)
    report["left_out"] = []
    if hasattr(family, "figures") and not chosen.cases:
        report["figures"] = family.figures()
        print(*(row for found in report["figures"] for row in reporting.figure(found, chosen.bars)), sep="\n")


def main(argv=None) -> int:
    given = sys.argv[1:] if argv is None else argv
    if given[:1] == ["random"]:
        return importlib.import_module("shapes_run").main(given[1:])
    if given[:1] == ["dist"]:
        return importlib.import_module("dist").main(given[1:]) or 0
    started = time.monotonic()
    chosen = arguments(argv)
    family = importlib.import_module(chosen.family)
    if chosen.random:
        return family.run_random(chosen)
    cases = family.cases(chosen.sizes, chosen.dtypes, chosen.quick)
    cases = [case for case in cases if not chosen.cases or case.group in chosen.cases]
    gpu = script.gpu()
    libraries = Libraries(gpu, chosen.family, chosen.rivals, compiling=not chosen.quick)
    timer = Timer(gpu)
    report = heading(chosen, gpu, libraries, calibrate(gpu, timer), argv)
    path = chosen.json or reporting.result_path(
        chosen.family, gpu.name, report["date"][:10], "-quick" if chosen.quick else ""
    )
    copy, read = report["copy_bytes_per_us"] / 1e6, report["read_bytes_per_us"] / 1e6
    print(f"{gpu.name}: copy {copy:.2f} TB/s (read plus written), read {read:.2f} TB/s")
    state = [*(f"{name} {value}" for name, value in report["clocks"].items())]
    state += [f"without {name}: {reason}" for name, reason in libraries.missing.items()]
    print(*reporting.wrapped("; ".join(state)), reporting.HEADER, sep="\n")
    last = started + QUICK_SECONDS if chosen.quick else float("inf")
    try:
        run_cases(cases, family, libraries, timer, report, lambda: reporting.write(report, path), last, chosen)
    finally:  # also of a run that is interrupted
        if report["cases"]:
            report["group_bars"] = reporting.group_results(report, getattr(family, "GROUP_BARS", ()))
            reporting.write(report, path)
        print(*reporting.ending(report, chosen.bars), f"written: {path}" if report["cases"] else "", sep="\n")
    right = all(found["checks"].get(family.OURS, {}).get("ok", False) for found in report["cases"])
    return 0 if right and not report["failures"] else 1


if __name__ == "__main__":
    script.run(main)
