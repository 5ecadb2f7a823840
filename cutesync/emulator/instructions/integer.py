"""Integer arithmetic."""

from __future__ import annotations

import numpy as np

from ..lanes import count_nonzero
from ..syntax import Imm
from .floating import float_arithmetic
from .registry import INTEGERS, accept, handles, handles_call, int_type

_ZERO = np.array(0, np.int8)
_OWN = {*INTEGERS, "u16x2", "s16x2"}


def handles_typed(*names: str):
    """Registers a handler of the integer forms of these instructions; the other forms are float arithmetic."""

    def register(handler):
        handles(*names)(lambda e, instr: (handler if instr.parts[-1] in _OWN else float_arithmetic)(e, instr))
        return handler

    return register


def arithmetic(e, instr, template: str) -> None:
    """Set the destination to ``template`` over the operands, in the instruction's own type."""
    kind, bits = int_type(instr)
    e.set(instr.args[0], template.format(*(e.value(a, kind, bits) for a in instr.args[1:])), kind, bits)


def unsigned(e, instr, template: str) -> None:
    _, bits = int_type(instr)
    e.set(instr.args[0], template.format(*[e.u(a, bits) for a in instr.args[1:]]), "u", bits)


def saturated(wide: str, bits: int) -> str:
    """An expression of 64 bits, clamped to signed integers of ``bits``."""
    return f"np.clip({wide}, {-(1 << bits - 1)}, {(1 << bits - 1) - 1}).astype(s{bits})"


@handles_typed("add", "addc", "sub", "subc")
def add_or_sub(e, instr):
    """Modular add and sub, plain, saturating, or with carries."""
    if instr.parts[-1].endswith("x2"):
        return add_halves(e, instr)
    _, bits = int_type(instr)
    sign = "+" if instr.parts[0].startswith("add") else "-"
    if "sat" in instr.parts:
        wide = f"({e.s(instr.args[1], bits)}.astype(s64) {sign} {e.s(instr.args[2], bits)}.astype(s64))"
        return e.set(instr.args[0], saturated(wide, bits), "s", bits)
    a, b = (e.u(x, bits) for x in instr.args[1:3])
    if instr.parts[0] in ("addc", "subc") or "cc" in instr.parts:
        return carried(e, instr, a, b, bits, sign)
    return e.set(instr.args[0], f"{a} {sign} {b}", "u", bits)


def add_halves(e, instr) -> None:
    """``add.u16x2``: no carry from the lower half into the upper one."""
    accept(instr, instr.parts[:-1] == ("add",))
    a, b, low, half = *(e.u(x, 32) for x in instr.args[1:3]), e.const(0xFFFF, "u", 32), e.const(16, "u", 32)
    e.set(instr.args[0], f"({a} + {b} & {low}) | (({a} >> {half}) + ({b} >> {half}) << {half})", "u", 32)


def carried(e, instr, a: str, b: str, bits: int, sign: str = "+") -> None:
    """``a + b`` or ``a - b``, with the carry (borrow) that comes in for the ``c`` forms and goes out for ``.cc``."""
    carry = e.program.carry
    total = e.temp(f"{a} {sign} {b}")
    out = e.temp(f"{total} < {a}" if sign == "+" else f"{a} < {b}")
    if instr.parts[0].endswith("c"):
        extra = e.temp(f"{e.p(carry)}.astype(u{bits})")
        final = e.temp(f"{total} {sign} {extra}")
        out = e.temp(f"{out} | ({final} < {total})" if sign == "+" else f"{out} | ({total} < {extra})")
        total = final
    e.set(instr.args[0], total, "u", bits)
    if "cc" in instr.parts:
        e.set(carry, out)


def high_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The upper 64 bits of products of 64-bit integers, exactly."""
    values = [(int(x) * int(y)) >> 64 for x, y in zip(a, b)]
    return np.array([v & (2**64 - 1) for v in values], np.uint64).view(a.dtype)


def product24(a: str, b: str, kind: str, high: bool) -> str:
    """Bits 0 to 31 of the product of the low 24 bits of both sources, or its bits 16 to 47."""
    a, b = (f"({x} << 8 >> 8)" for x in (a, b))
    return f"(({a}.astype({kind}64) * {b}.astype({kind}64)) >> 16).astype({kind}32)" if high else f"({a} * {b})"


def widened(e, instr, operand, text: str) -> str:
    """An operand of a widening multiplication, sign- or zero-extended."""
    kind, bits = int_type(instr)
    if not isinstance(operand, Imm):
        return f"{text}.astype({kind}{2 * bits})"
    value = operand.value & ((1 << bits) - 1)
    return e.const(value - (1 << bits) if kind == "s" and value >> (bits - 1) else value, kind, 2 * bits)


def product(e, instr) -> tuple[str, str, int]:
    """(expression, kind, bits of the result) of a multiplication's two first operands."""
    kind, bits = int_type(instr)
    a, b = (e.value(x, kind, bits) for x in instr.args[1:3])
    if instr.parts[0].endswith("24"):
        return product24(a, b, kind, "hi" in instr.parts), kind, bits
    if "wide" in instr.parts:
        return f"({widened(e, instr, instr.args[1], a)} * {widened(e, instr, instr.args[2], b)})", kind, 2 * bits
    if "hi" in instr.parts and bits == 64:
        return f"{e.name(high_product, 'high_product')}({a}, {b})", kind, bits
    if "hi" in instr.parts:
        return f"(({a}.astype({kind}64) * {b}.astype({kind}64)) >> {bits}).astype({kind}{bits})", kind, bits
    return f"({e.u(instr.args[1], bits)} * {e.u(instr.args[2], bits)})", "u", bits


def divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Truncating division; dividing by zero gives all ones, as the hardware does."""
    if count_nonzero(b) < b.size:
        ones = np.full_like(a, -1 if a.dtype.kind == "i" else np.iinfo(a.dtype).max)
        return np.where(b == 0, ones, divide(a, np.where(b == 0, np.ones_like(b), b)))
    quotient = a // b
    if a.dtype.kind == "u" or not count_nonzero(quotient < _ZERO):
        return quotient
    return np.where((quotient < 0) & (quotient * b != a), quotient + 1, quotient)


def remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What truncating division leaves; dividing by zero leaves the dividend."""
    if count_nonzero(b) < b.size:
        return np.where(b == 0, a, remainder(a, np.where(b == 0, np.ones_like(b), b)))
    return np.fmod(a, b)


@handles_typed("mul", "mul24")
def mul(e, instr):
    expression, kind, bits = product(e, instr)
    e.set(instr.args[0], expression, kind, bits)


@handles_typed("mad", "madc", "mad24")
def mad(e, instr):
    expression, kind, bits = product(e, instr)
    if "sat" in instr.parts:
        wide = f"({expression}.astype(s64) + {e.s(instr.args[3], bits)}.astype(s64))"
        return e.set(instr.args[0], saturated(wide, bits), "s", bits)
    if instr.parts[0] != "madc" and "cc" not in instr.parts:
        return e.set(instr.args[0], f"{expression} + {e.value(instr.args[3], kind, bits)}", kind, bits)
    carried(e, instr, e.temp(f"{expression}.view(u{bits})"), e.u(instr.args[3], bits), bits)


@handles("sad")
def sad(e, instr):
    kind, bits = int_type(instr)
    a, b, c = (e.value(x, kind, bits) for x in instr.args[1:])
    e.set(instr.args[0], f"where({a} > {b}, {a} - {b}, {b} - {a}) + {c}", kind, bits)


@handles_typed("div")
def div(e, instr):
    arithmetic(e, instr, e.name(divide, "divide") + "({}, {})")


handles_call("rem", remainder, operands="TT", result="T")


@handles_typed("min", "max")
def min_max(e, instr):
    template = f"np.{instr.parts[0]}imum({{}}, {{}})"
    if "relu" in instr.parts:
        template = f"np.maximum({template}, 0)"
    if instr.parts[-1] in ("u16x2", "s16x2"):
        kind = instr.parts[-1][0]
        a, b = (f"{e.u(x, 32)}.view({kind}16)" for x in instr.args[1:3])
        e.set(instr.args[0], f"{template.format(a, b)}.view(u32)")
    else:
        arithmetic(e, instr, template)


@handles_typed("neg")
def neg(e, instr):
    unsigned(e, instr, "-{}")


@handles_typed("abs")
def absolute(e, instr):
    arithmetic(e, instr, "abs({})")


def elements(words: np.ndarray, bits: int, signed: bool) -> np.ndarray:
    """The signed or unsigned elements of ``bits`` in words of 32, shape (32, elements of a word), as int64."""
    return np.ascontiguousarray(words).view(f"{'i' if signed else 'u'}{bits // 8}").reshape(32, -1).astype(np.int64)


def dot_halves(a: np.ndarray, b: np.ndarray, c: np.ndarray, signed_a: bool, signed_b: bool, high: bool) -> np.ndarray:
    factors = elements(b, 8, signed_b)[:, 2 * high : 2 * high + 2]
    return (c.astype(np.int64) + (elements(a, 16, signed_a) * factors).sum(1)).astype(np.uint32)


handles_call(
    "dp2a", dot_halves, lambda parts: parts[2] == "s32", lambda parts: parts[3] == "s32", lambda parts: parts[1] == "hi"
)


def dot_bytes(a: np.ndarray, b: np.ndarray, c: np.ndarray, signed_a: bool, signed_b: bool) -> np.ndarray:
    return (c.astype(np.int64) + (elements(a, 8, signed_a) * elements(b, 8, signed_b)).sum(1)).astype(np.uint32)


handles_call("dp4a", dot_bytes, lambda parts: parts[1] == "s32", lambda parts: parts[2] == "s32")
