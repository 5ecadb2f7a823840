"""Runs compiled kernels on the CPU, under hostile schedules, and checks them. The door is this module:

``launch(ptx, grid, block, parameters)`` launches one kernel; ``run(compiled, packed)`` runs one compiled cute function
with its own host code; ``DEVICE`` holds the buffers they may touch; ``emulate(...)`` sets policy, seed, number of
schedules and tracing for a block of code, in the thread or asynchronous task that enters it; ``check(jit_function,
*args)`` does everything for NumPy arguments.

How a launch runs: ``limits`` refuses what a driver would, ``ptx`` reads the kernel, ``codegen`` turns it into Python
functions over NumPy vectors of 32 lanes (``gate`` checks them), ``machine`` runs blocks and fragments of warps in the
order that ``schedule`` picks, ``barriers`` and ``async_copy`` block, wake and land, ``sanitizer`` watches every access
by vector clocks (``clocks``), ``watchdog`` gives up what never ends, ``rewind`` puts memory back for the next schedule,
and ``report`` words what is found. ``driver`` lets the DSL's own host code run.

Launches run one after the other. That one may start before those before it have ended (programmatic dependent launch)
is a rule of the sanitizer instead: before ``griddepcontrol.wait``, its own or one it has synchronized with, it touches
no global memory but to prefetch.

What it does not see: ptxas and the machine code it makes, register allocation and spills, timing, caches. One verdict
is one interleaving; more schedules mean more. Plain loads and stores are not switch points, because a result that
depends on their order is a race, which is found anyway. Many concurrent readers of one word may hide one another from
the sanitizer in one schedule. A vector load is one access (a strong vector store is not), a plain ``mov`` needs no
``wgmma.fence``, and a bulk reduction counts as a reader of its target.
"""

from __future__ import annotations

from .check import call, check, compile_for_emulator
from .report import EmulationError, Report
from .run import DEVICE, LOCK, Device, executable, launch, run
from .schedule import POLICIES
from .settings import Settings, emulate, settings

__all__ = [
    "DEVICE",
    "LOCK",
    "POLICIES",
    "Device",
    "EmulationError",
    "Report",
    "Settings",
    "call",
    "check",
    "compile_for_emulator",
    "emulate",
    "executable",
    "launch",
    "run",
    "settings",
]
