"""Waiting inside a kernel: until a condition holds, and with ``CUTESYNC_DEBUG=1`` not for ever.

PTX lets ``mbarrier.try_wait`` fail for no reason, so every wait is a loop on a condition. In a debug build the loop
also looks at the GPU's nanosecond timer: a wait of ``PATIENCE`` prints who waits for what, lets others print, and
traps. The host sees a launch failure instead of a hang.

A bound in time, not in tries: a try takes anything from a few cycles to the milliseconds that ``try_wait`` may
suspend a thread. It is far from what is legal: a kernel of this package waits for a copy or for a tile of another
warp or block, at most milliseconds, and only after ``griddepcontrol.wait``, so a long kernel before it does not
count. Between two looks at most ``PAUSE`` counts: a GPU that a debugger halts, or that another process has, traps
nothing when it goes on.

PTX has no bounded form of ``bar.sync``, ``barrier.cluster.wait`` and ``griddepcontrol.wait``: those stay as they
are.
"""

from __future__ import annotations

from contextvars import ContextVar

import cutlass
import cutlass.cute as cute
from cutlass import Int64
from cutlass.experimental import primitives

from .. import env

PATIENCE = 2_000_000_000  # ns
PAUSE = 100_000_000  # ns: the most that the time between two looks counts
LAST_WORDS = 100  # ms between a report and its trap
BACK_OFF = 100  # ns between two looks at a word of global memory
_role: ContextVar[str] = ContextVar("role", default="")


def bounded() -> bool:
    """Whether this is a debug build. Asked while a kernel is traced; the answer is part of its key."""
    return env.DEBUG.get() == "1"


def in_role(name: str, function, *arguments):
    """``function(*arguments)``; reports of what its warps do name their role."""
    before = _role.set(name)
    try:
        return function(*arguments)
    finally:
        _role.reset(before)


def role() -> str:
    """The role whose function is being traced, or nothing."""
    return _role.get()


def until(condition, what: str, *numbers, back_off: int = 0) -> None:
    """Return when ``condition()``, a traced function, gives a true Boolean. Every lane that calls waits for itself.

    ``what`` and the integers ``numbers``, each a %d of it, are for the report. ``back_off`` is the sleep between two
    looks, in ns: none for mbarriers, whose ``try_wait`` suspends the thread itself.
    """
    repeat(lambda nothing: (condition(), nothing), (), what, numbers, back_off)


@cute.jit
def repeat(step: cutlass.Constexpr, state, what: cutlass.Constexpr, numbers, back_off: cutlass.Constexpr = 0):
    """``done, state = step(state)`` until done; the last state.

    For waits that must act inside their loop, before the lanes meet again.
    """
    done, state = step(state)
    if cutlass.const_expr(bounded()):
        seen, waited = _nanoseconds(), Int64(0)
        while cutlass.not_(done) & (waited < PATIENCE):
            _sleep(back_off)
            done, state = step(state)
            now = _nanoseconds()
            waited += cutlass.min(now - seen, Int64(PAUSE))
            seen = now
        if cutlass.not_(done):
            _give_up(what, numbers)
    else:
        while cutlass.not_(done):
            _sleep(back_off)
            done, state = step(state)
    return state


def await_phase(barriers, stage, parity, name: str) -> None:
    """Wait until the last phase of ``parity`` of the mbarrier ``barriers + stage`` (a pointer to the first) is over."""
    if bounded():
        until(lambda: cute.arch.mbarrier_try_wait(barriers + stage, parity), of_barrier(name), stage, parity)
    else:
        cute.arch.mbarrier_wait(barriers + stage, parity)


def of_barrier(name: str) -> str:
    """What a wait for a barrier says: it takes the stage and the phase."""
    return f"barrier {name.replace('%', '%%')}, stage %d, phase %d"


def _nanoseconds():
    return Int64(cute.arch.globaltimer())


def _sleep(back_off: int) -> None:
    if back_off:
        primitives.nanosleep(back_off)


@cute.jit
def _give_up(what: cutlass.Constexpr, numbers):
    """Report the wait that did not end, one lane for those that are here, and stop the kernel.

    Whoever else waits in vain, perhaps for this warp, has begun at almost the same time: it gets the time to report.
    """
    thread = block_thread()
    if cute.arch.activemask() & cute.arch.lanemask_lt() == 0:
        cute.printf(_report(what), *cute.arch.block_idx(), thread // 32, thread % 32, *numbers)
    for _ in cutlass.range(LAST_WORDS, unroll=1):
        primitives.nanosleep(1_000_000)
    cute.arch.inline_ptx("trap;")


def _report(what: str) -> str:
    named = f", role {role().replace('%', '%%')}," if role() else ""
    seconds = PATIENCE // 10**9
    return f"cutesync: block (%d, %d, %d) warp %d lane %d{named} waits for {what}: nothing has come for {seconds} s"


def block_thread():
    """The rank of this thread in its block."""
    x, y, z = cute.arch.thread_idx()
    width, height, _ = cute.arch.block_dim()
    return x + width * (y + height * z)
