"""Where an ordered array changes: head flags, tail flags, and differences between neighbours, of whole arrays in one pass.

A head differs from the item before it, a tail from the item behind it; what "differs" means is the operator's. The meaning is that of
``cub::BlockDiscontinuity``, along the whole last axis instead of a block's tile.
"""

from __future__ import annotations

import numpy as np

from ...arguments import flag, unshowable
from ...dtypes import BOOL, BY_NAME, DType, scalar
from ...dtypes import dtype as parse_dtype
from ...errors import ArgumentTypeError, ArgumentValueError, explain, shown
from ...identity import identify
from ...ops import COMPARISONS, DIFFERENCES, neighbour_operator
from ...runtime.arrays import View
from ...runtime.call import caller, pair_caller
from ...runtime.launch import Launch
from .plan import Marking, make_launch
from .policy import Problem, alignment, check_tile, choose


def flag_heads(x, op="ne", *, predecessor=None, dtype="uint8", tile=None, out=None, stream=None):
    """Flag the items of ``x`` that differ from the item before them, along the last axis.

    Parameters
    ----------
    x : array of at least one axis, C-contiguous; NumPy (copied to the device and the result back), torch, CuPy, DeviceArray, or
        anything with DLPack or ``__cuda_array_interface__``. bool, int8..int64, uint8..uint64, float16, bfloat16, float32, float64.
        Each row (the last axis) starts fresh.
    op : "ne", "eq", "lt", "le", "gt", "ge", or a callable that the DSL can trace: ``op(a, b)`` or ``op(a, b, index)``, true where there
        is a discontinuity between a and the b behind it; ``index`` (Int64) is the place of b in its row. 16-bit floats reach a callable
        as float32. It is called once for each pair of neighbours. Comparisons are IEEE's: a NaN differs from everything, -0.0 from
        nothing that 0.0 does not differ from.
    predecessor : a scalar that each row's first item is compared with, as ``op(predecessor, first, 0)``. None: the first item is a
        head, and the operator is not called for it.
    dtype : type of the flags, which are 0 or 1: any integer type, "bool", or "bits" for 32 flags to a uint32, the first in the lowest
        bit; a row of n has ceil(n / 32) words, and what is left of the last one is 0.
    tile : cut each row into tiles of so many items (1 to 2**30), each of which starts fresh and counts its own index: what a block of
        ``cub::BlockDiscontinuity`` with a tile of that size does.
    out : where to write; right shape and dtype, not overlapping ``x``. Returned. Default: a new array of the library of ``x``.
    stream : None (the current stream of the library of ``x``), an int, or an object with ``__cuda_stream__``.

    Returns
    -------
    array of the library of ``x`` and of its shape ("bits": the last axis shorter).

    Raises
    ------
    ArgumentTypeError, ArgumentValueError, DeviceError, OperatorError, CaptureError, WorkspaceError, NoGpuError.
    """
    return _call(_arguments("heads", op, predecessor, None, dtype, tile), x, out, stream)


def flag_tails(x, op="ne", *, successor=None, dtype="uint8", tile=None, out=None, stream=None):
    """Flag the items of ``x`` that differ from the item behind them, along the last axis.

    As ``flag_heads``, with ``successor`` as the scalar that each row's last item is compared with, as ``op(last, successor, n)``. None:
    the last item is a tail, and the operator is not called for it.
    """
    return _call(_arguments("tails", op, None, successor, dtype, tile), x, out, stream)


def flag_heads_and_tails(
    x, op="ne", *, predecessor=None, successor=None, dtype="uint8", tile=None, out=None, stream=None
):
    """``(heads, tails)``: both kinds of flags in one pass over ``x``. ``out`` is a pair of arrays."""
    return _call_pair(_arguments("both", op, predecessor, successor, dtype, tile), x, out, stream)


def adjacent_difference(x, op="sub", *, reverse=False, out=None, stream=None):
    """``op(item, item before it)`` along the last axis; each row's first item stays as it is. With ``reverse`` the neighbour is the
    item behind, and each row's last item stays.

    Parameters
    ----------
    x, out, stream : as for ``flag_heads``; the result has the type and the shape of ``x``.
    op : "sub", "add", "mul", "min", "max", "and", "or", "xor", or a callable of two values. Integers wrap; 16-bit floats are computed in
        float32 and rounded once. "sub" refuses bool.
    reverse : whether the neighbour is the item behind.
    """
    return _call(
        ("right" if flag(reverse, "reverse") else "left", op if type(op) is str else identify(op), None, None),
        x,
        out,
        stream,
    )


def _arguments(form: str, op, predecessor, successor, dtype, tile) -> tuple:
    if type(op) is not str:
        op = identify(op)
    if predecessor is None and successor is None and tile is None:
        return (form, op, dtype, None)
    try:
        return (
            form,
            op,
            dtype,
            tile,
            predecessor,
            successor,
            repr((predecessor, successor, tile)),
        )  # as keys 1, 1.0 and True are one
    except Exception as error:
        raise unshowable(predecessor, successor, tile) from error


def _result_of(arguments: tuple, view: View) -> tuple[tuple[int, ...], DType]:
    """Shape and type of one output."""
    marking, _, _ = _parse(arguments, view)
    *rows, length = view.shape
    return (*rows, -(-length // 32) if marking.bits else length), marking.result


def _plans_of(arguments: tuple, view: View, outs: tuple, stream: int):
    if view.size == 0:
        return _nothing, False
    return _launch(
        *_parse(arguments, view), view, min((alignment(out.ptr) for out in outs), default=16), stream
    ).run, False


def _plan_of(arguments: tuple, view: View, out: View | None, stream: int):
    return _plans_of(arguments, view, () if out is None else (out,), stream)


_call = caller("flags", _result_of, _plan_of)
_call_pair = pair_caller("flags", _result_of, _plans_of)


def _nothing(x: int, out: int, stream: int, other: int = 0) -> None:
    """The launch of an empty result."""


def _launch(marking: Marking, ends: tuple, tile: int | None, view: View, flag_aligned: int, stream: int) -> Launch:
    length, flag = view.shape[-1], 0 if marking.bits else marking.result.size
    problem = Problem(
        view.size // length, length, tile or length, view.dtype.size, flag, alignment(view.ptr), flag_aligned
    )
    return make_launch(choose(problem), marking, ends, view.device, stream)


def prepared(name: str, view: View, options: dict) -> Launch:
    """The launch of a public call on an array like ``view`` with aligned outputs: what ahead-of-time compilation needs."""
    form = {"flag_heads": "heads", "flag_tails": "tails", "flag_heads_and_tails": "both"}.get(name)
    if form is None:
        arguments = ("right" if options.get("reverse") else "left", options.get("op", "sub"), None, None)
    else:
        ends = (options.get("predecessor"), options.get("successor"))
        arguments = _arguments(form, options.get("op", "ne"), *ends, options.get("dtype", "uint8"), options.get("tile"))
    return _launch(*_parse(arguments, view), view, 16, 0)


def _parse(arguments: tuple, view: View) -> tuple[Marking, tuple, int | None]:
    """The call's arguments, checked against what ``x`` is: what to compute, the scalars at the ends, and the tile."""
    form, op, wanted, tile, *ends = arguments[:6]
    if not view.shape:
        raise ArgumentValueError(explain("x", "an array of no axes", "at least one axis", "give x.reshape(1)"))
    if form in ("left", "right"):
        parsed = neighbour_operator(op, DIFFERENCES)
        if parsed.fn is None and parsed.name == "sub" and view.dtype is BOOL:
            raise ArgumentTypeError(explain("op='sub'", "dtype bool", "a number type", "use op='xor' for bool"))
        parsed.check(view.dtype)
        return Marking(form, parsed, view.dtype, view.dtype), (None, None), None
    if tile is not None:
        if not isinstance(tile, (int, np.integer)) or isinstance(tile, bool):
            raise ArgumentTypeError(explain("tile", shown(tile), "None or an int"))
        check_tile(tile)
    predecessor, successor = ends or (None, None)
    scalars = tuple(
        None if end is None else scalar(end, view.dtype, name)
        for name, end in (("predecessor", predecessor), ("successor", successor))
    )
    parsed, result = neighbour_operator(op, COMPARISONS), _flag_dtype(wanted)
    bits = isinstance(wanted, str) and wanted == "bits"
    return (
        Marking(form, parsed, view.dtype, result, bits, predecessor is not None, successor is not None),
        scalars,
        None if tile is None else int(tile),
    )


def _flag_dtype(wanted) -> DType:
    if isinstance(wanted, str) and wanted == "bits":
        return BY_NAME["uint32"]
    found = parse_dtype(wanted)
    if found.kind == "f":
        raise ArgumentTypeError(explain("dtype", f"{found}", "an integer type, 'bool' or 'bits'"))
    return found
