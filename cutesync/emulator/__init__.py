"""Runs compiled kernels on the CPU, under hostile schedules, and checks them. The door is this module:

``launch(ptx, grid, block, parameters)`` launches one kernel; ``run(compiled, packed)`` runs one compiled cute function with its own
host code; ``DEVICE`` holds the buffers they may touch; ``emulate(...)`` sets policy,
seed, number of schedules and tracing for a block of code; ``check(jit_function, *args)`` does everything for NumPy arguments.
"""

from __future__ import annotations

from .check import call, check, compile_for_emulator
from .report import EmulationError, Report
from .run import DEVICE, Device, Settings, emulate, executable, launch, run, settings
from .schedule import POLICIES

__all__ = ["DEVICE", "Device", "EmulationError", "POLICIES", "Report", "Settings", "call", "check", "compile_for_emulator", "emulate",
           "executable", "launch", "run", "settings"]
