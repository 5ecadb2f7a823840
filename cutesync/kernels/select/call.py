"""The elements of arrays that a mask, bits or a callable choose, in order, in one pass and without waiting."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arguments import flag
from ...runtime.repeat import repeatable
from ...types import Array, Scalar, Stream
from ..states import NO_ARGS
from .calls import Wanted, arrays_of, rows_of, selected, wanted_by
from .result import Selected


@repeatable
def select(
    x: Any,
    where: Any,
    *,
    indices: bool = False,
    axis: int | None = None,
    packed: bool = False,
    size: int | None = None,
    fill_value: Scalar = 0,
    out: Any = None,
    n: Any = None,
    args: tuple = NO_ARGS,
    stream: Stream = None,
) -> Selected:
    """Return the elements of ``x`` that ``where`` selects, in order. The call does not wait for the GPU.

    Parameters
    ----------
    x : array of any strides of NumPy (copied to the device, the result is copied back), torch, CuPy, DeviceArray,
        DLPack or ``__cuda_array_interface__``, which is flattened in C order; or a tuple of arrays of one size, which
        are selected together. Element types: bool, int8..int64, uint8..uint64, float16, bfloat16, float32, float64.
    where : an array of bool, uint8 or int8 of the size of ``x``, which selects where it is not 0; an array of
        ceil(size / 32) words of uint32 (with ``axis``, so many for each row), a bit an element, the first in the lowest
        bit (as ``flag_heads`` with ``dtype="bits"`` returns); or a callable that the DSL can trace, of the elements of
        a position (one operand for each array), and of its index (Int64) if it has one parameter more. It gets 16-bit
        floats as float32.
    indices : whether to return the indices of the selected elements (int64), too.
    axis : None, or the axis whose rows are selected from, each by itself: all arrays have one shape, indices are those
        along the axis, and ``n`` counts along it. Results have that shape without the axis, then ``size`` elements.
    packed : with ``axis``, whether results have one axis, with what is selected of all rows one behind the other.
    size : the length of the results; what lies behind the selected elements is filled. If there are more selected
        elements, the results have the first ones. None: the results are as long as ``x``, and nothing is filled.
    fill_value : a number that fills values; indices are filled with -1.
    out : array of any length and stride that is written instead of a new one; a tuple of arrays if ``x`` is one, or
        with ``indices``, whose array comes last. One more, of int64, gets the count. They do not overlap the inputs.
    n : only the first ``n`` elements of ``x`` count, at most all: an int, or a 0-d array of int64 on the device, which
        is read when the kernel runs (the ``count`` of another call, for example).
    args : run-time arguments of the callable: numbers, or arrays of one element on the device.
    stream : None (the current one of the library of ``x``), a handle as an int, or an object with ``__cuda_stream__``.

    Returns
    -------
    Selected : ``values``, ``count`` (a 0-d array of int64 on the device), ``indices``. For NumPy arrays they are exact.
        With ``axis``, ``count`` has a number for each row, and for NumPy arrays rows are filled; with ``packed`` it is
        that of all, and ``offsets`` (int64, an entry more than there are rows) says where each row begins.

    Errors: ``cutesync.errors``.
    """
    xs = arrays_of(x)
    wanted = wanted_by(_selection, len(xs), xs is x, indices, axis, packed)
    return selected(wanted, xs, where, args, (size, fill_value, out, n), stream)


def _selection(count: int, several: bool, indices: Any, axis: Any, packed: Any) -> Wanted:
    rows = rows_of(axis, packed)
    return Wanted("select", count, several, flag(indices, "indices"), True, True, axis=axis, rows=rows)


@repeatable
def compress(
    condition: Any,
    x: Any,
    *,
    size: int | None = None,
    fill_value: Scalar = 0,
    out: Array = None,
    n: Any = None,
    stream: Stream = None,
) -> Any:
    """Return the elements of the flattened ``x`` where ``condition``, an array of bool, uint8 or int8 of at most the
    size of ``x``, is not 0: an array for NumPy arrays, otherwise ``Selected``. The arguments are ``select``'s."""
    found = selected(_COMPRESSION, (x,), condition, NO_ARGS, (size, fill_value, out, n), stream)
    return found.values if type(found.values) is np.ndarray else found


@repeatable
def partition(
    x: Any,
    where: Any,
    *,
    indices: bool = False,
    out: Any = None,
    n: Any = None,
    args: tuple = NO_ARGS,
    stream: Stream = None,
) -> Selected:
    """Return the elements of ``x`` that ``where`` selects, in order, and behind them the others, in order.

    The elements that are selected are counted first, as their number says where the others begin: ``where`` is read
    twice, and with a callable ``x`` is, too. The call does not wait for the GPU.

    Parameters
    ----------
    x, where, args, stream : as for ``select``.
    indices : whether to return the indices of the elements in their new order (int64), too: a stable order of ``x``.
    out : array of one axis, at least of the size of ``x``, that is written instead of a new one; a tuple of arrays if
        ``x`` is one, or with ``indices``, whose array comes last. It does not overlap the inputs.
    n : only the first ``n`` elements of ``x`` count, as for ``select``. What lies behind them in the result is not
        written.

    Returns
    -------
    Selected : ``values``, which has all elements; ``count``, how many of them are selected (a 0-d array of int64 on the
        device); ``indices``. ``len()`` and ``exact()`` are of the selected elements.

    Errors: ``cutesync.errors``.
    """
    xs = arrays_of(x)
    wanted = wanted_by(_partition, len(xs), xs is x, indices)
    return selected(wanted, xs, where, args, (None, 0, out, n), stream)


def _partition(count: int, several: bool, indices: Any) -> Wanted:
    return Wanted("partition", count, several, flag(indices, "indices"), True, True, rejects=True)


_COMPRESSION = Wanted("compress", 1, False, False, True, False)
