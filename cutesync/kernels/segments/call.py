"""Operations on segments of equal consecutive keys, in one pass and without waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...arguments import flag, integer
from ...dtypes import number
from ...runtime.repeat import repeatable
from ...types import Array, DTypeLike, Operator, Scalar, Stream
from ..select.spec import MAX_LENGTH
from ..states import NO_ARGS
from .calls import KeyedCall, Options


@repeatable
def reduce_by_key(
    keys: Any,
    values: Any,
    op: Operator = "add",
    *,
    equal: Callable[..., Any] | None = None,
    equal_nan: bool = True,
    init: Any = None,
    dtype: DTypeLike = None,
    identity: Scalar | tuple | None = None,
    transform: Callable[..., Any] | None = None,
    finish: Callable[..., Any] | None = None,
    out_dtype: DTypeLike = None,
    args: tuple = NO_ARGS,
    size: int | None = None,
    fill_value: Scalar = 0,
    out: Any = None,
    n: Any = None,
    stream: Stream = None,
) -> Any:
    """Combine the ``values`` of each segment of equal consecutive ``keys``, in one pass. The call does not wait.

    Parameters
    ----------
    keys : array of any strides of NumPy (copied to the device, results are copied back), torch, CuPy, DeviceArray,
        DLPack or ``__cuda_array_interface__``; or a tuple of arrays of one size, which are keys of several parts.
        Arrays are flattened in C order.
    values : array of the size of ``keys``, or a tuple of arrays, as ``x`` of ``reduce``.
    op, dtype, identity, transform, finish, out_dtype, args : as for ``reduce`` (``kernels/README.md``, "States"), but
        ``dtype`` is that of ``values`` by default.
    equal : None (equal by value), or a callable ``equal(a, b)``: whether a key ``b`` belongs to the segment of its
        predecessor ``a``. Of several parts, it takes those of the one position, then those of the other.
    equal_nan : whether NaN equals NaN.
    init : None, or a state that comes before the first element of each segment: a number, or a tuple of them.
    size : the length of the results; what lies behind the segments is filled with ``fill_value``. None: they are as
        long as ``keys``, and nothing is filled.
    out : a tuple of arrays of one axis, of any length and stride, that are written instead of new ones: those of the
        keys, then of the results; one more, of int64 and no axes, gets the count. They do not overlap the inputs.
    n : only the first ``n`` positions count: an int, or a 0-d array of int64 on the device.
    stream : None (the current one of the library of ``keys``), a handle as an int, or an object with
        ``__cuda_stream__``.

    Returns
    -------
    Reduced : ``keys`` (the first of each segment), ``values`` and ``count``, a 0-d array of int64 on the device. For
        NumPy arrays, the exact ``(keys, values)``.

    The order of operations depends on lengths and types alone. Errors: ``cutesync.errors``.
    """
    options = Options(False, False, init, dtype, identity, out_dtype)
    limits = None if size is None else integer(size, "size", 0, MAX_LENGTH), number(fill_value, "fill_value")
    call = KeyedCall(("keys", keys), values, op, (transform, finish), args, options, n)
    return call.reduced(equal, equal_nan, limits, stream, out)


@repeatable
def scan_by_key(
    keys: Any,
    values: Any,
    op: Operator = "add",
    *,
    equal: Callable[..., Any] | None = None,
    equal_nan: bool = True,
    exclusive: bool = False,
    reverse: bool = False,
    init: Any = None,
    dtype: DTypeLike = None,
    identity: Scalar | tuple | None = None,
    transform: Callable[..., Any] | None = None,
    finish: Callable[..., Any] | None = None,
    out_dtype: DTypeLike = None,
    args: tuple = NO_ARGS,
    out: Array = None,
    n: Any = None,
    stream: Stream = None,
) -> Any:
    """Scan the ``values`` of each segment of equal consecutive ``keys``, in one pass.

    The arguments are those of ``reduce_by_key``, and ``exclusive``, ``reverse``, ``init`` and ``identity`` those of
    ``scan`` for each segment.

    Returns
    -------
    an array of the library and the size of ``values``, 1-D, or a tuple of arrays as ``scan`` returns.

    Errors: ``cutesync.errors``.
    """
    options = Options(flag(exclusive, "exclusive"), flag(reverse, "reverse"), init, dtype, identity, out_dtype)
    call = KeyedCall(("keys", keys), values, op, (transform, finish), args, options, n)
    return call.scanned(equal, equal_nan, out, stream)
