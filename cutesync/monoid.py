"""Device code of a reduction: how an element becomes a state, how two states combine, how a state becomes a result.

A state is a tuple of register values: ``(value,)`` for a reduction, ``(value, index)`` for argmin and argmax.
``combine(a, b)`` always takes ``a`` from lower indexes. Everything here is plain Python that the DSL traces inside a
kernel.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
import numpy as np
from cutlass import Boolean, Float32, Float64, Int32, Int64, Uint32, Uint64
from cutlass._mlir import ir

from .callables import trace
from .callables.ring import of_low_bits
from .dtypes import DType, register
from .ops import Operator


def register_type(dtype: DType, wide: bool = True):
    """The DSL type that holds a ``dtype`` in a register; see ``dtypes.register``."""
    return getattr(cutlass, register(dtype, wide))


def choose(condition, a, b):
    """``a`` where the condition holds, else ``b``; both of one DSL type, which the result keeps."""
    return type(a)(cutlass.select_(condition, a, b))


def nonzero(value):
    """1 where the value is not zero (NaN is not zero), as Int32."""
    return choose(value != type(value)(0), Int32(1), Int32(0))


def true_bytes(word):
    """The highest bit of each byte of a word that is not zero."""
    word = Uint32(word)
    return ((word & 0x7F7F7F7F) + 0x7F7F7F7F | word) & 0x80808080


def convert(value, target):
    """``value``, a DSL number or a Python one, in the DSL type ``target``, as NumPy's astype does: integers wrap, and
    signed ones keep their sign (the DSL's own conversion to a wider unsigned type does not). Floats lose their
    fraction; where NumPy leaves an integer undefined, one beyond the range becomes its nearer end, and NaN becomes 0.
    """
    if not isinstance(value, cutlass.Numeric) or target.is_float:
        return target(value)
    kind: Any = type(value)
    if kind.is_float:
        return _truncated(value, target)
    if kind.signed and not target.signed and 1 < kind.width < target.width:
        value = (Int64 if target.width == 64 else Int32)(value)
    return target(value)


def _truncated(value, target):
    """A float as an integer; by PTX's own words, as LLVM's conversion means nothing beyond the range."""
    if value.width < 32:
        value = Float32(value)
    wide = {(32, True): Int32, (32, False): Uint32, (64, True): Int64, (64, False): Uint64}[
        max(target.width, 32), target.signed
    ]
    name = f"{'s' if target.signed else 'u'}{wide.width}.f{value.width}"
    found = cute.arch.inline_ptx(f"cvt.rzi.{name} {{$w0}}, {{$r0}};", write_only_types=[wide], read_only_args=[value])
    if max(wide.width, value.width) == 64:  # else the instruction does that
        found = choose(value == value, found, wide(0))
    if target.width < 32:
        found = cutlass.min(cutlass.max(found, wide(target.min)), wide(target.max))
    return target(found)


def tree(states, combine):
    """Combine a Python list of states pairwise, neighbours first, in order. The depth is logarithmic."""
    while len(states) > 1:
        pairs = [combine(states[i], states[i + 1]) for i in range(0, len(states) - 1, 2)]
        states = pairs + states[len(pairs) * 2 :]
    return states[0]


def minimum(a, b):
    if isinstance(a, Float32):
        return cute.arch.fmin(a, b, nan=True)
    return choose((a < b) | (a != a), a, b) if isinstance(a, Float64) else cutlass.min(a, b)


def maximum(a, b):
    if isinstance(a, Float32):
        return cute.arch.fmax(a, b, nan=True)
    return choose((a > b) | (a != a), a, b) if isinstance(a, Float64) else cutlass.max(a, b)


_NAMED = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "min": minimum,
    "max": maximum,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "any": lambda a, b: a | b,
    "all": lambda a, b: a & b,
}


def binary(op: Operator, dtype: DType):
    """``(type, fn)``: the register type of ``op`` on ``dtype`` and the traced function of two such registers."""
    if op.fn is None:
        if dtype.kind == "b":
            name = {"add": "or", "mul": "and", "max": "or", "min": "and"}.get(op.name, op.name)
            return Int32, _NAMED[name]
        return (Int32 if op.name in ("any", "all") else register_type(dtype)), _NAMED[op.name]
    register = register_type(dtype, wide=False)

    def call(a, b):
        if dtype.kind == "b":
            a, b = Boolean(a), Boolean(b)
        return traced(f"op {op.name!r}", op.fn, (a, b), register, dtype)

    return register, call


def traced(what: str, fn, operands, register, dtype: DType):
    """What a user's callable returns for DSL values, as a ``register``; OperatorError if it cannot be traced."""
    return trace(what, fn, dtype, operands, lambda result: (register_of_result(result, dtype, register),))[0]


def traced_values(what: str, fn, operands, dtypes: tuple[DType, ...], alone: bool = False) -> tuple:
    """What a user's callable returns, a register for each of ``dtypes``; ``alone``: it returns the only one itself."""

    def registers_of(found):
        if alone and not isinstance(found, (tuple, list)):
            found = (found,)
        if not isinstance(found, (tuple, list)):
            raise TypeError(f"it returned {type(found).__name__}, not a tuple of {len(dtypes)} numbers")
        if len(found) != len(dtypes):
            raise TypeError(f"it returned {len(found)} values, not {len(dtypes)}")
        return tuple(register_of_result(value, dtype) for value, dtype in zip(found, dtypes))

    return trace(what, fn, ", ".join(map(str, dtypes)), operands, registers_of)


def shown_state(state, dtypes: tuple[DType, ...]) -> tuple:
    """A state as callables get it: bool as a Boolean, 16-bit floats as Float32."""
    return tuple(Boolean(x) if v.kind == "b" else register_type(v, wide=False)(x) for x, v in zip(state, dtypes))


def presented(value: Any, dtype: DType):
    """An element as callables get it."""
    if dtype.kind == "b":
        return value != type(value)(0)
    return Float32(value) if dtype.kind == "f" and dtype.size == 2 else value


def bound(args, arguments) -> tuple:
    """The run-time arguments of callables, from the kernel's parameters: numbers, or pointers to elements, as the
    ``arguments`` (``states.Argument``) say."""
    found = []
    for given, (dtype, in_memory) in zip(args, arguments):
        value = cute.make_tensor(given, cute.make_layout((1,)))[0] if in_memory else given
        found.append(presented(dtype.cutlass(value), dtype))
    return tuple(found)


def register_of_result(result, dtype: DType, register=None):
    """What a user's callable returned as a ``dtype``, in a ``register`` (default: that of callables)."""
    if isinstance(result, np.generic):
        result = result.item()
    if not isinstance(result, (bool, int, float, cutlass.Numeric)) and not _is_scalar(result):
        raise TypeError(f"it returned {type(result).__name__}, not a number")
    if type(result) is int and not -(1 << 63) <= result < 1 << 64:
        raise OverflowError(f"it returned the Python int {result}, which does not fit 64 bits")
    if dtype.kind == "b":
        return nonzero(Boolean(result))
    return convert(result, register or register_type(dtype, wide=False))


def _is_scalar(value) -> bool:
    """Whether it is a value below the DSL's own types, as ``cutlass.select_`` returns, and no vector."""
    kinds: Any = ir  # the DSL's bindings have no types
    return isinstance(value, kinds.Value) and isinstance(value.type, (kinds.IntegerType, kinds.FloatType))


class Runs:
    """How runs of consecutive elements of the only input become a state. A subclass may do so at less cost than one by
    one; ``lane_vectors`` 16-byte vectors of a lane are then given at once."""

    lift: Any
    combine: Any
    source: DType
    lane_vectors = 1

    def first_state(self, given):
        """The state before the first element, of what a call gives."""
        return given

    def run(self, elements, index):
        """The state of a list of elements; ``index`` is that of the first."""
        return tree([self.lift(element, index + i) for i, element in enumerate(elements)], self.combine)

    def fold(self, words, index):
        """The state of a 16-byte vector in 32-bit registers."""
        return self.fold_vectors([words], index)

    def fold_vectors(self, vectors, index):
        """The state of some vectors, which follow each other or come in any order."""
        elements = [cute.recast_tensor(words, self.source.cutlass) for words in vectors]
        return self.run([of[i] for of in elements for i in range(cute.size(of))], index)


class Monoid(Runs):
    """A reduction of ``source`` elements with ``op`` in ``accumulate`` into ``result``, with an optional map on load.
    ``flipped``: the operands of ``op`` change places."""

    takes_index, arg_count = False, 0

    def __init__(
        self, op: Operator, source: DType, accumulate: DType, result: DType, transform=None, flipped: bool = False
    ) -> None:
        self.op, self.source, self.accumulate, self.result, self.transform = op, source, accumulate, result, transform
        self.flipped = flipped
        self.sources, self.results = (source,), (result,)
        self.commutative = op.fn is None
        register, self._binary = binary(op, accumulate)
        self.types: tuple = (register,)

    def lift(self, value, index):
        """The state of one loaded element. ``index`` is its position in the row."""
        if self.transform is not None and self.source is self.accumulate and self._low_bits_count():
            narrow = getattr(cutlass, f"Uint{8 * self.source.size}")
            found = of_low_bits(self.transform, Uint32(narrow(value)))
            if found is not None:
                return (self.types[0](found),)
        value = self._convert(self.source.cutlass(value))  # a tensor forgets whether its integers are signed
        if self.op.fn is None and self.op.name in ("any", "all"):
            value = nonzero(value)
        return (self.types[0](value),)

    def _convert(self, value):
        """The element in the accumulator's type, mapped."""
        if self.source.kind == "b":
            value = nonzero(value)
        narrow = register_type(self.accumulate, wide=False)
        if self.accumulate.kind == "b":
            value = nonzero(value)
        elif self.source is not self.accumulate:
            value = convert(
                value, narrow
            )  # first to the type of the operation, as NumPy's astype does, then to a wider register
        if self.transform is not None:
            value = Boolean(value) if self.accumulate.kind == "b" else narrow(value)
            value = traced("transform", self.transform, (value,), narrow, self.accumulate)
            if self._low_bits_count():
                value = getattr(cutlass, f"Uint{value.width}")(
                    value
                )  # zeros above them cost less than copies of a sign
        return register_type(self.accumulate, wide=self.op.fn is None)(value)

    def _low_bits_count(self) -> bool:
        """Whether the result has the low bits of the state, which depend on nothing but the low bits of operands."""
        narrow = self.accumulate.kind in "iu" and self.accumulate.size < 4 and self.result is self.accumulate
        return narrow and self.op.fn is None and self.op.name in ("add", "mul", "and", "or", "xor")

    def combine(self, a, b):
        return (self._binary(b[0], a[0]) if self.flipped else self._binary(a[0], b[0]),)

    def fold(self, words, index):
        """The state of a 16-byte vector of consecutive elements in four registers; ``index`` is that of its first."""
        if self._packed_sum():
            return (convert(self._dot(words), self.types[0]),)
        return super().fold(words, index)

    def _packed_sum(self) -> bool:
        plain = self.op.fn is None and self.op.name == "add" and self.transform is None
        return plain and self.source.kind in "biu" and self.source.size < 4 and self.accumulate.kind in "iu"

    def _dot(self, words):
        """Sum of 16 one-byte or 8 two-byte integers by dot products with ones: an instruction for four (two)."""
        sign = "s32" if self.source.kind == "i" else "u32"
        op = f"dp4a.{sign}.{sign}" if self.source.size == 1 else f"dp2a.lo.{sign}.{sign}"
        register = Int32 if self.source.kind == "i" else Uint32
        total = register(0)
        for i in range(cute.size(words)):
            word = words[i] if self.source.kind != "b" else Int32(true_bytes(words[i]) >> 7)
            total = cute.arch.inline_ptx(
                f"{op} {{$w0}}, {{$r0}}, {{$r1}}, {{$r2}};",
                write_only_types=[register],
                read_only_args=[word, Int32(0x01010101), total],
            )
        return total

    def nothing(self):
        """Registers of the shape of a state in a chunk, with no meaning yet."""
        return (self.types[0](0),)

    def place(self, state, base):
        """A state whose indexes count from ``base``, as one whose indexes count from the start of the row."""
        return tuple(state)

    def lower(self, state):
        """The element to store: converted (rounded once) to the result type."""
        value = nonzero(state[0]) if self.result.kind == "b" else state[0]
        return self.result.cutlass(value)

    def results_of(self, state):
        """The element to store in each output."""
        return (self.lower(state),)

    def bind(self, args) -> None:
        """Take the run-time arguments of the kernel that is traced: there are none."""


class ArgMonoid(Runs):
    """argmin or argmax: the state is (value, index). The lowest index wins, and a NaN beats every number, as in NumPy.
    ``flipped``: elements are read from the last to the first, so the highest of these indexes wins, and its distance to
    the last one, a run-time argument, is stored.

    Inside a chunk indexes are 32-bit; ``place`` widens them to 64 bits once a chunk.
    """

    takes_index = False  # its indexes are counted from the chunk's
    last: Any = None

    def __init__(self, largest: bool, source: DType, result: DType, flipped: bool = False) -> None:
        self.largest, self.source, self.result, self.flipped = largest, source, result, flipped
        self.sources, self.results = (source,), (result,)
        self.types = (register_type(source), Int64)
        self.arg_count = int(flipped)
        self.commutative = False  # ties go to the first operand

    def lift(self, value, index):
        value = self.source.cutlass(value)
        return (nonzero(value) if self.source.kind == "b" else self.types[0](value), index)

    def combine(self, a, b):
        if self.source.kind == "f":  # not (b <= a) also holds where one is NaN
            wins = self._beats(a, b)
        elif self.flipped:
            wins = b[0] >= a[0] if self.largest else b[0] <= a[0]
        else:
            wins = b[0] > a[0] if self.largest else b[0] < a[0]
        return tuple(choose(wins, y, x) for x, y in zip(a, b))

    def _beats(self, a, b):
        """Whether float ``b`` wins against ``a`` before it: a comparison with "not" also holds where one is NaN."""
        if self.flipped:
            loses = b[0] < a[0] if self.largest else b[0] > a[0]
            return cutlass.not_(loses) & ((a[0] == a[0]) | (b[0] != b[0]))
        loses = b[0] <= a[0] if self.largest else b[0] >= a[0]
        return cutlass.not_(loses) & (a[0] == a[0])

    def fold(self, words, index):
        if self.source.kind == "b":
            return self._first_of(words, index)
        elements = cute.recast_tensor(words, self.source.cutlass)
        states = [self.lift(elements[i], Int32(i)) for i in range(cute.size(elements))]
        value, position = tree(states, self.combine)
        return (value, index + position)

    def _first_of(self, words, index):
        """The state of a vector of bools: the first that is true, or for the least false; else the first of all. If
        flipped, the last of these."""
        base, first = Int32(0), Uint32(0)
        for k in range(cute.size(words)) if self.flipped else reversed(range(cute.size(words))):
            marks = Uint32(true_bytes(words[k]))
            marks = marks if self.largest else marks ^ Uint32(0x80808080)
            base, first = choose(marks != 0, Int32(4 * k), base), choose(marks != 0, marks, first)
        found = first != 0
        if self.flipped:
            inside, none = 3 - (Int32(cute.arch.clz(first)) >> 3), Int32(4 * cute.size(words) - 1)
        else:
            inside, none = Int32(cute.arch.clz(cute.arch.brev(first))) >> 3, Int32(0)
        place = choose(found, inside + base, none)
        value = choose(found, Int32(1), Int32(0)) if self.largest else choose(found, Int32(0), Int32(1))
        return (self.types[0](value), index + place)

    def nothing(self):
        return (self.types[0](0), Int32(0))

    def place(self, state, base):
        return (state[0], base + Int64(state[1]))

    def lower(self, state):
        return self.result.cutlass(self.last - Int64(state[1]) if self.flipped else state[1])

    def results_of(self, state):
        """The element to store in each output."""
        return (self.lower(state),)

    def bind(self, args) -> None:
        """Take the run-time arguments of the kernel that is traced."""
        if self.flipped:
            (self.last,) = args
