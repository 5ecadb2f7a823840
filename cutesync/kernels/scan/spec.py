"""The spec of a scan: what a call computes."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...dtypes import DType
from ...errors import ArgumentTypeError, ArgumentValueError, explain, shown
from ...runtime.call import Spec
from ...runtime.view import View
from ..count import check
from ..states import Single, States, start_of, words_of

IN_MEMORY = "in memory"  # stands for an ``init`` that is an array


@dataclass(frozen=True)
class ScanSpec(Spec):
    """A call of ``scan``. ``start`` comes before the first element: a number for each value of a state, or None; with
    ``start_in_memory`` it is an input. With ``start_rows`` only the last of its numbers is: another one for each scan,
    in an array with these strides along the axes of the inputs.

    ``lengths`` is the shape of the inputs, ``shape`` that of the results. ``extents`` are (rows, length, inner): there
    are rows * inner scans of ``length`` elements. ``args`` are the run-time arguments that are numbers; None for one
    that is in memory. Only the first ``n`` positions count; with ``n_in_memory``, ``n`` is an input.
    """

    operation: Single | States
    exclusive: bool
    reverse: bool
    start: tuple | None = None
    start_in_memory: bool = False
    start_rows: tuple[int, ...] | None = None
    shape: tuple[int, ...] = ()
    axis: int | None = None
    lengths: tuple[int, ...] = ()
    extents: tuple[int, int, int] = (1, 1, 1)
    algorithm: str = "auto"
    args: tuple = ()
    n: int | None = None
    n_in_memory: bool = False

    @property
    def results(self) -> tuple[tuple[tuple[int, ...], DType], ...]:
        return tuple((self.shape, dtype) for dtype in self.operation.results)

    @property
    def start_kind(self) -> str | None:
        if self.start_rows is not None:
            return "rows"
        return "memory" if self.start_in_memory else None if self.start is None else "value"

    @property
    def key(self) -> tuple:
        """Identifies the machine code in caches."""
        return (*self.operation.key, self.exclusive, self.reverse, self.start_kind, self.counted)

    @property
    def counted(self) -> bool:
        """Whether only the first positions count."""
        return self.n is not None or self.n_in_memory

    @functools.cached_property
    def words(self) -> int:
        """32-bit words of a state."""
        return words_of(self.operation.registers)

    def seen_as(self, extents: tuple[int, int, int]) -> ScanSpec:
        """Return the same call with other extents, as ``replace`` does, in a tenth of the time. What is cached comes
        along: it must not depend on them."""
        found = object.__new__(ScanSpec)
        found.__dict__.update(self.__dict__, extents=extents)
        return found

    def between(self, single: Single, source: DType) -> ScanSpec:
        """Return the same operation, which is ``single``, on elements of type ``source``, with results of the
        accumulator's type: an upper tier of a tiered scan."""
        operation = replace(single, source=source, output=single.accumulate)
        return replace(self, operation=operation, exclusive=False, start=None, start_in_memory=False)


def along(axis: Any, shape: tuple[int, ...]) -> dict[str, Any]:
    """Return the fields of a Spec that say what is scanned: ``axis``, at least 0 or None, of arrays of ``shape``."""
    if axis is None:
        return {"shape": (math.prod(shape),), "axis": None, "lengths": shape}
    if not isinstance(axis, (int, np.integer)) or isinstance(axis, bool):
        raise ArgumentTypeError(explain("axis", shown(axis), "None or an int"))
    if not -len(shape) <= axis < len(shape):
        allowed = (
            f"{-len(shape)} to {len(shape) - 1} for an array of {len(shape)} dimensions"
            if shape
            else "None for an array of no dimensions"
        )
        raise ArgumentValueError(explain("axis", shown(axis), allowed))
    return {"shape": shape, "axis": int(axis) % len(shape), "lengths": shape}


def counted(number: int | None, view: View | None) -> dict[str, Any]:
    """Return the fields of a Spec that say how many positions count; ``view`` is the array that has their number."""
    check(view)
    return {"n": number, "n_in_memory": view is not None}


def start_rows(first: View, what: dict[str, Any], result: DType, name: str = "x") -> tuple[int, ...]:
    """Return the strides along the axes of the inputs of an array of first operands, one for each scan; ``what`` are
    the fields of ``along``, and ``name`` the argument that has its lengths."""
    lengths, axis = what["lengths"], what["axis"]
    wanted = () if axis is None else (*lengths[:axis], *lengths[axis + 1 :])
    given = first.shape if axis is not None else first.shape[len(first.shape) if first.size == 1 else 0 :]
    if len(given) > len(wanted) or any(n not in (1, m) for n, m in zip(reversed(given), reversed(wanted))):
        allowed = f"a shape that broadcasts to {wanted}, that of {name} without the axis"
        raise ArgumentValueError(explain("init", f"an array of shape {first.shape}", allowed))
    if first.dtype is not result:
        raise ArgumentTypeError(explain("init", f"an array of {first.dtype}", f"one of {result}, the result's type"))
    steps = [step if n > 1 else 0 for n, step in zip(given, first.steps[len(first.shape) - len(given) :])]
    steps = [0] * (len(wanted) - len(steps)) + steps
    if axis is None:
        return (0,) * len(lengths)
    return (*steps[:axis], 0, *steps[axis:])


def start_value(init: Any, exclusive: bool, identity: Any, operation: Single | States) -> tuple | None:
    """Return the state that comes before the first element; None if there is none. ``init`` is a number, or a tuple of
    them, or None."""
    if init is not None:
        return start_of(init, "init", operation)
    if not exclusive:
        return None
    if identity is None:
        found = operation.identity()
        if found is None:
            came = f"True for {operation.op.name!r}, which has no identity"
            raise ArgumentValueError(explain("exclusive", came, "a first result", "give init= or identity="))
        identity = found
    return start_of(identity, "identity", operation)
