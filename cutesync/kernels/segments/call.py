"""Operations on segments of equal consecutive keys, in one pass and without waiting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...arguments import exact, flag, integer
from ...dtypes import number, scalar
from ...errors import ArgumentTypeError, ArgumentValueError, explain, shown
from ...identity import Identity, identify
from ...ops import operator, required_parameters
from ...runtime import arrays
from ...runtime.call import Family, Views
from ...runtime.view import View
from ...types import Array, DTypeLike, Operator, Scalar, Stream
from ..count import check, split
from ..scan.spec import start_value
from ..several import Inputs, call_of, inputs_of, operation_of, with_first
from ..states import NO_ARGS, start_of
from .plan import MASK, plan
from .result import Reduced
from .spec import Heads, SegmentsSpec

MAX_LENGTH = 1 << 40  # positions: tiles are counted in 32 bits
MASKS = ("bool", "uint8", "int8")


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
    n: Any = None,
    stream: Stream = None,
) -> Any:
    """Combine the ``values`` of each segment of equal consecutive ``keys``, in one pass. The call does not wait.

    Parameters
    ----------
    keys : C-contiguous array of NumPy (copied to the device, results are copied back), torch, CuPy, DeviceArray, DLPack
        or ``__cuda_array_interface__``; or a tuple of arrays of one size, which are keys of several parts. Arrays are
        flattened.
    values : array of the size of ``keys``, or a tuple of arrays, as ``x`` of ``reduce``.
    op, dtype, identity, transform, finish, out_dtype, args : as for ``reduce`` (``kernels/README.md``, "States"), but
        ``dtype`` is that of ``values`` by default.
    equal : None (equal by value), or a callable ``equal(a, b)``: whether a key ``b`` belongs to the segment of its
        predecessor ``a``. Of several parts, it takes those of the one position, then those of the other.
    equal_nan : whether NaN equals NaN.
    init : None, or a state that comes before the first element of each segment: a number, or a tuple of them.
    size : the length of the results; what lies behind the segments is filled with ``fill_value``. None: they are as
        long as ``keys``, and nothing is filled.
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
    call = _Call(keys, values, op, (transform, finish), args, options, n)
    return call.reduced(equal, equal_nan, limits, stream)


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
    call = _Call(keys, values, op, (transform, finish), args, options, n)
    return call.scanned(equal, equal_nan, out, stream)


class Options(NamedTuple):
    """The plain arguments of a call."""

    exclusive: bool
    reverse: bool
    init: Any
    dtype: Any
    identity: Any
    out_dtype: Any


class Arguments(NamedTuple):
    """What identifies a call, except the arrays. ``heads`` is the number of arrays that say where segments begin,
    ``mask``: it is a mask. ``equal`` is the Identity of a callable or None, ``limits`` are size and fill value."""

    reduced: bool
    op: Any
    callables: tuple
    inputs: Inputs
    options: Options
    heads: int
    mask: bool
    equal: Any
    equal_nan: bool
    limits: tuple
    n: int | None
    exact: tuple


class _Call:
    """The arrays and arguments of a call of ``reduce_by_key`` or ``scan_by_key``; with ``mask``, ``keys`` is one."""

    def __init__(
        self, keys: Any, values: Any, op: Any, callables: tuple, args: tuple, options: Options, n: Any
    ) -> None:
        self.packed = type(keys) is tuple
        self.keys = keys if self.packed else (keys,)
        if not self.keys:
            raise ArgumentValueError(explain("keys", "an empty tuple", "at least one array"))
        inputs, given = inputs_of(values, args, options.dtype, callables[1], options.out_dtype)
        self.alone = not inputs.tuple_out
        inputs, given, init = with_first(inputs, given, options.init)
        on_host = arrays.adapter(given[0]) is arrays.NUMPY
        self.on_host = on_host
        number, count = split(n[()] if on_host and isinstance(n, np.ndarray) and n.shape == () else n)
        if count is not None:
            inputs, given = inputs._replace(counted=True), (*given, count)
        names = tuple(f"keys[{i}]" for i in range(len(self.keys))) if self.packed else ("keys",)
        self.inputs, self.given = inputs._replace(more=names), (*given, *self.keys)
        self.op, self.options, self.n = identify(op), options._replace(init=init), number
        self.callables = tuple(identify(fn, what) for fn, what in zip(callables, ("transform", "finish")))

    def key(self, reduced: bool, equal: Any, equal_nan: Any, limits: tuple, mask: bool = False) -> Arguments:
        """What identifies the call."""
        equal = None if mask else _equal(equal, len(self.keys))
        options, heads = self.options, len(self.keys)
        texts = exact(options.init, options.identity, limits[1])
        nan = flag(equal_nan, "equal_nan")
        return Arguments(
            reduced, self.op, self.callables, self.inputs, options, heads, mask, equal, nan, limits, self.n, texts
        )

    def scanned(self, equal: Any, equal_nan: Any, out: Any, stream: Any, mask: bool = False) -> Any:
        """Make the call: a result for each position."""
        arguments = self.key(False, equal, equal_nan, (None, 0), mask)
        return call_of(_FAMILY, self.inputs, arguments, self.given, out, stream)

    def reduced(self, equal: Any, equal_nan: Any, limits: tuple, stream: Any) -> Any:
        """Make the call: a result for each segment."""
        arguments = self.key(True, equal, equal_nan, limits)
        outputs = self.inputs.outputs + len(self.keys) + 1
        inputs = self.inputs._replace(outputs=outputs, tuple_out=True)
        *found, count = call_of(_FAMILY, inputs, arguments._replace(inputs=self.inputs), self.given, None, stream)
        keys, values = tuple(found[: len(self.keys)]), tuple(found[len(self.keys) :])
        shown = Reduced(keys if self.packed else keys[0], values[0] if self.alone else values, count)
        if not self.on_host:
            return shown
        return shown.exact() if limits[0] is None else (shown.keys, shown.values)


def _equal(equal: Any, parts: int) -> Identity | None:
    if equal is None:
        return None
    equal = identify(equal, "equal")
    if type(equal) is not Identity:
        raise ArgumentTypeError(explain("equal", shown(equal), "None or a callable"))
    operands = required_parameters(equal.fn)
    if operands not in (0, 2 * parts):
        came = f"a callable of {operands} values"
        raise ArgumentTypeError(explain("equal", came, f"one of {2 * parts}"))
    return equal


def _parse(arguments: tuple, views: Views, out: View | None) -> SegmentsSpec:
    """Check the arguments against the arrays, and return the Spec of the call."""
    given = Arguments(*arguments)
    options, heads = given.options, views[len(views) - given.heads :]
    op = operator(given.op, options.identity)
    operation = operation_of(given.inputs, op, views, options.dtype, given.callables, options.out_dtype)
    whole = views[0].size
    for view, name in zip(heads, given.inputs.more):
        if view.size != whole:
            raise ArgumentValueError(explain(name, f"{view.size} elements", f"{whole}, as {given.inputs.names[0]} has"))
    if whole > MAX_LENGTH:
        raise ArgumentValueError(explain(given.inputs.names[0], f"{whole} elements", f"at most {MAX_LENGTH}"))
    check(views[-1 - given.heads] if given.inputs.counted else None)
    size, fill_value = given.limits
    start = start_value(options.init, options.exclusive, options.identity, operation)
    if options.init is None and options.identity is not None:
        start_of(options.identity, "identity", operation)
    spec = SegmentsSpec(
        _heads(given, heads),
        operation,
        whole if given.n is None else min(given.n, whole),
        whole,
        reduced=given.reduced,
        exclusive=options.exclusive,
        reverse=options.reverse,
        start=start,
        counted=given.inputs.counted,
        capacity=whole if size is None else size,
        keyed=not given.mask,
        args=given.inputs.numbers,
    )
    if size is None:
        return spec
    filled = (*spec.keys, *operation.results)
    return replace(spec, fill=tuple(scalar(fill_value, dtype, "fill_value") for dtype in filled))


def _heads(given: Arguments, views: Views) -> Heads:
    if not given.mask:
        fn = None if given.equal is None else given.equal.fn
        return Heads("keys", tuple(view.dtype for view in views), fn, given.equal_nan)
    (view,) = views
    if view.dtype.name not in MASKS:
        raise ArgumentTypeError(explain(given.inputs.more[0], f"an array of {view.dtype}", ", ".join(MASKS)))
    return Heads("mask", (MASK,))


_FAMILY = Family("segments", (), _parse, plan, partial=True)
