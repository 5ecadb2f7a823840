"""Calls by segments: their arrays and arguments, what identifies them, and the Spec of each."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, NamedTuple

from ...arguments import exact, flag
from ...dtypes import scalar
from ...errors import ArgumentTypeError, ArgumentValueError, explain, shown
from ...identity import Identity, identify
from ...ops import operator, required_parameters
from ...runtime import arrays
from ...runtime.call import Family, Views
from ...runtime.view import View
from ..count import check, split
from ..layouts import strided
from ..scan.spec import start_value
from ..select.spec import MAX_LENGTH
from ..several import Inputs, call_of, inputs_of, operation_of, with_first
from ..states import States, start_of
from .plan import MASK, plan
from .result import Reduced
from .spec import Heads, SegmentsSpec

MASKS = ("bool", "uint8", "int8")
OFFSETS = ("int64", "int32", "uint32")


class Options(NamedTuple):
    """The plain arguments of a call."""

    exclusive: bool
    reverse: bool
    init: Any
    dtype: Any
    identity: Any
    out_dtype: Any


class Arguments(NamedTuple):
    """What identifies a call, except the arrays. ``kind`` says what the last ``heads`` arrays are: "keys", "heads" (a
    mask), "offsets", "lengths" (where each segment ends), or "ranges" (where each begins, and where each ends if they
    are put one after the other). ``equal`` is the Identity of a callable or None,
    ``limits`` are size, fill value and the shape of ``out``."""

    kind: str
    reduced: bool
    keyed: bool
    op: Any
    callables: tuple
    inputs: Inputs
    options: Options
    heads: int
    equal: Any
    equal_nan: bool
    limits: tuple
    n: int | None
    exact: tuple


class Call:
    """The arrays and arguments of a call; ``heads`` is an array of ``kind``, or a tuple of keys. ``name`` is that of
    the argument ``values`` in messages."""

    name = "x"

    def __init__(
        self, where: tuple[str, Any], values: Any, op: Any, callables: tuple, args: tuple, options: Options, n: Any
    ) -> None:
        self.kind, heads = where
        self.packed = type(heads) is tuple
        self.heads = heads if self.packed else (heads,)
        if not self.heads:
            raise ArgumentValueError(explain(self.kind, "an empty tuple", "at least one array"))
        inputs, given = inputs_of(values, args, options.dtype, callables[1], options.out_dtype, self.name)
        self.alone = not inputs.tuple_out
        if options.init is not None:
            inputs, given, init = with_first(inputs, given, options.init)
            options = options._replace(init=init)
        self.on_host = arrays.adapter(given[0], inputs.names[0]) is arrays.NUMPY
        self.n, count = split(n, self.on_host)
        given = given if count is None else (*given, count)
        self.inputs = _with_heads(inputs, count is not None, self.kind, len(self.heads), self.packed)
        self.given, self.op, self.options = (*given, *self.heads), identify(op), options
        self.callables = identify(callables[0], "transform"), identify(callables[1], "finish")

    def key(self, reduced: bool, equal: Any, equal_nan: Any, limits: tuple, keyed: bool = False) -> Arguments:
        """What identifies the call."""
        equal = _equal(equal, len(self.heads))
        operation = self.op, self.callables, self.inputs, self.options
        texts = exact(self.options.init, self.options.identity, limits[1])
        nan = flag(equal_nan, "equal_nan")
        return Arguments(self.kind, reduced, keyed, *operation, len(self.heads), equal, nan, limits, self.n, texts)

    def scanned(self, equal: Any, equal_nan: Any, out: Any, stream: Any) -> Any:
        """Make the call: a result for each position."""
        key = self.key(False, equal, equal_nan, (None, 0, None))
        return call_of(_FAMILY, self.inputs, key, self.given, out, stream)

    def reduced_by_offsets(self, out: Any, stream: Any) -> Any:
        """Make the call: a result for each segment, of which the host knows the number."""
        return call_of(_FAMILY, self.inputs, self.key(True, None, True, (None, 0, None)), self.given, out, stream)

    def reduced(
        self, equal: Any, equal_nan: Any, limits: tuple, stream: Any, out: Any = None, keyed: bool = True
    ) -> Any:
        """Make the call: a result for each segment, as many as the kernel finds; the first of its keys with keys.
        ``limits`` are size and fill value. ``keyed``: keys are written, too."""
        keyed = keyed and self.kind == "keys"
        count = len(self.heads) if keyed else 0
        inputs, room = _with_results(self.inputs, count + 1), None
        if out is not None:
            out = _outs(out, inputs.outputs)
            room = arrays.view_of(out[0], "out").shape[0:1]
        arguments = self.key(True, equal, equal_nan, (*limits, room), keyed)
        *found, total = call_of(_COUNTING, inputs, arguments, self.given, out, stream)
        keys, values = tuple(found[:count]), tuple(found[count:])
        own = values[0] if self.alone else values
        shown = Reduced(keys if self.packed else keys[0] if keys else None, own, total)
        if not self.on_host:
            return shown
        return shown.exact() if limits[0] is None else (shown.keys, shown.values)


class KeyedCall(Call):
    """A call by key."""

    name = "values"


@functools.lru_cache(maxsize=1024)
def _with_heads(inputs: Inputs, counted: bool, kind: str, count: int, several: bool) -> Inputs:
    """Return the inputs with the arrays that say where segments begin."""
    name = "offsets" if kind == "ranges" else kind
    names = tuple(f"{name}[{i}]" for i in range(count)) if several else (name,)
    return inputs._replace(counted=counted, more=names)


@functools.lru_cache(maxsize=1024)
def _with_results(inputs: Inputs, more: int) -> Inputs:
    """Return the inputs of a call that has so many results more."""
    return inputs._replace(outputs=inputs.outputs + more, tuple_out=True)


def _outs(out: Any, count: int) -> tuple:
    """Return the arrays of ``out``, the last of which is that of the count, or None."""
    if not isinstance(out, (tuple, list)) or not count - 1 <= len(out) <= count:
        allowed = f"a tuple of {count - 1} arrays, and that of the count, if wanted"
        raise ArgumentTypeError(explain("out", f"a {type(out).__name__}", allowed))
    return tuple(out) if len(out) == count else (*out, None)


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
    options, views_of_heads = given.options, views[len(views) - given.heads :]
    op = operator(given.op, options.identity)
    operation = operation_of(given.inputs, op, views, options.dtype, given.callables, options.out_dtype)
    whole = views[0].size
    heads, segments = _heads(given, views_of_heads, whole)
    read = (*(() if heads.by_offsets else views_of_heads), *views[: given.inputs.arrays])
    if whole + segments > MAX_LENGTH:
        raise ArgumentValueError(explain(given.inputs.names[0], f"{whole} elements", f"at most {MAX_LENGTH}"))
    check(views[-1 - given.heads] if given.inputs.counted else None)
    size, fill_value, room = given.limits
    capacity = whole if size is None else size
    if room is not None and size is None:
        capacity = room[0] if room else 0  # results of no axes are refused as such
    start = start_value(options.init, options.exclusive, options.identity, operation)
    nothing = None if options.identity is None else start_of(options.identity, "identity", operation)
    by_offsets = heads.by_offsets and given.reduced
    counted = segments if heads.by_offsets else whole  # what ``n`` counts
    counted = counted if given.n is None else min(given.n, counted)
    spec = SegmentsSpec(
        heads,
        operation,
        whole if heads.by_offsets else counted,
        whole,
        reduced=given.reduced,
        exclusive=options.exclusive,
        reverse=options.reverse,
        start=start,
        counted=given.inputs.counted,
        capacity=segments if by_offsets else capacity,
        keyed=given.keyed,
        args=given.inputs.numbers,
        segments=counted if heads.by_offsets else 0,
        nothing=_nothing(operation, start or nothing) if by_offsets else None,
        strided=strided(read) if whole else None,
        zeroed=heads.kind == "ranges" and not given.reduced and out is None,
    )
    if size is None:
        return spec
    filled = (*spec.keys, *operation.results)
    return replace(spec, fill=tuple(scalar(fill_value, dtype, "fill_value") for dtype in filled))


def _nothing(operation: States, given: tuple | None) -> tuple:
    """Return the state of a segment without elements."""
    found = operation.identity() if given is None else given
    if found is None:
        came = f"{operation.name!r}, which has no identity"
        raise ArgumentValueError(explain("op", came, "a result of empty segments", "give init= or identity="))
    return start_of(found, "identity", operation)


def _heads(given: Arguments, views: Views, whole: int) -> tuple[Heads, int]:
    """Return where segments begin, and how many there are if the host knows."""
    if given.kind == "ranges":
        begins, _ = views
        return Heads("ranges", (), offsets=begins.dtype), begins.size
    if given.kind in ("offsets", "lengths"):
        (view,) = views
        if view.dtype.name not in OFFSETS:
            raise ArgumentTypeError(explain(given.kind, f"an array of {view.dtype}", ", ".join(OFFSETS)))
        ends = given.kind == "lengths"
        if view.size == 0 and not ends:
            raise ArgumentValueError(explain("offsets", "an empty array", "an entry more than there are segments"))
        if not view.contiguous and len(view.shape) != 1:
            raise ArgumentValueError(explain(given.kind, f"strides {view.steps}", "an array of one axis"))
        stepped = not view.contiguous
        return Heads("offsets", (), offsets=view.dtype, ends=ends, stepped=stepped), view.size - (not ends)
    for view, name in zip(views, given.inputs.more):
        if view.size != whole:
            raise ArgumentValueError(explain(name, f"{view.size} elements", f"{whole}, as {given.inputs.names[0]} has"))
    if given.kind == "keys":
        fn = None if given.equal is None else given.equal.fn
        return Heads("keys", tuple(view.dtype for view in views), fn, given.equal_nan), 0
    (view,) = views
    if view.dtype.name not in MASKS:
        raise ArgumentTypeError(explain("heads", f"an array of {view.dtype}", ", ".join(MASKS)))
    return Heads("mask", (MASK,)), 0


_FAMILY = Family("segments", (), _parse, plan, partial=True, strided=True)
_COUNTING = _FAMILY._replace(counting=True)
