"""Moves, packing, comparison and selection, and addresses of the various spaces."""

from __future__ import annotations

from ..memory import WINDOWS, space_of
from ..syntax import SINK, Imm, Mem, Pair, Reg, Special, Symbol, Vec
from .floating import COMPARISONS, float_comparison, pair_comparison
from .registry import INTEGERS, accept, handles, int_type, word


@handles("setp", "set")
def compare(e, instr):
    """``setp.op[.bool].type p[|q], a, b[, c]``; ``set`` writes all ones (or 1.0) instead of a predicate."""
    kind = instr.parts[-1]
    if kind.endswith("x2"):
        return pair_comparison(e, instr)
    if kind in INTEGERS:
        k, bits = int_type(instr)
        a, b = (e.value(x, k, bits) for x in instr.args[1:3])
        result = f"({a} {COMPARISONS[word(instr, 1, COMPARISONS)]} {b})"
    else:
        result = float_comparison(e, instr)
    joiner = next((j for j in ("and", "or", "xor") if j in instr.parts[2:]), "")
    sign = {"and": "&", "or": "|", "xor": "^"}.get(joiner)
    first = f"{result} {sign} {e.p(instr.args[3])}" if joiner else result
    destination = instr.args[0]
    if instr.parts[0] == "set" and instr.parts[-2] == "f32":
        e.set(destination, f"({first}).astype(f32)", "f", 32)
    elif instr.parts[0] == "set":
        e.set(destination, f"where({first}, {e.const(0xFFFFFFFF, 'u', 32)}, {e.const(0, 'u', 32)})", "u", 32)
    elif isinstance(destination, Pair):
        held = e.temp(result)
        joined = f" {sign} {e.p(instr.args[3])}" if joiner else ""
        e.set_pair(destination, e.temp(held + joined), e.temp(f"~{held}{joined}"))
    else:
        e.set(destination, first)


@handles("selp")
def selp(e, instr):
    bits = {"pred": 1}.get(instr.parts[-1]) or int(instr.parts[-1].lstrip("usbf"))
    kind, a, b = e.moved(*instr.args[1:3], bits=bits)
    e.set(instr.args[0], e.choice(e.p(instr.args[3]), a, b), kind, bits)


@handles("slct")
def slct(e, instr):
    bits = int(instr.parts[1].lstrip("usbf"))
    a, b = (e.u(x, bits) for x in instr.args[1:3])
    c = e.s(instr.args[3], 32) if instr.parts[2] == "s32" else e.f(instr.args[3], 32)
    e.set(instr.args[0], f"where({c} >= 0, {a}, {b})", "u", bits)


@handles("mov")
def mov(e, instr):
    destination, source = instr.args
    if isinstance(destination, Vec):
        return unpack(e, destination, source, instr)
    if isinstance(source, Vec):
        return pack(e, destination, source, instr)
    if instr.parts[1] == "pred":
        return e.set(destination, e.p(source))
    accept(instr, isinstance(source, (Reg, Special, Symbol, Imm)))
    bits = int(instr.parts[1].lstrip("usbf"))
    kind, value = e.moved(source, bits=bits)
    return e.set(destination, value, kind, bits)


def pack(e, destination, source: Vec, instr) -> None:
    total = int(instr.parts[1][1:])
    pieces = ", ".join(e.u(x, total // len(source.items)) for x in source.items)
    e.set(destination, f"np.array(({pieces})).T.copy().view(u{total}).reshape(32)", "u", total)


def unpack(e, destination: Vec, source, instr) -> None:
    total, count = int(instr.parts[1][1:]), len(destination.items)
    bits = total // count
    whole = e.temp(f"{e.u(source, total)}.view(u{bits})")
    for i, item in enumerate(destination.items):
        if item != SINK:
            e.set(item, f"{whole}[{i}::{count}].copy()", "u", bits)


@handles("cvta")
def cvta(e, instr):
    place, sign = (2, "-") if "to" in instr.parts else (1, "+")
    window = WINDOWS[word(instr, place, WINDOWS)]
    bits = int(instr.parts[-1][1:])
    source = e.u(instr.args[1], bits)
    e.set(instr.args[0], f"{source} {sign} {e.const(window, 'u', 64)}" if window else source, "u", bits)


@handles("isspacep")
def isspacep(e, instr):
    e.set(instr.args[0], f"{e.name(space_of, 'space_of')}({e.u(instr.args[1], 64)}) == {WINDOWS[instr.parts[1]] >> 56}")


@handles("prefetch", "prefetchu", "applypriority", "discard", "createpolicy", "pragma", "pmevent")
def hint(e, instr):
    """Hints, and events of a profiler: no effect on values. The register of a cache policy is never read."""
    if instr.parts[0] == "createpolicy":
        e.set(instr.args[0], e.const(0, "u", 64), "u", 64)


handles("cp.async.bulk.prefetch", switch=True)(hint)


def address_operand(e, mem: Mem, bits: int) -> str:
    """The address of a memory operand as an unsigned vector of ``bits`` bits."""
    base = e.u(mem.base, bits)
    return base if not mem.offset else e.temp(f"{base} + {e.const(mem.offset, 'u', bits)}")
