"""Floating-point instructions: plain single and double forms inline, others by ``arithmetic.py`` and ``convert.py``."""

from __future__ import annotations

from . import arithmetic, special
from .convert import conversion
from .registry import INTEGERS, handles, word

COMPARISONS = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "lo": "<",
    "ls": "<=",
    "hi": ">",
    "hs": ">=",
}
FLOATS = {"f16": 16, "bf16": 16, "f16x2": 32, "bf16x2": 32, "f32": 32, "f64": 64}
PAIRS = ("f16x2", "bf16x2")
RELATIONS = (*arithmetic.ORDERED, *(f"{relation}u" for relation in arithmetic.ORDERED), "num", "nan")
_SIGNS = {"add": "+", "sub": "-", "mul": "*"}


def float_type(instr) -> str:
    return word(instr, -1, FLOATS)


@handles("fma", "rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh")
def float_arithmetic(e, instr) -> None:
    """Also the float forms of add sub mul mad min max neg abs div."""
    kind, name = float_type(instr), instr.parts[0]
    if kind == "f32" and name in _SIGNS and set(instr.parts[1:-1]) <= {"rn"}:
        a, b = (e.value(x, "n", 32) for x in instr.args[1:])
        return e.set(instr.args[0], f"{a} {_SIGNS[name]} {b}", "n", 32)
    make = special.operation if name in special.APPROXIMATE else arithmetic.operation
    function = make(instr.opcode.replace("mad.", "fma."))
    bits = FLOATS[kind]
    e.set(instr.args[0], f"{e.name(function, name)}({', '.join(e.u(x, bits) for x in instr.args[1:])})", "u", bits)


def float_comparison(e, instr) -> str:
    """The truth vector of ``setp`` and ``set``. ``u`` forms are true with a NaN, the others (``ne`` too) false."""
    kind, relation = word(instr, -1, ("f16", "bf16", "f32", "f64")), word(instr, 1, RELATIONS)
    if kind in ("f32", "f64") and relation in COMPARISONS and relation != "ne" and "ftz" not in instr.parts:
        a, b = (e.f(x, FLOATS[kind]) for x in instr.args[1:3])
        return f"({a} {COMPARISONS[relation]} {b})"
    a, b = (e.u(x, FLOATS[kind]) for x in instr.args[1:3])
    return e.call(arithmetic.compare, f"'{relation}'", f"'{kind}'", a, b, str("ftz" in instr.parts))


def pair_comparison(e, instr) -> None:
    """``setp.op.f16x2 p|q``: p from the lower halves, q from the upper ones. ``set`` packs both into one register."""
    a, b = (e.u(x, 32) for x in instr.args[1:3])
    relation, kind = word(instr, 1, RELATIONS), word(instr, -1, PAIRS)
    both = e.temp(e.call(arithmetic.compare, f"'{relation}'", f"'{kind}'", a, b))
    if instr.parts[0] == "set":
        chosen = e.call(arithmetic.select_truth, both, f"'{word(instr, -2, PAIRS)}'")
        return e.set(instr.args[0], chosen, "u", 32)
    e.set_pair(instr.args[0], f"{both}[:, 0]", f"{both}[:, 1]")


_PLAIN = {name: form for name, form in INTEGERS.items() if form[0] != "b"}


@handles("cvt")
def cvt(e, instr):
    source = instr.parts[-1]
    bits = {"tf32": 32, "f16x2": 32, "bf16x2": 32, "e4m3x2": 16, "e5m2x2": 16, "bf16": 16}.get(source) or int(
        source.lstrip("usbf")
    )
    destination = instr.args[0]
    if len(instr.parts) == 3 and set(instr.parts[1:]) <= _PLAIN.keys():  # what compilers write for addresses and counts
        (to, width), (kind, bits) = (_PLAIN[p] for p in instr.parts[1:])
        return e.set(destination, f"{e.value(instr.args[1], kind, bits)}.astype({to}{width})", to, width)
    convert = e.name(conversion(instr.opcode, max(destination.bits, 16)), "convert")
    e.set(destination, f"{convert}({', '.join(e.u(a, bits) for a in instr.args[1:])})", "u", destination.bits)


@handles("copysign")
def copysign(e, instr):
    bits = FLOATS[float_type(instr)]
    sign = 1 << bits - 1
    a, b = (e.u(x, bits) for x in instr.args[1:])
    e.set(instr.args[0], f"({b} & {e.const(~sign, 'u', bits)}) | ({a} & {e.const(sign, 'u', bits)})", "u", bits)


_TINY = "np.finfo({0}.dtype).tiny"
_TESTS = {
    "finite": "np.isfinite({0})",
    "infinite": "np.isinf({0})",
    "number": "~np.isnan({0})",
    "notanumber": "np.isnan({0})",
    "subnormal": f"(abs({{0}}) < {_TINY}) & ({{0}} != 0)",
    "normal": f"np.isfinite({{0}}) & (abs({{0}}) >= {_TINY})",
}


@handles("testp")
def testp(e, instr):
    value = e.f(instr.args[1], FLOATS[float_type(instr)])
    e.set(instr.args[0], _TESTS[word(instr, 1, _TESTS)].format(value))
