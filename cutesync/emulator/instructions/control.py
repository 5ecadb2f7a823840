"""Branches, exit, and instructions that only concern time or resources."""

from __future__ import annotations

import numpy as np

from ..clocks import each
from .registry import handles


@handles("bra")
def bra(e, instr):
    target = e.program.target(instr.args[0].name)
    if instr.pred is None:
        e.jump(target)
    else:
        e.branch(target, e.index + 1)


@handles("brx")
def brx(e, instr):
    targets = [e.program.target(t) for t in e.program.table(instr)]
    index = e.s(instr.args[0], 32)
    e.store_back()
    e.line(f"return {e.name(indexed_branch, 'indexed_branch')}(f, {index}, {targets})")
    e.ended = True


def indexed_branch(f, index: np.ndarray, targets: list[int]) -> int:
    """Split the fragment by the value of an index; the lanes of the largest value stay in it."""
    values = sorted({int(v) for v in index[f.mask]})
    for value in values[:-1]:
        f.split(f.mask & (index == value), targets[value], 0)
    return targets[values[-1]]


@handles("ret", "exit")
def exit_thread(e, instr):
    if instr.pred is None:
        e.jump(e.program.exit)
    else:
        e.branch(e.program.exit, e.index + 1)


def trap_maker(machine, site: int):
    def run(f, lanes, _):
        said = f": {machine.printed[f.warp].strip()}" if f.warp in machine.printed else ""
        machine.fail("trap", f"the kernel trapped{said}", f.warp, each(lanes), site)

    return run


@handles("trap", "brkpt")
def trap(e, instr):
    e.effect(e.op(trap_maker, e.site()), "None")


def nap_maker(machine):
    def run(f, lanes, nanoseconds):
        machine.now += int(nanoseconds.max())

    return run


@handles("nanosleep", switch=True)
def nanosleep(e, instr):
    e.effect(e.op(nap_maker), e.u(instr.args[0], 32))


def budget_maker(machine, site: int, registers: int):
    def run(f):
        f.warp.budgets.append((site, registers))

    return run


@handles("setmaxnreg", together=True)
def setmaxnreg(e, instr):
    """Register budgets are not emulated. All four warps of a warpgroup must ask for the same (``finish_block``)."""
    e.converge("f.warp.live")
    e.line(f"{e.op(budget_maker, e.site(), instr.args[0].value)}(f)")


def preceding_maker(machine):
    def run(f, lanes, _=None):
        if machine.sanitizer is not None:
            machine.sanitizer.wait_for_preceding(f, lanes)

    return run


@handles("griddepcontrol", switch=True)
def griddepcontrol(e, instr):
    """``wait``: the launches before this one are over, and what they wrote is visible.

    ``launch_dependents`` does nothing: a programmatic launch is always assumed to start at once.
    """
    if "wait" in instr.parts:
        e.effect(e.op(preceding_maker), "None")


@handles("pmevent")
def no_effect(e, instr):
    """A profiler event: no effect on values."""
