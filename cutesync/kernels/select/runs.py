"""Runs of equal neighbours: their elements, where they begin, how long they are, which one an element belongs to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...arguments import flag
from ...dtypes import BY_NAME, DType, dtype as parse_dtype
from ...errors import ArgumentTypeError, ArgumentValueError, explain, shown
from ...identity import Identity, identify
from ...ops import required_parameters
from ...types import DTypeLike, Scalar, Stream
from ..states import NO_ARGS
from .calls import Wanted, rows_of, selected


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
    asked = {"return_index": return_index, "return_inverse": return_inverse, "return_counts": return_counts}
    index, inverse, counts = (flag(value, name) for name, value in asked.items())
    rows = axis, rows_of(axis, packed)
    lengths = _counts(dtype)
    wanted = _wanted("unique_consecutive", x, equal_nan, (index, inverse, lengths if counts else None), rows)
    return _runs(wanted, x, equal, (size, fill_value, out, n), stream)


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
    rows = axis, rows_of(axis, packed)
    wanted = _wanted("run_length_encode", x, equal_nan, (False, False, _counts(dtype)), rows)
    return _runs(wanted, x, equal, (size, fill_value, out, n), stream)


def _wanted(name: str, x: Any, equal_nan: Any, asked: tuple[bool, bool, DType | None], rows: tuple) -> Wanted:
    several, nan, (index, inverse, counts) = type(x) is tuple, flag(equal_nan, "equal_nan"), asked
    wanted = Wanted(name, len(x) if several else 1, several, index, True, True, True, inverse, counts, nan)
    return wanted._replace(axis=rows[0], rows=rows[1])


def _counts(dtype: Any) -> DType:
    found = parse_dtype(dtype)
    if found not in (BY_NAME["int32"], BY_NAME["int64"]):
        raise ArgumentTypeError(explain("dtype", f"{found}", "'int64' or 'int32'"))
    return found


def _runs(wanted: Wanted, x: Any, equal: Any, options: tuple, stream: Any) -> Any:
    xs = x if wanted.packed else (x,)
    if not xs:
        raise ArgumentValueError(explain("x", "an empty tuple", "at least one array"))
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
