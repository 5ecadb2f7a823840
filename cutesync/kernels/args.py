"""Run-time arguments of callables (``args=``): numbers, and arrays of one element on the device.

A plan does not depend on the values of the numbers. A launch takes the bits of a number as it takes the address of an
array. The front end knows arrays only, so the numbers of a thread's call are in ``CURRENT`` meanwhile.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..arguments import whole
from ..dtypes import DType
from ..errors import ArgumentTypeError, ArgumentValueError, explain
from ..runtime.call import Views
from ..runtime.launch import Run
from ..runtime.repeat import CURRENT
from ..runtime.view import View
from .states import Argument


def split(args: Any) -> tuple[tuple, tuple]:
    """Return the type of each argument that is a number, with None for each array, and the arrays. The numbers are kept
    for the call."""
    if type(args) is not tuple:
        raise ArgumentTypeError(
            explain("args", f"a {type(args).__name__}", "a tuple of numbers and arrays of one element")
        )
    CURRENT.source = id(args)
    args = tuple(map(element, args))
    if any(value is None for value in args):
        raise ArgumentTypeError(explain("args", "None", "numbers and arrays of one element"))
    kinds = tuple(map(kind_of, args))
    CURRENT.numbers = tuple(value for value, kind in zip(args, kinds) if kind is not None)
    return kinds, tuple(value for value, kind in zip(args, kinds) if kind is None)


def element(value: Any) -> Any:
    """Return the element of a NumPy array of no dimensions; other objects as they are."""
    return value[()] if isinstance(value, np.ndarray) and value.shape == () else value


def kind_of(value: Any) -> type | np.dtype | None:
    """Return the type of a run-time argument that is a number; None for an array."""
    if isinstance(value, np.generic):
        return value.dtype
    if isinstance(value, float):
        return float
    if isinstance(value, bool) or not isinstance(value, int):
        return bool if isinstance(value, bool) else None
    if -(1 << 31) <= value < 1 << 31:
        return int
    whole(value, "args")
    return _Wide


class _Wide(int):
    """The type of ints that need 64 bits."""


@functools.lru_cache(maxsize=1024)
def alike(kinds: tuple) -> tuple[tuple, tuple]:
    """Return a number of each type, with None for each array; and what tells such numbers apart as keys."""
    found = tuple(None if kind is None else _alike(kind) for kind in kinds)
    return found, tuple(map(repr, kinds))  # texts of numbers do not tell all types


def _alike(kind: Any) -> Any:
    """Return a number of a type."""
    if isinstance(kind, np.dtype):
        return np.zeros((), kind)[()]
    return 1 << 31 if kind is _Wide else kind(0)


def read(numbers: tuple, memory: Iterator[tuple[View, str]]) -> tuple:
    """Return what plans know of the arguments: the ``numbers`` (see ``alike``), and the Argument of each array;
    ``memory`` has the arrays and their names."""
    found = []
    for number in numbers:
        if number is not None:
            found.append(number)
            continue
        view, name = next(memory)
        if view.size != 1:
            raise ArgumentValueError(explain(name, f"shape {view.shape}", "an array of one element"))
        found.append(Argument(view.dtype, True))
    return tuple(found)


def plan_with_numbers(plan: Callable, places: tuple[int, ...], arguments_of: Callable) -> Callable:
    """Return a plan whose run puts the numbers of the call at ``places`` among the addresses. ``arguments_of`` a spec
    are the Arguments of its callables."""

    def make(spec: Any, views: Views, outs: Views, stream: int) -> tuple[Run, int | None]:
        dtypes = [argument.dtype for argument in arguments_of(spec) if not argument.in_memory]
        encoders = [_encoder(dtype) for dtype in dtypes]
        given = list(views)
        for place, dtype in zip(places, dtypes):
            given.insert(place, View(0, (), dtype, views[0].device, True))
        run, in_place = plan(spec, tuple(given), outs, stream)

        def with_numbers(addresses: tuple[int, ...], stream: int) -> None:
            whole = list(addresses)
            for place, encode, number in zip(places, encoders, CURRENT.numbers):
                whole.insert(place, encode(number))
            run(tuple(whole), stream)

        def with_number(addresses: tuple[int, ...], stream: int) -> None:  # the same for one, in half the time
            bits = encoders[0](CURRENT.numbers[0])
            run((*addresses[: places[0]], bits, *addresses[places[0] :]), stream)

        return with_number if len(places) == 1 else with_numbers, in_place

    return make


def current() -> Iterator[Any]:
    """Yield the run-time arguments of the call that are numbers."""
    for number in CURRENT.numbers:
        CURRENT.taken = True
        yield number


class Bits(int):
    """The bits of a run-time argument that is a number. ``numbers`` are those of the call."""

    def __new__(cls, encode: Callable[[Any], int], place: int, numbers: tuple) -> Bits:
        made = super().__new__(cls, encode(numbers[place]))
        made.encode, made.place, made.numbers = encode, place, numbers
        return made

    encode: Callable[[Any], int]
    place: int
    numbers: tuple

    def now(self) -> int:
        """Return the bits of the same argument of this thread's call."""
        return self.encode(CURRENT.numbers[self.place])


def encoded(dtypes: Sequence[DType]) -> list[Bits]:
    """Return the bits of the numbers of the call, the first of them of these types."""
    numbers = CURRENT.numbers
    return [Bits(_encoder(dtype), place, numbers) for place, (dtype, _) in enumerate(zip(dtypes, numbers))]


def _encoder(dtype: DType) -> Callable[[Any], int]:
    return _ENCODERS.get(dtype.name, _bits_of_int)


def _bits_of_float32(value: Any) -> int:
    """Return the bits of a float32; a number beyond its range becomes infinite."""
    return ctypes.c_uint32.from_buffer(ctypes.c_float(value)).value


def _bits_of_float64(value: Any) -> int:
    return ctypes.c_uint64.from_buffer(ctypes.c_double(value)).value


def _bits_of_int(value: Any) -> int:
    return int(value) & 0xFFFFFFFFFFFFFFFF


_ENCODERS: dict[str, Callable[[Any], int]] = {"float32": _bits_of_float32, "float64": _bits_of_float64}
