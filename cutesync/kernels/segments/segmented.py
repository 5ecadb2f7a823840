"""Reductions and scans of segments that offsets, lengths, heads or keys give."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...arguments import flag
from ...errors import ArgumentTypeError, ArgumentValueError, explain
from ...runtime import arrays
from ...runtime.repeat import repeatable
from ...types import Array, DTypeLike, Operator, Scalar, Stream
from ..scan import cumsum, scan
from ..select import Selected
from ..states import NO_ARGS
from .calls import OFFSETS, Call, Options
from .lengths import ends_on_host, offsets_on_host


@repeatable
def segmented_reduce(
    x: Any,
    op: Operator = "add",
    *,
    offsets: Any = None,
    lengths: Array = None,
    heads: Array = None,
    keys: Any = None,
    init: Any = None,
    dtype: DTypeLike = None,
    identity: Scalar | tuple | None = None,
    transform: Callable[..., Any] | None = None,
    finish: Callable[..., Any] | None = None,
    out_dtype: DTypeLike = None,
    args: tuple = NO_ARGS,
    out: Any = None,
    n: Any = None,
    stream: Stream = None,
) -> Any:
    """Combine the elements of each segment of ``x``. Blocks get equal shares, however long segments are.

    Parameters
    ----------
    x, op, dtype, identity, transform, finish, out_dtype, args, stream : as for ``reduce_by_key`` (``x``: its
        ``values``).
    offsets, lengths, heads, keys : one of them says where segments are.
        ``offsets``, an array of int64, int32 or uint32 with an entry more than there are segments: segment k has the
        elements from ``offsets[k]`` up to ``offsets[k + 1]``. Offsets do not decrease; elements before the first or
        from the last one on belong to no segment. Or a tuple ``(begins, ends)`` of two arrays of these types and one
        length: segment k has the elements from ``begins[k]`` up to ``ends[k]``. These may come in any order, leave
        elements out and overlap; a segment that ends where it begins or before is empty. In each form, places outside
        ``x`` count as its first or last one. ``lengths``, an array of integers, none of which is negative: the length
        of each segment, the first one beginning at element 0. ``heads``, an array of bool, uint8 or int8 of the size of
        ``x``: where segments begin; the first element does. ``keys``: as for ``reduce_by_key``.
    init : None, or a state that comes before the first element of each segment: a number, or a tuple of them. It is the
        result of an empty segment, which is else that of ``identity``, or of the operator's identity.
    out : an array of one axis and any stride, or a tuple of them, that is written instead of a new one. With offsets
        or lengths it has the length of the result, and is returned. With heads or keys it has any length; one more
        array in the tuple, of int64 and no axes, gets the count.
    n : an int, or a 0-d array of int64 on the device. With heads or keys, only the first ``n`` positions count. With
        offsets or lengths, only the first ``n`` segments are there (the ``count`` of ``run_length_encode``, for
        example): results from ``n`` on are not written.

    Returns
    -------
    With offsets or lengths, an array with a result for each segment; with heads or keys, ``Selected`` of the results,
    whose ``count`` is on the device, or the exact array for NumPy arrays. Of several results, a tuple of arrays.

    The order of operations depends on lengths, types, offsets and where in 128 bytes arrays begin (in 16 by begins and
    ends) alone. Errors: ``cutesync.errors``.
    """
    where = _where(x, (offsets, lengths, heads, keys), n, stream)
    options = Options(False, False, init, dtype, identity, out_dtype)
    call = Call(where, x, op, (transform, finish), args, options, n)
    if where[0] in ("offsets", "lengths", "ranges"):
        return call.reduced_by_offsets(out, stream)
    out = out if out is None or isinstance(out, (tuple, list)) else (out,)
    found = call.reduced(None, True, (None, 0), stream, out, keyed=False)
    return found[1] if type(found) is tuple else Selected(found.values, found.count)


@repeatable
def segmented_scan(
    x: Any,
    op: Operator = "add",
    *,
    offsets: Any = None,
    lengths: Array = None,
    heads: Array = None,
    keys: Any = None,
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
    """Scan the elements of each segment of ``x``. Blocks get equal shares, however long segments are.

    The arguments are those of ``segmented_reduce``, and ``exclusive``, ``reverse``, ``init`` and ``identity`` those of
    ``scan`` for each segment. Elements that belong to no segment are scanned as segments of their own. With
    ``offsets=(begins, ends)`` they have no results: 0 in a new array, and ``out`` is not written there. Such segments
    must not overlap: the result of an element of several of them is that of any one.

    Returns
    -------
    an array of the library and the size of ``x``, 1-D, or a tuple of arrays as ``scan`` returns.

    Errors: ``cutesync.errors``.
    """
    where = _where(x, (offsets, lengths, heads, keys), n, stream)
    options = Options(flag(exclusive, "exclusive"), flag(reverse, "reverse"), init, dtype, identity, out_dtype)
    return Call(where, x, op, (transform, finish), args, options, n).scanned(None, True, out, stream)


def _where(x: Any, given: tuple, n: Any, stream: Any) -> tuple[str, Any]:
    """Return which of the arguments ``given`` says where segments are, and its array; of lengths, where segments end;
    of begins and ends, "ranges" with the begins and where segments end if they are put one after the other."""
    named = [(name, value) for name, value in zip(WHERE, given) if value is not None]
    if len(named) != 1:
        came = ", ".join(name for name, _ in named) or "none of them"
        raise ArgumentTypeError(explain(", ".join(WHERE), came, "one of them"))
    ((name, array),) = named
    if name == "offsets" and isinstance(array, tuple):
        return "ranges", _ranges(x, array, n, stream)
    if name != "lengths":
        return name, offsets_on_host(array, n) if name == "offsets" and type(array) is np.ndarray else array
    kind, _ = arrays.facts(array, "lengths")
    if kind.kind not in "iu":
        raise ArgumentTypeError(explain("lengths", f"an array of {kind}", "an array of integers"))
    if arrays.adapter(array, "lengths") is arrays.NUMPY:
        return name, ends_on_host(array, n, "lengths")
    return name, cumsum(array, axis=None, dtype="int64", n=n, stream=stream)


def _ranges(x: Any, given: tuple, n: Any, stream: Any) -> tuple[Any, Any]:
    """Return where segments begin, and where each ends if they are put one after the other."""
    if len(given) != 2:
        raise ArgumentTypeError(
            explain("offsets", f"a tuple of {len(given)}", "an array, or a pair of begins and ends")
        )
    first = x[0] if type(x) is tuple and x else x
    named = [("x", first), ("offsets[0]", given[0]), ("offsets[1]", given[1])]
    libraries = [arrays.adapter(array, name) for name, array in named]
    if arrays.SHARDED in libraries:
        advice = "give one array of offsets, or lengths"
        raise ArgumentValueError(explain("offsets", "begins and ends, for a Sharded", "arrays of one device", advice))
    (_, shape), *facts = (arrays.facts(array, name) for name, array in named)
    for (name, _), (kind, extents) in zip(named[1:], facts):
        if kind.name not in OFFSETS:
            raise ArgumentTypeError(explain(name, f"an array of {kind}", ", ".join(OFFSETS)))
        if len(extents) != 1:
            raise ArgumentValueError(explain(name, f"shape {extents}", "an array of one axis"))
    (begins,), (ends,) = (extents for _, extents in facts)
    if begins != ends:
        raise ArgumentValueError(explain("offsets[1]", f"{ends} ends", f"{begins}, as there are begins"))
    whole = math.prod(shape)
    if libraries[1] is libraries[2] is arrays.NUMPY:
        begin, end = (np.clip(array.astype(np.int64), 0, whole) for array in given)
        return given[0], np.cumsum(np.maximum(end - begin, 0))
    from .ranges_base import length_of

    many = np.int64(whole)
    stops: Any = scan(given, transform=length_of, dtype=("int64",), args=(many,), n=n, stream=stream)
    return given[0], stops[0]


WHERE = ("offsets", "lengths", "heads", "keys")
