"""Runs compiled kernels on the CPU under hostile schedules and checks them. The public names are those of this module:

``launch(ptx, grid, block, parameters)`` launches one kernel; ``run(compiled, packed)`` runs one compiled cute function
with its own host code; ``DEVICE`` holds the buffers that kernels may access; ``emulate(...)`` sets policy, seed, number
of schedules and tracing for a block of code, in the thread or asynchronous task that enters it; ``check(jit_function,
*args)`` compiles a host function and runs it on NumPy arguments; ``check_ptx(ptx, entry, grid, block, arguments)`` runs
a kernel of any compiler. ``script`` runs whole scripts that launch kernels.

A launch passes through these modules: ``limits`` refuses what a driver would refuse; ``ptx`` parses the kernel;
``codegen`` translates it into Python functions over NumPy vectors of 32 lanes, and ``gate`` checks these; ``machine``
runs blocks and fragments of warps in the order that ``schedule`` picks; ``barriers`` and ``async_copy`` hold what
threads wait for; ``sanitizer`` checks every access with vector clocks (``clocks``); ``watchdog`` reports a launch that
does not end; ``rewind`` restores memory for the next schedule; ``report`` holds the text of what is found. ``driver``
runs the DSL's own host code.

Launches run one after the other, those inside ``at_once`` on several devices at the same time (``several``): there the
sanitizer tells scopes ``gpu`` and ``sys`` apart. Programmatic dependent launch is a rule of the sanitizer instead:
before ``griddepcontrol.wait``, its own or that of a thread with which it has synchronized, a thread may not access
global memory, prefetches excepted.

Not seen: ptxas and its machine code, register allocation and spills, timing, caches. One run is one interleaving; more
schedules find more. Plain loads and stores are not switch points: a result that depends on their order is a race, and
races are found by clocks, not by interleaving. Many concurrent readers of one word of global memory may hide one
another from the sanitizer in one schedule. A vector load is one access (a strong vector store is not), a plain ``mov``
needs no ``wgmma.fence``, a bulk reduction counts as a reader of its target, and a bulk group covers what loads read of
their tensor maps.
"""

from .check import call, check, compile_for_emulator
from .device import DEVICE, Device
from .from_ptx import check_ptx
from .meeting import meeting
from .ptx_arguments import TiledMap
from .report import EmulationError, Report
from .run import LOCK, at_once, executable, launch, run
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
    "TiledMap",
    "at_once",
    "call",
    "check",
    "check_ptx",
    "compile_for_emulator",
    "emulate",
    "executable",
    "launch",
    "meeting",
    "run",
    "settings",
]
