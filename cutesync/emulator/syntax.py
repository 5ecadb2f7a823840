"""The parts of a PTX module: functions, instructions, operands, variables. ``ptx.parse`` builds them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

from ..errors import CutesyncError
from . import roles, source

SIZES = {
    "b8": 1,
    "u8": 1,
    "s8": 1,
    "b16": 2,
    "u16": 2,
    "s16": 2,
    "f16": 2,
    "bf16": 2,
    "b32": 4,
    "u32": 4,
    "s32": 4,
    "f32": 4,
    "b64": 8,
    "u64": 8,
    "s64": 8,
    "f64": 8,
    "b128": 16,
    "f16x2": 4,
    "bf16x2": 4,
    "pred": 0,
}


class PtxSyntaxError(CutesyncError, SyntaxError):
    """A line of PTX that the parser does not understand."""


@dataclass(frozen=True)
class Reg:
    """A register. ``bits`` is 1 for a predicate."""

    name: str
    bits: int


@dataclass(frozen=True)
class Imm:
    """A literal: an integer, or the bits of a floating literal (0f, 0d) with ``float_bits``, the literal's width."""

    value: int
    float_bits: int = 0


@dataclass(frozen=True)
class Special:
    """A special register, without the percent sign: ``tid.x``."""

    name: str


@dataclass(frozen=True)
class Symbol:
    """A variable, parameter or label name, with a byte offset."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Mem:
    """``[base+offset]``, or a tensor coordinate list ``[base, {x, y}]`` in ``extra``."""

    base: object
    offset: int = 0
    extra: tuple = ()


@dataclass(frozen=True)
class Vec:
    """``{a, b}``"""

    items: tuple


@dataclass(frozen=True)
class Pair:
    """``a|b``: two destinations."""

    first: object
    second: object


@dataclass(frozen=True)
class Not:
    """``!p``"""

    item: object


def items(operand) -> tuple:
    """The elements of ``{a, b}``, or the one operand."""
    return operand.items if isinstance(operand, Vec) else (operand,)


SINK = Symbol("_")
PARAM = "param:"  # starts the names of registers that stand for the parameters of a call


@dataclass(frozen=True)
class Loc:
    """A line of a Python file, and the calls that led there: the lines of its callers, the kernel's first.
    ``named``: the role that the kernel gives to the warps there."""

    file: str
    line: int
    calls: tuple[tuple[str, int], ...] = ()
    named: str = ""

    @property
    def chain(self) -> list[source.Place]:
        """The kernel's line, that of what it calls there, and so on down to this one."""
        return [source.Place(*call) for call in (*self.calls, (self.file, self.line))]

    @property
    def role(self) -> str:
        """What the warps that run this line are called, or nothing."""
        return self.named or roles.of_chain(tuple(self.chain))

    def __str__(self) -> str:
        """The last line of the kernel's own file."""
        file = self.chain[0].file
        return "{}:{}".format(*[place for place in self.chain if place.file == file][-1])

    def told(self) -> str:
        """The kernel's line, the one that it calls, and this one, with the names of their functions."""
        names = [source.function_at(place) for place in self.chain]
        files = [self.chain[0].file, *(Path(place.file).name for place in self.chain[1:])]
        steps = [f"{f}:{place.line}{name and ' in ' + name}" for f, place, name in zip(files, self.chain, names)]
        return ", then ".join(steps if len(steps) < 4 else [*steps[:2], f"... {steps[-1]}"])


NOWHERE = Loc("?", 0)
_LONG_LIST = re.compile(r"\{([^{},]+),((?:[^{},]+,){5,})([^{},]+)\}")  # the registers of a wgmma


def _shorter(m: re.Match) -> str:
    return f"{{{m[1]}, ...,{m[3]}}}"


Fact = TypeVar("Fact")


def once(function: Callable[[Instr], Fact]) -> Callable[[Instr], Fact]:
    """What a function says of an instruction, and of others with the same operands, is found once."""

    @wraps(function)
    def found(instr: Instr) -> Fact:
        known = instr.known
        if function.__name__ not in known:
            known[function.__name__] = function(instr)
        return known[function.__name__]

    return found


@dataclass
class Instr:
    """One instruction: ``parts`` is the opcode split at its dots (``('ld', 'global', 'b32')``)."""

    opcode: str
    parts: tuple[str, ...]
    args: tuple
    pred: Reg | None
    negated: bool
    loc: Loc
    text: str
    known: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)  # what follows from its operands

    def where(self) -> str:
        return f"{self.loc.told()} ({_LONG_LIST.sub(_shorter, self.text)})"

    @once
    def registers(self) -> frozenset[Reg]:
        """Every register it reads or writes, but for its predicate."""
        found, waiting = set(), list(self.args)
        while waiting:
            item = waiting.pop()
            if isinstance(item, Reg):
                found.add(item)
            elif isinstance(item, tuple):
                waiting += item
            elif isinstance(item, (Vec, Mem, Pair, Not)):
                waiting += vars(item).values()
        return frozenset(found)


@dataclass
class Variable:
    """A ``.shared``, ``.global``, ``.const`` or ``.local`` array; ``size`` is 0 if the launch gives it (extern)."""

    name: str
    space: str
    size: int
    align: int
    init: bytes | None = None


@dataclass
class Param:
    name: str
    size: int
    align: int
    offset: int


@dataclass
class Function:
    """A kernel entry: its instructions (``code``), and for each label the index of the instruction after it."""

    name: str
    params: list[Param] = field(default_factory=list)
    code: list[Instr] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
    registers: dict[str, Reg] = field(default_factory=dict)
    tables: dict[str, list[str]] = field(default_factory=dict)
    block: tuple[int, ...] | None = None
    max_threads: tuple[int, ...] | None = None
    cluster: tuple[int, ...] | None = None

    def param_bytes(self) -> int:
        return max((p.offset + p.size for p in self.params), default=0)


@dataclass
class Module:
    """A whole PTX text."""

    functions: dict[str, Function] = field(default_factory=dict)
    variables: list[Variable] = field(default_factory=list)
