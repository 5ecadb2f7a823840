"""``add sub mul fma min max neg abs`` and comparisons on every float type, rounded once (PTX ISA 9.7.3 to 9.7.5 and
9.7.7).

    function = operation("fma.rn.relu.bf16x2")
    destination = function(a, b, c)

Operands and results are unsigned arrays of raw bits of the type's width (uint32 for pairs), of one shape. A result that
is NaN is the canonical NaN of its type, from ``neg`` and ``abs`` too; but f64 keeps the sign and the payload of the
last source that is a NaN and makes it quiet (the dividend goes before the divisor; of fma the second source goes before
the third, and that before the first). ``.ftz`` flushes subnormal inputs and results to zero of the same sign, ``.sat``
clamps to [0, 1] with NaN -> +0, ``.relu`` clamps negatives to +0. ``min`` and ``max`` take -0 < +0 and, without
``.NaN``, drop a single NaN.

Exactness: f16 sums and products, and bf16 sums, in float32 round twice without harm (Figueroa: 24 >= 2 * 11 + 2); f32
products are exact in float64; everything else goes through a float64 rounded to odd (``formats.round_to_odd_sum``). The
f64 cases which numpy lacks use fractions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np

from ...errors import ArgumentValueError, explain
from ..formats import (
    BF16,
    F16,
    F32,
    F64,
    FORMATS,
    MODES,
    QUIET,
    Format,
    bf16_from_f32,
    canonical,
    clamp_negative,
    decode,
    encode,
    flush_subnormals,
    require,
    round_to_odd_sum,
    saturate_unit,
    two_sum,
)
from ..lanes import count_nonzero

Operation = Callable[..., np.ndarray]
NATIVE = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
SUFFIXES = ("ftz", "sat", "relu", "NaN", "xorsign", "abs", "noftz")


@cache
def operation(opcode: str) -> Operation:
    """The function that carries out ``opcode`` (see the module's docstring)."""
    name, mode, flags, fmt = spelling(opcode, MAKERS, SUFFIXES)
    return on_pairs(opcode, finish(fmt, flags, MAKERS[name](fmt, mode or "rn", flags)))


def spelling(opcode: str, names: Iterable[str], words: Iterable[str]) -> tuple[str, str, frozenset[str], Format]:
    """The instruction (one of ``names``), rounding mode ("" for none), flags (``words``) and format of an opcode."""
    name, *modifiers, kind = opcode.split(".")
    fmt = {f.name: f for f in (F16, BF16, F32, F64)}.get(kind.removesuffix("x2"), F64)
    flags = frozenset(modifiers) - frozenset(MODES)
    known = kind in (fmt.name, "f16x2", "bf16x2") and name in names and flags <= set(words)
    fine = known and len(modifiers) - len(flags) < 2
    require(fine, "float instruction", repr(opcode), " ".join(names) + " on f16, bf16, f32, f64 or a pair")
    return name, next((m for m in modifiers if m in MODES), ""), flags, fmt


def on_pairs(opcode: str, body: Operation) -> Operation:
    """``body``, or for a pair type ``body`` on both halves of each number."""
    if not opcode.endswith("x2"):
        return body
    return lambda *pairs: body(*(np.ascontiguousarray(p).view(np.uint16) for p in pairs)).view(np.uint32)


def finish(fmt: Format, flags: frozenset[str], body: Operation) -> Operation:
    """``body`` with the modifiers that every instruction treats alike."""
    if not flags & {"ftz", "sat", "relu"}:
        return body

    def run(*sources: np.ndarray) -> np.ndarray:
        if "ftz" in flags:
            result = flush_subnormals(fmt, body(*(flush_subnormals(fmt, s) for s in sources)))
        else:
            result = body(*sources)
        if "sat" in flags:
            return saturate_unit(fmt, result)
        return clamp_negative(fmt, result) if "relu" in flags else result

    return run


# --- sums and products ------------------------------------------------------------------------------------------------


def _binary(name: str, fmt: Format, mode: str, flags: frozenset[str]) -> Operation:
    native = NATIVE[name]
    if mode == "rn" and fmt is not BF16:
        real = fmt.real
        return lambda a, b: canonical(fmt, native(a.view(real), b.view(real)), a, b)
    if fmt is F64:
        return partial(_f64_exactly, name, mode)
    if mode == "rn" and name != "mul":
        return lambda a, b: bf16_from_f32(native(_bf16_values(a), _bf16_values(b)).view(np.uint32))

    def run(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        x, y = decode(fmt, a), decode(fmt, b)
        if name == "mul":
            return encode(fmt, x * y, mode)
        y = -y if name == "sub" else y
        return encode(fmt, _signed_zero(round_to_odd_sum(x, y), x, y, mode), mode)

    return run


def _bf16_values(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _signed_zero(total: np.ndarray, x: np.ndarray, y: np.ndarray, mode: str) -> np.ndarray:
    """Where x + y cancels to zero, round-down gives -0; zeros of one sign keep it."""
    if mode != "rm":
        return total
    return np.where((total == 0) & ~((x == 0) & (y == 0) & ~np.signbit(x) & ~np.signbit(y)), -0.0, total)


_BELOW_F32, _TIE_OF_F32 = (np.array(x, np.uint64) for x in (0x1FFFFFFF, 0x10000000))
_SMALLEST_F32 = np.array(2.0**-126)


def _fma(fmt: Format, mode: str, flags: frozenset[str]) -> Operation:
    if fmt is F64:
        return partial(_fma_f64, mode)

    def exact(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        product, addend = decode(fmt, a) * decode(fmt, b), decode(fmt, c)
        return encode(fmt, _signed_zero(round_to_odd_sum(product, addend), product, addend, mode), mode)

    def fast(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        """f32, nearest: rounding twice errs only where float64 ends on a tie of float32 or float32 is subnormal."""
        product, addend = decode(F32, a) * decode(F32, b), decode(F32, c)
        total = product + addend
        tie = (total.view(np.uint64) & _BELOW_F32) == _TIE_OF_F32
        normal = count_nonzero(np.abs(total) >= _SMALLEST_F32)  # or infinite
        if normal == count_nonzero(total) and not count_nonzero(tie):
            return total.astype(np.float32).view(np.uint32)
        tiny = np.abs(total) <= _SMALLEST_F32
        if count_nonzero((tie | tiny) & (two_sum(product, addend)[1] != 0)):
            return exact(a, b, c)
        return canonical(F32, total.astype(np.float32))

    return fast if fmt is F32 and mode == "rn" else exact


# --- f64 --------------------------------------------------------------------------------------------------------------


def _fma_f64(mode: str, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Boldo and Melquiond's fma in the lanes where no partial result can over- or underflow, a plain sum in those where
    the product is exact or alone; in all others, and for directed modes, fractions."""
    if mode != "rn":
        return _f64_exactly("fma", mode, a, b, c)
    x, y, z = (v.view(np.float64) for v in (a, b, c))
    sizes = np.abs(np.stack([x, y, z, x * y]))
    usual = (sizes > 2.0**-400) & (sizes < 2.0**400)
    if usual.all():
        return _fused(x, y, z).view(np.uint64)
    total = np.array(x * y + z)
    nothing = sizes == 0
    plain = (nothing[0] | nothing[1] | (nothing[2] & usual[3])) & (sizes < np.inf).all(axis=0)
    ordinary = usual.all(axis=0)
    total[ordinary] = _fused(x[ordinary], y[ordinary], z[ordinary])
    result, rare = total.view(np.uint64), ~(ordinary | plain)
    result[rare] = _f64_exactly("fma", mode, a[rare], b[rare], c[rare])
    return result


def _fused(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    high = x * y
    x_top, y_top = (_upper_half(v) for v in (x, y))
    low = ((x_top * y_top - high) + x_top * (y - y_top) + (x - x_top) * y_top) + (x - x_top) * (y - y_top)
    middle, middle_error = two_sum(z, low)
    top, top_error = two_sum(high, middle)
    return top + round_to_odd_sum(top_error, middle_error)


def _upper_half(x: np.ndarray) -> np.ndarray:
    """Veltkamp's split: the upper 26 bits of the significand."""
    scaled = x * 134217729.0
    return scaled - (scaled - x)


EXACT: dict[str, Callable] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "fma": lambda x, y, z: x * y + z,
}
ADDENDS: dict[str, Callable] = {
    "add": lambda x, y: (x, y),
    "sub": lambda x, y: (x, -y),
    "fma": lambda x, y, z: (x * y, z),
}


def _f64_exactly(name: str, mode: str, *sources: np.ndarray) -> np.ndarray:
    """On fractions, lane by lane, rounded in ``mode``; float64 decides infinities, NaNs and signs of zero."""
    values = [s.view(np.float64) for s in sources]
    result = np.array(EXACT[name](*values), np.float64)
    if name == "fma":  # no finite product moves an infinite addend
        x, y, z = values
        result = np.where(np.isfinite(x) & np.isfinite(y) & np.isinf(z), z, result)
    for lane in np.ndindex(result.shape):
        operands = [v[lane] for v in values]
        if np.isfinite(operands).all():
            total = EXACT[name](*(Fraction(float(o)) for o in operands))
            if total:
                result[lane] = round_fraction(total, mode)
            elif mode == "rm" and name != "mul":
                plus_zeros = all(a == 0 and not np.signbit(a) for a in ADDENDS[name](*operands))
                result[lane] = 0.0 if plus_zeros else -0.0
    a, *rest = sources
    return canonical(F64, result, a, *(reversed(rest) if name == "fma" else rest))


def round_fraction(value: Fraction, mode: str) -> float:
    """A non-zero fraction rounded to float64."""
    largest = float(np.finfo(np.float64).max)
    try:
        nearest = value.numerator / value.denominator
    except OverflowError:
        nearest = np.inf if value > 0 else -np.inf
        return nearest if mode == "rn" or mode == ("rp" if value > 0 else "rm") else np.copysign(largest, nearest)
    direction = {"rn": 0, "rm": -1, "rp": 1, "rz": -1 if value > 0 else 1}[mode]
    wrong = (Fraction(nearest) > value and direction < 0) or (Fraction(nearest) < value and direction > 0)
    return float(np.nextafter(nearest, direction * np.inf)) if wrong else nearest


# --- order and sign ---------------------------------------------------------------------------------------------------


def is_nan(fmt: Format, bits: np.ndarray) -> np.ndarray:
    return (bits & fmt.dtype(fmt.sign - 1)) > fmt.dtype(fmt.inf_code)


def _order(fmt: Format, bits: np.ndarray) -> np.ndarray:
    """Unsigned numbers in the order of the floats, -0 before +0."""
    return np.where(bits & fmt.dtype(fmt.sign), ~bits, bits | fmt.dtype(fmt.sign))


def _extremum(largest: bool, fmt: Format, mode: str, flags: frozenset[str]) -> Operation:
    sign, magnitude = fmt.dtype(fmt.sign), fmt.dtype(fmt.sign - 1)

    def general(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        a_nan, b_nan = is_nan(fmt, a), is_nan(fmt, b)
        product_sign = (a ^ b) & sign
        if "xorsign" in flags:
            a, b = a & magnitude, b & magnitude
        first = (_order(fmt, a) > _order(fmt, b)) == largest
        result = np.where((first | b_nan) & ~a_nan, a, b)
        if "xorsign" in flags:
            result = result | product_sign
        lost = (a_nan | b_nan) if "NaN" in flags else (a_nan & b_nan)
        return np.where(lost, b | QUIET if fmt is F64 else fmt.dtype(fmt.nan), result)

    if fmt is BF16 or "xorsign" in flags:
        return general
    pick, same, real = (np.maximum, np.bitwise_and, fmt.real) if largest else (np.minimum, np.bitwise_or, fmt.real)

    def native(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """numpy's own, except for NaNs and for zeros of both signs, which are equal numbers with different bits."""
        x, y = a.view(real), b.view(real)
        if count_nonzero(np.isnan(x + y)):
            return general(a, b)
        result, equal = pick(x, y).view(fmt.dtype), x == y
        return np.where(equal, same(a, b), result) if count_nonzero(equal) else result

    return native


def _sign_change(negate: bool, fmt: Format, mode: str, flags: frozenset[str]) -> Operation:
    def run(a: np.ndarray) -> np.ndarray:
        changed, lost = (a ^ fmt.dtype(fmt.sign) if negate else a & fmt.dtype(fmt.sign - 1)), is_nan(fmt, a)
        if not count_nonzero(lost):
            return changed
        return np.where(lost, a | QUIET if fmt is F64 else fmt.dtype(fmt.nan), changed)

    return run


MAKERS: dict[str, Callable[[Format, str, frozenset[str]], Operation]] = {
    "add": partial(_binary, "add"),
    "sub": partial(_binary, "sub"),
    "mul": partial(_binary, "mul"),
    "fma": _fma,
    "min": partial(_extremum, False),
    "max": partial(_extremum, True),
    "neg": partial(_sign_change, True),
    "abs": partial(_sign_change, False),
}

# --- comparison -------------------------------------------------------------------------------------------------------

ORDERED: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def compare(relation: str, kind: str, a: np.ndarray, b: np.ndarray, ftz: bool = False) -> np.ndarray:
    """Lane-wise truth of ``relation`` for a float type: eq ne lt le gt ge, with u for "or unordered", num, nan.

    A pair type (f16x2, bf16x2) gives shape (..., 2), the lower half first: the two predicates of ``setp ... p|q``.
    """
    if kind.endswith("x2"):
        a, b = (np.ascontiguousarray(s).view(np.uint16).reshape(*s.shape, 2) for s in (a, b))
        return compare(relation, kind[:-2], a, b, ftz)
    fmt = FORMATS[kind]
    if ftz:
        a, b = flush_subnormals(fmt, a), flush_subnormals(fmt, b)
    x, y = decode(fmt, a), decode(fmt, b)
    unordered = np.isnan(x) | np.isnan(y)
    if relation in ("num", "nan"):
        return unordered if relation == "nan" else ~unordered
    base = relation if relation in ORDERED else relation[:-1]
    if base not in ORDERED or relation not in (base, base + "u"):
        raise ArgumentValueError(
            explain("comparison", repr(relation), " ".join(ORDERED) + ", those with u, num or nan")
        )
    truth = ORDERED[base](x, y)
    return truth | unordered if relation != base else truth & ~unordered


def select_truth(truth: np.ndarray, target: str) -> np.ndarray:
    """``set``'s destination: 1.0 for a float type, all ones for an integer type, 0 elsewhere; pairs are packed."""
    fmt = FORMATS.get(target.removesuffix("x2"))
    bits = fmt.bits if fmt else int(target[1:])
    dtype: Any = {16: np.uint16, 32: np.uint32}[bits]
    true = encode(fmt, np.ones(1))[0] if fmt else dtype((1 << bits) - 1)
    chosen = np.where(truth, true, dtype(0))
    return np.ascontiguousarray(chosen).view(np.uint32)[..., 0] if target.endswith("x2") else chosen
