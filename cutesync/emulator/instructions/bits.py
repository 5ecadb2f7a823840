"""Logic, shifts, bytes and single bits."""

from __future__ import annotations

import numpy as np

from ..lanes import count_nonzero
from ..syntax import Imm
from .integer import unsigned
from .registry import handles, handles_call, int_type


def shift(value: np.ndarray, amount: np.ndarray, left: bool) -> np.ndarray:
    """Shift; an amount of the width or more gives zero (all sign bits for signed right shifts)."""
    bits = value.itemsize * 8
    inside = amount < bits
    if count_nonzero(inside) == inside.size:
        near = amount.astype(value.dtype)
        return value << near if left else value >> near
    small = np.where(inside, amount, 0).astype(value.dtype)
    if left:
        return np.where(inside, value << small, np.zeros_like(value))
    beyond = value >> value.dtype.type(bits - 1) if value.dtype.kind == "i" else np.zeros_like(value)
    return np.where(inside, value >> small, beyond)


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


handles_call("shf", funnel, lambda parts: parts[1] == "l", lambda parts: "clamp" in parts)


@handles("lop3")
def lop3(e, instr):
    a, b, c = (e.u(x, 32) for x in instr.args[1:4])
    table = instr.args[4].value
    terms = [
        f"({'' if i & 4 else '~'}{a} & {'' if i & 2 else '~'}{b} & {'' if i & 1 else '~'}{c})"
        for i in range(8)
        if table >> i & 1
    ]
    result = e.temp(" | ".join(terms)) if terms else e.const(0, "u", 32)
    if instr.parts[1] not in ("and", "or"):
        return e.set(instr.args[0], result)
    predicate, sign = e.p(instr.args[5]), "|" if instr.parts[1] == "or" else "&"  # ``lop3.or.b32 d|p, ..., q``
    e.set_pair(instr.args[0], result, f"({result} != {e.const(0, 'u', 32)}) {sign} {predicate}")


def permute(a: np.ndarray, b: np.ndarray, selector: np.ndarray) -> np.ndarray:
    source = np.empty((32, 8), np.uint8)
    source[:, :4] = np.ascontiguousarray(a).view(np.uint8).reshape(32, 4)
    source[:, 4:] = np.ascontiguousarray(b).view(np.uint8).reshape(32, 4)
    nibbles = (selector[:, None] >> np.arange(0, 16, 4, dtype=np.uint32)) & 0xF
    picked = np.take_along_axis(source, (nibbles & 7).astype(np.int64), 1)
    signs = (picked.view(np.int8) >> 7).view(np.uint8)
    return np.where(nibbles & 8, signs, picked).astype(np.uint8).view(np.uint32).reshape(32)


_SELECTORS = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543),
    "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210),
    "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}


@handles("prmt")
def prmt(e, instr):
    selector, table = instr.args[3], _SELECTORS.get(instr.parts[-1])
    if isinstance(selector, Imm):
        value = selector.value if table is None else table[selector.value & 3]
        return e.set(instr.args[0], selected_bytes(e, instr.args[1:3], value))
    a, b, c = (e.u(x, 32) for x in instr.args[1:])
    if table is not None:
        c = f"{e.program.bind_array(np.array(table, np.uint32))}[({c} & 3).astype(s64)]"
    return e.set(instr.args[0], f"{e.name(permute, 'permute')}({a}, {b}, {c})")


def selected_bytes(e, sources, selector: int) -> str:
    """``permute`` for a selector that is known: the bytes that move alike move together, by one shift and one mask."""
    texts = [None if isinstance(x, Imm) and x.value == 0 else e.u(x, 32) for x in sources]
    masks: dict[tuple[str, int], int] = {}  # by source and distance to the left
    signs = []
    for place in range(4):
        nibble = selector >> 4 * place & 15
        source, distance = texts[nibble >> 2 & 1], 8 * (place - (nibble & 3))
        if source is None:
            continue
        if nibble & 8:
            top = f"({source}.view(s32) << {e.const(8 * (3 - (nibble & 3)), 's', 32)} >> {e.const(31, 's', 32)})"
            signs.append(f"({top}.view(u32) & {e.const(255 << 8 * place, 'u', 32)})")
        else:
            masks[source, distance] = masks.get((source, distance), 0) | 255 << 8 * place
    terms = []
    for (source, distance), mask in masks.items():
        shift = f" {'<<' if distance > 0 else '>>'} {e.const(abs(distance), 'u', 32)}" if distance else ""
        moved = 0xFFFFFFFF << distance & 0xFFFFFFFF if distance > 0 else 0xFFFFFFFF >> -distance
        masked = f" & {e.const(mask, 'u', 32)}" if mask != moved else ""  # else the shift has left these bytes alone
        terms.append(f"({source}{shift}{masked})")
    return " | ".join(terms + signs) or e.const(0, "u", 32)


def count_bits(a: np.ndarray) -> np.ndarray:
    return _count_bits(a).astype(np.uint32)


def _count_one_by_one(a: np.ndarray) -> np.ndarray:
    return np.array([x.bit_count() for x in a.tolist()], np.uint8)


_count_bits = getattr(np, "bitwise_count", _count_one_by_one)  # NumPy has it from 2.0 on


def leading_zeros(a: np.ndarray) -> np.ndarray:
    return np.array([a.itemsize * 8 - x.bit_length() for x in a.tolist()], np.uint32)


def reverse_bits(a: np.ndarray) -> np.ndarray:
    raw = np.ascontiguousarray(a).view(np.uint8).reshape(32, -1)
    turned = np.packbits(np.unpackbits(raw[:, ::-1], axis=1, bitorder="big"), axis=1, bitorder="little")
    return np.ascontiguousarray(turned).view(a.dtype).reshape(32)


def find_msb(a: np.ndarray, from_top: bool) -> np.ndarray:
    """The position of the highest bit that differs from the sign; all ones where there is none."""
    values = [(~x if x < 0 else x).bit_length() - 1 for x in a.tolist()]
    return np.array([(a.itemsize * 8 - 1 - v if from_top and v >= 0 else v) & 0xFFFFFFFF for v in values], np.uint32)


handles_call("popc", count_bits, operands="U")
handles_call("clz", leading_zeros, operands="U")
handles_call("brev", reverse_bits, operands="U", result="U")
handles_call("bfind", find_msb, lambda parts: "shiftamt" in parts, operands="T")


def extract(a: np.ndarray, position: np.ndarray, length: np.ndarray) -> np.ndarray:
    bits, out = a.itemsize * 8, []
    for value, pos, count in zip(a.tolist(), (position & 0xFF).tolist(), (length & 0xFF).tolist()):
        field = (value >> min(pos, bits)) & ((1 << count) - 1)
        if value < 0 or a.dtype.kind == "i":
            sign = (value >> min(pos + count - 1, bits - 1)) & 1 if count else 0
            field = field - (1 << count) if sign else field
        out.append(field & ((1 << bits) - 1))
    return np.array(out, f"u{a.itemsize}")


handles_call("bfe", extract, operands="Tuu", result="U")


def insert(source: np.ndarray, into: np.ndarray, position: np.ndarray, length: np.ndarray) -> np.ndarray:
    bits, out = source.itemsize * 8, []
    for value, base, pos, count in zip(
        source.tolist(), into.tolist(), (position & 0xFF).tolist(), (length & 0xFF).tolist()
    ):
        mask = (((1 << count) - 1) << pos) & ((1 << bits) - 1)
        out.append((base & ~mask) | ((value << pos) & mask))
    return np.array(out, source.dtype)


handles_call("bfi", insert, operands="UUuu", result="U")


def bit_mask(position: np.ndarray, width: np.ndarray, clamp: bool) -> np.ndarray:
    p, w = ((np.minimum(x, 32) if clamp else x & 31).astype(np.uint64) for x in (position, width))
    return ((((np.uint64(1) << w) - np.uint64(1)) << p) & np.uint64(0xFFFFFFFF)).astype(np.uint32)


handles_call("bmsk", bit_mask, lambda parts: "clamp" in parts)


def extend(value: np.ndarray, width: np.ndarray, clamp: bool, signed: bool) -> np.ndarray:
    """The low ``width`` bits of each value, sign- or zero-extended."""
    n = (np.minimum(width, 32) if clamp else width & 31).astype(np.uint64)
    low = value.astype(np.uint64) & ((np.uint64(1) << n) - np.uint64(1))
    if signed:
        negative = (n > 0) & ((low >> np.where(n > 0, n - np.uint64(1), np.uint64(0))) & np.uint64(1) == 1)
        low = np.where(negative, low | ~((np.uint64(1) << n) - np.uint64(1)), low)
    return (low & np.uint64(0xFFFFFFFF)).astype(np.uint32)


handles_call("szext", extend, lambda parts: "clamp" in parts, lambda parts: parts[-1] == "s32")


def find_set(mask: np.ndarray, base: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """The |offset|-th set bit from ``base`` upwards (offset > 0) or downwards; for 0, ``base`` itself if it is set."""
    out = []
    for bits, start, n in zip(mask.tolist(), base.tolist(), offset.view(np.int32).tolist()):
        places = range(start, start + 1) if n == 0 else range(start, 32) if n > 0 else range(start, -1, -1)
        found = [p for p in places if bits >> p & 1] if start < 32 else []
        rank = max(abs(n) - 1, 0)
        out.append(found[rank] if rank < len(found) else 0xFFFFFFFF)
    return np.array(out, np.uint32)


handles_call("fns", find_set)
