"""Speed of the emulator: instructions of warps a second of processor time, on kernels of this project and others.

    python perf/emulator.py [--examples FOLDER] [--profile] [word ...]

``--examples`` is a checkout of CUTLASS's ``examples/python/CuTeDSL``: its scripts run unmodified, without torch too.
Words choose cases by their names. Each launch runs under all policies in turn, as a check does: once to be counted,
then ``--repeats`` times, checked and unchecked, of which the fastest counts. ``--profile`` prints where the time of the
checked runs goes.
"""

from __future__ import annotations

import argparse
import cProfile
import importlib
import pstats
import runpy
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import script

import cutesync as cs
from cutesync.emulator.codegen import Program
from cutesync.emulator.driver import Launch
from cutesync.emulator.schedule import POLICIES
from cutesync.emulator.settings import Settings

emulator_run: Any = importlib.import_module("cutesync.emulator.run")  # the package has a function of this name
_GEMM = "--iterations 1 --warmup_iterations 0"
EXAMPLES = {
    "dense_gemm": f"cute/hopper/kernel/dense_gemm/dense_gemm.py --mnkl 256,256,192,1 {_GEMM}",
    "dense_gemm_persistent": f"cute/hopper/kernel/dense_gemm/dense_gemm_persistent.py --mnkl 256,256,192,1 {_GEMM}",
    "fmha": f"cute/hopper/kernel/attention/fmha.py --q_shape 1,128,1,64 --k_shape 1,128,1,64 {_GEMM}",
    "tensorop_gemm": f"cute/ampere/kernel/dense_gemm/tensorop_gemm.py --mnkl 128,128,128,1 {_GEMM}",
    "cta_norm": "cute/hopper/kernel/cta_norm/cta_norm.py --M 4 --N 512",
    "elementwise_add": f"cute/ampere/kernel/elementwise/elementwise_add.py --M 256 --N 256 {_GEMM}",
    "elementwise_apply": f"cute/ampere/kernel/elementwise/elementwise_apply.py --M 128 --N 128 {_GEMM}",
    "sgemm": f"cute/ampere/kernel/dense_gemm/sgemm.py --mnk 128,128,64 {_GEMM}",
}


def own() -> dict[str, Callable[[], Any]]:
    """Calls of this project's kernels."""
    random = np.random.default_rng(0)
    wide = random.random((16, 2048), np.float32)
    a, b = (random.random((256, 192), np.float32).astype(np.float16) for _ in range(2))
    return {
        "sum of rows": lambda: cs.sum(wide, axis=1),
        "sum of columns": lambda: cs.sum(wide, axis=0),
        "argmax of int8 columns": lambda: cs.argmax((wide * 99).astype(np.int8), axis=0),
        "cumsum": lambda: cs.cumsum(wide.reshape(-1)),
        "flatnonzero": lambda: cs.flatnonzero(wide.reshape(-1) > 0.5),
        "matmul 256x256x192": lambda: cs.matmul(a, b.T),
    }


@dataclass
class Meter:
    """Measures launches in place of ``run_launch``. ``rows``: kernel, instructions, seconds checked and unchecked."""

    repeats: int
    profile: cProfile.Profile | None = None
    seen: set[tuple] = field(default_factory=set)
    rows: list[tuple[str, int, float, float]] = field(default_factory=list)

    def launch(self, launch: Any, device: Any, how: Settings, *rest: Any, **more: Any) -> None:
        key = launch.program.function.name, launch.grid, launch.block
        if isinstance(launch, Launch) and key not in self.seen:
            self.seen.add(key)
            self.measure(launch, device)
        RUN_LAUNCH(launch, device, Settings())

    def measure(self, launch: Launch, device: Any) -> None:
        before = {region: region.data.copy() for region in device.memory.regions if region.writable}

        def once(sanitize: bool = True) -> float:
            for region, data in before.items():
                region.data[:] = data
            how = Settings(None, 1, len(POLICIES), sanitize=sanitize, unseen_launches=False, initcheck=False)
            start = process_time()
            RUN_LAUNCH(launch, device, how)
            return process_time() - start

        count = instructions(launch.program, once)
        once()  # the first run of a program compiles its segments
        if self.profile is not None:
            self.profile.runcall(once)
        checked, unchecked = (min(once(sanitize) for _ in range(self.repeats)) for sanitize in (True, False))
        for region, data in before.items():
            region.data[:] = data
        self.rows.append((launch.program.function.name, count, checked, unchecked))


RUN_LAUNCH = emulator_run.run_launch


def instructions(program: Program, run: Callable[[], object]) -> int:
    """The instructions that warps execute in a run. Part of a warp counts as a warp."""
    executed = 0

    def count(instructions: int) -> None:
        nonlocal executed
        executed += instructions

    program.probe = count
    program.forget_text()
    try:
        run()
    finally:
        program.probe = None
        program.forget_text()
    return executed


def report(name: str, meter: Meter) -> None:
    for kernel, count, checked, unchecked in meter.rows:
        rate, plain = (f"{count / seconds / 1000:,.0f} k" for seconds in (checked, unchecked))
        print(f"| {name} (`{kernel[:40]}`) | {count:,} | {rate} | {plain} |", flush=True)
    if meter.profile is not None:
        pstats.Stats(meter.profile).sort_stats("tottime").print_stats(40)


def run_script(name: str, folder: Path, repeats: int, profile: cProfile.Profile | None) -> None:
    """Run one example in this process."""
    from cutesync.emulator.script import child, session

    meter = Meter(repeats, profile)
    session.run_launch = meter.launch
    child.install(session.Options(schedules=1, sms=8))
    path, *sys.argv[1:] = EXAMPLES[name].split()
    sys.argv[0] = str(folder / path)
    sys.path[:0] = [str(Path(sys.argv[0]).parent), str(folder)]
    runpy.run_path(sys.argv[0], run_name="__main__")
    report(name, meter)


def main() -> None:
    parser = script.parser(__doc__ or "")
    parser.add_argument("--examples", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--script", help=argparse.SUPPRESS)
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    profile = cProfile.Profile() if options.profile else None
    if options.script:
        return run_script(options.script, options.examples, options.repeats, profile)
    print("| kernel | instructions | a second, checked | unchecked |\n|---|---|---|---|", flush=True)
    chosen = [n for n in (*own(), *EXAMPLES) if not options.words or any(word in n for word in options.words)]
    for name, call in own().items():
        if name in chosen:
            meter = Meter(options.repeats, profile)
            emulator_run.run_launch = meter.launch
            with cs.emulate():
                call()
            report(name, meter)
    for name in EXAMPLES if options.examples else ():
        if name in chosen:
            command = [sys.executable, __file__, "--examples", str(options.examples.resolve()), "--script", name]
            command += ["--repeats", str(options.repeats), *(["--profile"] if options.profile else [])]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                print(done.stderr[-2000:], file=sys.stderr)
            print("\n".join(line for line in done.stdout.splitlines() if options.profile or line.startswith("| ")))
    return None


if __name__ == "__main__":
    script.run(main)
