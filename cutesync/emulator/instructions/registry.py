"""The table of opcodes. A handler ``handler(e, instr)`` emits Python for one instruction through the emitter ``e``.

``@handles("add", "sub")`` registers by the opcode's first words; the longest match wins (``mbarrier.arrive`` before
``mbarrier``). ``switch=True`` marks an instruction around which another warp may run: everything that synchronizes.
Plain arithmetic and plain loads and stores are not switch points: a program whose result could depend on one has a data
race, and that is reported. ``together=True`` marks an instruction that the lanes of a warp execute together: part of a
warp may have to wait for the rest just before it.
"""

from __future__ import annotations

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


def handles_call(name: str, function, *flags) -> None:
    """Registers an instruction on 32-bit registers as a call of ``function``; each ``flag(parts)`` is an argument."""

    def emit(e, instr):
        operands = [*(e.u(a, 32) for a in instr.args[1:]), *(str(flag(instr.parts)) for flag in flags)]
        e.set(instr.args[0], e.call(function, *operands), "u", 32)

    handles(name)(emit)


def _find(parts: tuple[str, ...]):
    for length in range(len(parts), 0, -1):
        found = _HANDLERS.get(parts[:length])
        if found:
            return found
    return None


def unknown(instr, why: str = "") -> UnknownInstruction:
    return UnknownInstruction(
        f"the emulator does not know the PTX instruction '{instr.text}' at {instr.loc}" + (f": {why}" if why else "")
    )


def word(instr, position: int, allowed) -> str:
    """A part of the opcode that goes into generated code: one of those allowed."""
    if instr.parts[position] not in allowed:
        raise unknown(instr, f"{instr.parts[position]} is none of {' '.join(allowed)}")
    return instr.parts[position]


def emitter(instr):
    found = _find(instr.parts)
    if found is None:
        raise unknown(instr)
    return found[0]


_STRONG = {"acquire", "release", "acq_rel", "relaxed", "volatile", "mmio", "sc"}


def splits_around(instr) -> bool:
    """True where another warp may be scheduled just before and after this instruction."""
    found = _find(instr.parts)
    return bool(found and found[1]) or (instr.parts[0] in ("ld", "st") and bool(_STRONG & set(instr.parts)))


def gathers_lanes(instr) -> bool:
    """True for an instruction that the lanes of a warp execute together."""
    found = _find(instr.parts)
    return bool(found and found[2])
