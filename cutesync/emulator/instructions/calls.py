"""The two functions that device code may call: ``vprintf`` and ``__assertfail``."""

from __future__ import annotations

import re
import struct

import numpy as np

from ..clocks import each
from ..syntax import Vec
from .registry import handles, unknown

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


def print_maker(machine):
    """Lanes print in order. What a warp prints last explains its trap."""

    def run(f, lanes, template, arguments):
        memory = f.warp.local_region().data.reshape(32, -1) if machine.local_bytes else np.zeros((32, 16), np.uint8)
        for lane in each(lanes):
            data = memory[lane, int(arguments[lane]) & ((1 << 56) - 1) :].tobytes() + bytes(64)
            machine.printed[f.warp] = formatted(machine, text_at(machine, int(template[lane])), data)
            print(machine.printed[f.warp], end="")

    return run


def assert_maker(machine, site: int):
    def run(f, lanes, message, file, line):
        lane = 0 if lanes is None else int(lanes[0])
        place = f"{text_at(machine, int(file[lane]))}:{int(line[lane])}"
        machine.fail(
            "trap",
            f"assertion failed at {place}: {text_at(machine, int(message[lane]))}",
            f.warp,
            [lane] if lanes is None else lanes,
            site,
        )

    return run


@handles("call")
def call(e, instr):
    name = next((a.name for a in instr.args if hasattr(a, "name") and a.name in ("vprintf", "__assertfail")), None)
    arguments = instr.args[-1].items if isinstance(instr.args[-1], Vec) else ()
    if name == "vprintf":
        e.effect(e.op(print_maker), *(e.u(a, 64) for a in arguments))
    elif name == "__assertfail":
        message, file, line = arguments[:3]
        e.effect(e.op(assert_maker, e.site()), e.u(message, 64), e.u(file, 64), e.u(line, 32))
    else:
        raise unknown(instr, "calls other than vprintf and __assertfail")
