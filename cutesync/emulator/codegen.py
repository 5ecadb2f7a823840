"""A PTX function -> Python functions, one per straight-line segment.

Each segment has two forms: *full*, for 32 active lanes, and *part*, which merges its results into the inactive lanes'
old values. Both are built when first run. A segment ends at a branch, at a label, before and after every instruction
that synchronizes (there the scheduler may switch warps), and before every instruction that lanes do together (there a
part of a warp may have to wait). The full form runs on across these, and through the segments of a stretch
(``stretches``). A segment function takes the running fragment and returns the next segment, or ``STOP`` if the fragment
was blocked or has ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from copy import copy
from functools import lru_cache, partial
from typing import Any

import numpy as np

from ..errors import CutesyncError
from . import gate, lanes, route, steady, stretches, syntax
from .emitter import ALL, CARRY, STOP, UNSIGNED, VIEWS, ZERO, Emitter
from .instructions import emitter, gathers_lanes, splits_around
from .instructions.registry import unknown
from .memory import SHARED_START
from .tensor_registers import before_use


@lru_cache(maxsize=4096)
def constant_vector(value: int, kind: str, bits: int) -> np.ndarray:
    """A number in all lanes."""
    vector = np.full(32, value & ((1 << bits) - 1), UNSIGNED[bits]).view(VIEWS[kind][bits])
    vector.flags.writeable = False
    return vector


def _namespace() -> dict:
    names = {"__builtins__": gate.BUILTINS, "np": np, "where": lanes.select, "cnz": lanes.count_nonzero}
    names["copyto"] = lanes.copy_to
    names |= {"STOP": STOP, "ALL": ALL, "NONE": ZERO[1]}
    for kind, types in VIEWS.items():
        names |= {f"{kind}{bits}": dtype for bits, dtype in types.items()}
    return names


class Program:
    """The executable form of one kernel: independent of a launch until ``bind_launch``."""

    carry = CARRY
    probe: Any = None  # called with the number of instructions that a warp is about to run

    def __init__(self, function: syntax.Function, module: syntax.Module):
        self.function = function
        self.module = module
        registers = {**function.registers, CARRY.name: CARRY}
        self.slots = {name: i for i, name in enumerate(registers)}
        self.initial = [ZERO.get(reg.bits) for reg in registers.values()]  # structures have their members' registers
        self.sites: list[syntax.Instr] = []
        self.site_numbers: dict[int, int] = {}
        self.live_out: list[set[str]] | None = None
        self.accumulators, fragments = _tensor_registers(function)
        self.tensor_registers = self.accumulators | fragments
        self.uses_reserved = any(name.startswith("reserved_smem") for i in function.code for name in steady.specials(i))
        self.uses = Counter(name for instr in function.code for name in steady.used(instr))
        self.bases = Counter(_bases(function))
        self.steady = steady.steady_registers(function, {r.name for r in self.tensor_registers})
        self.names = _namespace()
        self.names |= {f"Z{bits}": zero for bits, zero in ZERO.items()}
        self.constants: dict[tuple, str] = {}
        self.factories: dict[str, tuple[Any, tuple]] = {}  # name -> maker and its static arguments
        self._begin()
        self.segments = self._cut()
        self.starts = {start: i for i, (start, _) in enumerate(self.segments)}
        self.exit = len(self.segments)
        what = f"{function.name} has a branch that cannot be read"  # an indexed branch whose table is missing
        with gate.reported(lambda fault: syntax.PtxSyntaxError(f"{what} ({fault})")):
            self.shape = self._shape()
            self.lengths = [self.shape.starts.get(i, 1) for i in range(len(self.segments) + 1)]
            self.single = [1] * len(self.lengths)
            self._analyse()
        self.forget_text()

    def _begin(self) -> None:
        """Variables of its own, and no values kept between schedules."""
        self.kept = steady.Kept()
        self.symbols: dict[str, int] = {}
        self.static_shared = self.local_bytes = 0
        self.variables: dict[str, tuple[syntax.Variable, np.ndarray]] = {}
        self._place_variables()

    def copy(self) -> Program:
        """Another form of the same kernel, for a launch at the same time. What follows from the code is shared."""
        made = copy(self)
        made.names, made.constants, made.factories = dict(self.names), dict(self.constants), dict(self.factories)
        made._begin()
        made.forget_text()
        return made

    def forget_text(self) -> None:
        """Compile each segment anew when it is first run."""
        self.full = [self._lazy(i, True) for i in range(len(self.segments))] + [_exit]
        self.part = [self._lazy(i, False) for i in range(len(self.segments))] + [_exit]

    def _place_variables(self) -> None:
        """Give every declared variable an address. Shared ones of launch-time size come after all others."""
        variables = (*self.module.variables, *self.function.variables)
        for v in sorted(variables, key=lambda v: v.space == "shared" and v.size == 0):
            if v.space == "shared":
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
        self.symbols |= {p.name: p.offset for p in self.function.params}

    # --- shape --------------------------------------------------------------------------------------------------------

    def _cut(self) -> list[tuple[int, int]]:
        code = self.function.code
        self.apart: set[int] = set()  # where instructions that synchronize start and end
        starts = {0, *(i for i in self.function.labels.values() if i < len(code))}
        for i, instr in enumerate(code):
            if instr.parts[0] in stretches.ENDS:
                starts.add(i + 1)
            elif splits_around(instr):
                self.apart |= {i, i + 1}
        starts |= self.apart
        self.joints = {i for i, instr in enumerate(code) if gathers_lanes(instr)} - starts
        ordered = sorted(s for s in starts | self.joints if s < len(code))
        return list(zip(ordered, [*ordered[1:], len(code)]))

    def _shape(self) -> stretches.Shape:
        if self.tensor_registers:  # uses of these are noted once for all of a function
            return stretches.NONE
        return stretches.shape(self.function.code, self.segments, self.joints, self.apart, self._targets)

    def _targets(self, instr: syntax.Instr) -> list[int]:
        """The segments that a branch goes to."""
        return [self.target(t) for t in (self.table(instr) if instr.parts[0] == "brx" else [instr.args[0].name])]

    def target(self, label: str) -> int:
        return self.starts.get(self.function.labels[label], len(self.segments))

    def _analyse(self) -> None:
        """Live registers at the end of each segment."""
        every = range(len(self.segments))
        texts = [self._emit(i, True, run_on=False) for i in every]
        following = [[j for j in self.successors(i) if j in every] for i in every]
        before: list[list[int]] = [[] for _ in every]
        for i in every:
            for j in following[i]:
                before[j].append(i)
        live_in: list[set[str]] = [set() for _ in every]
        live_out: list[set[str]] = [set() for _ in every]
        waiting = dict.fromkeys(every)
        while waiting:
            i, _ = waiting.popitem()
            live_out[i] = set().union(*(live_in[j] for j in following[i]))
            into = texts[i].reads | (live_out[i] - texts[i].writes.keys())
            if into != live_in[i]:
                live_in[i] = into
                waiting |= dict.fromkeys(before[i])
        self.live_out = live_out

    def successors(self, index: int) -> list[int]:
        last = self.function.code[self.segments[index][1] - 1]
        following = [] if last.parts[0] in ("ret", "exit", "trap", "brx") and last.pred is None else [index + 1]
        if last.parts[0] == "bra":
            following = self._targets(last) + ([index + 1] if last.pred is not None else [])
        if last.parts[0] == "brx":
            following = self._targets(last)
        return following

    def table(self, instr: syntax.Instr) -> list[str]:
        return self.function.tables[instr.args[1].name]

    # --- names --------------------------------------------------------------------------------------------------------

    def slot(self, reg: syntax.Reg) -> int:
        return self.slots[reg.name]

    def register_name(self, slot: int) -> str:
        return next(name for name, i in self.slots.items() if i == slot)

    def local(self, reg: syntax.Reg) -> str:
        return f"r{self.slots[reg.name]}"

    def _named(self, key: tuple, hint: str, value) -> str:
        """The global name of a value of the generated code; equal keys share one."""
        if key not in self.constants:
            self.constants[key] = f"{hint}{len(self.names)}"
            self.names[self.constants[key]] = value
        return self.constants[key]

    def bind(self, value, hint: str = "k") -> str:
        return self._named((hint, id(value)), hint, value)

    def bind_array(self, array: np.ndarray) -> str:
        """A global name for a constant vector."""
        return self._named((array.dtype.str, array.tobytes()), "a", array)

    def constant(self, value: int, kind: str, bits: int) -> str:
        return self._named((value, kind, bits), "c", constant_vector(value, kind, bits))

    def bound(self, function, static: tuple) -> str:
        return self._named(("bound", function, static), function.__name__, partial(function, *static))

    def launch_bound(self, maker, static: tuple) -> str:
        name = self._named(("op", maker, static), "op", None)
        self.factories[name] = (maker, static)
        return name

    def site(self, instr: syntax.Instr) -> int:
        """A small number that stands for an instruction in shadow memory; 0 stands for none."""
        number = self.site_numbers.get(id(instr))
        if number is None:
            self.sites.append(instr)
            number = self.site_numbers[id(instr)] = len(self.sites)
        return number

    def address(self, symbol: syntax.Symbol, instr: syntax.Instr) -> int:
        if symbol.name not in self.symbols:
            raise unknown(instr, f"symbol {symbol.name}")
        return self.symbols[symbol.name] + symbol.offset

    def bind_launch(self, machine) -> None:
        """Point every memory and synchronization operation of the generated code at this launch's machine."""
        self.kept.settle()
        for name, (maker, static) in self.factories.items():
            self.names[name] = maker(machine, *static)

    # --- text -> functions --------------------------------------------------------------------------------------------

    def _emit(self, index: int, full: bool, run_on: bool) -> Emitter:
        """The text of a segment; with ``run_on`` the segments behind joints, and those of a stretch that starts here,
        follow in the same function."""
        e = Emitter(self, full)
        if full and run_on and index in self.shape.starts:
            self._emit_stretch(e, index, len(self.segments))
        else:
            self._emit_run(e, index, self._last(index) if run_on else index, full and run_on)
        if not e.ended:
            e.jump(e.index + 1)
        return e

    def _emit_stretch(self, e: Emitter, index: int, stop: int) -> None:
        """The segments from ``index`` to where their stretch, or what a branch skips before ``stop``, ends."""
        at = index
        while True:
            last = self._last(at)
            target = self.shape.skips.get(last)
            places = any(
                steady.touches_memory(self.function.code[i])
                for i in range(self.segments[at][0], self.segments[last][1])
            )
            if (e.depth or at != index) and places:
                e.line(f"f.pc = {at}")  # by which loads that poll are told apart
            self._emit_run(e, at, last, True, skipping=target is not None)
            if e.ended:
                return
            at = last + 1
            if target is not None:
                self._emit_skip(e, last, target)
                at = target
            e.index = at - 1
            if at >= stop or at in self.shape.breaks or (not e.depth and at in self.shape.starts):
                return

    def _emit_skip(self, e: Emitter, index: int, target: int) -> None:
        """The branch that ends segment ``index``: if no lane takes it, the segments up to its target run."""
        taken, e.guard = e.guard, None
        lines, written = e.apart(lambda: self._emit_stretch(e, index + 1, target))
        e.index = index
        e.line(f"n = cnz({taken})")
        e.flush(written)
        e.line("if n == 0:")
        e.lines += [f"    {line}" for line in lines]
        e.line("elif n != 32:")
        e.lines += [f"    {line}" for line in e.apart(lambda: e.leave(f"f.split({taken}, {target}, {index + 1})"))[0]]
        e.forget(written)

    def _emit_run(self, e: Emitter, index: int, last: int, ahead: bool, skipping: bool = False) -> None:
        """The segments from one to another. ``ahead``: what is steady in them comes first. ``skipping``: of the branch
        that ends the last one only the guard."""
        start, end = self.segments[index][0], self.segments[last][1]
        if self.probe is not None:
            e.line(e.call(self.probe, str(end - start)))
        done = self._steady_first(e, start, last) if ahead else set()
        for e.index in range(index, last + 1):
            for at in range(*self.segments[e.index]):
                if skipping and at == end - 1:
                    self._guard(e, self.function.code[at])
                    return
                if at not in done:
                    self._emit_one(e, self.function.code[at])
            e.guard = None

    def _last(self, index: int) -> int:
        """The last of the segments that the full form of this one runs through."""
        while self.segments[index][1] in self.joints:
            index += 1
        return index

    def _emit_one(self, e: Emitter, instr) -> None:
        e.instr = instr
        try:  # ``gate.reported`` would take as long as what is inside
            self._guard(e, instr)
            if self.tensor_registers:
                self._watch(e, instr)
            if route.synchronizes(instr):
                e.effect(e.bound(route.passed, e.site()))
            emitter(instr)(e, instr)
        except CutesyncError:
            raise
        except gate.MALFORMED as fault:
            raise unknown(instr, f"its form or operands ({type(fault).__name__}: {fault})") from fault

    def _steady_first(self, e: Emitter, start: int, last: int) -> set[int]:
        """Compute the steady values of a segment, as a group of their own. Returns the places of their instructions."""
        code = self.function.code[start : self.segments[last][1]]
        first = steady.first_ones(code, self.steady, self.bases)
        if not first:
            return set()
        inner = Emitter(self, True)
        for i in first:
            self._emit_one(inner, code[i])
        inner.guard = None
        live = self.live_out[last] if self.live_out is not None else set()
        needed = live.union(*(steady.used(code[i]) for i in set(range(len(code))) - set(first)))
        results = [reg for name, reg in inner.writes.items() if name in needed]
        names = "".join(f"{inner.register(reg, 'u')}, " for reg in results)
        lines = ["def steady_values(f):", "    R = f.warp.R", *inner.lines, f"    return ({names})", ""]
        compute = gate.function("\n".join(lines), "steady_values", self.names)
        addresses = [i for i, reg in enumerate(results) if self.bases[reg.name]]
        slots = [self.slots[name] for name in sorted(inner.reads)]
        values = self.kept.group(steady.Group([code[i] for i in first], compute, slots, addresses))
        e.flush(inner.reads)
        e.line(f"{names}= {e.name(values, 'steady')}(f)" if names else "pass")
        e.take(results)
        return {start + i for i in first}

    @staticmethod
    def _guard(e: Emitter, instr) -> None:
        """Put the lanes of a predicated instruction into a local: the instruction may change the predicate."""
        e.guard = None
        if instr.pred is not None:
            p = f"~{e.p(instr.pred)}" if instr.negated else e.p(instr.pred)
            e.guard = e.temp(p if e.full else f"{p} & f.mask")

    def _watch(self, e: Emitter, instr) -> None:
        """Tell of registers that ``wgmma`` works on."""
        if instr.parts[0] != "wgmma":
            used = self.tensor_registers & instr.registers()
            e.touch(used)
        else:
            used = set(syntax.items(instr.args[1])) if instr.parts[1] == "mma_async" else set()
        e.spills |= not used.isdisjoint(self.accumulators)

    def text(self, index: int, full: bool) -> str:
        """The Python source of a segment."""
        e = self._emit(index, full, run_on=full)
        head = [f"def segment_{index}(f):", "    R = f.warp.R"]
        if e.spills:
            head.append(f"    {e.call(before_use, 'f')}")
        return "\n".join([*head, *e.lines]) + "\n"

    def _lazy(self, index: int, full: bool):
        def first_time(f):
            function = gate.function(self.text(index, full), f"segment_{index}", self.names)
            (self.full if full else self.part)[index] = function
            return function(f)

        return first_time


def _bases(function: syntax.Function) -> Iterator[str]:
    """The registers that addresses count from, once for each operand in memory."""
    for instr in function.code:
        yield from (a.base.name for a in instr.args if isinstance(a, syntax.Mem) and isinstance(a.base, syntax.Reg))


def _tensor_registers(function: syntax.Function) -> tuple[set[syntax.Reg], set[syntax.Reg]]:
    """The accumulators, and the A fragments, of all ``wgmma`` instructions."""
    products = [i.args[:2] for i in function.code if i.parts[:2] == ("wgmma", "mma_async")]
    d, a = ({r for p in products if isinstance(p[k], syntax.Vec) for r in p[k].items} for k in (0, 1))
    return d, a


def _exit(f):
    return f.exit()
