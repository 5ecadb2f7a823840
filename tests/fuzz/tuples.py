"""Random operators on states of several values, and random callables around them.

An operator is a product of small monoids, each on some of the values. Everything is exact: integers wrap, and floats
hold small whole numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cutesync.dtypes import DType
from cutesync.reference import _cast

from .values import NUMBERS, pick

MAX_VALUES = 4


class Part(NamedTuple):
    """A monoid of some values of a state. ``kinds`` are the kinds of types that each may have, ``expressions`` the new
    values; {0} is the index of the first value, and t a run-time argument, an integer. ``alike``: later values have the
    type of the first. ``parity`` is that of the values, where products of others would soon be 0."""

    kinds: tuple[str, ...]
    expressions: tuple[str, ...]
    identity: tuple | None = None
    alike: bool = False
    parity: tuple[str, ...] = ("", "", "", "")


PARTS = {
    "sum": Part(("iuf",), ("p[{0}] + q[{0}]",), (0,)),
    "and one more": Part(("i",), ("p[{0}] + q[{0}] + 1",), (-1,)),
    "argument": Part(("i",), ("p[{0}] + q[{0}] + t",)),
    "largest": Part(("iuf",), ("np.maximum(p[{0}], q[{0}])",)),
    "first": Part(("biuf",), ("p[{0}]",)),
    "last": Part(("biuf",), ("q[{0}]",)),
    "either": Part(("biu",), ("p[{0}] | q[{0}]",), (0,)),
    "maps": Part(("iu", "iu"), ("p[{0}] * q[{0}]", "p[{1}] * q[{0}] + q[{1}]"), (1, 0), True, ("odd", "")),
    "segments": Part(("biu", "iuf"), ("p[{0}] | q[{0}]", "q[{1}] if q[{0}] else p[{1}] + q[{1}]"), (0, 0)),
    "best": Part(("iuf", "biuf"), tuple(f"q[{{{i}}}] if q[{{0}}] > p[{{0}}] else p[{{{i}}}]" for i in (0, 1))),
    "matrices": Part(
        ("iu",) * 4,
        (
            "p[{0}] * q[{0}] + p[{1}] * q[{2}]",
            "p[{0}] * q[{1}] + p[{1}] * q[{3}]",
            "p[{2}] * q[{0}] + p[{3}] * q[{2}]",
            "p[{2}] * q[{1}] + p[{3}] * q[{3}]",
        ),
        (1, 0, 0, 1),
        True,
        ("odd", "even", "", "odd"),
    ),
}
NAMES = ("add", "min", "max", "and", "or", "xor")


@dataclass
class Monoid:
    """``given`` is what is given as ``op``; ``values`` are the types of a state; ``adds`` says of each value whether it
    is a sum, whose terms must be small. ``args`` has the number that the operator takes, or is empty. ``unpacked``: a
    state is a number. ``parity``: see Part."""

    given: Any
    values: tuple[DType, ...]
    adds: tuple[bool, ...]
    identity: tuple | None
    args: tuple
    unpacked: bool
    parity: tuple[str, ...]

    @property
    def accumulators(self) -> tuple[DType, ...]:
        return tuple(value.accumulator for value in self.values)

    def combine(self, p: tuple, q: tuple, args: tuple) -> tuple:
        """The operator on NumPy arrays."""
        with np.errstate(all="ignore"):
            if isinstance(self.given, str):
                found = [_NAMED[self.given](a, b) for a, b in zip(p, q)]
            elif self.unpacked:
                found = (self.given.on_arrays(p[0], q[0], *args),)
            else:
                found = self.given.on_arrays(p, q, *args)
            return tuple(_cast(np.asarray(v), t) for v, t in zip(found, self.accumulators))


_NAMED = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def function(parameters: str, results: list[str], alone: bool = False, unpacked: str = "") -> Callable:
    """A callable that returns a tuple, or with ``alone`` the only result itself. The values named in ``unpacked`` are
    numbers that the expressions index. ``on_arrays`` is the same on arrays: ``np.where`` for conditional
    expressions; ``results`` are the expressions."""
    opened = "".join(f"    {name} = ({name},)\n" for name in unpacked)

    def made(texts: list[str]) -> Callable:
        result = texts[0] if alone else f"({', '.join(texts)},)"
        names: dict = {"np": np}
        source = f"def fn({parameters}):\n{opened}    return {result}\n"
        exec(compile(source, "<fuzz tuples>", "exec"), names)
        names["fn"].__qualname__ = f"<lambda {parameters}: {result}>"
        return names["fn"]

    fn = made(results)
    fn.on_arrays, fn.results = made([_with_where(text) for text in results]), results
    return fn


def _with_where(text: str) -> str:
    if " if " not in text:
        return text
    then, _, rest = text.partition(" if ")
    condition, _, otherwise = rest.partition(" else ")
    return f"np.where(({condition}) != 0, {then}, {otherwise})"


def monoid(theme, unpacked: bool = False) -> Monoid:
    """Of one to four values, of one if ``unpacked``: then the operator takes and returns numbers."""
    if theme.random() < 0.15:
        name, count = pick(theme, NAMES), 1 if unpacked else 1 + int(theme.integers(MAX_VALUES))
        kinds = "biu" if name in ("and", "or", "xor") else "iuf"
        values = tuple(_typed(theme, kinds) for _ in range(count))
        ones = lambda t: {"b": 1, "i": -1}.get(t.kind, 2 ** (8 * t.size) - 1)  # noqa: E731
        identity = {"min": None, "max": None, "and": tuple(map(ones, values))}.get(name, (0,) * count)
        return Monoid(name, values, (name == "add",) * count, identity, (), unpacked, ("",) * count)
    room = 1 if unpacked else MAX_VALUES
    values, adds, texts, identity, parity = (), [], [], (), ()
    least = 1 if unpacked else int(theme.integers(1, MAX_VALUES + 1))
    while len(values) < least:
        part = PARTS[pick(theme, [name for name, p in PARTS.items() if len(p.kinds) <= room - len(values)])]
        places = range(len(values), len(values) + len(part.kinds))
        types = tuple(_typed(theme, kinds) for kinds in part.kinds)
        types = (types[0],) * len(types) if part.alike else types
        texts += [text.format(*places) for text in part.expressions]
        values, parity = values + types, parity + part.parity[: len(types)]
        adds += ["+" in text for text in part.expressions]
        identity = None if identity is None or part.identity is None else (*identity, *part.identity)
    takes = any(" t" in text for text in texts)
    given = function("p, q, t" if takes else "p, q", texts, unpacked, "pq" if unpacked else "")
    return Monoid(given, values, tuple(adds), identity, (int(theme.integers(1, 4)),) if takes else (), unpacked, parity)


def _typed(theme, kinds: str) -> DType:
    return pick(theme, [t for t in NUMBERS if t.kind in kinds])


def elements(rng, extents: tuple[int, ...], source: DType, small: bool, parity: str = "") -> np.ndarray:
    """Whole numbers from -1 (or 0) to 1 if ``small``, else any integers; few True."""
    if source.kind == "b":
        return rng.random(extents) < pick(rng, (0.02, 0.5))
    if source.kind == "f" or small:
        found = rng.integers(0 if source.kind == "u" else -1, 2, extents).astype(source.numpy)
    elif rng.random() < 0.3:
        found = rng.integers(0, 2, extents).astype(source.numpy)  # flags, and many equal ones
    else:
        info = np.iinfo(source.numpy)
        found = rng.integers(info.min, info.max, extents, source.numpy, endpoint=True)
    one = source.numpy.type(1)
    return np.where(found % 2 == (parity == "even"), found + one, found) if parity and not small else found


# What NumPy makes of a state


def presented(x: np.ndarray, dtype: DType) -> np.ndarray:
    """Elements as callables get them."""
    return x.astype(np.float32) if dtype.kind == "f" and dtype.size == 2 else x


def running(op: Callable, state: tuple) -> tuple:
    """An inclusive scan along the last axis. A long one is cut into rows of 1000 elements. They are scanned side by
    side, and then their ends are."""
    length = state[0].shape[-1]
    if length <= 1500:
        return _one_by_one(op, state)
    width = 1000
    rows = -(-length // width)
    lead = state[0].shape[:-1]
    padded = [np.concatenate([v, np.repeat(v[..., :1], rows * width - length, -1)], -1) for v in state]
    inside = _one_by_one(op, tuple(v.reshape(*lead, rows, width) for v in padded))
    ends = running(op, tuple(v[..., -1] for v in inside))
    rest = tuple(v[..., 1:, :] for v in inside)
    behind = op(tuple(np.broadcast_to(v[..., :-1, None], rest[0].shape) for v in ends), rest)
    whole = (np.concatenate([v[..., :1, :], w], -2) for v, w in zip(inside, behind))
    return tuple(v.reshape(*lead, rows * width)[..., :length] for v in whole)


def _one_by_one(op: Callable, state: tuple) -> tuple:
    columns = zip(*(np.moveaxis(v, -1, 0) for v in state))
    found = list(itertools.accumulate(columns, op))
    return tuple(np.stack(v, -1) for v in zip(*found)) if found else state
