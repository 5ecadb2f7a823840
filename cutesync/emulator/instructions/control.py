"""Branches, exit, instructions that only concern time or resources, and calls of ``vprintf`` and ``__assertfail``."""

from __future__ import annotations

import re
import struct

import numpy as np

from ..clocks import each
from ..syntax import Vec
from .registry import handles, unknown


@handles("bra")
def bra(e, instr):
    go_to(e, e.program.target(instr.args[0].name))


def go_to(e, target: int) -> None:
    if e.guard is None:
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
    go_to(e, e.program.exit)


def trap_lanes(site: int, f, lanes) -> None:
    machine = f.warp.machine
    said = f": {machine.printed[f.warp].strip()}" if f.warp in machine.printed else ""
    machine.fail("trap", f"the kernel trapped{said}", f.warp, each(lanes), site)


@handles("trap", "brkpt")
def trap(e, instr):
    e.effect(e.bound(trap_lanes, e.site()))


def nap(f, lanes, nanoseconds) -> None:
    f.warp.machine.now += int(nanoseconds.max())


@handles("nanosleep", switch=True)
def nanosleep(e, instr):
    e.effect(e.bound(nap), e.u(instr.args[0], 32))


def note_budget(site: int, registers: int, f) -> None:
    f.warp.budgets.append((site, registers))


@handles("setmaxnreg", together=True)
def setmaxnreg(e, instr):
    """Register budgets are not emulated. All four warps of a warpgroup must ask for the same (``finish_block``)."""
    e.converge("f.warp.live")
    e.line(f"{e.bound(note_budget, e.site(), instr.args[0].value)}(f)")


def wait_for_preceding(f, lanes) -> None:
    if f.warp.machine.sanitizer is not None:
        f.warp.machine.sanitizer.wait_for_preceding(f, lanes)


@handles("griddepcontrol", switch=True)
def griddepcontrol(e, instr):
    """``wait``: the launches before this one are over, and what they wrote is visible.

    ``launch_dependents`` does nothing: a programmatic launch is always assumed to start at once.
    """
    if "wait" in instr.parts:
        e.effect(e.bound(wait_for_preceding))


# --- the two functions that device code may call ----------------------------------------------------------------------

_SPECIFIER = re.compile(r"%[-+ #0]{0,5}\d{0,3}(?:\.\d{1,3})?(hh|h|ll|l)?([diouxXcsfeEgGp%])")


def text_at(machine, address: int) -> str:
    """The C string at a global address."""
    region = machine.memory.find(address)
    if region is None:
        return f"<no string at {address:#x}>"
    return bytes(region.data[address - region.base : region.high]).split(b"\0", 1)[0].decode("utf-8", "replace")


def formatted(machine, template: str, data: bytes) -> str:
    """``printf`` of C varargs: 4 bytes for int, 8 for long, double and pointers, each aligned to its size."""
    at = 0

    def value(match: re.Match) -> str:
        nonlocal at
        length, kind = match.groups()
        if kind == "%":
            return "%"
        wide = kind in "feEgGsp" or length in ("l", "ll")
        at = at + 7 & ~7 if wide else at
        code = "d" if kind in "feEgG" else ("q" if wide else "i") if kind in "di" else "Q" if wide else "I"
        (number,) = struct.unpack_from("<" + code, data, at)
        at += struct.calcsize(code)
        if kind == "s":
            return text_at(machine, number)
        if kind == "c":
            return chr(number & 0xFF)
        plain = match.group(0).replace(length or "", "") if length else match.group(0)
        return hex(number) if kind == "p" else plain.replace("i", "d").replace("u", "d") % number

    return _SPECIFIER.sub(value, template)


def print_text(f, lanes, template, arguments) -> None:
    """Lanes print in order. What a warp prints last explains its trap."""
    machine = f.warp.machine
    memory = f.warp.local_region.data.reshape(32, -1) if machine.local_bytes else np.zeros((32, 16), np.uint8)
    for lane in each(lanes):
        data = memory[lane, int(arguments[lane]) & ((1 << 56) - 1) :].tobytes() + bytes(64)
        machine.printed[f.warp] = formatted(machine, text_at(machine, int(template[lane])), data)
        print(machine.printed[f.warp], end="")


def assertion_failed(site: int, f, lanes, message, file, line) -> None:
    lane, machine = 0 if lanes is None else int(lanes[0]), f.warp.machine
    place = f"{text_at(machine, int(file[lane]))}:{int(line[lane])}"
    what = f"assertion failed at {place}: {text_at(machine, int(message[lane]))}"
    machine.fail("trap", what, f.warp, [lane] if lanes is None else lanes, site)


@handles("call")
def call(e, instr):
    name = next((a.name for a in instr.args if hasattr(a, "name") and a.name in ("vprintf", "__assertfail")), None)
    arguments = instr.args[-1].items if isinstance(instr.args[-1], Vec) else ()
    if name == "vprintf":
        e.effect(e.bound(print_text), *(e.u(a, 64) for a in arguments))
    elif name == "__assertfail":
        message, file, line = arguments[:3]
        e.effect(e.bound(assertion_failed, e.site()), e.u(message, 64), e.u(file, 64), e.u(line, 32))
    else:
        raise unknown(instr, "calls other than vprintf and __assertfail")
