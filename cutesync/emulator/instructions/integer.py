"""Integer arithmetic, logic, moves, comparisons and selection."""

from __future__ import annotations

import numpy as np

from ..memory import WINDOWS, space_of
from ..syntax import SINK, Imm, Mem, Pair, Reg, Special, Symbol, Vec
from .registry import handles, unknown

_TYPES = {f"{k}{b}": (k, b) for k in "usb" for b in (8, 16, 32, 64)}
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}


def int_type(instr, position: int = -1) -> tuple[str, int]:
    """('u' or 's', bits) of the type suffix; ``b`` counts as unsigned."""
    kind, bits = _TYPES.get(instr.parts[position], (None, 0))
    if kind is None:
        raise unknown(instr)
    return ("s" if kind == "s" else "u"), bits


def is_int(instr) -> bool:
    return instr.parts[-1] in _TYPES


def arithmetic(e, instr, template: str) -> None:
    """Set the destination to ``template`` over the operands, in the instruction's own type."""
    kind, bits = int_type(instr)
    operands = [e.value(a, kind, bits) for a in instr.args[1:]]
    e.set(instr.args[0], template.format(*operands), kind, bits)


def unsigned(e, instr, template: str) -> None:
    _, bits = int_type(instr)
    e.set(instr.args[0], template.format(*[e.u(a, bits) for a in instr.args[1:]]), "u", bits)


def add_or_sub(e, instr, sign: str) -> None:
    """Modular add and sub, with ``.cc`` / ``addc`` carries kept in a hidden register, and ``.sat``."""
    kind, bits = int_type(instr)
    a, b = (e.u(x, bits) for x in instr.args[1:3])
    if "sat" in instr.parts:
        wide = f"({e.s(instr.args[1], bits)}.astype(s64) {sign} {e.s(instr.args[2], bits)}.astype(s64))"
        e.set(instr.args[0], f"np.clip({wide}, {-(1 << bits - 1)}, {(1 << bits - 1) - 1}).astype(s{bits})", "s", bits)
        return
    with_carry = instr.parts[0] in ("addc", "subc")
    carry = e.program.carry
    if not with_carry and "cc" not in instr.parts:
        e.set(instr.args[0], f"{a} {sign} {b}", "u", bits)
        return
    total = e.temp(f"{a} {sign} {b}")
    out = e.temp(f"{total} < {a}" if sign == "+" else f"{a} < {b}")
    if with_carry:
        extra = e.temp(f"{e.p(carry)}.astype(u{bits})")
        final = e.temp(f"{total} {sign} {extra}")
        out = e.temp(f"{out} | ({final} < {total})" if sign == "+" else f"{out} | ({total} < {extra})")
        total = final
    e.set(instr.args[0], total, "u", bits)
    if "cc" in instr.parts:
        e.set(carry, out)


def high_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The upper 64 bits of products of 64-bit integers, exactly."""
    bits = np.dtype(a.dtype)
    values = [(int(x) * int(y)) >> 64 for x, y in zip(a, b)]
    return np.array([v & (2**64 - 1) for v in values], np.uint64).view(bits)


def product(e, instr) -> tuple[str, str, int]:
    """(expression, kind, bits of the result) of a multiplication's two first operands."""
    kind, bits = int_type(instr)
    a, b = (e.value(x, kind, bits) for x in instr.args[1:3])
    if "wide" in instr.parts:
        return f"({a}.astype({kind}{2 * bits}) * {b}.astype({kind}{2 * bits}))", kind, 2 * bits
    if "hi" in instr.parts and bits == 64:
        return f"{e.name(high_product, 'high_product')}({a}, {b})", kind, bits
    if "hi" in instr.parts:
        return f"(({a}.astype({kind}64) * {b}.astype({kind}64)) >> {bits}).astype({kind}{bits})", kind, bits
    return f"({e.u(instr.args[1], bits)} * {e.u(instr.args[2], bits)})", "u", bits


def divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Truncating division; dividing by zero gives all ones, as the hardware does."""
    safe = np.where(b == 0, np.ones_like(b), b)
    if a.dtype.kind == "u":
        return np.where(b == 0, np.full_like(a, np.iinfo(a.dtype).max), a // safe)
    quotient = a // safe
    quotient = np.where((quotient < 0) & (quotient * safe != a), quotient + 1, quotient)
    return np.where(b == 0, np.full_like(a, -1), quotient)


def remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    safe = np.where(b == 0, np.ones_like(b), b)
    return np.where(b == 0, a, a - divide(a, safe) * safe)


def shift(value: np.ndarray, amount: np.ndarray, left: bool) -> np.ndarray:
    """Shift with amounts clamped at the width: everything leaves (the sign stays for signed right shifts)."""
    bits = value.itemsize * 8
    inside = amount < bits
    small = np.where(inside, amount, 0).astype(value.dtype)
    if left:
        return np.where(inside, value << small, np.zeros_like(value))
    beyond = value >> value.dtype.type(bits - 1) if value.dtype.kind == "i" else np.zeros_like(value)
    return np.where(inside, value >> small, beyond)


@handles("add", "addc")
def add(e, instr):
    from .floating import float_arithmetic

    if is_int(instr):
        add_or_sub(e, instr, "+")
    else:
        float_arithmetic(e, instr)


@handles("sub", "subc")
def sub(e, instr):
    from .floating import float_arithmetic

    if is_int(instr):
        add_or_sub(e, instr, "-")
    else:
        float_arithmetic(e, instr)


@handles("mul", "mul24")
def mul(e, instr):
    from .floating import float_arithmetic

    if is_int(instr):
        expression, kind, bits = product(e, instr)
        e.set(instr.args[0], expression, kind, bits)
    else:
        float_arithmetic(e, instr)


@handles("mad", "madc")
def mad(e, instr):
    from .floating import float_arithmetic

    if not is_int(instr):
        return float_arithmetic(e, instr)
    if instr.parts[0] == "madc" or "cc" in instr.parts:
        raise unknown(instr, "carries of mad")
    expression, kind, bits = product(e, instr)
    e.set(instr.args[0], f"{expression} + {e.value(instr.args[3], kind, bits)}", kind, bits)


@handles("sad")
def sad(e, instr):
    kind, bits = int_type(instr)
    a, b, c = (e.value(x, kind, bits) for x in instr.args[1:])
    e.set(instr.args[0], f"where({a} > {b}, {a} - {b}, {b} - {a}) + {c}", kind, bits)


@handles("div")
def div(e, instr):
    from .floating import float_arithmetic

    if is_int(instr):
        arithmetic(e, instr, e.name(divide, "divide") + "({}, {})")
    else:
        float_arithmetic(e, instr)


@handles("rem")
def rem(e, instr):
    arithmetic(e, instr, e.name(remainder, "remainder") + "({}, {})")


@handles("min", "max")
def min_max(e, instr):
    from .floating import float_arithmetic

    if instr.parts[-1] in ("u16x2", "s16x2"):
        kind = instr.parts[-1][0]
        a, b = (f"{e.u(x, 32)}.view({kind}16)" for x in instr.args[1:3])
        expression = f"np.{instr.parts[0]}imum({a}, {b})"
        if "relu" in instr.parts:
            expression = f"np.maximum({expression}, 0)"
        e.set(instr.args[0], f"{expression}.view(u32)")
    elif is_int(instr):
        expression = f"np.{instr.parts[0]}imum({{}}, {{}})"
        arithmetic(e, instr, f"np.maximum({expression}, 0)" if "relu" in instr.parts else expression)
    else:
        float_arithmetic(e, instr)


@handles("neg")
def neg(e, instr):
    from .floating import float_unary

    if is_int(instr):
        _, bits = int_type(instr)
        e.set(instr.args[0], f"{e.const(0, 'u', bits)} - {e.u(instr.args[1], bits)}", "u", bits)
    else:
        float_unary(e, instr)


@handles("abs")
def absolute(e, instr):
    from .floating import float_unary

    if is_int(instr):
        arithmetic(e, instr, "abs({})")
    else:
        float_unary(e, instr)


@handles("and", "or", "xor")
def logic(e, instr):
    sign = {"and": "&", "or": "|", "xor": "^"}[instr.parts[0]]
    if instr.parts[1] == "pred":
        e.set(instr.args[0], f"{e.p(instr.args[1])} {sign} {e.p(instr.args[2])}")
    else:
        unsigned(e, instr, f"{{}} {sign} {{}}")


@handles("not", "cnot")
def invert(e, instr):
    if instr.parts[0] == "cnot":
        _, bits = int_type(instr)
        e.set(instr.args[0], f"({e.u(instr.args[1], bits)} == 0).astype(u{bits})", "u", bits)
    elif instr.parts[1] == "pred":
        e.set(instr.args[0], f"~{e.p(instr.args[1])}")
    else:
        unsigned(e, instr, "~{}")


@handles("shl", "shr")
def shifts(e, instr):
    kind, bits = int_type(instr)
    left = instr.parts[0] == "shl"
    kind = "u" if left else kind
    value, amount = e.value(instr.args[1], kind, bits), instr.args[2]
    if isinstance(amount, Imm) and 0 <= amount.value < bits:
        e.set(instr.args[0], f"{value} {'<<' if left else '>>'} {e.const(amount.value, kind, bits)}", kind, bits)
    else:
        e.set(instr.args[0], f"{e.name(shift, 'shift')}({value}, {e.u(amount, 32)}, {left})", kind, bits)


def funnel(low: np.ndarray, high: np.ndarray, amount: np.ndarray, left: bool, clamp: bool) -> np.ndarray:
    both = (high.astype(np.uint64) << np.uint64(32)) | low
    n = (np.minimum(amount, 32) if clamp else amount & 31).astype(np.uint64)
    return ((both << n) >> np.uint64(32) if left else both >> n).astype(np.uint32)


@handles("shf")
def shf(e, instr):
    low, high, amount = (e.u(x, 32) for x in instr.args[1:])
    e.set(instr.args[0], f"{e.name(funnel, 'funnel')}({low}, {high}, {amount}, {instr.parts[1] == 'l'}, {'clamp' in instr.parts})")


@handles("lop3")
def lop3(e, instr):
    a, b, c = (e.u(x, 32) for x in instr.args[1:4])
    table = instr.args[4].value
    terms = [f"({'' if i & 4 else '~'}{a} & {'' if i & 2 else '~'}{b} & {'' if i & 1 else '~'}{c})" for i in range(8) if table >> i & 1]
    e.set(instr.args[0], " | ".join(terms) if terms else e.const(0, "u", 32))


def permute(a: np.ndarray, b: np.ndarray, selector: np.ndarray) -> np.ndarray:
    source = np.empty((32, 8), np.uint8)
    source[:, :4] = np.ascontiguousarray(a).view(np.uint8).reshape(32, 4)
    source[:, 4:] = np.ascontiguousarray(b).view(np.uint8).reshape(32, 4)
    nibbles = (selector[:, None] >> np.arange(0, 16, 4, dtype=np.uint32)) & 0xF
    picked = np.take_along_axis(source, (nibbles & 7).astype(np.int64), 1)
    signs = (picked.view(np.int8) >> 7).view(np.uint8)
    return np.where(nibbles & 8, signs, picked).astype(np.uint8).view(np.uint32).reshape(32)


_SELECTORS = {"f4e": (0x3210, 0x4321, 0x5432, 0x6543), "b4e": (0x5670, 0x6701, 0x7012, 0x0123), "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
              "ecl": (0x3210, 0x3211, 0x3222, 0x3333), "ecr": (0x0000, 0x1110, 0x2210, 0x3210), "rc16": (0x1010, 0x3232, 0x1010, 0x3232)}


@handles("prmt")
def prmt(e, instr):
    a, b, c = (e.u(x, 32) for x in instr.args[1:])
    if instr.parts[-1] in _SELECTORS:
        table = e.program.bind_array(np.array(_SELECTORS[instr.parts[-1]], np.uint32))
        c = f"{table}[({c} & 3).astype(s64)]"
    e.set(instr.args[0], f"{e.name(permute, 'permute')}({a}, {b}, {c})")


def count_bits(a: np.ndarray) -> np.ndarray:
    return np.array([int(x).bit_count() for x in a.tolist()], np.uint32)


def leading_zeros(a: np.ndarray) -> np.ndarray:
    bits = a.itemsize * 8
    return np.array([bits - x.bit_length() for x in a.tolist()], np.uint32)


def reverse_bits(a: np.ndarray) -> np.ndarray:
    raw = np.ascontiguousarray(a).view(np.uint8).reshape(32, -1)
    return np.ascontiguousarray(np.packbits(np.unpackbits(raw[:, ::-1], axis=1, bitorder="big"), axis=1, bitorder="little")).view(a.dtype).reshape(32)


def find_msb(a: np.ndarray) -> np.ndarray:
    """The position of the highest bit that differs from the sign; all ones where there is none."""
    values = [(~x if x < 0 else x).bit_length() - 1 for x in a.tolist()]
    return np.array([v & 0xFFFFFFFF for v in values], np.uint32)


@handles("popc")
def popc(e, instr):
    _, bits = int_type(instr)
    e.set(instr.args[0], f"{e.name(count_bits, 'count_bits')}({e.u(instr.args[1], bits)})", "u", 32)


@handles("clz")
def clz(e, instr):
    _, bits = int_type(instr)
    e.set(instr.args[0], f"{e.name(leading_zeros, 'leading_zeros')}({e.u(instr.args[1], bits)})", "u", 32)


@handles("brev")
def brev(e, instr):
    _, bits = int_type(instr)
    e.set(instr.args[0], f"{e.name(reverse_bits, 'reverse_bits')}({e.u(instr.args[1], bits)})", "u", bits)


@handles("bfind")
def bfind(e, instr):
    kind, bits = int_type(instr)
    found = f"{e.name(find_msb, 'find_msb')}({e.value(instr.args[1], kind, bits)})"
    if "shiftamt" in instr.parts:
        found = f"where({found} == 0xFFFFFFFF, 0xFFFFFFFF, {bits - 1} - {found}).astype(u32)"
    e.set(instr.args[0], found, "u", 32)


def extract(a: np.ndarray, position: np.ndarray, length: np.ndarray) -> np.ndarray:
    bits, out = a.itemsize * 8, []
    for value, pos, count in zip(a.tolist(), (position & 0xFF).tolist(), (length & 0xFF).tolist()):
        field = (value >> min(pos, bits)) & ((1 << count) - 1)
        if value < 0 or a.dtype.kind == "i":
            sign = (value >> min(pos + count - 1, bits - 1)) & 1 if count else 0
            field = field - (1 << count) if sign else field
        out.append(field & ((1 << bits) - 1))
    return np.array(out, f"u{a.itemsize}")


@handles("bfe")
def bfe(e, instr):
    kind, bits = int_type(instr)
    a = e.value(instr.args[1], kind, bits)
    e.set(instr.args[0], f"{e.name(extract, 'extract')}({a}, {e.u(instr.args[2], 32)}, {e.u(instr.args[3], 32)})", "u", bits)


def insert(source: np.ndarray, into: np.ndarray, position: np.ndarray, length: np.ndarray) -> np.ndarray:
    bits = source.itemsize * 8
    out = []
    for value, base, pos, count in zip(source.tolist(), into.tolist(), (position & 0xFF).tolist(), (length & 0xFF).tolist()):
        mask = (((1 << count) - 1) << pos) & ((1 << bits) - 1)
        out.append((base & ~mask) | ((value << pos) & mask))
    return np.array(out, source.dtype)


@handles("bfi")
def bfi(e, instr):
    _, bits = int_type(instr)
    a, b = (e.u(x, bits) for x in instr.args[1:3])
    e.set(instr.args[0], f"{e.name(insert, 'insert')}({a}, {b}, {e.u(instr.args[3], 32)}, {e.u(instr.args[4], 32)})", "u", bits)


def bit_mask(position: np.ndarray, width: np.ndarray, clamp: bool) -> np.ndarray:
    p, w = ((np.minimum(x, 32) if clamp else x & 31).astype(np.uint64) for x in (position, width))
    return ((((np.uint64(1) << w) - np.uint64(1)) << p) & np.uint64(0xFFFFFFFF)).astype(np.uint32)


@handles("bmsk")
def bmsk(e, instr):
    e.set(instr.args[0], f"{e.name(bit_mask, 'bit_mask')}({e.u(instr.args[1], 32)}, {e.u(instr.args[2], 32)}, {'clamp' in instr.parts})", "u", 32)


def extend(value: np.ndarray, width: np.ndarray, clamp: bool, signed: bool) -> np.ndarray:
    """The low ``width`` bits of each value, sign- or zero-extended."""
    n = (np.minimum(width, 32) if clamp else width & 31).astype(np.uint64)
    low = value.astype(np.uint64) & ((np.uint64(1) << n) - np.uint64(1))
    if signed:
        negative = (n > 0) & ((low >> np.where(n > 0, n - np.uint64(1), np.uint64(0))) & np.uint64(1) == 1)
        low = np.where(negative, low | ~((np.uint64(1) << n) - np.uint64(1)), low)
    return (low & np.uint64(0xFFFFFFFF)).astype(np.uint32)


@handles("szext")
def szext(e, instr):
    a, b = (e.u(x, 32) for x in instr.args[1:])
    e.set(instr.args[0], f"{e.name(extend, 'extend')}({a}, {b}, {'clamp' in instr.parts}, {instr.parts[-1] == 's32'})", "u", 32)


def find_set(mask: np.ndarray, base: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """The |offset|-th set bit from ``base`` upwards (offset > 0) or downwards; for 0, ``base`` itself if it is set."""
    out = []
    for bits, start, n in zip(mask.tolist(), base.tolist(), offset.view(np.int32).tolist()):
        if n == 0:
            places = [start]
        else:
            places = range(start, 32) if n > 0 else range(min(start, 32), -1, -1) if start < 32 else []
        found = [p for p in places if p < 32 and bits >> p & 1]
        rank = max(abs(n) - 1, 0)
        out.append(found[rank] if rank < len(found) else 0xFFFFFFFF)
    return np.array(out, np.uint32)


@handles("fns")
def fns(e, instr):
    e.set(instr.args[0], f"{e.name(find_set, 'find_set')}({', '.join(e.u(x, 32) for x in instr.args[1:])})", "u", 32)


def dot_halves(a: np.ndarray, b: np.ndarray, c: np.ndarray, signed_a: bool, signed_b: bool, high: bool) -> np.ndarray:
    left = np.ascontiguousarray(a).view(np.int16 if signed_a else np.uint16).reshape(32, 2).astype(np.int64)
    right = np.ascontiguousarray(b).view(np.int8 if signed_b else np.uint8).reshape(32, 4).astype(np.int64)
    return (c.astype(np.int64) + (left * right[:, 2 * high:2 * high + 2]).sum(1)).astype(np.uint32)


@handles("dp2a")
def dp2a(e, instr):
    a, b, c = (e.u(x, 32) for x in instr.args[1:])
    mode, left, right = instr.parts[1:4]
    e.set(instr.args[0], f"{e.name(dot_halves, 'dot_halves')}({a}, {b}, {c}, {left == 's32'}, {right == 's32'}, {mode == 'hi'})")


def dot_bytes(a: np.ndarray, b: np.ndarray, c: np.ndarray, signed_a: bool, signed_b: bool) -> np.ndarray:
    left = np.ascontiguousarray(a).view(np.int8 if signed_a else np.uint8).reshape(32, 4).astype(np.int64)
    right = np.ascontiguousarray(b).view(np.int8 if signed_b else np.uint8).reshape(32, 4).astype(np.int64)
    return (c.view(np.int32).astype(np.int64) + (left * right).sum(1)).astype(np.uint32)


@handles("dp4a")
def dp4a(e, instr):
    a, b, c = (e.u(x, 32) for x in instr.args[1:])
    e.set(instr.args[0], f"{e.name(dot_bytes, 'dot_bytes')}({a}, {b}, {c}, {instr.parts[1] == 's32'}, {instr.parts[2] == 's32'})")


@handles("setp", "set")
def compare(e, instr):
    """``setp.op[.bool].type p[|q], a, b[, c]``; ``set`` writes all ones (or 1.0) instead of a predicate."""
    from .floating import float_comparison, pair_comparison

    kind = instr.parts[-1]
    if kind.endswith("x2"):
        return pair_comparison(e, instr)
    if kind in _TYPES:
        k, bits = int_type(instr)
        a, b = (e.value(x, k, bits) for x in instr.args[1:3])
        result = f"({a} {COMPARISONS[instr.parts[1]]} {b})"
    else:
        result = float_comparison(e, instr)
    joiner = next((j for j in ("and", "or", "xor") if j in instr.parts[2:]), None)
    sign = {"and": "&", "or": "|", "xor": "^"}.get(joiner)
    first = f"{result} {sign} {e.p(instr.args[3])}" if joiner else result
    if instr.parts[0] == "set":
        if instr.parts[-2] == "f32":
            e.set(instr.args[0], f"({first}).astype(f32)", "f", 32)
        else:
            e.set(instr.args[0], f"where({first}, {e.const(0xFFFFFFFF, 'u', 32)}, {e.const(0, 'u', 32)})", "u", 32)
        return
    destination = instr.args[0]
    if isinstance(destination, Pair):
        held = e.temp(result)
        other = f"~{held} {sign} {e.p(instr.args[3])}" if joiner else f"~{held}"
        first = e.temp(f"{held} {sign} {e.p(instr.args[3])}" if joiner else held)
        second = e.temp(other)
        if destination.first != SINK:
            e.set(destination.first, first)
        if destination.second != SINK:
            e.set(destination.second, second)
    else:
        e.set(destination, first)


@handles("selp")
def selp(e, instr):
    bits = {"pred": 1}.get(instr.parts[-1]) or int(instr.parts[-1].lstrip("usbf"))
    a, b = (e.u(x, bits) for x in instr.args[1:3])
    e.set(instr.args[0], f"where({e.p(instr.args[3])}, {a}, {b})", "u", bits)


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
    if isinstance(source, (Reg, Special, Symbol, Imm)):
        bits = int(instr.parts[1].lstrip("usbf"))
        return e.set(destination, e.u(source, bits), "u", bits)
    raise unknown(instr)


def pack(e, destination, source: Vec, instr) -> None:
    total = int(instr.parts[1][1:])
    bits = total // len(source.items)
    if total > 64:
        raise unknown(instr, "128-bit registers")
    pieces = ", ".join(e.u(x, bits) for x in source.items)
    e.set(destination, f"np.stack(({pieces}), 1).view(u{total}).reshape(32)", "u", total)


def unpack(e, destination: Vec, source, instr) -> None:
    total = int(instr.parts[1][1:])
    bits = total // len(destination.items)
    if total > 64:
        raise unknown(instr, "128-bit registers")
    whole = e.temp(f"{e.u(source, total)}.view(u{bits})")
    for i, item in enumerate(destination.items):
        if item != SINK:
            e.set(item, f"{whole}[{i}::{len(destination.items)}]", "u", bits)


@handles("cvta")
def cvta(e, instr):
    space = next((p for p in instr.parts[1:] if p in WINDOWS), None)
    if space is None:
        raise unknown(instr)
    window = WINDOWS[space]
    bits = int(instr.parts[-1][1:])
    source = e.u(instr.args[1], bits)
    if not window:
        e.set(instr.args[0], source, "u", bits)
    else:
        sign = "-" if "to" in instr.parts else "+"
        e.set(instr.args[0], f"{source} {sign} {e.const(window, 'u', 64)}", "u", bits)


@handles("isspacep")
def isspacep(e, instr):
    e.set(instr.args[0], f"{e.name(space_of, 'space_of')}({e.u(instr.args[1], 64)}) == {WINDOWS[instr.parts[1]] >> 56}")


@handles("prefetch", "prefetchu", "applypriority", "discard", "createpolicy", "pragma")
def hint(e, instr):
    """Hints: no effect on values. A cache policy is a register nobody reads."""
    if instr.parts[0] == "createpolicy":
        e.set(instr.args[0], e.const(0, "u", 64), "u", 64)


def address_operand(e, mem: Mem, bits: int) -> str:
    """The address of a memory operand as an unsigned vector of ``bits`` bits."""
    base = e.u(mem.base, bits)
    return base if not mem.offset else e.temp(f"{base} + {e.const(mem.offset, 'u', bits)}")
