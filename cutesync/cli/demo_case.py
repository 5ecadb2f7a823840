"""One line of the demo's table, and what the families' cases have in common: shapes as words, random data."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import cutesync as cs

from .. import reference
from ..dtypes import dtype as parse_dtype

SINGLE, DOUBLE = 1e-5, 1e-13  # relative tolerances of sums that have no cancellation


@dataclass(frozen=True)
class Case:
    """One line of the table.

    ``make(generator)`` returns the NumPy inputs. ``call(*arrays, out=None)`` is the public call on device arrays, and
    ``expected(*inputs)`` its NumPy meaning. ``tolerance`` bounds the relative error; 0 requires equality.
    """

    operation: str
    dtype: str
    size: str
    make: Callable[[np.random.Generator], tuple[np.ndarray, ...]]
    call: Callable[..., Any]
    expected: Callable[..., np.ndarray]
    tolerance: float = 0.0

    def prepare(self) -> None:
        """Make the call, in a dry run (see ``runtime.kernel.collect``)."""
        self.call(*map(cs.asarray, self.make(np.random.default_rng(0))))


def of_array(
    operation: str, source: str, shape: tuple[int, ...], name: str, *, make: Callable | None = None, **options
) -> Case:
    """Return the case of ``cs.name(x, **options)`` and ``reference.name``. ``make(generator, source, shape)`` returns
    ``x``; random numbers if it is not given."""
    make = make or numbers
    call, expected = (functools.partial(getattr(home, name), **options) for home in (cs, reference))
    return Case(operation, source, words(shape), lambda g: (make(g, source, shape),), call, expected)


def numbers(generator: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return data for which sums do not cancel, products stay odd, and small types have many ties."""
    kind = parse_dtype(name)
    if kind.kind == "f":
        return generator.random(shape, np.float32).astype(kind.numpy)
    if kind.kind == "b":
        return generator.random(shape) < 1e-6
    info = np.iinfo(kind.numpy)
    values = generator.integers(info.min, info.max, shape, kind.numpy, endpoint=True)
    return values | kind.numpy.type(1) if name == "int64" else values


def words(shape: tuple[int, ...]) -> str:
    known = {1 << 24: "2^24", 10**7 + 19: "10^7+19", 1 << 22: "2^22", 1 << 16: "2^16"}
    return " x ".join(known.get(extent, str(extent)) for extent in shape)
