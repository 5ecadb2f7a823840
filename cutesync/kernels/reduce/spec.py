"""What a reduction computes: the spec of a call, and of each of its kernels."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...dtypes import BOOL, INT64, DType, register
from ...errors import ArgumentTypeError, ArgumentValueError, explain, shown
from ...identity import identify
from ...ops import Operator
from ...runtime.call import Spec
from ..states import Argument, States, words_of

IN_MEMORY = "in memory"
OF_TRUTH = {
    "any": "any",
    "or": "any",
    "add": "any",
    "max": "any",
    "all": "all",
    "and": "all",
    "mul": "all",
    "min": "all",
}


def packed_kind(op: Operator, source: DType, accumulate: DType) -> str:
    """Return with what words of small elements are combined that are not unpacked: "any", "all", "add", "min" or "max";
    "" if they must be."""
    if op.fn is not None or source.size > 2:
        return ""
    if accumulate.kind == "b":
        return OF_TRUTH.get(op.name, "")
    if op.name in ("any", "all"):
        return op.name
    if op.name == "add" and source.kind in "biu" and accumulate.kind in "iu":
        return "add"
    same = source is accumulate and source.kind in "iu"
    return op.name if op.name in ("min", "max") and same else ""


@dataclass(frozen=True)
class Reduction:
    """What one kernel computes: an operator (or "argmin", "argmax"), the element types, and the map that is applied to
    each loaded element. ``flipped``: elements are read from the last to the first, and the operator's operands change
    places."""

    op: Operator | str
    source: DType
    accumulate: DType
    result: DType
    transform: Callable | None = None
    flipped: bool = False

    @functools.cached_property
    def name(self) -> str:
        return self.op if isinstance(self.op, str) else self.op.name

    @functools.cached_property
    def sources(self) -> tuple[DType, ...]:
        return (self.source,)

    @functools.cached_property
    def results(self) -> tuple[DType, ...]:
        return (self.result,)

    @property
    def values(self) -> tuple[DType, ...]:
        """The type of the value in a state, and of ``init``."""
        return (self.source if isinstance(self.op, str) else BOOL if self._of_truth else self.accumulate,)

    @property
    def args(self) -> tuple:
        """Of indexes that count from the last element, its index."""
        return (Argument(INT64, False),) if self.flipped and isinstance(self.op, str) else ()

    @functools.cached_property
    def key(self) -> tuple:
        """Identifies the machine code in caches."""
        op = self.op if isinstance(self.op, str) else self.op.key
        transform = "" if self.transform is None else identify(self.transform).key
        flipped = ("flipped",) if self.flipped else ()
        return (op, transform, self.source.name, self.accumulate.name, self.result.name, *flipped)

    def monoid(self) -> Any:
        """Return the operator's device code (imports the DSL)."""
        from ...monoid import ArgMonoid, Monoid

        if isinstance(self.op, str):
            return ArgMonoid(self.op == "argmax", self.source, self.result, self.flipped)
        return Monoid(self.op, self.source, self.accumulate, self.result, self.transform, self.flipped)

    @property
    def _of_truth(self) -> bool:
        """Whether the operator is any or all, which reduce truth values."""
        return not isinstance(self.op, str) and self.op.fn is None and self.op.name in ("any", "all")

    @functools.cached_property
    def registers(self) -> tuple[str, ...]:
        """The names of the DSL types of the registers that hold ``values``."""
        (value,) = self.values
        return (register(value) if isinstance(self.op, str) else self.op.register(value),)

    @functools.cached_property
    def slot_words(self) -> int:
        """32-bit words of a state."""
        return words_of(self.registers) + (2 if isinstance(self.op, str) else 0)

    @property
    def has_keys(self) -> bool:
        """Whether elements and their places are combined as keys: those of an argmin or argmax of small integers."""
        return isinstance(self.op, str) and self.source.size <= 2 and self.source.kind in "biu"

    @functools.cached_property
    def is_masked(self) -> bool:
        """Whether some element changes no state, so that vectors may hold elements that do not count: those of small
        ones."""
        if isinstance(self.op, str):
            return self.source.size <= 2 and not self.flipped
        if self.transform is not None:  # what is mapped is replaced by 0
            return self.op.fn is None and self.op.name == "add" and self.source.size <= 2
        floats = self.source.kind == self.accumulate.kind == "f" and self.source.size == 2 and self.op.fn is None
        return packed_kind(self.op, self.source, self.accumulate) != "" or (
            floats and self.op.name in ("add", "min", "max")
        )

    @functools.cached_property
    def between(self) -> DType:
        """The type in which one pass stores its results for the next."""
        return BOOL if self._of_truth else self.accumulate

    @property
    def has_atomic(self) -> bool:
        """Whether the GPU has an atomic for this operator and type."""
        name, result = self.name, self.result
        if isinstance(self.op, str) or self.op.fn is not None or result is not self.accumulate or result.size < 4:
            return False
        return name == "add" if result.kind == "f" else name in ("add", "min", "max", "and", "or", "xor")

    def of_pass(self, number: int, passes: int) -> Reduction:
        """Return what one of several passes computes. Only the first reads ``source`` and only the last writes
        ``result``; between passes, values are of type ``between``."""
        if passes == 1:
            return self
        first, last = number == 0, number == passes - 1
        source, result = self.source if first else self.between, self.result if last else self.between
        return Reduction(self.op, source, self.accumulate, result, self.transform if first else None, self.flipped)

    def identity(self) -> tuple | None:
        """Return the identity element, a Python number for each value; None if there is none."""
        found = None if isinstance(self.op, str) else self.op.identity(self.accumulate)
        return None if found is None else (found,)


@dataclass(frozen=True)
class ReduceSpec(Spec):
    """A call of ``reduce``. ``init`` is a Python number for each of ``reduction.values``, or None. ``args`` are the
    run-time arguments that are numbers; None for one that is in memory. Of the only reduced axis the first ``n``
    elements count: a number, IN_MEMORY, or None for all."""

    reduction: Reduction | States
    shape: tuple[int, ...]
    axes: frozenset[int]
    keepdims: bool
    init: tuple | None
    algorithm: str = "auto"
    args: tuple = ()
    n: int | str | None = None

    @property
    def results(self) -> tuple[tuple[tuple[int, ...], DType], ...]:
        kept = [1 if i in self.axes else n for i, n in enumerate(self.shape) if self.keepdims or i not in self.axes]
        return tuple((tuple(kept), dtype) for dtype in self.reduction.results)

    @functools.cached_property
    def groups(self) -> tuple[tuple[int, bool], ...]:
        """The extents of neighbouring axes that are all reduced, or all kept, and which of both."""
        found: list[tuple[int, bool]] = []
        for axis, extent in enumerate(self.shape):
            reduced = axis in self.axes
            if found and found[-1][1] == reduced:
                found[-1] = found[-1][0] * extent, reduced
            elif extent != 1:
                found.append((extent, reduced))
        return tuple(found)

    def passes(self) -> list[tuple[int, int, int]]:
        """Return the (outer, length, inner) of each pass over an array of elements. The last group of reduced axes
        comes first, so that elements are combined in C order."""
        found, outer, inner = [], math.prod(extent for extent, _ in self.groups), 1
        for extent, reduced in reversed(self.groups):
            outer //= extent or 1
            if reduced:
                found.append((outer, extent, inner))
            else:
                inner *= extent
        return found or [(inner, 1, 1)]


def axes_of(axis: Any, ndim: int) -> frozenset[int]:
    """Return the axes that are reduced, counted from 0."""
    if axis is None:
        return frozenset(range(ndim))
    given = axis if isinstance(axis, tuple) else (axis,)
    found = []
    for entry in given:
        if not isinstance(entry, (int, np.integer)) or isinstance(entry, bool):
            raise ArgumentTypeError(explain("axis", shown(axis), "None, an int or a tuple of ints"))
        if not -ndim <= entry < ndim:
            raise ArgumentValueError(
                explain("axis", shown(axis), f"{-ndim} to {ndim - 1} for an array of {ndim} dimensions")
            )
        found.append(int(entry) % ndim)
    if len(set(found)) != len(found):
        raise ArgumentValueError(explain("axis", shown(axis), "each axis once"))
    return frozenset(found)
