"""A PTX function -> Python functions, one per straight-line segment.

Registers are immutable NumPy vectors over the 32 lanes of a warp, kept as unsigned bits in ``warp.R``; inside a segment they are
Python locals, viewed as signed or float where an instruction needs that. Each segment has two forms: *full*, for 32 active lanes,
and *part*, which merges its results into the inactive lanes' old values. Both are built when first run. A segment ends at a branch,
at a label, and before every instruction that synchronizes, so those are the points where the scheduler may switch warps.

A segment function takes the running fragment and returns the next segment, or ``STOP`` if the fragment was blocked or has ended.
"""

from __future__ import annotations

import numpy as np

from . import ptx
from .instructions import emitter, splits_before
from .instructions.registry import unknown
from .memory import SHARED_START

STOP = -1
UNSIGNED = {8: np.dtype(np.uint8), 16: np.dtype(np.uint16), 32: np.dtype(np.uint32), 64: np.dtype(np.uint64)}
SIGNED = {8: np.dtype(np.int8), 16: np.dtype(np.int16), 32: np.dtype(np.int32), 64: np.dtype(np.int64)}
FLOAT = {16: np.dtype(np.float16), 32: np.dtype(np.float32), 64: np.dtype(np.float64)}
_VIEWS = {"u": UNSIGNED, "s": SIGNED, "f": FLOAT}
ZERO = {bits: np.zeros(32, dtype) for bits, dtype in UNSIGNED.items()}
ZERO[1] = np.zeros(32, bool)
ALL = np.ones(32, bool)
CARRY = ptx.Reg("%carry", 1)     # the condition code of add.cc and friends


def _namespace() -> dict:
    names = {"np": np, "where": np.where, "cnz": np.count_nonzero, "STOP": STOP, "ALL": ALL, "NONE": ZERO[1]}
    for bits in (8, 16, 32, 64):
        names[f"u{bits}"] = UNSIGNED[bits]
        names[f"s{bits}"] = SIGNED[bits]
        if bits > 8:
            names[f"f{bits}"] = FLOAT[bits]
    return names


class Emitter:
    """Builds the text of one segment. Handlers ask for operands as typed expressions and set destinations."""

    def __init__(self, program: "Program", full: bool):
        self.program = program
        self.full = full
        self.lines: list[str] = []
        self.indent = "    "
        self.have: dict[tuple[str, str], str] = {}     # (register, kind) -> local variable that holds it
        self.reads: set[str] = set()
        self.writes: dict[str, ptx.Reg] = {}
        self.guard: str | None = None                  # the local that holds the running instruction's lane mask
        self.temporaries = 0
        self.ended = False
        self.instr: ptx.Instr | None = None
        self.index = 0

    # --- text -------------------------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)

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

    # --- operands ---------------------------------------------------------------------------------------------------

    def u(self, operand, bits: int) -> str:
        return self.value(operand, "u", bits)

    def s(self, operand, bits: int) -> str:
        return self.value(operand, "s", bits)

    def f(self, operand, bits: int) -> str:
        return self.value(operand, "f", bits)

    def p(self, operand) -> str:
        """A predicate as a bool vector."""
        if isinstance(operand, ptx.Not):
            return f"(~{self.p(operand.item)})"
        if isinstance(operand, ptx.Imm):
            return "ALL" if operand.value else "NONE"
        return self.register(operand, "u")

    def value(self, operand, kind: str, bits: int) -> str:
        if isinstance(operand, ptx.Imm):
            return self.immediate(operand, kind, bits)
        if isinstance(operand, ptx.Special):
            return self.special(operand, kind, bits)
        if isinstance(operand, ptx.Symbol):
            address = self.const(self.program.address(operand, self.instr), "u", bits)
            return address
        if not isinstance(operand, ptx.Reg):
            raise unknown(self.instr, f"operand {operand}")
        if operand.bits == bits:
            return self.register(operand, kind)
        if operand.bits == 1:
            raise unknown(self.instr, "a predicate where a number is needed")
        plain = self.register(operand, "s" if kind == "s" and operand.bits < bits else "u")
        cast = f"{plain}.astype({'s' if kind == 's' and operand.bits < bits else 'u'}{bits})"
        return self.temp(cast if kind != "f" else f"{cast}.view(f{bits})") if kind == "u" or operand.bits < bits else \
            self.temp(f"{cast}.view({kind}{bits})")

    def immediate(self, operand: ptx.Imm, kind: str, bits: int) -> str:
        value = operand.value
        if operand.float_bits and operand.float_bits != bits:
            source = np.array(value, UNSIGNED[operand.float_bits]).view(FLOAT[operand.float_bits])
            value = int(source.astype(FLOAT[bits]).view(UNSIGNED[bits]))
        return self.const(value & ((1 << bits) - 1), kind, bits)

    def special(self, operand: ptx.Special, kind: str, bits: int) -> str:
        name = operand.name.replace(".", "_")
        if name in ("clock", "clock64", "clock_hi", "globaltimer", "globaltimer_lo", "globaltimer_hi"):
            return self.temp(f"f.warp.machine.clock('{name}', {bits})")
        if name == "dynamic_smem_size" or name == "total_smem_size":
            return self.temp(f"f.warp.sreg('{name}').astype(u{bits})")
        local = self.temp(f"f.warp.sreg('{name}')")
        return local if bits == 32 and kind == "u" else self.temp(f"{local}.astype(u{bits}).view({kind}{bits})")

    def register(self, reg: ptx.Reg, kind: str) -> str:
        """The local variable holding a register of its own width as unsigned, signed or float."""
        held = self.have.get((reg.name, kind))
        if held:
            return held
        base = self.program.local(reg)
        other = next((v for (n, _), v in self.have.items() if n == reg.name), None)
        if other is None:
            self.reads.add(reg.name)
            self.lines.insert(0, f"    {base} = R[{self.program.slot(reg)}]")
            self.have[(reg.name, "u")] = other = base
            if kind == "u":
                return base
        name = base if kind == "u" else base + kind
        if self.indent == "    ":
            self.line(f"{name} = {other}.view({kind}{reg.bits})")
            self.have[(reg.name, kind)] = name
            return name
        return f"{other}.view({kind}{reg.bits})"

    # --- destinations -----------------------------------------------------------------------------------------------

    def set(self, reg, expression: str, kind: str = "u", bits: int | None = None) -> None:
        """Assign a destination. ``bits`` is the width of the expression where it differs from the register's."""
        if reg == ptx.SINK:
            self.line(expression)
            return
        if not isinstance(reg, ptx.Reg):
            raise unknown(self.instr, f"destination {reg}")
        base = self.program.local(reg)
        if reg.bits != 1 and bits is not None and bits != reg.bits:
            widen = "s" if kind == "s" else "u"
            source = self.temp(expression)
            if kind == "f":
                source = f"{source}.view(u{bits})"
            expression, kind = f"{source}.astype({widen}{reg.bits})", widen
        if self.guard is not None:
            old = self.register(reg, kind)
            expression = f"where({self.guard}, {expression}, {old})"
        name = base if kind == "u" else base + kind
        self.line(f"{name} = {expression}")
        for key in [k for k in self.have if k[0] == reg.name]:
            del self.have[key]
        self.have[(reg.name, kind)] = name
        self.writes[reg.name] = reg

    # --- lanes ------------------------------------------------------------------------------------------------------

    def mask(self) -> str:
        """The running instruction's lanes as a bool vector."""
        if self.guard is not None:
            return self.guard
        return "ALL" if self.full else "f.mask"

    def effect(self, operation: str, *args: str) -> None:
        """Call an operation with a side effect on the running instruction's lanes, if there are any."""
        if self.guard is not None:
            self.line(f"if cnz({self.guard}):")
            self.line(f"    {operation}(f, f.pick({self.guard}), {', '.join(args)})")
        else:
            self.line(f"{operation}(f, {'None' if self.full else 'f.lanes'}, {', '.join(args)})")

    def result(self, operation: str, *args: str) -> str:
        """The same for an operation that returns a vector (or a tuple); gives the name of the result, None where no lane ran."""
        if self.guard is not None:
            return self.temp(f"{operation}(f, f.pick({self.guard}), {', '.join(args)}) if cnz({self.guard}) else None")
        return self.temp(f"{operation}(f, {'None' if self.full else 'f.lanes'}, {', '.join(args)})")

    def set_result(self, reg, result: str, expression: str, kind: str = "u", bits: int | None = None) -> None:
        """Set a destination from ``result`` of a guarded operation: nothing happens where no lane ran."""
        if self.guard is None:
            self.set(reg, expression, kind, bits)
        elif reg != ptx.SINK:
            zero = "NONE" if reg.bits == 1 else f"Z{bits or reg.bits}"
            self.set(reg, f"({zero} if {result} is None else {expression})", kind, bits)

    def converge(self, members) -> None:
        """Wait here until all live lanes of ``members`` (a number, or the text of an expression) are in this fragment."""
        if not self.full:
            self.line(f"if not f.converged({members}): return STOP")

    def blocking(self, operation: str, *args: str) -> None:
        """End the segment with an operation that may block: ``operation(f, next segment, *args)`` returns where to go on, or STOP."""
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

    def op(self, maker, *static) -> str:
        """A global name that is bound, at every launch, to ``maker(machine, *static)``."""
        return self.program.launch_bound(maker, static)

    def site(self) -> int:
        return self.program.site(self.instr)

    def store_back(self) -> None:
        """Write the segment's live results to the warp's registers."""
        for name, reg in self.writes.items():
            if self.program.live_out is None or name in self.program.live_out[self.index]:
                local = self.register(reg, "u")
                slot = self.program.slot(reg)
                self.line(f"R[{slot}] = {local}" if self.full else f"R[{slot}] = where(f.mask, {local}, R[{slot}])")

    def leave(self, target: int) -> None:
        self.store_back()
        self.line(f"return {target}")
        self.ended = True

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


class Program:
    """The executable form of one kernel: independent of a launch until ``bind_launch``."""

    carry = CARRY

    def __init__(self, function: ptx.Function, module: ptx.Module):
        self.function = function
        self.module = module
        self.names = _namespace()
        for bits in (8, 16, 32, 64):
            self.names[f"Z{bits}"] = ZERO[bits]
        registers = {**function.registers, CARRY.name: CARRY}
        self.slots = {name: i for i, name in enumerate(registers)}
        self.initial = [ZERO[reg.bits] for reg in registers.values()]
        self.constants: dict[tuple, str] = {}
        self.factories: dict[str, object] = {}
        self.sites: list[ptx.Instr] = []
        self.site_numbers: dict[int, int] = {}
        self.symbols: dict[str, int] = {}
        self.live_out: list[set[str]] | None = None
        self.static_shared = self.local_bytes = 0
        self.variables: dict[str, tuple[ptx.Variable, np.ndarray]] = {}
        self._place_variables()
        self.segments = self._cut()
        self.starts = {start: i for i, (start, _) in enumerate(self.segments)}
        self.exit = len(self.segments)
        self._analyse()
        self.full = [self._lazy(i, True) for i in range(len(self.segments))] + [_exit]
        self.part = [self._lazy(i, False) for i in range(len(self.segments))] + [_exit]

    def _place_variables(self) -> None:
        """Give every declared variable an address: shared ones from the window's start, the launch-sized ones behind them."""
        dynamic = []
        for v in (*self.module.variables, *self.function.variables):
            if v.space == "shared" and v.size == 0:
                dynamic.append(v)
            elif v.space == "shared":
                self.static_shared = -(-self.static_shared // v.align) * v.align
                self.symbols[v.name] = SHARED_START + self.static_shared
                self.static_shared += v.size
            elif v.space == "local":
                self.local_bytes = -(-self.local_bytes // v.align) * v.align
                self.symbols[v.name] = self.local_bytes
                self.local_bytes = (self.local_bytes + v.size + 15) & ~15
            else:
                content = np.frombuffer((v.init or b"").ljust(max(v.size, 16), b"\0"), np.uint8)
                aligned = np.zeros(len(content) // 16 + 2, np.complex128).view(np.uint8)[: len(content)]
                aligned[:] = content
                self.variables[v.name] = (v, aligned)
                self.symbols[v.name] = aligned.ctypes.data
        for v in dynamic:
            self.static_shared = -(-self.static_shared // v.align) * v.align
            self.symbols[v.name] = SHARED_START + self.static_shared
        for p in self.function.params:
            self.symbols[p.name] = p.offset

    # --- shape ------------------------------------------------------------------------------------------------------

    def _cut(self) -> list[tuple[int, int]]:
        code = self.function.code
        starts = {0, *(i for i in self.function.labels.values() if i < len(code))}
        for i, instr in enumerate(code):
            if instr.parts[0] in ("bra", "brx", "ret", "exit", "trap"):
                starts.add(i + 1)
            elif splits_before(instr):
                starts.add(i)
                starts.add(i + 1)
        ordered = sorted(s for s in starts if s < len(code))
        return list(zip(ordered, ordered[1:] + [len(code)]))

    def target(self, label: str) -> int:
        index = self.function.labels[label]
        return self.starts.get(index, len(self.segments))

    def _analyse(self) -> None:
        """Live registers at the end of each segment."""
        facts = []
        for i in range(len(self.segments)):
            e = self._emit(i, True)
            facts.append((e.reads, set(e.writes), self.successors(i)))
        live_in: list[set[str]] = [set() for _ in facts]
        live_out: list[set[str]] = [set() for _ in facts]
        changed = True
        while changed:
            changed = False
            for i in range(len(facts) - 1, -1, -1):
                reads, writes, following = facts[i]
                out = set().union(*(live_in[j] for j in following if j < len(facts))) if following else set()
                into = reads | (out - writes)
                if out != live_out[i] or into != live_in[i]:
                    live_out[i], live_in[i], changed = out, into, True
        self.live_out = live_out

    def successors(self, index: int) -> list[int]:
        start, end = self.segments[index]
        last = self.function.code[end - 1]
        following = [] if last.parts[0] in ("ret", "exit", "trap", "brx") and last.pred is None else [index + 1]
        if last.parts[0] == "bra":
            following = [self.target(last.args[0].name)] + ([index + 1] if last.pred is not None else [])
        if last.parts[0] == "brx":
            following = [self.target(t) for t in self.table(last)]
        return following

    def table(self, instr: ptx.Instr) -> list[str]:
        return self.function.tables[instr.args[1].name]

    # --- names ------------------------------------------------------------------------------------------------------

    def slot(self, reg: ptx.Reg) -> int:
        return self.slots[reg.name]

    def local(self, reg: ptx.Reg) -> str:
        return f"r{self.slots[reg.name]}"

    def bind(self, value, hint: str = "k") -> str:
        key = (hint, id(value))
        if key not in self.constants:
            name = f"{hint}{len(self.names)}"
            self.names[name] = value
            self.constants[key] = name
        return self.constants[key]

    def bind_array(self, array: np.ndarray) -> str:
        """A global name for a constant vector, shared by equal ones."""
        key = (array.dtype.str, array.tobytes())
        if key not in self.constants:
            self.constants[key] = name = f"a{len(self.names)}"
            self.names[name] = array
        return self.constants[key]

    def constant(self, value: int, kind: str, bits: int) -> str:
        key = (value, kind, bits)
        if key not in self.constants:
            name = f"c{len(self.names)}"
            vector = np.full(32, value & ((1 << bits) - 1), UNSIGNED[bits]).view(_VIEWS[kind][bits])
            vector.flags.writeable = False
            self.names[name] = vector
            self.constants[key] = name
        return self.constants[key]

    def launch_bound(self, maker, static: tuple) -> str:
        key = ("op", maker, static)
        name = self.constants.get(key)
        if name is None:
            name = f"op{len(self.names)}"
            self.constants[key] = name
            self.names[name] = None
            self.factories[name] = (maker, static)
        return name

    def site(self, instr: ptx.Instr) -> int:
        """A small number that stands for an instruction in shadow memory; 0 stands for none."""
        number = self.site_numbers.get(id(instr))
        if number is None:
            self.sites.append(instr)
            number = self.site_numbers[id(instr)] = len(self.sites)
        return number

    def address(self, symbol: ptx.Symbol, instr: ptx.Instr) -> int:
        if symbol.name not in self.symbols:
            raise unknown(instr, f"symbol {symbol.name}")
        return self.symbols[symbol.name] + symbol.offset

    def bind_launch(self, machine) -> None:
        """Point every memory and synchronization operation of the generated code at this launch's machine."""
        for name, (maker, static) in self.factories.items():
            self.names[name] = maker(machine, *static)

    # --- text -> functions ------------------------------------------------------------------------------------------

    def _emit(self, index: int, full: bool) -> Emitter:
        start, end = self.segments[index]
        e = Emitter(self, full)
        e.index = index
        for instr in self.function.code[start:end]:
            e.instr = instr
            handler = emitter(instr)
            if instr.pred is not None:
                p = e.p(instr.pred)
                p = f"~{p}" if instr.negated else p
                e.guard = e.temp(p if full else f"{p} & f.mask") if (instr.negated or not full) else p
                if not instr.negated and full and instr.parts[0] not in ("bra", "ret", "exit"):
                    e.guard = e.temp(p)
            else:
                e.guard = None
            handler(e, instr)
        e.guard = None
        if not e.ended:
            e.leave(index + 1)
        return e

    def text(self, index: int, full: bool) -> str:
        e = self._emit(index, full)
        head = [f"def segment_{index}(f):", "    R = f.warp.R"]
        return "\n".join(head + e.lines) + "\n"

    def _lazy(self, index: int, full: bool):
        def first_time(f):
            source = self.text(index, full)
            exec(compile(source, f"<segment {index} of {self.function.name}>", "exec"), self.names)
            function = self.names.pop(f"segment_{index}")
            (self.full if full else self.part)[index] = function
            return function(f)

        return first_time


def _exit(f):
    return f.exit()
