"""What limits the matmuls of cutesync: where the time of a call goes, from the clock that it gets and a profile.

    python perf/limits.py [--cases cubes skinny ...] [--json FILE]

Time and clock are those of calls back to back on random normal data (see clock.py), for longer than in a sweep, so that
the clock is as low as it stays. How busy memory, the L2 and the tensor cores are comes from Nsight Compute (``ncu``;
one call, clocks and caches left alone). Without ncu these columns are empty.

The time is the sum of these shares. ``tile`` = tile_m * tile_n * 64 / 2048 clocks of the tensor cores for a k-tile;
units are cluster tiles times the splits of K.

  tensor     the multiplications that the product needs, on all multiprocessors at the highest clock
  clock      what a clock below the highest adds to every cycle: 1 - clock / highest. Mostly the power limit; but the
             clock counted here stays some tenth below the one that nvidia-smi reports (``sampled``), also where that is
             the highest and power is no limit
  edges      multiplications beyond the result's edges or K's, in whole tiles and k-tiles
  waves      multiprocessors without a tile: waves * k-tiles * tile clocks, less the two above;
             waves = ceil(units / clusters at a time)
  start      the start of a kernel, the first loads, the last store, and split-K's exchange: the constants of
             ``cutesync.kernels.matmul.model``, at most what is left (launches overlap)
  epilogue   from one tile to the next, by those constants; ping-pong and a deferred epilogue hide the store
  packing    kernels that copy an operand first (TMA cannot read the rows of ``odd``), by their share of the profile
  loop       what remains: the k-loop waits for operands in DRAM, the L2 or shared memory, for its barriers, or for the
             additions of promoted sums

A case is limited by the largest share but ``tensor``, then by the second if that is WORTH of the time or more. ``loop``
is called memory if DRAM is at least BUSY % busy, else L2 if that is.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import importlib
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import matmul as family
import report as reporting
import script
from case import Slot
from clock import Clock, sustained
from cuda.bindings import driver
from gpu import Gpu, check
from rivals import Libraries, versions

GROUPS = ("cubes", "others", "skinny", "layers", "odd", "batched", "float8", "int8")
BUSY, WORTH = 60, 0.04
METRICS = {
    "gpu__time_duration.sum": "ns",
    "sm__cycles_active.avg.pct_of_peak_sustained_elapsed": "sm",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": "tensor",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": "l2",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "dram",
    "l1tex__throughput.avg.pct_of_peak_sustained_active": "l1",
}


def launched(call) -> tuple:
    """``(problem, configuration)`` of what the first call of a plan launches."""
    module, plan = (importlib.import_module(f"cutesync.kernels.matmul.{name}") for name in ("run", "plan"))
    make_launch, found = module.make_launch, []

    def listen(problem, config, *rest):
        found.append((problem, plan.decided(problem, config)))
        return make_launch(problem, config, *rest)

    module.make_launch = listen
    try:
        call()
    finally:
        module.make_launch = make_launch
    return found[0]


def shares(problem, config, processors: int, us: float, ghz: float, highest: float, packing: float) -> dict[str, float]:
    """The shares of the time of a call, as this file's first lines define them; they add up to 1."""
    model = importlib.import_module("cutesync.kernels.matmul.model")
    (tile_m, tile_n), k_tiles = config.tile, -(-problem.k // problem.k_elements)
    each = -(-k_tiles // config.splits)
    units = math.prod(config.tiles(problem.m, problem.n)) * problem.items * -(-k_tiles // each)
    waves = -(-units * config.peers // (config.slots(processors) * config.cluster_size))
    tile = tile_m * tile_n * 64 / model.TENSOR_RATE
    tensor = (
        problem.items * problem.m * problem.n * problem.k / problem.k_elements * 64 / model.TENSOR_RATE / processors
    )
    covered = units * config.peers * each * tile / processors
    filled = waves * each * tile
    by = model.coefficients_of(problem.load)
    store = tile_m * tile_n * problem.out.size / by.epilogue_rate
    start = by.start + store + (by.cluster if config.cluster_size > 1 else 0)
    if config.splits > 1:
        exchange = config.exchange_bytes(problem.out.size) / by.cluster_split_rate
        start += exchange if config.cluster_split else by.turnstile
    after_tile = by.tile + (store if config.schedule == "cooperative" else 0)
    between = (waves - 1) * (by.deferred_tile if config.deferred else after_tile)
    cycles = us * 1000 * ghz
    room = cycles * (1 - packing) - filled
    start = max(0.0, min(start, room))
    between = max(0.0, min(between, room - start))
    parts = {
        "tensor": tensor,
        "edges": covered - tensor,
        "waves": filled - covered,
        "start": start,
        "epilogue": between,
        "packing": packing * cycles,
        "loop": room - start - between,
    }
    return {"clock": 1 - ghz / highest} | {name: part / cycles * ghz / highest for name, part in parts.items()}


def verdict(parts: dict[str, float], busy: dict, ghz: float, highest: float) -> str:
    """The largest shares but the tensor cores' own, in words."""
    loop = next((name for name in ("dram", "l2") if busy.get(name, 0) >= BUSY), "")
    words = {
        "clock": f"clock of {ghz:.2f} of {highest:.2f} GHz",
        "loop": {"dram": "memory", "l2": "L2", "": "k-loop"}[loop],
        "start": "start and end",
    }
    largest = sorted((name for name in parts if name != "tensor"), key=parts.get, reverse=True)[:2]
    return ", then ".join(
        f"{words.get(name, name)} ({100 * parts[name]:.0f} %)"
        for name in largest
        if name == largest[0] or parts[name] >= WORTH
    )


def profile(groups: list[str], count: int) -> list[list[dict]]:
    """Of each of ``count`` cases, the kernels of one call: their names and METRICS, by Nsight Compute."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "ncu.csv"
        options = [
            "--profile-from-start",
            "off",
            "--clock-control",
            "none",
            "--cache-control",
            "none",
            "--csv",
            "--page",
            "raw",
            "--print-units",
            "base",
        ]
        command = [
            "ncu",
            *options,
            "--metrics",
            ",".join(METRICS),
            "--log-file",
            str(log),
            sys.executable,
            __file__,
            "--profiled",
            "--cases",
            *groups,
        ]
        run = subprocess.run(command, capture_output=True, text=True)
        lines = log.read_text().splitlines() if log.exists() else []
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if run.returncode or begin is None:
        raise RuntimeError(" ".join([*lines[-3:], *run.stderr.splitlines()[-3:]])[:300] or "ncu wrote nothing")
    found: list[list[dict]] = [[]]
    for row in csv.DictReader(lines[begin:]):
        if row["ID"].isdigit():
            found[-1].append(
                {"name": row["Kernel Name"]}
                | {short: float(row[metric].replace(",", "")) for metric, short in METRICS.items()}
            )
            if "pack" not in row["Kernel Name"]:
                found.append([])
    if len(found) != count + 1:
        raise RuntimeError(f"{len(found) - 1} of {count} cases profiled")
    return found[:-1]


def profiled(gpu: Gpu, libraries: Libraries, cases) -> None:
    """What ``profile`` runs: one call of each case between the marks that ncu watches for."""
    for case in cases:
        slot = Slot(gpu, case)
        call = family.ours(case, slot, libraries)
        call()
        gpu.stream.synchronize()
        check(driver.cuProfilerStart())
        call()
        gpu.stream.synchronize()
        check(driver.cuProfilerStop())
        slot.free()


def measured(case, profiles: list[dict], gpu: Gpu, clock: Clock, highest: float, libraries: Libraries) -> dict:
    """The record of one case: time, clock, configuration, shares of the time and what limits it."""
    slot = Slot(gpu, case)
    slot.fill(family.data(case))
    call = family.ours(case, slot, libraries)
    problem, config = launched(call)
    found = sustained(gpu, clock, call)
    slot.free()
    busy = profiles[-1] if profiles else {}
    times = [kernel["ns"] for kernel in profiles]
    packing = sum(times[:-1]) / sum(times) if times else 0.0
    parts = shares(problem, config, gpu.processors, found["us"], found["ghz"], highest, packing)
    names = ("tile", "schedule", "cluster", "stages", "splits", "promoted")
    return {
        "group": case.group,
        "name": case.name,
        "tflops": case.flops / found["us"] / 1e6,
        **found,
        "config": {name: getattr(config, name) for name in names},
        "shares": parts,
        "busy": busy,
        "limit": verdict(parts, busy, found["ghz"], highest),
    }


def main(argv=None) -> int:
    parser = script.parser(__doc__)
    parser.add_argument("--cases", nargs="+", choices=GROUPS, default=list(GROUPS), help="only these groups of cases")
    parser.add_argument("--json", type=script.output, help="where to write the results")
    parser.add_argument("--profiled", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args(argv)
    gpu = script.gpu()
    libraries = Libraries(gpu, "matmul", ["torch"])
    cases = [case for case in family.cases(None, None, False) if case.group in chosen.cases]
    if chosen.profiled:
        profiled(gpu, libraries, cases)
        return 0
    clock, highest = Clock(gpu), gpu.attribute(driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_CLOCK_RATE) / 1e6
    today = datetime.datetime.now(datetime.timezone.utc)
    report = {
        "family": "limits",
        "gpu": gpu.name,
        "date": today.isoformat(timespec="seconds"),
        "versions": versions(),
        "highest_ghz": highest,
        "missing": {},
        "cases": [],
    }
    try:
        kernels = profile(chosen.cases, len(cases))
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        report["missing"]["ncu"], kernels = f"{type(error).__name__}: {error}", [[]] * len(cases)
        print(f"without ncu: {report['missing']['ncu']}")
    path = chosen.json or reporting.result_path("limits", gpu.name, today.date().isoformat())
    for case, profiles in zip(cases, kernels, strict=True):
        found = measured(case, profiles, gpu, clock, highest, libraries)
        report["cases"].append(found)
        reporting.write(report, path)
        print(
            f"{case.name:<36} {found['tflops']:>5.0f} TFLOP/s {found['ghz']:.3f} GHz;",
            " ".join(f"{name} {100 * part:.0f}" for name, part in found["shares"].items()),
            "%; busy",
            " ".join(f"{name} {found['busy'][name]:.0f}" for name in list(METRICS.values())[1:] if found["busy"]),
            f"%; {found['limit']}",
            flush=True,
        )
    print(f"written: {path}")
    return 0


if __name__ == "__main__":
    script.run(main)
