"""Counts of elements: by their values, or between edges."""

from __future__ import annotations

import builtins
import functools
from dataclasses import replace
from typing import Any

import numpy as np

from ...arguments import exact, flag, integer
from ...dtypes import INT64
from ...errors import ArgumentTypeError, ArgumentValueError, explain, shown
from ...runtime import arrays, device_array
from ...runtime.call import Family, Views, front_end
from ...runtime.view import View, is_c_contiguous
from ...types import Array, Stream
from ..count import check, split
from ..layouts import strided
from .plan import plan
from .spec import FLOAT64, Counting, CountSpec

MAX_LENGTH = 1 << 38  # a block counts in 32 bits
MAX_BINS = (1 << 31) - 2
_EXACT = 1 << 53  # float64 has all integers up to this


def bincount(
    x: Array,
    weights: Array = None,
    minlength: int = 0,
    *,
    length: int | None = None,
    n: Any = None,
    out: Array = None,
    stream: Stream = None,
) -> Any:
    """Return how often each number occurs in ``x``: result i (int64) is the number of elements that are i. With weights
    it is the sum (float64) of the weights of these elements.

    Parameters
    ----------
    x : array of one axis, of any stride, of NumPy (copied to the device, the result is copied back), torch, CuPy,
        DeviceArray, DLPack or ``__cuda_array_interface__``: bool, int8..int64, uint8..uint64.
    weights : array of the shape of ``x`` and of any stride: bool, integers or floats, which count as float64. The sums
        have the same bits in every run, whatever the order of the elements: with at most 2**k elements, each weight is
        rounded to a multiple of m * 2**(2k - 123), where m is the largest power of two that is not above the largest
        finite magnitude in its bin; the sum of these is exact, and is rounded once. So sums of
        bool, int8..int32, uint8..uint32 and float16 are exact before this rounding for up to 2**42 and more elements.
        NaN and infinities are as in NumPy.
    minlength : the least length of the result for a NumPy array, as in NumPy. It needs no ``length``: its result has an
        element for every number up to the largest, and a negative element is an ArgumentValueError.
    length : the length of the result, which only the device could find out for arrays on it: they need it. Elements
        that are negative, or not below it, are not counted.
    n : only the first ``n`` elements of ``x`` count: an int, or a 0-d array of int64 on the device, which is read when
        the kernel runs. Both give the same bits.
    out : array of the result's length and type, of any stride, that is written instead of a new one.
    stream : None (the current one of the library of ``x``), a handle as an int, or an object with ``__cuda_stream__``.

    Returns
    -------
    array of int64, with weights of float64, of the library of ``x``.

    Errors: ``cutesync.errors``. The method: counters of each block in shared memory for up to 57344 bins; for up to 8
    times as many, blocks that count a part of the bins each and read the same elements, mostly from L2; else atomics in
    global memory, but for frequent bins. Weights become fixed-point numbers of two 64-bit words whose scale is the
    bin's (11500 bins in shared memory; among more than 2**24 elements, up to 8 times 14000 to 19000 in blocks that add
    a part of the bins each); for types wider than float16 and, among very many elements, int64, this takes two passes.
    """
    minlength = integer(minlength, "minlength", 0, MAX_BINS)
    number, array = split(n, isinstance(x, np.ndarray))
    if length is not None:
        length = integer(length, "length", 0, MAX_BINS)
        if length < minlength:
            raise ArgumentValueError(explain("length", length, f"at least minlength, {minlength}"))
    elif isinstance(x, np.ndarray) and x.dtype.kind in "biu":
        counted = _first(x, number)
        if counted.size and counted.min() < 0:
            raise ArgumentValueError(explain("x", f"the element {counted.min()}", "elements of 0 and more"))
        length = integer(max(minlength, int(counted.max()) + 1 if counted.size else 0), "length", 0, MAX_BINS)
    else:
        length = 0 if arrays.adapter(x) is arrays.NUMPY else None
    return _bincount((length, number), x, out, stream, _others(weights, array))


def histogram(
    x: Array,
    bins: Any = 10,
    range: tuple | None = None,
    density: bool = False,
    weights: Array = None,
    *,
    n: Any = None,
    out: Any = None,
    stream: Stream = None,
) -> tuple[Any, Any]:
    """Return how many elements of ``x`` lie between neighbouring edges, and the edges.

    A bin has the elements that are not below its first edge and below its last one; the last bin has those equal to its
    last edge as well. Elements outside and NaN are not counted.

    Parameters
    ----------
    x : array of any strides, of the libraries and types of ``topk``, which is flattened.
    bins : the number of bins, at equal distances in ``range``; or the edges, in ascending order (a sequence or a NumPy
        array). For NumPy arrays also a name that ``numpy.histogram`` knows.
    range : the first and the last edge. Arrays on the device need it if ``bins`` is a number: to find it would be to
        wait. For NumPy arrays the default is the range of ``x``.
    density : True: results are divided by the widths of their bins and by the sum of all; NaN if that is 0.
    weights : array of the shape of ``x``, of any strides: the result is the sum of the weights of a bin's elements, as
        in ``bincount``, converted to the type of the weights (floats of 16 bits by way of float32; integers saturate).
    n : as for ``bincount``; it counts elements of the flattened ``x``.
    out : a pair of arrays that are written instead of new ones, of any strides: results, and edges of float64.
    stream : as for ``bincount``.

    Returns
    -------
    (counts, edges) : arrays of the library of ``x``: int64, with weights of their type, with ``density`` float64; and
        float64. Edges are those of ``numpy.histogram_bin_edges``.

    Errors: ``cutesync.errors``.
    """
    density = flag(density, "density")
    on_host = isinstance(x, np.ndarray)
    number, array = split(n, on_host)
    edges, uniform = _edges(_first(x, number), bins, range, _first(weights, number))
    if on_host:
        given: Any = edges
    else:
        given = arrays.made_beside(x, functools.partial(_on_device, edges.tobytes()))
    line = (float(edges[0]), float(edges[-1])) if uniform else None
    return _histogram((line, density, exact(line), number), x, out, stream, (given, *_others(weights, array)))


def _others(weights: Any, n: Any) -> tuple:
    """Return the weights and ``n``, as far as a call has them."""
    return (weights, n) if n is not None else () if weights is None else (weights,)


def _first(x: Any, n: int | None) -> Any:
    """Return the first ``n`` elements of a NumPy array, for edges; anything else as it is."""
    return x.reshape(-1)[:n] if n is not None and isinstance(x, np.ndarray) else x


def _edges(x: Any, bins: Any, range: Any, weights: Any) -> tuple[np.ndarray, bool]:
    """Return the edges in float64, and whether they are at equal distances."""
    uniform = not isinstance(bins, (np.ndarray, list, tuple))
    if isinstance(bins, np.ndarray):
        device_array.require_plain(bins, "bins")
    if uniform and not isinstance(bins, str):
        if not isinstance(bins, (int, np.integer)):
            allowed = "an int, or the edges as a sequence or a NumPy array"
            raise ArgumentTypeError(explain("bins", shown(bins), allowed))
        bins = integer(bins, "bins", 1, MAX_BINS)
    kind = arrays.facts(x, "x")[0].numpy
    if not isinstance(x, np.ndarray):
        if uniform and (range is None or isinstance(bins, str)):
            came = f"bins={bins!r} and range={shown(range)} for an array on the device"
            raise ArgumentValueError(explain("range", came, "the first and the last edge", "cs.minmax finds them"))
        x = np.zeros(1, kind)
    if x.dtype.kind not in "iuf":  # bool, and bfloat16, which NumPy does not know
        x = x.astype(np.uint8 if x.dtype.kind == "b" else np.float32)
    try:
        edges = np.histogram_bin_edges(x, bins, range, weights if isinstance(bins, str) else None)
    except (TypeError, ValueError) as error:
        came = f"bins={shown(bins)}, range={shown(range)}"
        raise ArgumentValueError(explain("bins", came, f"what numpy.histogram takes ({error})")) from error
    if edges.dtype.kind not in "fiu" or edges.ndim != 1 or len(edges) < 2:
        raise ArgumentTypeError(explain("bins", shown(bins), "at least two edges, numbers in ascending order"))
    found = np.ascontiguousarray(edges, np.float64)
    if np.isnan(found).any():
        raise ArgumentValueError(explain("bins", "an edge that is NaN", "numbers in ascending order"))
    if edges.dtype.kind in "iu" and kind.kind in "iu" and max(-int(edges[0]), int(edges[-1])) > _EXACT:
        allowed = "integers of up to 2**53 beside integers, as both are compared in float64"
        raise ArgumentValueError(explain("bins", "a larger edge", allowed, "give edges as floats"))
    return found, uniform


@functools.lru_cache(maxsize=64)
def _on_device(edges: bytes, ordinal: int) -> device_array.DeviceArray:
    """Return edges as an array on a device, which is copied there once."""
    return device_array.from_numpy(np.frombuffer(edges, np.float64), FLOAT64, ordinal)


def _parse_index(arguments: tuple, views: Views, out: View | None) -> CountSpec:
    """Check the arguments of ``bincount`` against the arrays, and return the Spec of the call."""
    (length, n), (x, weights, count) = arguments, views
    if x.dtype.kind == "f":
        raise ArgumentTypeError(explain("x", f"an array of {x.dtype}", "integers or bool"))
    if len(x.shape) != 1:
        raise ArgumentValueError(explain("x", f"shape {x.shape}", "an array of one axis", "x.reshape(-1)"))
    if length is None:
        came = "none for an array on the device"
        raise ArgumentValueError(explain("length", came, "the length of the result", "cs.max(x) + 1 is enough"))
    result = INT64 if weights is None else FLOAT64
    counting = Counting(x.dtype, "index", result=result)
    return _checked(CountSpec(counting, _length(x, n), x.size, length), x, weights, count)


def _parse_edges(arguments: tuple, views: Views, out: View | None) -> CountSpec:
    """As ``_parse_index``, for ``histogram``."""
    (line, density, _, n), (x, edges, weights, count) = arguments, views
    result = FLOAT64 if density else INT64 if weights is None else weights.dtype
    counting = Counting(x.dtype, "edges" if line is None else "uniform", result=result, density=density)
    return _checked(CountSpec(counting, _length(x, n), x.size, edges.size - 1, *(line or ())), x, weights, count)


def _length(x: View, n: int | None) -> int:
    return x.size if n is None else min(n, x.size)


def _checked(spec: CountSpec, x: View, weights: View | None, count: View | None) -> CountSpec:
    """Return the Spec with the weights, the count and the layout of the arrays."""
    check(count)
    if spec.length > MAX_LENGTH:
        raise ArgumentValueError(explain("x", f"{spec.length} elements", "at most 2**38"))
    counting = replace(spec.counting, counted=count is not None)
    read: tuple[View, ...] = (x,)
    if weights is not None:
        if weights.shape != x.shape:
            raise ArgumentValueError(explain("weights", f"shape {weights.shape}", f"shape {x.shape}, that of x"))
        read = x, weights
        counting = replace(counting, weights=weights.dtype)
    everything = count is None and spec.length == spec.whole  # then the order does not matter
    layout = strided(_in_memory_order(read) if everything else read)
    return replace(spec, counting=replace(counting, layout=layout.layout if layout else None), strided=layout)


def _in_memory_order(views: tuple[View, ...]) -> tuple[View, ...]:
    """Return views of one shape with their axes in the order of the first one's strides: sums have no order."""
    x = views[0]
    order = sorted(builtins.range(len(x.shape)), key=lambda axis: -abs(x.steps[axis]))
    shape = tuple(x.shape[axis] for axis in order)
    found = []
    for view in views:
        steps = tuple(view.steps[axis] for axis in order)
        found.append(replace(view, shape=shape, strides=steps, contiguous=is_c_contiguous(shape, steps)))
    return tuple(found)


_bincount = front_end(Family("bincount", ("x", "weights", "n"), _parse_index, plan, strided=True))
_histogram = front_end(Family("histogram", ("x", "bins", "weights", "n"), _parse_edges, plan, outputs=2, strided=True))
