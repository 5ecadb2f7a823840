"""Discontinuities of an array: head flags, tail flags, and differences between neighbours, in one pass.

A head differs from the item before it, a tail from the item after it; the operator decides what "differs" means. The
meaning is that of ``cub::BlockDiscontinuity``, but along the whole last axis instead of a block's tile.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from ...arguments import exact, flag
from ...dtypes import BOOL, BY_NAME, DType, dtype as parse_dtype, scalar
from ...errors import ArgumentTypeError, ArgumentValueError, explain, shown
from ...identity import identify
from ...ops import COMPARISONS, DIFFERENCES, neighbour_operator
from ...runtime.call import Family, Views, front_end
from ...runtime.view import View
from ...types import A, Array, DTypeLike, Operator, Scalar, Stream
from .plan import plan
from .policy import MAX_PERIOD
from .spec import FlagSpec, Marking


def flag_heads(
    x: A,
    op: Operator = "ne",
    *,
    predecessor: Scalar | None = None,
    dtype: DTypeLike = "uint8",
    tile: int | None = None,
    out: Array = None,
    stream: Stream = None,
) -> A:
    """Flag the items of ``x`` that differ from the item before them, along the last axis.

    Parameters
    ----------
    x : array of at least one axis, C-contiguous, of NumPy (copied to the device, the result is copied back), torch,
        CuPy, DeviceArray, or an object with DLPack or ``__cuda_array_interface__``. Element types: bool, int8..int64,
        uint8..uint64, float16, bfloat16, float32, float64. Each row (along the last axis) is separate.
    op : "ne", "eq", "lt", "le", "gt", "ge", or a callable that the DSL can trace: ``op(a, b)`` or ``op(a, b, index)``,
        true if there is a discontinuity between a and its successor b; ``index`` (Int64) is the index of b in its row.
        A callable gets 16-bit floats as float32, and is called once for each pair of neighbours. Comparisons follow
        IEEE 754: NaN differs from everything, and -0.0 equals 0.0.
    predecessor : a scalar that each row's first item is compared with, as ``op(predecessor, first, 0)``. None: the
        first item is a head, and the operator is not called for it.
    dtype : type of the flags, which are 0 or 1: any integer type, "bool", or "bits" for 32 flags per uint32, the first
        in the lowest bit; a row of n items has ceil(n / 32) words, and the unused bits of the last one are 0.
    tile : cut each row into tiles of this many items (1 to 2**30). Each tile is separate and has indexes of its own, as
        a tile of ``cub::BlockDiscontinuity`` has.
    out : array of the result's shape and type that does not overlap ``x``; it is written and returned. Default: a new
        array of the library of ``x``.
    stream : None (the current stream of the library of ``x``), a handle as an int, or an object with
        ``__cuda_stream__``.

    Returns
    -------
    array of the library and the shape of ``x``; with "bits", the last axis has ceil(n / 32) words.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError, DeviceError, OperatorError, CaptureError, WorkspaceError, NoGpuError,
    LaunchError: ``cutesync.errors`` says when.
    """
    return _call(_arguments("heads", op, predecessor, None, dtype, tile), x, out, stream)


def flag_tails(
    x: A,
    op: Operator = "ne",
    *,
    successor: Scalar | None = None,
    dtype: DTypeLike = "uint8",
    tile: int | None = None,
    out: Array = None,
    stream: Stream = None,
) -> A:
    """Flag the items of ``x`` that differ from the item after them, along the last axis.

    ``successor`` is a scalar that each row's last item is compared with, as ``op(last, successor, n)``, where n is the
    length of the row. None: the last item is a tail, and the operator is not called for it. The other arguments, the
    result and the errors are those of ``flag_heads``.
    """
    return _call(_arguments("tails", op, None, successor, dtype, tile), x, out, stream)


def flag_heads_and_tails(
    x: A,
    op: Operator = "ne",
    *,
    predecessor: Scalar | None = None,
    successor: Scalar | None = None,
    dtype: DTypeLike = "uint8",
    tile: int | None = None,
    out: tuple[Array, Array] | None = None,
    stream: Stream = None,
) -> tuple[A, A]:
    """Return ``(heads, tails)``: the results of ``flag_heads`` and ``flag_tails``, in one pass over ``x``. ``out`` is a
    pair of arrays that do not overlap. The other arguments and the errors are those of both functions."""
    return _call_pair(_arguments("both", op, predecessor, successor, dtype, tile), x, out, stream)


def adjacent_difference(
    x: A, op: Operator = "sub", *, reverse: bool = False, out: Array = None, stream: Stream = None
) -> A:
    """Return ``op(item, item before it)`` along the last axis; each row's first item is copied. With ``reverse``, the
    neighbour is the item after it, and each row's last item is copied.

    Parameters
    ----------
    x, out, stream : as for ``flag_heads``; the result has the type and the shape of ``x``. The errors are the same,
        too.
    op : "sub", "add", "mul", "min", "max", "and", "or", "xor", or a callable of two values. Integers wrap; 16-bit
        floats are computed in float32 and rounded once. "sub" refuses bool.
    reverse : whether the neighbour is the item after it.
    """
    form = "right" if flag(reverse, "reverse") else "left"
    return _call((form, op if type(op) is str else identify(op), None, None, None, None, ()), x, out, stream)


# The arguments of a call except the arrays, in the order in which they are passed to the front end.
Arguments = namedtuple("Arguments", "form op predecessor successor dtype tile exact")


def _arguments(form: str, op: Any, predecessor: Any, successor: Any, dtype: Any, tile: Any) -> tuple:
    if type(op) is not str:
        op = identify(op)
    given = () if predecessor is None and successor is None and tile is None else exact(predecessor, successor, tile)
    return (form, op, predecessor, successor, dtype, tile, given)


def _parse(arguments: tuple, views: Views, out: View | None) -> FlagSpec:
    """Check the arguments against ``x``, and return the Spec of the call."""
    given, x = Arguments(*arguments), views[0]
    if not x.shape:
        raise ArgumentValueError(explain("x", "an array of no axes", "at least one axis", "give x.reshape(1)"))
    if given.form in ("left", "right"):
        op = neighbour_operator(given.op, DIFFERENCES)
        if op.fn is None and op.name == "sub" and x.dtype is BOOL:
            raise ArgumentTypeError(explain("op='sub'", "dtype bool", "a number type", "use op='xor' for bool"))
        op.check(x.dtype)
        return FlagSpec(Marking(given.form, op, x.dtype, x.dtype), x.shape)
    tile = given.tile
    if tile is not None:
        if not isinstance(tile, (int, np.integer)) or isinstance(tile, bool):
            raise ArgumentTypeError(explain("tile", shown(tile), "None or an int"))
        if not 0 < tile <= MAX_PERIOD:
            raise ArgumentValueError(explain("tile", shown(tile), f"1 to {MAX_PERIOD} items"))
        tile = int(tile)
    ends = {
        name: None if end is None else scalar(end, x.dtype, name)
        for name, end in (("predecessor", given.predecessor), ("successor", given.successor))
    }
    op, result = neighbour_operator(given.op, COMPARISONS), _flag_dtype(given.dtype)
    bits = isinstance(given.dtype, str) and given.dtype == "bits"
    has = (end is not None for end in ends.values())
    return FlagSpec(Marking(given.form, op, x.dtype, result, bits, *has), x.shape, **ends, tile=tile)


def _flag_dtype(wanted: Any) -> DType:
    if isinstance(wanted, str) and wanted == "bits":
        return BY_NAME["uint32"]
    found = parse_dtype(wanted)
    if found.kind == "f":
        raise ArgumentTypeError(explain("dtype", f"{found}", "an integer type, 'bool' or 'bits'"))
    return found


_call = front_end(Family("flags", ("x",), _parse, plan))
_call_pair = front_end(Family("flags", ("x",), _parse, plan, outputs=2))
