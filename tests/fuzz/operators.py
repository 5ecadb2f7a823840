"""Operators for random calls: the named ones, and Python callables as expressions with a captured number K."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from cutesync.dtypes import DType
from cutesync.ops import COMPARISONS, DIFFERENCES

from .. import cases
from .captures import PLAIN, Capture
from .values import pick

NAMED = ("add", "mul", "min", "max", "and", "or", "xor")
INTEGER_FOLDS = {
    "plus": "a + b + K",
    "star": "a + b + a * b * K",
    "latest": "b * (b != K) + a * (b == K)",
    "earliest": "a * (a != K) + b * (a == K)",
    "first": "a",
    "last": "b",
}
FOLDS = {
    "i": INTEGER_FOLDS,
    "u": INTEGER_FOLDS,
    "f": {"plus": "a + b + K", "first": "a", "last": "b"},
    "b": {"or": "a | b", "and": "a & b", "xor": "a ^ b", "first": "a", "last": "b"},
}
IDENTITIES = {
    "star": lambda k: 0,
    "latest": lambda k: k,
    "earliest": lambda k: k,
    "or": lambda k: False,
    "xor": lambda k: False,
    "and": lambda k: True,
}
MONOIDS = {
    "matrix": (cases.matrix, cases.matrices, 0x1001),
    "bicyclic": (cases.bicyclic, cases.brackets, 0),
    "adjacent": (cases.adjacent, cases.segments, None),
}  # of int64
PAIRS = ("(a != b) & (a > K)", "(b > K) & (a <= b)", "a < b", "a == K", "(a != b) | (b == K)")
INDEXED = ("(a != b) & (index % 3 == K)", "(index % 2 == 0) | (b == K)", "(index > K) & (a >= b)")
CHANGES = ("a - b", "a + b * K", "b", "a", "a * b + K")
TRANSFORMS = {
    "i": ("v * v", "v + K", "v * K", "v * v + K", "v & K"),
    "u": ("v * v", "v + K", "v * K", "v ^ K"),
    "f": ("v * K", "v + K", "-v", "v * v"),
}


@dataclass
class Op:
    """What is given as ``op``: a name or a callable; ``identity`` of a callable, or None; ``make`` draws elements for
    which it is associative."""

    name: str
    given: Any
    identity: Any = None
    make: Any = None

    @property
    def named(self) -> bool:
        return isinstance(self.given, str)


def capture(theme, arguments: str, expression: str, numbers=(1, 2, 3)) -> Capture:
    """A callable that reaches its number in one of the plain ways."""
    held = Capture(pick(theme, PLAIN), arguments, expression, pick(theme, numbers))
    if hasattr(held.fn, "__qualname__"):
        held.fn.__qualname__ = repr(held)  # for messages
    return held


def fold_operator(theme, element: DType, source: DType, names=NAMED) -> Op:
    """For reductions and scans of ``source`` that compute in ``element``."""
    kind = theme.random()
    if kind < 0.6:
        name = pick(theme, [name for name in names if cases.has_meaning(name, element.name)])
        return Op(name, name)
    if kind < 0.75 and element.name == source.name == "int64":
        name = pick(theme, tuple(MONOIDS))
        fn, make, identity = MONOIDS[name]
        return Op(name, fn, identity, make)
    name = pick(theme, tuple(FOLDS[element.kind]))
    held = capture(theme, "a, b", FOLDS[element.kind][name])
    identity = IDENTITIES.get(name, lambda k: None)(held.value)
    return Op(name, held.fn, identity)


def pair_operator(theme, element: DType) -> Any:
    """For flags."""
    if theme.random() < 0.5:
        return pick(theme, COMPARISONS)
    if theme.random() < 0.5:
        return capture(theme, "a, b, index", pick(theme, INDEXED), (0, 1)).fn
    if element.kind == "b":
        return capture(theme, "a, b", pick(theme, ("a & b", "a | b", "a ^ b"))).fn
    return capture(theme, "a, b", pick(theme, PAIRS)).fn


def difference_operator(theme, element: DType) -> Any:
    if theme.random() < 0.6 or element.kind == "b":
        names = [
            name
            for name in DIFFERENCES
            if cases.has_meaning(name, element.name) and not (name == "sub" and element.kind == "b")
        ]
        return pick(theme, names)
    return capture(theme, "a, b", pick(theme, CHANGES)).fn


def transform(theme, element: DType) -> Any:
    if element.kind == "b":
        return None
    return capture(theme, "v", pick(theme, TRANSFORMS[element.kind])).fn


def elements(op: Op, rng, shape: tuple[int, ...], axis, draw) -> np.ndarray:
    """``draw()``, or what the operator is associative for."""
    if op.make is None:
        return draw()
    size = math.prod(shape)
    if size == 0 or op.name != "adjacent":
        return (
            op.make(size, seed=int(rng.integers(99))).astype(np.int64).reshape(shape)
            if size
            else np.zeros(shape, np.int64)
        )
    return op.make(shape, axis) if isinstance(axis, int) else op.make(size).reshape(shape)
