"""What follows from the parameters of a launch and the numbers of its threads and blocks alone.

A register is *steady* if arithmetic on parameters, special registers, constants and steady registers is all that is
ever written to it: indices, addresses, bounds, counters of loops. The schedules of one launch compute the same of these
again and again. So a segment computes them first, as a group, and a launch that runs under several schedules keeps the
results of each group, by the identity of what goes in. Registers never change in place, so equal identities are equal
values; and what is kept has an identity of its own, from which the next group (the next turn of a loop) is found.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence, Set
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np

from . import syntax
from .syntax import Function, Imm, Instr, Mem, Reg, Special, Symbol, once

_NAMES = """abs add and bfe bfi bfind brev clz cnot copysign cvt cvta div fma isspacep lop3 mad mad24 max min mov mul
    mul24 neg not or popc prmt rem sad selp set setp shf shl shr slct sub xor"""
_ARITHMETIC = frozenset(_NAMES.split())
_WHOLE_WARP = frozenset(["elect", "shfl"])  # arithmetic for a warp with all its lanes
_OF_THREADS = ("tid", "warpid")
_OF_BLOCKS = ("ctaid", "cluster")
_OF_LAUNCHES = ("ntid", "nwarpid", "nctaid", "nclusterid", "laneid", "lanemask", "is_explicit", "dynamic_smem")
_LEAST = 3  # instructions: for fewer the search costs as much
_ROOM = 1 << 16  # vectors that a program keeps, some 24 MB


@once
def written(instr: Instr) -> frozenset[str]:
    """The registers that an instruction may write."""
    if not instr.args or isinstance(instr.args[0], Mem):
        return frozenset()
    first = instr.args[0]
    found = (first.first, first.second) if isinstance(first, syntax.Pair) else syntax.items(first)
    return frozenset(item.name for item in found if isinstance(item, Reg))


@once
def used(instr: Instr) -> frozenset[str]:
    """The registers that an instruction reads or writes."""
    predicates = () if instr.pred is None else (instr.pred,)
    return frozenset(r.name for r in (*instr.registers(), *predicates))


@once
def specials(instr: Instr) -> list[str]:
    operands = chain.from_iterable(map(syntax.items, instr.args))
    return [operand.name.lstrip("%") for operand in operands if isinstance(operand, Special)]


@once
def _arithmetic(instr: Instr) -> bool:
    """Whether its result follows from its operands, which hold the same in every run."""
    name = instr.parts[0]
    if name == "ld":
        address = instr.args[1]
        return instr.parts[1].startswith("param") and isinstance(address, Mem) and isinstance(address.base, Symbol)
    if name in _WHOLE_WARP:
        return isinstance(instr.args[-1], Imm) and instr.args[-1].value & 0xFFFFFFFF == 0xFFFFFFFF
    known = _OF_THREADS + _OF_BLOCKS + _OF_LAUNCHES
    return name in _ARITHMETIC and "cc" not in instr.parts and all(s.startswith(known) for s in specials(instr))


def touches_memory(instr: Instr) -> bool:
    return any(isinstance(a, Mem) for a in instr.args) and not _arithmetic(instr)


def steady_registers(function: Function, never: Set[str]) -> frozenset[str]:
    """The names of a kernel's steady registers; ``never``: of those that are written in other ways as well."""
    arithmetic = [(used(instr), written(instr)) for instr in function.code if _arithmetic(instr)]
    other = set(never).union(*(written(instr) for instr in function.code if not _arithmetic(instr)))
    size = -1
    while size != len(other):
        size = len(other)
        for operands, results in arithmetic:
            if not other.isdisjoint(operands):
                other |= results
    return frozenset(function.registers.keys() - other)


def first_ones(code: Sequence[Instr], steady: Set[str], addresses: Container[str]) -> list[int]:
    """The places of a segment's steady instructions that may be carried out before all others of it; none if they are
    too few. One that computes an address (``addresses``: registers) is enough: what lies there is kept, too."""
    found = []
    read: set[str] = set()  # by instructions that stay
    changed: set[str] = set()
    places = False
    for i, instr in enumerate(code):
        operands, results = used(instr), written(instr)
        if operands <= steady and _arithmetic(instr) and changed.isdisjoint(operands) and read.isdisjoint(results):
            found.append(i)
            places = places or any(name in addresses for name in results)
        else:
            read |= operands
            changed |= results
    return found if places or len(found) >= _LEAST else []


def _getter(slots: Sequence[int]) -> Callable[[list], tuple]:
    if len(slots) > 1:
        return itemgetter(*slots)
    return (lambda registers: (registers[slots[0]],)) if slots else (lambda registers: ())


class Group:
    """The steady values that a segment computes: ``values(f)``. ``addresses``: places of those that address memory."""

    table: dict[Any, tuple] | None = None  # identities of what goes in -> what comes out, and what went in
    grown = 0  # entries of the table before this schedule

    def __init__(self, code: Iterable[Instr], compute: Callable[[Any], tuple], slots: list[int], addresses: list[int]):
        names = [s for instr in code for s in specials(instr)]
        self.of = any(s.startswith(_OF_THREADS) for s in names) + 2 * any(s.startswith(_OF_BLOCKS) for s in names)
        self.compute, self.slots, self.addresses = compute, slots, addresses
        self.inputs = _getter(slots)

    def bind(self, kept: Kept) -> Callable[[Any], tuple]:
        compute, inputs, of = self.compute, self.inputs, self.of

        def values(f):
            table = self.table
            if table is None:
                return compute(f)
            warp = f.warp
            held = inputs(warp.R)
            key = (warp.identity[of], *map(id, held))
            found = table.get(key)
            if found is None:
                found = compute(f), held
                kept.add(self, key, found)
            return found[0]

        def values_of_warp(f):
            """The same without inputs."""
            table = self.table
            if table is None:
                return compute(f)
            key = f.warp.identity[of]
            found = table.get(key)
            if found is None:
                found = compute(f), ()
                kept.add(self, key, found)
            return found[0]

        return values if self.slots else values_of_warp


class Kept:
    """The results of a program's groups, while one launch runs under several schedules.

    ``rows`` has, by the identity of a vector of addresses that is kept, what each memory instruction has found there:
    a region, and rows of units. ``elements`` has, by the identity of such rows, those of each element of a unit. What
    is in ``held`` lives until the end, so that no other vector gets its identity.
    """

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.rows: dict[int, dict[int, tuple]] = {}
        self.elements: dict[int, list[np.ndarray]] = {}
        self.held: list[np.ndarray] = []
        self.room, self.on = 0, False

    def group(self, made: Group) -> Callable[[Any], tuple]:
        self.groups.append(made)
        made.table = {} if self.on else None
        return made.bind(self)

    def begin(self) -> None:
        """From now on results are kept."""
        self.on, self.room = True, _ROOM
        for group in self.groups:
            group.table, group.grown = {}, 0

    def settle(self) -> None:
        """Between two schedules: a group whose inputs are new each time keeps nothing."""
        for group in self.groups:
            if group.table is not None:
                if len(group.table) > 1.5 * group.grown > 0:
                    group.table = None
                else:
                    group.grown = len(group.table)

    def add(self, group: Group, key: Any, found: tuple[tuple[np.ndarray, ...], tuple]) -> None:
        values, _ = found
        if group.table is None or self.room < len(values):
            return
        self.room -= len(values)
        group.table[key] = found
        for place in group.addresses:
            self.rows[id(values[place])] = {}
            self.held.append(values[place])

    def add_rows(self, known: dict[int, tuple], site: int, found: tuple[Any, np.ndarray], count: int) -> None:
        """What a memory instruction has found at steady addresses: units of ``count`` elements."""
        if self.room < count:
            return
        self.room -= count
        known[site] = found
        if count > 1:
            _, rows = found
            self.elements[id(rows)] = [rows * count + i for i in range(count)]
            self.held.append(rows)

    def end(self) -> None:
        self.on = False
        for kept in (self.rows, self.elements, self.held):
            kept.clear()
        for group in self.groups:
            group.table = None
