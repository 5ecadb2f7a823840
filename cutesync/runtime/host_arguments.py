"""The arguments of a user's ``@cute.jit`` host function: what its parameters are, what the compiled function depends on
(facts), and the memory from which it reads them (Block).

Facts are frozen: their text is part of the key of the compiled function. An array's extents and strides are not among
them, except that one stride of 1 and the powers of two that divide the other strides are known when the function is
compiled.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

import numpy as np

from ..dtypes import BY_NAME, DType
from ..errors import ArgumentTypeError, ArgumentValueError, described, explain, shown
from ..identity import name_of
from .view import View

VECTOR = 16  # bytes: the largest alignment that is a fact
PLAIN = {bool: "Boolean", int: "Int32", float: "Float32"}  # the DSL's types of numbers whose parameters name none
CODES = {f"{sign}{bits}": code for bits, codes in ((8, "bB"), (16, "hH"), (32, "iI"), (64, "qQ"))
         for sign, code in zip(("Int", "Uint"), codes)}  # fmt: skip
CODES |= {"Float16": "e", "Float32": "f", "Float64": "d", "Boolean": "?", "BFloat16": "H"}
"""The numbers that a parameter can be, and how ``struct`` packs them."""
_CELLS: dict[str, Any] = {"Float32": ctypes.c_float, "Float64": ctypes.c_double}
_REFUSED = (struct.error, OverflowError, TypeError, ValueError)  # raised for a number that a type cannot hold


class Parameter(NamedTuple):
    """A parameter of a host function. ``role`` is "constant", "stream", "pointer" or "value". ``number`` is the DSL's
    type that it names for numbers, if it names one; ``python`` the Python type by which it does. ``only``: "a number"
    or "an array", if it takes nothing else."""

    name: str
    role: str
    number: str | None
    python: str
    default: Any
    only: str

    def check(self, came: str) -> None:
        if self.only not in ("", came):
            raise ArgumentTypeError(explain(self.name, came, self.only, "or another annotation of the parameter"))


def parameters_of(jit_function: Callable) -> tuple[tuple[Parameter, ...], Parameter | None]:
    """Return the parameters in order, and the one of ``*args``. Raise for functions that are not ``@cute.jit``."""
    name = name_of(jit_function)
    made = jit_function if hasattr(jit_function, "_dsl_cls") else type(jit_function).__call__
    if getattr(made, "_decorator_kind", None) != "jit":
        came = f"{described(jit_function)} {name} without @cute.jit"
        if getattr(made, "_decorator_kind", None) == "kernel":
            came = f"the kernel {name}"
        raise ArgumentTypeError(explain("jit_function", came, "a @cute.jit host function, which launches kernels"))
    try:
        signature = inspect.signature(jit_function, eval_str=True)
    except Exception:  # an annotation that cannot be evaluated stays text
        signature = inspect.signature(jit_function)
    found, rest = [], None
    for p in signature.parameters.values():
        plain = next((t for t in PLAIN if p.annotation is t), None)
        number, python = (PLAIN[plain], plain.__name__) if plain else (_number(p.annotation), "")
        named = p.annotation.__name__ if isinstance(p.annotation, type) else ""
        only = "a number" if named and number else "an array" if named in ("Tensor", "Pointer") else ""
        parameter = Parameter(p.name, _role(p), number, python, p.default, only)
        if p.kind is p.VAR_POSITIONAL:
            rest = parameter
        elif p.kind in (p.KEYWORD_ONLY, p.VAR_KEYWORD):
            raise ArgumentTypeError(explain(f"parameter {p.name} of {name}", "a keyword parameter", "positional ones"))
        else:
            found.append(parameter)
    return tuple(found), rest


def _role(p: inspect.Parameter) -> str:
    text = str(p.annotation)
    if "Constexpr" in text:
        return "constant"
    if "Stream" in text or "stream" in text or (p.annotation is p.empty and p.name == "stream"):
        return "stream"
    return "pointer" if "Pointer" in text else "value"


def _number(annotation: Any) -> str | None:
    """Return the first of the DSL's number types in an annotation."""
    import cutlass

    types = (annotation, *get_args(annotation))
    return next(
        (t.__name__ for t in types if isinstance(t, type) and issubclass(t, cutlass.Numeric) and t.__name__ in CODES),
        None,
    )


def defaults_after(name: str, parameters: tuple[Parameter, ...], rest: Parameter | None, given: int) -> tuple:
    """Return the defaults of the parameters after the first ``given``. Raise for too few or too many arguments."""
    needed = sum(p.default is inspect.Parameter.empty for p in parameters)
    if given < needed or (given > len(parameters) and rest is None):
        most = "or more" if rest else f"to {len(parameters)}" if len(parameters) > needed else ""
        names = ", ".join(p.name for p in parameters)
        allowed = f"{needed} {most}".strip() + f" ({names}); the stream is given as stream="
        raise ArgumentTypeError(explain(f"arguments of {name}", given, allowed))
    return tuple(p.default for p in parameters[given:])


@dataclass(frozen=True)
class Tensor:
    """An array as ``cute.Tensor``. ``steps`` has 0 for the stride that is 1 when compiled, and for others the largest
    power of two that divides them, up to 16 bytes. ``wide``: extents have 64 bits."""

    element: DType
    align: int
    steps: tuple[int, ...]
    wide: bool

    def __str__(self) -> str:
        strides = ", ".join(f"a multiple of {step}" if step else "1" for step in self.steps)
        wide = " and 64-bit extents" if self.wide else ""
        return f"{self.element} aligned to {self.align} bytes, with strides ({strides}){wide}"

    def example(self) -> Any:
        from cutlass.cute import SymInt
        from cutlass.cute.runtime import make_fake_tensor

        shape = tuple(SymInt(64 if self.wide else 32) for _ in self.steps)
        strides = tuple(SymInt(64, divisibility=step) if step else 1 for step in self.steps)
        return make_fake_tensor(self.element.cutlass, shape, strides, assumed_align=self.align)

    def pack(self, view: View) -> bytes:
        """Return the DSL's record: address (0 here), extents, the strides that are not fixed."""
        strides = [stride for stride, step in zip(view.steps, self.steps) if step]
        form = f"@Q{len(self.steps)}{'q' if self.wide else 'i'}{len(strides)}q"
        return struct.pack(form, 0, *view.shape, *strides)


@dataclass(frozen=True)
class Address:
    """An array as ``cute.Pointer``."""

    element: DType
    align: int

    def __str__(self) -> str:
        return f"C-contiguous {self.element} aligned to {self.align} bytes"

    def example(self) -> Any:
        import cutlass.cute as cute
        from cutlass.cute.runtime import make_ptr

        return make_ptr(self.element.cutlass, 0, cute.AddressSpace.gmem, assumed_align=self.align)

    def pack(self, view: View) -> bytes:
        return bytes(8)


@dataclass(frozen=True)
class Number:
    """A number of the DSL's type ``kind``. ``python`` names the Python type that the DSL is shown instead, where the
    parameter is annotated with it."""

    kind: str
    python: str = ""

    def __str__(self) -> str:
        return f"a number of type cutlass.{self.kind}"

    def example(self) -> Any:
        import cutlass

        return {"bool": False, "int": 0, "float": 0.0}[self.python] if self.python else getattr(cutlass, self.kind)(0)


@dataclass(frozen=True)
class Constant:
    """A value known when compiled: by ``text``, which is equal for equal values."""

    text: str


@dataclass(frozen=True)
class Group:
    """A list or tuple."""

    kind: str
    members: tuple


@dataclass(frozen=True)
class Stream:
    """The stream of the call."""

    @staticmethod
    def example() -> Any:
        from cutlass.runtime import make_fake_stream

        return make_fake_stream()


STREAM = Stream()


class Leaf(NamedTuple):
    """What a compiled function reads at run time: its fact, the View of an array, and the parameter's name."""

    fact: Any
    view: View | None
    name: str


class Reader:
    """Reads the arguments of one call. ``view(x, name)`` returns the View of an array, ``constant(x, name)`` a text
    for a value known when compiled. ``leaves`` are what the compiled function reads at run time, ``numbers`` the
    numbers among them, and ``constants`` the other values, all in order."""

    def __init__(self, view: Callable[[Any, str], View], constant: Callable[[Any, str], str]) -> None:
        self.view, self.constant = view, constant
        self.leaves: list[Leaf] = []
        self.constants: list[Constant] = []
        self.numbers: list[Any] = []

    @property
    def views(self) -> list[View]:
        return [leaf.view for leaf in self.leaves if leaf.view is not None]

    def read(self, x: Any, p: Parameter) -> Any:
        """Return the fact of an argument, or of a member of a list or tuple."""
        view = None
        if p.role == "stream":
            fact: Any = STREAM
        elif p.role == "constant" or x is None or isinstance(x, type):
            self.constants.append(Constant(self.constant(x, p.name)))
            return self.constants[-1]
        elif isinstance(x, (list, tuple)):
            p.check("a list or tuple")
            return Group(type(x).__qualname__, tuple(self.read(member, p) for member in x))
        elif kind := number_kind(x):
            p.check("a number")
            fact = Number(p.number or kind, p.python)
            self.numbers.append(x if type(x) in PLAIN else number_value(x))
        else:
            view = self.view(x, p.name)
            p.check("an array")
            fact = _array(view, p)
        self.leaves.append(Leaf(fact, view, p.name))
        return fact


def example(fact: Any, x: Any) -> Any:
    """Return an example of an argument ``x`` for the DSL's compiler."""
    if isinstance(fact, Constant):
        return x
    if isinstance(fact, Group):
        members = list(map(example, fact.members, x))
        return type(x)(*members) if hasattr(x, "_fields") else type(x)(members)
    return fact.example()


def number_kind(x: Any) -> str | None:
    """Return the DSL's type of a number of Python, NumPy or the DSL; None for other objects."""
    kind = PLAIN.get(type(x))
    if kind is None and isinstance(x, np.generic):
        element = BY_NAME.get(x.dtype.name)
        kind = None if element is None else "Boolean" if element.kind == "b" else element.dsl
    if kind is None and hasattr(x, "value") and type(x).__name__ in CODES and type(x).__module__.startswith("cutlass"):
        kind = type(x).__name__
    return kind


def number_value(x: Any) -> Any:
    """Return a number of NumPy or the DSL as one of Python."""
    return (x.item() if x.dtype.kind in "biuf" else float(x)) if isinstance(x, np.generic) else x.value


def _array(view: View, p: Parameter) -> Tensor | Address:
    size, low = view.dtype.size, view.ptr & -view.ptr or VECTOR
    align = max(min(low, VECTOR), size)
    if p.role == "pointer":
        if not view.contiguous:
            came = f"strides {tuple(size * step for step in view.steps)} for shape {view.shape}"
            advice = "copy it first (np.ascontiguousarray, x.copy()), or annotate the parameter as cute.Tensor"
            raise ArgumentValueError(explain(p.name, came, "a C-contiguous array: a pointer has no strides", advice))
        return Address(view.dtype, align)
    divisors = [max((step & -step), 1) if step else VECTOR for step in view.steps]
    steps = [max(min(divisor, VECTOR // size), 1) for divisor in divisors]
    ones = [i for i, step in enumerate(view.steps) if step == 1]
    if ones:
        steps[ones[-1]] = 0
    return Tensor(view.dtype, align, tuple(steps), any(extent >> 31 for extent in view.shape))


def fits(leaf: Leaf, wanted: Any) -> bool:
    """Return whether a function that was compiled for the fact ``wanted`` can read an argument."""
    fact, view, _ = leaf
    if view is None or type(fact) is not type(wanted):
        return fact == wanted
    aligned = fact.element is wanted.element and view.ptr % wanted.align == 0
    if not isinstance(wanted, Tensor):
        return aligned
    if len(wanted.steps) != len(view.steps) or (fact.wide and not wanted.wide):
        return False
    return aligned and all(have % need == 0 if need else have == 1 for have, need in zip(view.steps, wanted.steps))


class Block:
    """The arguments of a compiled host function in memory. ``packed`` is the array of addresses that its entry takes:
    one for each argument, then that of ``result``, its error code.

    ``put(addresses, numbers, stream)`` writes what a call gives: the addresses of arrays and the numbers, in order.
    With ``entry``, it then calls that with ``packed`` by reference, and returns the error code.
    """

    def __init__(self, leaves: Sequence[Leaf], entry: Callable[[Any], None] | None = None) -> None:
        contents = [bytes(8) if view is None else fact.pack(view) for fact, view, _ in leaves]
        places = [0]
        for content in contents:
            places.append(places[-1] + -(-len(content) // VECTOR) * VECTOR)
        self.memory = ctypes.create_string_buffer(places[-1] + VECTOR)
        base = ctypes.addressof(self.memory)
        first = -base % VECTOR
        self.result = ctypes.c_int32(0)
        self.packed = (ctypes.c_void_p * (len(leaves) + 1))(
            *(base + first + place for place in places[:-1]), ctypes.addressof(self.result)
        )
        arrays: list[ctypes.c_uint64] = []
        self._numbers: list[Any] = []
        streams: list[ctypes.c_uint64] = []
        self._leaves = [leaf for leaf in leaves if isinstance(leaf.fact, Number)]
        for (fact, _, _), content, place in zip(leaves, contents, places):
            at = base + first + place
            ctypes.memmove(at, content, len(content))
            if isinstance(fact, Number):
                self._numbers.append(_writer(fact.kind, self.memory, first + place))
            else:
                (streams if isinstance(fact, Stream) else arrays).append(ctypes.c_uint64.from_address(at))
        kinds = tuple(not callable(number) for number in self._numbers)
        make, cells = _put_of(len(arrays), kinds, len(streams), entry is not None), (*arrays, *self._numbers, *streams)
        self.put = make(cells, self._refused, entry, ctypes.byref(self.packed), self.result, self.memory)

    def _refused(self, numbers: Sequence[Any]) -> Exception:
        """Return the error for the first number that its type cannot hold."""
        given = zip(self._leaves, self._numbers, numbers)
        leaf, number = next((leaf, number) for leaf, write, number in given if not _can(write, number))
        advice = "annotate the parameter with a type that holds it, as in n: cutlass.Int64"
        kind = ArgumentTypeError if isinstance(number, float) else ArgumentValueError
        return kind(explain(leaf.name, shown(number), f"a value of cutlass.{leaf.fact.kind}", advice))


def _can(write: Any, number: Any) -> bool:
    try:
        if callable(write):
            write(number)
        else:
            write.value = number
    except _REFUSED:
        return False
    return True


@functools.lru_cache(maxsize=256)
def _put_of(arrays: int, numbers: tuple[bool, ...], streams: int, call: bool) -> Callable:
    """Return ``make(cells, error, entry, packed, result, memory)``, which returns ``Block.put`` of so many arrays,
    numbers and streams; ``numbers`` says which have a cell. It keeps ``memory``, where the cells are. Its statements
    are written out: loops take as long as the writes."""
    a, n, s = ([f"{name}{i}" for i in range(count)] for name, count in zip("ans", (arrays, len(numbers), streams)))
    body = [f"{', '.join(f'{name}.value' for name in a)}, = addresses"] if a else []
    if n:
        writes = [f"    {x}.value = v{x}" if cell else f"    {x}(v{x})" for x, cell in zip(n, numbers)]
        body += ["try:", f"    {', '.join(f'v{name}' for name in n)}, = numbers", *writes]
        body += ["except REFUSED as problem:", "    raise error(numbers) from problem"]
    body += [f"{name}.value = stream" for name in s] or ["pass"]
    body += ["entry(packed)", "return result.value"] if call else []
    lines = ["def make(cells, error, entry, packed, result, memory):", f"    {', '.join((*a, *n, *s, '*_'))} = cells"]
    lines += ["    def put(addresses, numbers, stream, memory=memory):", *(f"        {line}" for line in body)]
    lines += ["    return put"]
    found: dict[str, Any] = {"REFUSED": _REFUSED}
    exec("\n".join(lines), found)
    return found["make"]


def _writer(kind: str, memory: Any, at: int) -> Any:
    """Return a function that writes a number of a DSL type, or for floats a cell with ``value``, which is quicker.
    Both raise for a number that the type cannot hold."""
    if kind in _CELLS:
        return _CELLS[kind].from_buffer(memory, at)
    pack = functools.partial(struct.Struct("@" + CODES[kind]).pack_into, memory, at)
    return (lambda number: pack(_bfloat16(number))) if kind == "BFloat16" else pack


def _bfloat16(number: Any) -> int:
    """Return the bits of the nearest bfloat16."""
    with np.errstate(over="ignore"):
        bits = int(np.float32(number).view(np.uint32))
    return bits >> 16 | 0x40 if number != number else (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
