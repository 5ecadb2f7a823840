"""What a kernel computes on states: how elements become a state, how states combine, what a state's results are.

``Single`` is the plain case: a state is one number, of one input and one output. ``States`` has callables and any
number of values, inputs and outputs. The kernels of a family see the same members of both.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..dtypes import BOOL, BY_NAME, FLOAT32, INT32, INT64, DType, dtype, number, register, scalar
from ..errors import ArgumentTypeError, ArgumentValueError, explain, shown
from ..identity import Identity, identify
from ..ops import Operator, required_parameters
from ..runtime.kernel import Pointer, Scalar


@dataclass(frozen=True)
class Single:
    """One number a state: ``op`` on elements of ``source``, in ``accumulate``, with results of type ``output``."""

    op: Operator
    source: DType
    accumulate: DType
    output: DType

    @functools.cached_property
    def sources(self) -> tuple[DType, ...]:
        return (self.source,)

    @property
    def values(self) -> tuple[DType, ...]:
        """The type of each value of a state."""
        return (self.accumulate,)

    @functools.cached_property
    def results(self) -> tuple[DType, ...]:
        return (self.output,)

    @property
    def args(self) -> tuple[Argument, ...]:
        return ()

    @functools.cached_property
    def key(self) -> tuple:
        """Identifies the machine code in caches."""
        return self.source.name, self.accumulate.name, self.output.name, self.op.key

    @functools.cached_property
    def registers(self) -> tuple[str, ...]:
        """The names of the DSL types of a state's registers."""
        return (self.op.register(self.accumulate),)

    def identity(self) -> tuple | None:
        """Return the identity element; None if there is none."""
        found = self.op.identity(self.accumulate)
        return None if found is None else (found,)

    def monoid(self) -> Any:
        """Return the device code (imports the DSL)."""
        from ..monoid import Monoid

        return Monoid(self.op, self.source, self.accumulate, self.output)


class Argument(NamedTuple):
    """A run-time argument of a callable: its type, and whether it is an element in device memory."""

    dtype: DType
    in_memory: bool

    def parameter(self, name: str) -> Pointer | Scalar:
        return Pointer(name, self.dtype) if self.in_memory else Scalar(name, self.dtype.dsl)


def numbered(name: str, group: Sequence) -> tuple[str, ...]:
    """Return the names of a group of parameters: x, x1, x2, ..."""
    return _numbered(name, len(group))


@functools.lru_cache(maxsize=256)
def _numbered(name: str, count: int) -> tuple[str, ...]:
    return tuple(f"{name}{i or ''}" for i in range(count))


@functools.lru_cache(maxsize=256)
def _pointers(name: str, types: tuple[DType, ...]) -> tuple[Pointer, ...]:
    return tuple(map(Pointer, numbered(name, types), types))


@functools.lru_cache(maxsize=256)
def _scalars(name: str, types: tuple[str, ...]) -> tuple[Scalar, ...]:
    return tuple(map(Scalar, numbered(name, types), types))


@dataclass(frozen=True)
class States:
    """States of several values: ``op`` combines two of them.

    ``sources`` are the types of the inputs. ``values`` are the types of a state's values, in which they are combined.
    ``results`` are the types of the outputs. ``transform`` makes a state of the elements at one position, and of the
    index of the position if ``takes_index``; ``finish`` makes the results of a state. With ``unpacked``, callables take
    and return the only value of a state itself, not a tuple. ``args`` follow the operands of every callable. The last
    of them are instead values of the state before the first element, those at ``firsts``.
    """

    op: Operator
    sources: tuple[DType, ...]
    values: tuple[DType, ...]
    results: tuple[DType, ...]
    transform: Callable | None = None
    finish: Callable | None = None
    takes_index: bool = False
    unpacked: bool = False
    args: tuple[Argument, ...] = ()
    firsts: tuple[int, ...] = ()

    @property
    def key(self) -> tuple:
        """Identifies the machine code in caches."""
        callables = tuple("" if fn is None else identify(fn).key for fn in (self.transform, self.finish))
        types = tuple(tuple(t.name for t in group) for group in (self.sources, self.values, self.results))
        args = tuple((a.dtype.name, a.in_memory) for a in self.args)
        return (*types, self.op.key, *callables, self.takes_index, self.unpacked, args, self.firsts)

    @property
    def registers(self) -> tuple[str, ...]:
        """The names of the DSL types of a state's registers. Small integers take 32 bits between two calls of a
        callable: a register of 8 or 16 bits would be converted at each exchange between lanes."""
        return tuple(register(value) for value in self.values)

    @property
    def name(self) -> str:
        return self.op.name

    @property
    def slot_words(self) -> int:
        """32-bit words of a state."""
        return words_of(self.registers)

    def of_pass(self, number: int, passes: int) -> States:
        """Return what one of several passes computes. Only the first reads elements and only the last writes results;
        between passes, arrays hold the values of states."""
        first, last = number == 0, number == passes - 1
        return replace(
            self,
            sources=self.sources if first else self.values,
            transform=self.transform if first else None,
            takes_index=self.takes_index and first,
            results=self.results if last else self.values,
            finish=self.finish if last else None,
        )

    def identity(self) -> tuple | None:
        """Return the identity element, a Python number for each value; None if there is none."""
        given = self.op.identity_value
        if given is not None:
            return given if isinstance(given, tuple) else (given,)
        found = tuple(self.op.identity(value) for value in self.values)
        return None if None in found else found

    def monoid(self) -> Any:
        """Return the device code (imports the DSL)."""
        from .state_monoid import StateMonoid

        return StateMonoid(self)


def parameter_groups(
    operation: Any,
) -> tuple[Sequence[Pointer], Sequence[Pointer], Sequence[Scalar], Sequence[Pointer | Scalar]]:
    """Return the kernel's parameters of an operation: inputs, outputs, the values of a first state, and run-time
    arguments. In the kernel the last two are one tuple."""
    return (
        _pointers("x", operation.sources),
        _pointers("out", operation.results),
        _scalars("init", operation.registers),
        [argument.parameter(name) for name, argument in zip(numbered("arg", operation.args), operation.args)],
    )


def words_of(registers: tuple[str, ...]) -> int:
    """Return how many 32-bit words registers take."""
    return sum(2 if name.endswith("64") else 1 for name in registers)


MAX_WORDS = 16  # of a state
NO_ARGS: tuple = ()  # the default of ``args``: Python has one empty tuple, so calls may ask by ``is``


def parse_states(
    op: Operator, sources: tuple[DType, ...], unpacked: bool, types: Any, callables: tuple, out_types: Any, args: tuple
) -> States:
    """Return the States of a call, after checking its arguments.

    ``types`` are the types of the state's values (default: those of the inputs), ``callables`` are the Identities of
    transform and finish, or None. ``out_types`` are the types of the outputs (default: those of the values);
    ``args`` are run-time arguments: numbers, and the ``Argument`` of each that is in memory."""
    values = _types(types, sources, "dtype")
    transform, finish = (_callable(fn, what) for fn, what in zip(callables, ("transform", "finish")))
    if transform is None and len(values) != len(sources):
        came = f"{len(values)} types for {len(sources)} inputs"
        raise ArgumentValueError(explain("dtype", came, "a type for each input", "give transform= for other states"))
    if out_types is not None and finish is None:
        raise ArgumentValueError(explain("out_dtype", shown(out_types), "None without finish=", "give dtype="))
    usual = values if finish is None else values[:1]
    results = _types(out_types, usual, "out_dtype")
    accumulate = tuple(value.accumulator for value in values)
    args = typed(args, accumulate)
    for value in accumulate:
        op.check(value)
        if op.fn is None and op.name in ("any", "all") and value.kind != "b":
            came, advice = f"a state of {', '.join(map(str, values))}", "give dtype='bool' (0 is False)"
            raise ArgumentTypeError(explain(f"op={op.name!r}", came, "states of bool", advice))
    words = words_of(tuple(register(value, wide=False) for value in accumulate))
    if words > MAX_WORDS:
        allowed = f"at most {MAX_WORDS} words of 32 bits"
        raise ArgumentValueError(explain("dtype", f"a state of {words} words", allowed))
    takes_index = transform is not None and required_parameters(transform) == len(sources) + 1 + len(args)
    unpacked = unpacked and len(values) == 1 and not isinstance(types, tuple)
    return States(op, sources, accumulate, results, transform, finish, takes_index, unpacked, args)


def _types(wanted: Any, usual: tuple[DType, ...], argument: str) -> tuple[DType, ...]:
    if wanted is None:
        return usual
    if not isinstance(wanted, tuple):
        return (dtype(wanted, argument),) * (len(usual) if argument == "dtype" else 1)
    return tuple(dtype(t, argument) for t in wanted)


def _callable(fn: Any, what: str) -> Callable | None:
    if fn is None:
        return None
    if type(fn) is not Identity:
        raise ArgumentTypeError(explain(what, shown(fn), "a callable"))
    return fn.fn


def takes_two(transform: Any) -> bool:
    """Return whether a transform of one element takes the index, too."""
    return type(transform) is Identity and _positional_of(transform) == 2


@functools.lru_cache(maxsize=1024)
def _positional_of(identity: Identity) -> int:
    return required_parameters(identity.fn)


def start_of(init: Any, what: str, operation: Any) -> tuple:
    """Return a state given by the caller, a number or a tuple of them, as a number of the type of each value."""
    values = operation.values
    given = init if isinstance(init, tuple) else (init,) * len(values) if len(values) == 1 else None
    if given is None or len(given) != len(values):
        raise ArgumentTypeError(explain(what, shown(init), f"a tuple of {len(values)} numbers"))
    return tuple(scalar(number, value, what) for number, value in zip(given, values))


def typed(args: tuple, values: tuple[DType, ...]) -> tuple[Argument, ...]:
    """Return the Argument of each run-time argument that is a number beside those in memory. ``values`` are the types
    that the callables compute in."""
    return tuple(a if isinstance(a, Argument) else Argument(argument_type(a, values), False) for a in args)


def argument_type(value: Any, values: tuple[DType, ...]) -> DType:
    """Return the type of a run-time argument given as a number. A NumPy number has its own type. A Python number is
    weakly typed: a float is a float32, or a float64 if the state has one; an int is an int32, or an int64 if the state
    has 64-bit integers or the int needs it."""
    if isinstance(value, np.generic):
        own = dtype(value.dtype, "args")
        return FLOAT32 if own.kind == "f" and own.size == 2 else own
    found = number(value, "args", "a number, or an array of one element on the device")
    if isinstance(found, bool):
        return BOOL
    if isinstance(found, float):
        return BY_NAME["float64"] if BY_NAME["float64"] in values else FLOAT32
    wide = any(value.kind in "iu" and value.size == 8 for value in values)
    return INT64 if wide or not -(1 << 31) <= found < 1 << 31 else INT32
