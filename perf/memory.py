"""Memory that a process gains with each kernel that it compiles.

    python perf/memory.py [--kernels N]

Each way compiles N kernels that differ in a constant, after two that load what all of them need: the DSL's compiler
alone, a call (``cs.reduce`` with a callable, which stays in the table of kernels), and ``emulator.check``. No cache on
disk is used. The gain is in resident bytes, so it includes what the allocator keeps.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

os.environ["CUTESYNC_CACHE"] = "0"
os.environ.setdefault("CUTE_DSL_ARCH", "sm_90a")

import cutlass.cute as cute
import numpy as np
import script
from cutlass import Constexpr, Float32

import cutesync as cs
from cutesync import emulator
from cutesync.emulator.check import compile_for_emulator
from cutesync.runtime import device

THREADS = 128


@cute.kernel
def shifted_kernel(x: cute.Pointer, shift: Constexpr):
    values, thread = cute.make_tensor(x, cute.make_layout(THREADS)), cute.arch.thread_idx()[0]
    values[thread] = values[thread] + Float32(shift)


@cute.jit
def shifted(x: cute.Pointer, shift: Constexpr):
    shifted_kernel(x, shift).launch(grid=(1, 1, 1), block=(THREADS, 1, 1))


def by_compiler(number: int) -> None:
    compile_for_emulator(shifted, np.zeros(THREADS, np.float32), number + 0.5)


def by_call(number: int) -> None:
    shift = number + 0.5
    with device.forced("emulator"):
        cs.reduce(np.ones(4096, np.float32), lambda a, b: a + b + 0 * shift)


def by_check(number: int) -> None:
    emulator.check(shifted, np.zeros(THREADS, np.float32), number + 0.5)


WAYS: dict[str, Callable[[int], None]] = {"compiler": by_compiler, "call": by_call, "check": by_check}


def resident() -> float:
    """Megabytes."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def main() -> None:
    parser = script.parser(__doc__ or "")
    parser.add_argument("--kernels", type=int, default=40)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way is None:
        print("| kernels compiled by | MB each |\n|---|---|", flush=True)
        for way in WAYS:
            subprocess.run([sys.executable, __file__, "--kernels", str(options.kernels), "--way", way], check=True)
        return
    make = WAYS[options.way]
    for number in range(2):
        make(number)
    start = resident()
    for number in range(2, options.kernels + 2):
        make(number)
    print(f"| {options.way} | {(resident() - start) / options.kernels:.2f} |")


if __name__ == "__main__":
    script.run(main)
