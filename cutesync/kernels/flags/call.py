"""Discontinuities of an array: head flags, tail flags, and differences between neighbours, in one pass.

A head differs from the item before it, a tail from the item after it; the operator decides what "differs" means. The
meaning is that of ``cub::BlockDiscontinuity``, but along a whole axis of an array instead of a block's tile.
"""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...arguments import exact, flag, whole
from ...dtypes import BOOL, BY_NAME, DType, dtype as parse_dtype, scalar
from ...errors import ArgumentTypeError, ArgumentValueError, explain, shown
from ...identity import identify
from ...ops import COMPARISONS, DIFFERENCES, neighbour_operator
from ...runtime.call import Family, Views, front_end
from ...runtime.view import View
from ...types import A, Array, DTypeLike, Operator, Scalar, Stream
from .. import args as args_of, count
from ..states import NO_ARGS, Argument, typed
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
    axis: int = -1,
    args: tuple = NO_ARGS,
    n: int | Array = None,
    out: Array = None,
    stream: Stream = None,
) -> A:
    """Flag the items of ``x`` that differ from the item before them, along an axis.

    Parameters
    ----------
    x : array of at least one axis, with any strides, of NumPy (copied to the device, the result is copied back), torch,
        CuPy, DeviceArray, or an object with DLPack or ``__cuda_array_interface__``. Element types: bool, int8..int64,
        uint8..uint64, float16, bfloat16, float32, float64. Each row (the items along the axis) is separate.
    op : "ne", "eq", "lt", "le", "gt", "ge", or a callable that the DSL can trace: ``op(a, b)`` or ``op(a, b, index)``,
        true if there is a discontinuity between a and its successor b; ``index`` (Int64) is the index of b in its row.
        A callable gets 16-bit floats as float32, and is called once for each pair of neighbours. Comparisons follow
        IEEE 754: NaN differs from everything, and -0.0 equals 0.0.
    predecessor : a scalar that each row's first item is compared with, as ``op(predecessor, first, 0)``. None: the
        first item is a head, and the operator is not called for it.
    dtype : type of the flags, which are 0 or 1: any integer type, "bool", or "bits" for 32 flags per uint32, the first
        in the lowest bit; a row of k items has ceil(k / 32) words, and the unused bits of the last one are 0.
    tile : cut each row into tiles of this many items (1 to 2**30). Each tile is separate and has indexes of its own, as
        a tile of ``cub::BlockDiscontinuity`` has.
    axis : the axis whose items are compared with their neighbours. Default: the last.
    args : run-time arguments of a callable, behind its other arguments: ``op(a, b, *args)`` or ``op(a, b, index,
        *args)``. Numbers, or arrays of one element on the device; other values neither compile nor plan anything again.
    n : only the first n items along the axis count, in every row: an int, or a 0-d array of int64 on the device, which
        the call reads there without waiting. It is clamped to 0 and the length of the axis. Item n - 1 is the last of
        its row. Results from place n on are not written (bits from n on in the last word that is written are 0), so
        those of a new array are undefined.
    out : array of the result's shape and type, with any strides, that does not overlap ``x``; it is written and
        returned. Default: a new C-contiguous array of the library of ``x``.
    stream : None (the current stream of the library of ``x``), a handle as an int, or an object with
        ``__cuda_stream__``.

    Returns
    -------
    array of the library and the shape of ``x``; with "bits", an axis of k items becomes one of ceil(k / 32) words.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError, DeviceError, OperatorError, CaptureError, WorkspaceError, NoGpuError,
    LaunchError: ``cutesync.errors`` says when.
    """
    return _make(_call, _arguments("heads", op, predecessor, None, dtype, tile), x, axis, args, n, out, stream)


def flag_tails(
    x: A,
    op: Operator = "ne",
    *,
    successor: Scalar | None = None,
    dtype: DTypeLike = "uint8",
    tile: int | None = None,
    axis: int = -1,
    args: tuple = NO_ARGS,
    n: int | Array = None,
    out: Array = None,
    stream: Stream = None,
) -> A:
    """Flag the items of ``x`` that differ from the item after them, along an axis.

    ``successor`` is a scalar that each row's last item is compared with, as ``op(last, successor, k)``, where k is the
    number of items of the row that count. None: the last item is a tail, and the operator is not called for it. The
    other arguments, the result and the errors are those of ``flag_heads``.
    """
    return _make(_call, _arguments("tails", op, None, successor, dtype, tile), x, axis, args, n, out, stream)


def flag_heads_and_tails(
    x: A,
    op: Operator = "ne",
    *,
    predecessor: Scalar | None = None,
    successor: Scalar | None = None,
    dtype: DTypeLike = "uint8",
    tile: int | None = None,
    axis: int = -1,
    args: tuple = NO_ARGS,
    n: int | Array = None,
    out: tuple[Array, Array] | None = None,
    stream: Stream = None,
) -> tuple[A, A]:
    """Return ``(heads, tails)``: the results of ``flag_heads`` and ``flag_tails``, in one pass over ``x``. ``out`` is a
    pair of arrays that do not overlap. The other arguments and the errors are those of both functions."""
    return _make(_call_pair, _arguments("both", op, predecessor, successor, dtype, tile), x, axis, args, n, out, stream)


def adjacent_difference(
    x: A,
    op: Operator = "sub",
    *,
    reverse: bool = False,
    axis: int = -1,
    args: tuple = NO_ARGS,
    n: int | Array = None,
    out: Array = None,
    stream: Stream = None,
) -> A:
    """Return ``op(item, item before it)`` along an axis; each row's first item is copied. With ``reverse``, the
    neighbour is the item after it, and each row's last item is copied.

    Parameters
    ----------
    x, axis, args, n, out, stream : as for ``flag_heads``, any strides included; the result has the type and the shape
        of ``x``. The errors are the same, too.
    op : "sub", "add", "mul", "min", "max", "and", "or", "xor", or a callable of two values. Integers wrap; 16-bit
        floats are computed in float32 and rounded once. "sub" refuses bool.
    reverse : whether the neighbour is the item after it.
    """
    form = "right" if flag(reverse, "reverse") else "left"
    arguments = form, op if type(op) is str else identify(op), None, None, None, None, ()
    return _make(_call, arguments, x, axis, args, n, out, stream)


# The arguments of a call except the arrays, in the order in which they are passed to the front end. ``kinds`` are those
# of ``args.split``.
Arguments = namedtuple(
    "Arguments", "form op predecessor successor dtype tile exact axis counted n kinds", defaults=[NO_ARGS]
)


def _arguments(form: str, op: Any, predecessor: Any, successor: Any, dtype: Any, tile: Any) -> tuple:
    if type(op) is not str:
        op = identify(op)
    given = () if predecessor is None and successor is None and tile is None else exact(predecessor, successor, tile)
    return (form, op, predecessor, successor, dtype, tile, given)


def _make(call: Any, arguments: tuple, x: Any, axis: Any, args: Any, n: Any, out: Any, stream: Any) -> Any:
    """Make a call; ``arguments`` lack the axis, ``args`` and ``n``."""
    axis = axis if type(axis) is int else whole(axis, "axis")
    if n is None and args is NO_ARGS:
        return call((*arguments, axis, False, None), x, out, stream)
    number, array = count.split(n)
    kinds, others = args_of.split(args)
    others += () if array is None else (array,)
    partial = with_more(call is _call_pair, kinds, n is not None, array is not None)
    return partial((*arguments, axis, n is not None, number, kinds), x, out, stream, others)


@functools.lru_cache(maxsize=256)
def with_more(pair: bool, kinds: tuple, counted: bool, in_memory: bool) -> Callable:
    """Return the front end of calls with run-time arguments of these ``kinds``, or ``n``."""
    names = tuple(f"args[{i}]" for i, kind in enumerate(kinds) if kind is None)
    places = tuple(1 + i for i, kind in enumerate(kinds) if kind is not None)
    family = _pair if pair else _family
    family = family._replace(inputs=("x", *names, *(("n",) if in_memory else ())), partial=counted)
    if places:
        family = family._replace(plan=args_of.plan_with_numbers(plan, places, lambda spec: spec.marking.args))
    return front_end(family)


def _parse(arguments: tuple, views: Views, out: View | None) -> FlagSpec:
    """Check the arguments against ``x``, and return the Spec of the call."""
    given, x = Arguments(*arguments), views[0]
    if not x.shape:
        raise ArgumentValueError(explain("x", "an array of no axes", "at least one axis", "give x.reshape(1)"))
    rank = len(x.shape)
    if not -rank <= given.axis < rank:
        raise ArgumentValueError(explain("axis", shown(given.axis), f"{-rank} to {rank - 1}"))
    memory = iter(views[1:])
    args = _parse_args(given, x, memory)
    count.check(next(memory, None))
    where: dict[str, Any] = {"axis": given.axis % rank, "counted": given.counted, "n": given.n}
    if given.form in ("left", "right"):
        op = neighbour_operator(given.op, DIFFERENCES)
        if op.fn is None and op.name == "sub" and x.dtype is BOOL:
            raise ArgumentTypeError(explain("op='sub'", "dtype bool", "a number type", "use op='xor' for bool"))
        op.check(x.dtype)
        return FlagSpec(Marking(given.form, op, x.dtype, x.dtype, args=args), x.shape, **where)
    tile = given.tile
    if tile is not None:
        if not isinstance(tile, (int, np.integer)) or isinstance(tile, bool):
            raise ArgumentTypeError(explain("tile", shown(tile), "None or an int"))
        if not 0 < tile <= MAX_PERIOD:
            raise ArgumentValueError(explain("tile", shown(tile), f"1 to {MAX_PERIOD} items"))
        tile = int(tile)
    ends: dict[str, Any] = {
        name: None if end is None else scalar(end, x.dtype, name)
        for name, end in (("predecessor", given.predecessor), ("successor", given.successor))
    }
    op, result = neighbour_operator(given.op, COMPARISONS), _flag_dtype(given.dtype)
    bits = isinstance(given.dtype, str) and given.dtype == "bits"
    before, behind = (end is not None for end in ends.values())
    marking = Marking(given.form, op, x.dtype, result, bits, before, behind, args)
    return FlagSpec(marking, x.shape, **where, **ends, tile=tile)


def _parse_args(given: Arguments, x: View, memory: Iterator[View]) -> tuple[Argument, ...]:
    """Return the run-time arguments; ``memory`` has the arrays of one element, first of all."""
    if given.kinds and isinstance(given.op, str):
        came = f"{len(given.kinds)} values with op={given.op!r}"
        raise ArgumentTypeError(explain("args", came, "args only with a callable op"))
    names = (f"args[{i}]" for i, kind in enumerate(given.kinds) if kind is None)
    numbers, _ = args_of.alike(given.kinds)
    return typed(args_of.read(numbers, ((next(memory), name) for name in names)), (x.dtype.accumulator,))


def _flag_dtype(wanted: Any) -> DType:
    if isinstance(wanted, str) and wanted == "bits":
        return BY_NAME["uint32"]
    found = parse_dtype(wanted)
    if found.kind == "f":
        raise ArgumentTypeError(explain("dtype", f"{found}", "an integer type, 'bool' or 'bits'"))
    return found


_family = Family("flags", ("x",), _parse, plan, strided=True)
_pair = _family._replace(outputs=2)
_call, _call_pair = front_end(_family), front_end(_pair)
