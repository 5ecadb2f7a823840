"""Scans (prefix sums, with any operator) along any axis, in one launch.

``scan`` is the general call; ``cumsum cumprod`` are NumPy's names with NumPy's promotion. The operator must be
associative. Operands keep their order, so it need not be commutative, and the result is bitwise the same in every run
and on every GPU.
"""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np

from ...arguments import choice, exact, flag
from ...dtypes import PROMOTED, DType, result_dtype, scalar
from ...errors import ArgumentTypeError, ArgumentValueError, DeviceError, explain
from ...identity import identify
from ...ops import operator
from ...runtime import arrays
from ...runtime.call import Family, Views, front_end
from ...runtime.view import View
from ...types import A, Array, DTypeLike, Operator, Scalar, Stream
from ..count import split
from ..states import NO_ARGS, Single
from .plan import plan
from .several import Options, scan_states
from .spec import IN_MEMORY, ScanSpec, along, counted, start_rows, start_value

NAMES = ("add", "mul", "min", "max", "and", "or", "xor")


def scan(
    x: A,
    op: Operator = "add",
    *,
    axis: int | None = -1,
    exclusive: bool = False,
    reverse: bool = False,
    init: Scalar | Array = None,
    dtype: DTypeLike = None,
    identity: Scalar | tuple | None = None,
    transform: Callable[..., Any] | None = None,
    finish: Callable[..., Any] | None = None,
    out_dtype: DTypeLike = None,
    args: tuple = NO_ARGS,
    out: Array = None,
    n: int | Array = None,
    algorithm: str = "auto",
    stream: Stream = None,
) -> A:
    """Scan ``x`` along ``axis`` with an associative operator: ``out[i]`` combines ``x[0] ... x[i]``.

    Parameters
    ----------
    x : array of any strides of NumPy (copied to the device, the result is copied back), torch, CuPy, DeviceArray,
        DLPack or ``__cuda_array_interface__``; bool, int8..int64, uint8..uint64, float16, bfloat16, float32, float64.
        Or a tuple of arrays of one shape (``kernels/README.md``).
    op : "add", "mul", "min", "max", "and", "or", "xor", or a callable of two scalars that the DSL can trace. In ``op(a,
        b)``, ``a`` comes from lower indexes in both directions. NaN propagates through min and max, as in NumPy.
    axis : an int; negative counts from the end. None scans the flattened array.
    exclusive : whether ``out[i]`` leaves out ``x[i]``: the first result is ``init``, else the operator's identity.
    reverse : whether ``out[i]`` combines ``x[i] ... x[n-1]``, so that the scan begins at the last element.
    init : a scalar, or an array of the result's type beside ``x``, that comes before the first element (in reverse:
        after the last). An array has one element, or one for each row: its shape broadcasts to that of ``x`` without
        the axis. It is read when the kernel runs, and must not overlap ``out``.
    dtype : type of the operation and the result; default: that of ``x``. 16-bit floats use float32, and round once.
    identity : the first result of an exclusive scan if ``op`` is a callable and there is no ``init``.
    transform, finish, out_dtype, args : see ``kernels/README.md``, "States".
    out : array of any strides that is written and returned: ``x`` itself, or it does not overlap ``x``.
    n : only the first ``n`` positions count: an int, or a 0-d array of int64 on the device (``kernels/README.md``).
    algorithm : "auto", or for comparison the slower "tiered" of the last axis (``patterns.tiered_scan``).
    stream : None (the current one of the library of ``x``), a handle as an int, or an object with ``__cuda_stream__``.

    Returns
    -------
    array of the library and the shape of ``x`` (1-D if ``axis`` is None), new ones C-contiguous.

    Errors: ``cutesync.errors``. The method is CUB's scan with decoupled look-ahead (after Merrill and Garland 2016).
    """
    if type(exclusive) is not bool or type(reverse) is not bool:  # 1 and True are equal as keys
        exclusive, reverse = flag(exclusive, "exclusive"), flag(reverse, "reverse")
    states = transform is not None or finish is not None or out_dtype is not None or args is not NO_ARGS
    if states or type(x) is tuple or type(dtype) is tuple:
        options = Options(axis, exclusive, reverse, init, dtype, identity, out_dtype)
        return scan_states(x, op, (transform, finish), args, options, out, stream, n)
    op = op if type(op) is str else identify(op)
    init, n, others = (init, n, ()) if n is None and _is_number(init) else _in_memory(init, n, x)
    given: tuple = (op, axis, exclusive, reverse, init, dtype, identity, algorithm, n)
    if type(axis) is not int or axis != -1 or init is not None or identity is not None:
        given = (*given, exact(axis, init, identity))
    return _call(given, x, out, stream, others)


def cumsum(
    x: A,
    axis: int | None = None,
    *,
    dtype: DTypeLike = None,
    out: Array = None,
    n: int | Array = None,
    stream: Stream = None,
) -> A:
    """Return the running sum along ``axis``, or of the flattened array if it is None. Without ``dtype``, bool and
    integers widen to 64 bits and floats keep their type, as in NumPy. Arguments and errors are those of ``scan``."""
    return scan(x, "add", axis=axis, dtype=PROMOTED if dtype is None else dtype, out=out, n=n, stream=stream)


def cumprod(
    x: A,
    axis: int | None = None,
    *,
    dtype: DTypeLike = None,
    out: Array = None,
    n: int | Array = None,
    stream: Stream = None,
) -> A:
    """Return the running product along ``axis``, or of the flattened array if it is None. Without ``dtype``, bool and
    integers widen to 64 bits and floats keep their type, as in NumPy. Arguments and errors are those of ``scan``."""
    return scan(x, "mul", axis=axis, dtype=PROMOTED if dtype is None else dtype, out=out, n=n, stream=stream)


def _is_number(init: Any) -> bool:
    return init is None or isinstance(init, (bool, int, float, np.generic))


def _in_memory(init: Any, n: Any, x: Any) -> tuple[Any, int | None, tuple]:
    """Return what the key has of ``init`` and of ``n``, and the inputs after ``x``."""
    n, count = split(n)
    others: tuple = ()
    if not _is_number(init):
        others, init = (_device_scalar(init, x),), IN_MEMORY
    return init, n, others if count is None else (*(others or (None,)), count)


def _device_scalar(init: Any, x: Any) -> Any:
    """Return ``init`` if both it and ``x`` are arrays on a device, or it is one of several elements beside a NumPy
    array; raise otherwise."""
    on_host = arrays.adapter(x) is arrays.NUMPY
    if on_host and isinstance(init, np.ndarray) and init.size > 1:
        return init
    if arrays.adapter(init, "init") is arrays.NUMPY:
        allowed = "a scalar, or an array of one element on the device of x"
        error = ArgumentTypeError if on_host else DeviceError
        raise error(explain("init", "a NumPy array", allowed, "give init.item()"))
    if on_host:
        raise DeviceError(explain("init", "an array on a device, for a NumPy x", "a scalar"))
    return init


# The arguments of ``scan`` except the arrays, in the order in which they are passed to the front end.
Arguments = namedtuple("Arguments", "op axis exclusive reverse init dtype identity algorithm n exact", defaults=[()])


def _parse(arguments: tuple, views: Views, out: View | None) -> ScanSpec:
    """Check the arguments against the arrays, and return the Spec of the call."""
    given, (x, first, count) = Arguments(*arguments), views
    what = along(given.axis, x.shape)
    usual = type(given.op) is str and given.identity is None and (given.dtype is None or given.dtype is PROMOTED)
    operation = (_usual if usual else _operation)(given.op, given.identity, given.dtype, x.dtype)
    result = operation.output
    if given.identity is not None:
        scalar(given.identity, operation.accumulate, "identity")
    init = None if given.init is IN_MEMORY else given.init
    start = None if first is not None else start_value(init, given.exclusive, given.identity, operation)
    rows = None if first is None or first.size == 1 else start_rows(first, what, result)
    if first is not None and rows is None:
        _check_first(first, result)
    choice(given.algorithm, "algorithm", ("auto", "tiered"))
    return ScanSpec(
        operation=operation,
        exclusive=given.exclusive,
        reverse=given.reverse,
        start=start,
        start_in_memory=first is not None and rows is None,
        start_rows=rows,
        algorithm=given.algorithm,
        **what,
        **counted(given.n, count),
    )


def _operation(op: Any, identity: Any, wanted: Any, source: DType) -> Single:
    parsed = operator(op, identity)
    if parsed.fn is None and parsed.name not in NAMES:
        raise ArgumentValueError(
            explain("op", repr(parsed.name), "one of " + ", ".join(NAMES) + ", or a callable of two values")
        )
    result = result_dtype(source, wanted)
    parsed.check(result)
    return Single(parsed, source, result.accumulator, result)


_usual = functools.cache(_operation)  # of a named operator: what an object knows of itself is found once


def _check_first(first: View, result: DType) -> None:
    if first.dtype is not result:
        raise ArgumentTypeError(explain("init", f"an array of {first.dtype}", f"one of {result}, the result's type"))


_call = front_end(Family("scan", ("x", "init", "n"), _parse, plan, strided=True))
