"""Counts of elements: by their values, or between edges."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ...arguments import exact, integer
from ...errors import ArgumentTypeError, ArgumentValueError, explain, shown
from ...runtime import arrays, device_array
from ...runtime.call import Family, Views, front_end
from ...runtime.view import View
from ...types import Array, Stream
from .plan import plan
from .spec import FLOAT64, Counting, CountSpec

MAX_LENGTH = 1 << 38  # a block counts in 32 bits
MAX_BINS = (1 << 31) - 2


def bincount(
    x: Array, minlength: int = 0, *, length: int | None = None, out: Array = None, stream: Stream = None
) -> Any:
    """Return how often each number occurs in ``x``: result i (int64) is the number of elements that are i.

    Parameters
    ----------
    x : C-contiguous array of one axis, of NumPy (copied to the device, the result is copied back), torch, CuPy,
        DeviceArray, DLPack or ``__cuda_array_interface__``: bool, int8..int64, uint8..uint64.
    minlength : the least length of the result for a NumPy array, as in NumPy. It needs no ``length``: its result has an
        element for every number up to the largest, and a negative element is an ArgumentValueError.
    length : the length of the result, which only the device could find out for arrays on it: they need it. Elements
        that are negative, or not below it, are not counted.
    out : array of int64 of the result's length that is written instead of a new one.
    stream : None (the current one of the library of ``x``), a handle as an int, or an object with ``__cuda_stream__``.

    Returns
    -------
    array of int64 of the library of ``x``.

    Errors: ``cutesync.errors``. The method: counters of each block in shared memory for up to 49152 bins, else atomics
    in global memory.
    """
    minlength = integer(minlength, "minlength", 0, MAX_BINS)
    if length is not None:
        length = integer(length, "length", 0, MAX_BINS)
    elif isinstance(x, np.ndarray) and x.dtype.kind in "biu":
        if x.size and x.min() < 0:
            raise ArgumentValueError(explain("x", f"the element {x.min()}", "elements of 0 and more"))
        length = integer(max(minlength, int(x.max()) + 1 if x.size else 0), "length", 0, MAX_BINS)
    else:
        length = 0 if arrays.adapter(x) is arrays.NUMPY else None
    return _bincount((length,), x, out, stream)


def histogram(
    x: Array, bins: Any = 10, range: tuple | None = None, *, out: Any = None, stream: Stream = None
) -> tuple[Any, Any]:
    """Return how many elements of ``x`` lie between neighbouring edges, and the edges.

    A bin has the elements that are not below its first edge and below its last one; the last bin has those equal to its
    last edge as well. Elements outside and NaN are not counted.

    Parameters
    ----------
    x : C-contiguous array, of the libraries and types of ``topk``, which is flattened.
    bins : the number of bins, at equal distances in ``range``; or the edges, in ascending order (a sequence or a NumPy
        array). For NumPy arrays also a name that ``numpy.histogram`` knows.
    range : the first and the last edge. Arrays on the device need it if ``bins`` is a number: to find it would be to
        wait. For NumPy arrays the default is the range of ``x``.
    out : a pair of arrays that are written instead of new ones: counts of int64, edges of float64.
    stream : as for ``bincount``.

    Returns
    -------
    (counts, edges) : arrays of int64 and float64 of the library of ``x``. Edges are those of
        ``numpy.histogram_bin_edges``.

    Errors: ``cutesync.errors``.
    """
    edges, uniform = _edges(x, bins, range)
    on_host = isinstance(x, np.ndarray)
    if on_host:
        given: Any = edges
    else:
        given = _on_device(edges.tobytes(), arrays.adapter(x).view(x).device)
    line = (float(edges[0]), float(edges[-1])) if uniform else None
    return _histogram((line, exact(line)), x, out, stream, (given,))


def _edges(x: Any, bins: Any, range: Any) -> tuple[np.ndarray, bool]:
    """Return the edges in float64, and whether they are at equal distances."""
    uniform = not isinstance(bins, (np.ndarray, list, tuple))
    if uniform and not isinstance(bins, str):
        bins = integer(bins, "bins", 1, MAX_BINS)
    if not isinstance(x, np.ndarray):
        if uniform and (range is None or isinstance(bins, str)):
            came = f"bins={bins!r} and range={shown(range)} for an array on the device"
            raise ArgumentValueError(explain("range", came, "the first and the last edge", "cs.minmax finds them"))
        kind = arrays.adapter(x).view(x).dtype.numpy
        x = np.zeros(1, kind)
    if x.dtype.kind not in "biuf":  # bfloat16, which NumPy does not know
        x = x.astype(np.float32)
    try:
        edges = np.histogram_bin_edges(x, bins, range)
    except (TypeError, ValueError) as error:
        came = f"bins={shown(bins)}, range={shown(range)}"
        raise ArgumentValueError(explain("bins", came, f"what numpy.histogram takes ({error})")) from error
    if edges.dtype.kind not in "fiu" or edges.ndim != 1 or len(edges) < 2:
        raise ArgumentTypeError(explain("bins", shown(bins), "at least two edges, numbers in ascending order"))
    return np.ascontiguousarray(edges, np.float64), uniform


@functools.lru_cache(maxsize=64)
def _on_device(edges: bytes, ordinal: int) -> device_array.DeviceArray:
    """Return edges as an array on a device, which is copied there once."""
    return device_array.from_numpy(np.frombuffer(edges, np.float64), FLOAT64, ordinal)


def _parse_index(arguments: tuple, views: Views, out: View | None) -> CountSpec:
    """Check the arguments of ``bincount`` against the arrays, and return the Spec of the call."""
    (length,), (x,) = arguments, views
    if x.dtype.kind == "f":
        raise ArgumentTypeError(explain("x", f"an array of {x.dtype}", "integers or bool"))
    if len(x.shape) != 1:
        raise ArgumentValueError(explain("x", f"shape {x.shape}", "an array of one axis", "x.reshape(-1)"))
    if length is None:
        came = "none for an array on the device"
        raise ArgumentValueError(explain("length", came, "the length of the result", "cs.max(x) + 1 is enough"))
    return _checked(CountSpec(Counting(x.dtype, "index"), x.size, length))


def _parse_edges(arguments: tuple, views: Views, out: View | None) -> CountSpec:
    """As ``_parse_index``, for ``histogram``."""
    (line, _), (x, edges) = arguments, views
    counting = Counting(x.dtype, "edges" if line is None else "uniform")
    return _checked(CountSpec(counting, x.size, edges.size - 1, *(line or ())))


def _checked(spec: CountSpec) -> CountSpec:
    if spec.length > MAX_LENGTH:
        raise ArgumentValueError(explain("x", f"{spec.length} elements", "at most 2**38"))
    return spec


_bincount = front_end(Family("bincount", ("x",), _parse_index, plan))
_histogram = front_end(Family("histogram", ("x", "bins"), _parse_edges, plan, outputs=2))
