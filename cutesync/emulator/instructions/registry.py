"""The table of opcodes. A handler ``handler(e, instr)`` emits Python for one instruction through the emitter ``e``.

``@handles("add", "sub")`` registers by the opcode's first words; the longest match wins (``mbarrier.arrive`` before
``mbarrier``). ``switch=True`` marks an instruction around which another warp may run: everything that synchronizes.
Plain arithmetic and plain loads and stores are not switch points: a program whose result could depend on one has a data
race, and that is reported. ``together=True`` marks an instruction that the lanes of a warp execute together: part of a
warp may have to wait for the rest just before it.
"""

from __future__ import annotations

from functools import lru_cache

from ...errors import CutesyncError

_HANDLERS: dict[tuple[str, ...], tuple] = {}


class UnknownInstruction(CutesyncError, NotImplementedError):
    """An opcode, or a form of one, that the emulator does not execute."""


def handles(*names: str, switch: bool = False, together: bool = False):
    def register(handler):
        for name in names:
            _HANDLERS[tuple(name.split("."))] = (handler, switch, together)
        return handler

    return register


INTEGERS = {f"{k}{b}": (k, b) for k in "usb" for b in (8, 16, 32, 64)}


def int_type(instr, position: int = -1) -> tuple[str, int]:
    """('u' or 's', bits) of the type suffix; ``b`` counts as unsigned."""
    kind, bits = INTEGERS[word(instr, position, INTEGERS)]
    return ("s" if kind == "s" else "u"), bits


def handles_call(name: str, function, *flags, operands: str = "uuu", result: str = "u") -> None:
    """Registers an instruction as a call of ``function``; each ``flag(parts)`` is an argument.

    ``operands`` has a letter for each source and ``result`` one for the destination: "u", unsigned of 32 bits; "U",
    unsigned of the instruction's own width; "T", of its own type.
    """

    def emit(e, instr):
        types = {"u": ("u", 32)}
        if {"T", "U"} & set(operands + result):
            types |= {"T": int_type(instr), "U": ("u", int_type(instr)[1])}
        values = [e.value(a, *types[letter]) for a, letter in zip(instr.args[1:], operands)]
        e.set(instr.args[0], e.call(function, *values, *(str(flag(instr.parts)) for flag in flags)), *types[result])

    handles(name)(emit)


@lru_cache(maxsize=4096)
def _find(parts: tuple[str, ...]) -> tuple:
    """The handler of an opcode, ``switch`` and ``together``."""
    starts = (parts[:length] for length in range(len(parts), 0, -1))
    return next(filter(None, map(_HANDLERS.get, starts)), (None, False, False))


def unknown(instr, why: str = "") -> UnknownInstruction:
    return UnknownInstruction(
        f"the emulator does not know the PTX instruction '{instr.text}' at {instr.loc}" + (f": {why}" if why else "")
    )


def accept(instr, fine: object, why: str = "") -> None:
    """Raise UnknownInstruction unless this form of the instruction is ``fine``."""
    if not fine:
        raise unknown(instr, why)


def word(instr, position: int, allowed) -> str:
    """A part of the opcode that goes into generated code: one of those allowed."""
    found = instr.parts[position]
    accept(instr, found in allowed, f"{found} is none of {' '.join(allowed)}")
    return found


def emitter(instr):
    handler = _find(instr.parts)[0]
    accept(instr, handler)
    return handler


_STRONG = {"acquire", "release", "acq_rel", "relaxed", "volatile", "mmio", "sc"}


def splits_around(instr) -> bool:
    """True where another warp may be scheduled just before and after this instruction."""
    return _find(instr.parts)[1] or (instr.parts[0] in ("ld", "st") and bool(_STRONG & set(instr.parts)))


def gathers_lanes(instr) -> bool:
    """True for an instruction that the lanes of a warp execute together."""
    return _find(instr.parts)[2]
