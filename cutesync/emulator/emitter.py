"""Builds the Python text of one segment: operands as typed expressions, destinations, lane masks, calls of operations.

Registers are immutable NumPy vectors over the 32 lanes of a warp, kept as unsigned bits; inside a segment they are
Python locals, viewed as signed or float where an instruction needs that. Instruction handlers (``instructions/``) talk
to an ``Emitter`` only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from typing import TYPE_CHECKING

import numpy as np

from . import syntax
from .instructions.registry import unknown
from .lanes import one_nan
from .tensor_registers import Uses, touch

if TYPE_CHECKING:
    from .codegen import Program

STOP = -1
UNSIGNED = {8 * n: np.dtype(f"u{n}") for n in (1, 2, 4, 8)} | {128: np.dtype(np.complex128)}
SIGNED = {8 * n: np.dtype(f"i{n}") for n in (1, 2, 4, 8)}
FLOAT = {8 * n: np.dtype(f"f{n}") for n in (2, 4, 8)}
VIEWS = {"u": UNSIGNED, "s": SIGNED, "f": FLOAT}
ZERO = {bits: np.zeros(32, dtype) for bits, dtype in UNSIGNED.items()}
ZERO[1] = np.zeros(32, bool)
ALL = np.ones(32, bool)
CARRY = syntax.Reg("%carry", 1)  # the condition code of add.cc and friends


class Emitter:
    """Builds the text of one segment. Handlers ask for operands as typed expressions and set destinations."""

    instr: syntax.Instr  # the running one

    def __init__(self, program: Program, full: bool):
        self.program = program
        self.full = full
        self.lines: list[str] = []
        self.have: dict[tuple[str, str], str] = {}  # (register, kind) -> local variable that holds it
        self.reads: set[str] = set()
        self.writes: dict[str, syntax.Reg] = {}
        self.dirty: dict[str, syntax.Reg] = {}  # those of them that the warp's registers do not have yet
        self.depth = 0  # of the ifs around the running instruction
        self.guard: str | None = None  # the local that holds the running instruction's lane mask
        self.spills = False  # some instruction reads or writes an accumulator of wgmma
        self.uses: Uses | None = None  # of registers that wgmma works on
        self.temporaries = 0
        self.ended = False
        self.index = 0

    # --- text ---------------------------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        self.lines.append("    " + text)

    def temp(self, expression: str) -> str:
        self.temporaries += 1
        name = f"t{self.temporaries}"
        self.line(f"{name} = {expression}")
        return name

    def name(self, value, hint: str = "k") -> str:
        """A global name of the generated code for any Python object."""
        return self.program.bind(value, hint)

    def const(self, value, kind: str, bits: int) -> str:
        return self.program.constant(value, kind, bits)

    def call(self, function, *args: str) -> str:
        """The text of a call of any Python function."""
        return f"{self.name(function, function.__name__)}({', '.join(args)})"

    # --- operands -----------------------------------------------------------------------------------------------------

    def u(self, operand, bits: int) -> str:
        return self.value(operand, "u", bits)

    def s(self, operand, bits: int) -> str:
        return self.value(operand, "s", bits)

    def f(self, operand, bits: int) -> str:
        return self.value(operand, "f", bits)

    def p(self, operand) -> str:
        """A predicate as a bool vector."""
        if isinstance(operand, syntax.Not):
            return f"(~{self.p(operand.item)})"
        if isinstance(operand, syntax.Imm):
            return "ALL" if operand.value else "NONE"
        return self.register(operand, "u")

    def value(self, operand, kind: str, bits: int) -> str:
        plain = "f" if kind == "n" else kind
        if isinstance(operand, syntax.Imm):
            return self.immediate(operand, plain, bits)
        if isinstance(operand, syntax.Special):
            return self.special(operand, plain, bits)
        if isinstance(operand, syntax.Symbol):
            return self.const(self.program.address(operand, self.instr), "u", bits)
        if not isinstance(operand, syntax.Reg):
            raise unknown(self.instr, f"operand {operand}")
        if operand.bits == bits:
            return self.register(operand, kind)
        if operand.bits == 1:
            raise unknown(self.instr, "a predicate where a number is needed")
        widens = "s" if kind == "s" and operand.bits < bits else "u"
        cast = f"{self.register(operand, widens)}.astype({widens}{bits})"
        return self.temp(cast if kind == widens else f"{cast}.view({plain}{bits})")

    def immediate(self, operand: syntax.Imm, kind: str, bits: int) -> str:
        value = operand.value
        if operand.float_bits and operand.float_bits != bits:
            source = np.array(value, UNSIGNED[operand.float_bits]).view(FLOAT[operand.float_bits])
            value = int(source.astype(FLOAT[bits]).view(UNSIGNED[bits]))
        return self.const(value & ((1 << bits) - 1), kind, bits)

    def special(self, operand: syntax.Special, kind: str, bits: int) -> str:
        name = operand.name.replace(".", "_")
        if name in ("clock", "clock64", "clock_hi", "globaltimer", "globaltimer_lo", "globaltimer_hi"):
            return self.temp(f"f.warp.machine.clock('{name}', {bits})")
        local = self.temp(f"f.warp.sreg('{name}')")
        return local if bits == 32 and kind == "u" else self.temp(f"{local}.astype(u{bits}).view({kind}{bits})")

    def stacked(self, operand, bits: int) -> str:
        """A register as a vector, or ``{a, b}`` as rows of elements."""
        values = [self.u(item, bits) for item in syntax.items(operand)]
        return values[0] if len(values) == 1 else self.temp(f"np.array(({', '.join(values)})).T")

    def register(self, reg: syntax.Reg, kind: str) -> str:
        """The local variable holding a register of its own width as unsigned, signed or float.

        Kind "n": single precision whose NaNs may have any bits, for arithmetic that hands them on; the result becomes
        the one NaN only where something else needs it.
        """
        raw = self.have.get((reg.name, "n"))
        if raw and kind == "n":
            return raw
        kind = "f" if kind == "n" else kind
        held = self.have.get((reg.name, kind))
        if held:
            return held
        base = self.program.local(reg)
        if raw:
            del self.have[reg.name, "n"]
            self.line(f"{base}f = {self.call(one_nan, raw)}")
            self.have[reg.name, "f"] = f"{base}f"
            return self.register(reg, kind)
        other = next((v for (n, _), v in self.have.items() if n == reg.name), None)
        if other is None:
            self.reads.add(reg.name)
            at = len(self.lines) if self.depth or reg.name in self.writes else 0
            self.lines.insert(at, f"    {base} = R[{self.program.slot(reg)}]")
            self.have[(reg.name, "u")] = other = base
            if kind == "u":
                return base
        name = base if kind == "u" else base + kind
        self.line(f"{name} = {other}.view({kind}{reg.bits})")
        self.have[(reg.name, kind)] = name
        return name

    def moved(self, *operands, bits: int) -> tuple[str, ...]:
        """``(kind, *values)`` of operands that an instruction moves as they are: "n" if all of them are held so. (What
        has been loaded, say, keeps the bits of its NaNs.)"""
        raw = bits == 32 and all(isinstance(o, syntax.Reg) and (o.name, "n") in self.have for o in operands)
        kind = "n" if raw else "u"
        return kind, *(self.value(o, kind, bits) for o in operands)

    def choice(self, mask: str, a: str, b: str) -> str:
        """``lanes.select`` of vectors of one type: a new vector, of ``a`` where the mask is true."""
        found = self.temp(f"{b}.copy()")
        self.line(f"copyto({found}, {a}, where={mask})")
        return found

    # --- destinations -------------------------------------------------------------------------------------------------

    def set(self, reg, expression: str, kind: str = "u", bits: int | None = None) -> None:
        """Assign a destination. ``bits`` is the width of the expression where it differs from the register's."""
        if reg == syntax.SINK:
            self.line(expression)
            return
        if not isinstance(reg, syntax.Reg):
            raise unknown(self.instr, f"destination {reg}")
        base = self.program.local(reg)
        if reg.bits != 1 and bits is not None and bits != reg.bits:
            widen = "s" if kind == "s" else "u"
            source = self.temp(self.call(one_nan, expression) if kind == "n" else expression)
            if kind in "fn":
                source = f"{source}.view(u{bits})"
            expression, kind = f"{source}.astype({widen}{reg.bits})", widen
        if self.guard is not None:
            if kind == "n" and (reg.name, "n") not in self.have:
                expression, kind = self.call(one_nan, expression), "f"
            expression = self.choice(self.guard, expression, self.register(reg, kind))
        name = base if kind == "u" else base + kind
        self.line(f"{name} = {expression}")
        self._forget(reg)
        self.have[(reg.name, kind)] = name
        self.writes[reg.name] = self.dirty[reg.name] = reg

    def _forget(self, reg: syntax.Reg) -> None:
        """No local holds this register any more, of whatever kind."""
        for key in [k for k in self.have if k[0] == reg.name]:
            del self.have[key]

    def take(self, registers: Iterable[syntax.Reg]) -> None:
        """These registers have been computed: locals of their names hold them, unsigned."""
        for reg in registers:
            self._forget(reg)
            self.have[reg.name, "u"] = self.program.local(reg)
            self.writes[reg.name] = self.dirty[reg.name] = reg

    def set_pair(self, destination, first: str, second: str, bits: int | None = None, kind: str = "u") -> None:
        """Set ``p|q``, or ``p`` alone; ``kind`` and ``bits`` are those of the first expression."""
        pair = isinstance(destination, syntax.Pair)
        registers = (destination.first, destination.second) if pair else (destination, syntax.SINK)
        for register, expression, what in zip(registers, (first, second), ((kind, bits), ("u", None))):
            if register != syntax.SINK:
                self.set(register, expression, *what)

    # --- lanes --------------------------------------------------------------------------------------------------------

    def mask(self) -> str:
        """The running instruction's lanes as a bool vector."""
        if self.guard is not None:
            return self.guard
        return "ALL" if self.full else "f.mask"

    def effect(self, operation: str, *args: str) -> None:
        """Call an operation with a side effect on the running instruction's lanes, if there are any."""
        self.line(("" if self.guard is None else f"if cnz({self.guard}): ") + self._on_lanes(operation, args))

    def result(self, operation: str, *args: str) -> str:
        """The same for an operation with a result; returns the result's name. It is None where no lane ran."""
        otherwise = "" if self.guard is None else f" if cnz({self.guard}) else None"
        return self.temp(self._on_lanes(operation, args) + otherwise)

    def _on_lanes(self, operation: str, args: tuple[str, ...]) -> str:
        lanes = f"f.pick({self.guard})" if self.guard is not None else "None" if self.full else "f.lanes"
        return f"{operation}({', '.join(('f', lanes, *args))})"

    def set_result(self, reg, result: str, expression: str, kind: str = "u", bits: int | None = None) -> None:
        """Set a destination from ``result`` of a guarded operation: nothing happens where no lane ran."""
        if self.guard is None:
            self.set(reg, expression, kind, bits)
        elif reg != syntax.SINK:
            zero = "NONE" if reg.bits == 1 else f"Z{bits or reg.bits}"
            self.set(reg, f"({zero} if {result} is None else {expression})", kind, bits)

    def set_items(self, destination, result: str, kind: str, bits: int) -> None:
        """The same for a register or each of ``{a, b}``; ``result`` is unsigned, of these ``bits``."""
        items = syntax.items(destination)
        for i, item in enumerate(items):
            value = result if len(items) == 1 else f"{result}[{i}]"
            if item != syntax.SINK:
                self.set_result(item, result, value if kind == "u" else f"{value}.view({kind}{bits})", kind, bits)

    def converge(self, members) -> None:
        """Wait here until all live lanes of ``members`` (a number or an expression) are in this fragment."""
        if not self.full:
            self.line(f"if not f.converged({members}): return STOP")

    def blocking(self, operation: str, *args: str) -> None:
        """End the segment with ``operation(f, next segment, *args)``, which returns where to continue, or STOP."""
        if self.guard is not None:
            taken, self.guard = self.guard, None
            self.store_back()
            self.line(f"n = cnz({taken})")
            self.line(f"if n == 0: return {self.index + 1}")
            self.line(f"if n != f.count: return f.split({taken}, {self.index}, {self.index + 1})")
        else:
            self.store_back()
        self.line(f"return {operation}({', '.join(('f', str(self.index + 1), *args))})")
        self.ended = True

    def touch(self, registers: Set[syntax.Reg]) -> None:
        """Record that the running instruction, in its lanes, uses registers that ``wgmma`` works on."""
        if not registers:
            return
        uses = Uses() if self.guard is not None or self.uses is None else self.uses
        if self.guard is not None:
            self.line(f"if cnz({self.guard}): {self.name(touch, 'touch')}(f, {self.name(uses, 'uses')})")
        elif self.uses is None:
            self.uses = uses
            self.lines.insert(0, f"    {self.name(touch, 'touch')}(f, {self.name(uses, 'uses')})")
        uses.add([self.program.slot(r) for r in registers], self.site(), self.instr)

    def bound(self, function, *static) -> str:
        """A global name of the function with its first arguments given."""
        return self.program.bound(function, static)

    def op(self, maker, *static) -> str:
        """A global name that is bound, at every launch, to ``maker(machine, *static)``."""
        return self.program.launch_bound(maker, static)

    def site(self) -> int:
        return self.program.site(self.instr)

    def store_back(self) -> None:
        """Write the segment's live results to the warp's registers."""
        for name, reg in self.dirty.items():
            if self.program.live_out is None or name in self.program.live_out[self.index]:
                self._store(reg)

    def flush(self, names: Iterable[str]) -> None:
        """Write these registers, as far as they have changed, to the warp's."""
        for reg in [self.dirty.pop(name) for name in sorted(names) if name in self.dirty]:
            self._store(reg)

    def _store(self, reg: syntax.Reg) -> None:
        local, slot = self.register(reg, "u"), self.program.slot(reg)
        self.line(f"R[{slot}] = {local if self.full else self.choice('f.mask', local, f'R[{slot}]')}")

    # --- parts that may not run ---------------------------------------------------------------------------------------

    def apart(self, emit: Callable[[], None]) -> tuple[list[str], Set[str]]:
        """The lines that ``emit`` makes, for a part of the segment that may not run, and the registers that it writes:
        these are in the warp's registers at its end."""
        outer = self.lines, self.have, self.dirty, self.writes, self.ended
        self.lines, self.have, self.dirty, self.writes = [], dict(self.have), dict(self.dirty), {}
        self.depth += 1
        emit()
        written, live = set(self.writes), self.program.live_out
        if not self.ended:
            self.flush(written if live is None else written & live[self.index])
        lines = self.lines
        self.depth -= 1
        self.lines, self.have, self.dirty, writes, self.ended = outer
        self.writes = writes | self.writes
        return lines, written

    def forget(self, names: Set[str]) -> None:
        """What these registers hold is in the warp's registers only."""
        self.have = {key: local for key, local in self.have.items() if key[0] not in names}
        self.dirty = {name: reg for name, reg in self.dirty.items() if name not in names}

    def leave(self, following: str) -> None:
        """End the segment and go on at ``following``, a number or an expression."""
        self.store_back()
        self.line(f"return {following}")
        self.ended = True

    def jump(self, target: int) -> None:
        """End the segment and go on at another."""
        self.leave(str(target))

    def branch(self, target: int, otherwise: int) -> None:
        """End the segment with a branch on the running guard."""
        taken = self.guard
        self.guard = None
        self.store_back()
        self.line(f"n = cnz({taken})")
        self.line(f"if n == {'32' if self.full else 'f.count'}: return {target}")
        self.line(f"if n == 0: return {otherwise}")
        self.line(f"return f.split({taken}, {target}, {otherwise})")
        self.ended = True
