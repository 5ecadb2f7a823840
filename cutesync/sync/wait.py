"""Waiting inside a kernel: until a condition holds, and with ``CUTESYNC_DEBUG=1`` not for ever.

PTX lets ``mbarrier.try_wait`` fail for no reason, so every wait is a loop on a condition. In a debug build the loop also looks at the
GPU's nanosecond timer: a wait of ``PATIENCE`` prints who waits for what, and traps. The host sees a launch failure instead of a hang.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Boolean, Int64
from cutlass.experimental import primitives

from .. import env

PATIENCE = 2_000_000_000  # ns; no wait of a kernel that is right comes near it
BACK_OFF = 100  # ns between two looks at a word of global memory


def until(condition, what: str, stage=0, phase=0, back_off: int = 0) -> None:
    """Return when ``condition()``, a traced function, gives a true Boolean. Every lane that calls waits for itself.

    ``what`` (text), ``stage`` and ``phase`` (integers) are for the report. ``back_off`` is the sleep between two looks, in ns: none for
    mbarriers, whose ``try_wait`` suspends the thread itself.
    """
    repeat(lambda nothing: (condition(), nothing), (), what, stage, phase, back_off)


@cute.jit
def repeat(step: cutlass.Constexpr, state, what: cutlass.Constexpr, stage, phase, back_off: cutlass.Constexpr = 0):
    """``done, state = step(state)`` until done; the last state. For waits that must act inside their loop, before the lanes meet again."""
    done, state = step(state)
    if cutlass.const_expr(env.DEBUG.get() == "1"):
        started = _nanoseconds()
        patient = Boolean(True)
        while cutlass.not_(done) & patient:
            _sleep(back_off)
            done, state = step(state)
            patient = _nanoseconds() - started < PATIENCE
        if cutlass.not_(done):
            _give_up(what, stage, phase)
    else:
        while cutlass.not_(done):
            _sleep(back_off)
            done, state = step(state)
    return state


def _nanoseconds():
    return Int64(cute.arch.globaltimer())


def _sleep(back_off: int) -> None:
    if back_off:
        primitives.nanosleep(back_off)


def _give_up(what: str, stage, phase) -> None:
    """Report the wait that did not end, and stop the kernel."""
    block, _, _ = cute.arch.block_idx()
    thread = block_thread()
    words = f"cutesync: block %d warp %d lane %d waits for {what}, stage %d, phase %d: nothing has come for {PATIENCE // 10**9} s"
    cute.printf(words, block, thread // 32, thread % 32, stage, phase)
    cute.arch.inline_ptx("trap;")


def block_thread():
    """The rank of this thread in its block."""
    x, y, z = cute.arch.thread_idx()
    width, height, _ = cute.arch.block_dim()
    return x + width * (y + height * z)
