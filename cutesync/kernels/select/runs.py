"""Runs of equal neighbours: their elements, where they begin, how long they are, which one an element belongs to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...arguments import flag
from ...dtypes import BY_NAME, DType, dtype as parse_dtype
from ...errors import ArgumentTypeError, explain, shown
from ...identity import Identity, identify
from ...ops import required_parameters
from ...runtime.repeat import repeatable
from ...types import DTypeLike, Scalar, Stream
from ..states import NO_ARGS
from .calls import Wanted, arrays_of, rows_of, selected, wanted_by


@repeatable
def unique_consecutive(
    x: Any,
    *,
    equal: Callable[..., Any] | None = None,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    equal_nan: bool = True,
    dtype: DTypeLike = "int64",
    axis: int | None = None,
    packed: bool = False,
    size: int | None = None,
    fill_value: Scalar = 0,
    out: Any = None,
    n: Any = None,
    stream: Stream = None,
) -> Any:
    """Return the first element of each run of equal neighbours of the flattened ``x``, in one pass without waiting.

    Parameters
    ----------
    x, axis, packed, size, fill_value, n, stream : as for ``select``; with ``axis`` runs end where rows do. The elements
        of a tuple of arrays are keys of several parts. With ``size``, indices are filled with -1, and counts with 0.
    out : as for ``select``: the arrays of the values, then one for each that is asked for, in that order.
    equal : None (equal by value), or a callable that the DSL can trace: ``equal(a, b)``, whether an element ``b``
        belongs to the run of its predecessor ``a``; of several arrays, it takes the elements of the one position, then
        those of the other.
    return_index, return_inverse, return_counts : whether to return the index of each run's first element, the number
        of the run that each element of ``x`` belongs to, and the length of each run, too.
    equal_nan : whether NaN equals NaN, as in NumPy.
    dtype : the type of the counts: "int64" or "int32".

    Returns
    -------
    Selected : ``values``, ``count``, and in this order ``indices``, ``inverse``, ``lengths`` as asked. For NumPy arrays
        the values alone, or a tuple of them and what was asked for, as ``numpy.unique`` returns it; ``Selected`` with
        ``axis``, and then runs of ``inverse`` are counted in the row, or with ``packed`` in all.

    Errors: ``cutesync.errors``.
    """
    asked = equal_nan, return_index, return_inverse, return_counts, dtype, axis, packed
    return _runs("unique_consecutive", asked, x, equal, (size, fill_value, out, n), stream)


@repeatable
def run_length_encode(
    x: Any,
    *,
    equal: Callable[..., Any] | None = None,
    equal_nan: bool = True,
    dtype: DTypeLike = "int64",
    axis: int | None = None,
    packed: bool = False,
    size: int | None = None,
    fill_value: Scalar = 0,
    out: Any = None,
    n: Any = None,
    stream: Stream = None,
) -> Any:
    """Return the first element and the length of each run of equal neighbours: ``Selected`` with ``values``, ``count``
    and ``lengths``, or a tuple ``(values, lengths)`` for NumPy arrays. The arguments are those of
    ``unique_consecutive``."""
    asked = equal_nan, False, False, True, dtype, axis, packed
    return _runs("run_length_encode", asked, x, equal, (size, fill_value, out, n), stream)


def _wanted(name: str, count: int, several: bool, *asked: Any) -> Wanted:
    nan, index, inverse, counts, dtype, axis, packed = asked
    kind, nan, rows = _counts(dtype), flag(nan, "equal_nan"), rows_of(axis, packed)
    index, inverse = flag(index, "return_index"), flag(inverse, "return_inverse")
    lengths = kind if flag(counts, "return_counts") else None
    return Wanted(name, count, several, index, True, True, True, inverse, lengths, nan, axis=axis, rows=rows)


def _counts(dtype: Any) -> DType:
    found = parse_dtype(dtype)
    if found not in (BY_NAME["int32"], BY_NAME["int64"]):
        raise ArgumentTypeError(explain("dtype", f"{found}", "'int64' or 'int32'"))
    return found


def _runs(name: str, asked: tuple, x: Any, equal: Any, options: tuple, stream: Any) -> Any:
    xs = arrays_of(x)
    wanted = wanted_by(_wanted, name, len(xs), xs is x, *asked)
    if equal is not None:
        equal = identify(equal, "equal")
        if type(equal) is not Identity:
            raise ArgumentTypeError(explain("equal", shown(equal), "None or a callable"))
        operands = required_parameters(equal.fn)
        if operands not in (0, 2 * len(xs)):
            came = f"a callable of {operands} values"
            raise ArgumentTypeError(explain("equal", came, f"one of {2 * len(xs)}"))
    found = selected(wanted, xs, equal, NO_ARGS, options, stream)
    if type(xs[0]) is not np.ndarray or wanted.rows:
        return found
    return (found.values, *found.more) if found.more else found.values
