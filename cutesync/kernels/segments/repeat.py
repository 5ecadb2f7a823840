"""Run lengths decoded, and elements repeated: the counterpart of ``run_length_encode``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arguments import exact, integer
from ...dtypes import number, scalar
from ...errors import ArgumentTypeError, ArgumentValueError, explain
from ...runtime import arrays
from ...runtime.call import Family, Views, front_end
from ...runtime.device_array import DeviceArray
from ...runtime.repeat import repeatable
from ...runtime.view import View
from ...types import Array, Scalar, Stream
from ..count import check, split
from ..layouts import strided
from ..select import Selected
from ..select.spec import MAX_LENGTH
from .decode_plan import plan
from .decode_spec import DecodeSpec, Decoding
from .lengths import ends_on_host


@repeatable
def run_length_decode(
    values: Any,
    lengths: Any,
    *,
    size: int | None = None,
    fill_value: Scalar = 0,
    n: Any = None,
    out: Array = None,
    stream: Stream = None,
) -> Any:
    """Return each of ``values`` as often as ``lengths`` says. Blocks get equal shares, however long runs are.

    Where runs are short on average and arrays contiguous, lengths and values are read once, but for those of
    neighbouring runs that have many results together: several blocks store these, and each reads them again. Else the
    lengths of groups of runs are added up first, and a scan of these sums tells each block where its results begin.

    Parameters
    ----------
    values : array of any strides of NumPy (copied to the device, the result is copied back), torch, CuPy, DeviceArray,
        DLPack or ``__cuda_array_interface__``, which is flattened in C order.
    lengths : array of integers of any strides, none of which is negative, of the size of ``values``; or an int or an
        array of one element, the length of every run.
    size : the length of the result. It must be given, as only the device knows how many elements there are, unless
        arrays are NumPy's, ``lengths`` is an int, or there is ``out``. What lies behind the elements is filled.
    fill_value : a number that fills the result.
    n : only the first ``n`` of ``values`` and ``lengths`` count: an int, or a 0-d array of int64 on the device (the
        ``count`` of ``run_length_encode``, for example).
    out : array of one axis, of any length and stride, that is written instead of a new one; its length is ``size``.
    stream : as for ``select``.

    Returns
    -------
    Selected : ``values`` and ``count``, the sum of the lengths, a 0-d array of int64 on the device; if it is larger
        than ``size``, ``values`` has the first elements. An array for NumPy arrays.

    Errors: ``cutesync.errors``.
    """
    return _repeated(("values", "lengths"), values, lengths, (size, fill_value, n, out), stream)


@repeatable
def repeat(
    x: Any,
    repeats: Any,
    *,
    size: int | None = None,
    fill_value: Scalar = 0,
    n: Any = None,
    out: Array = None,
    stream: Stream = None,
) -> Any:
    """As ``run_length_decode``, by NumPy's name: each element of the flattened ``x``, ``repeats`` times."""
    return _repeated(("x", "repeats"), x, repeats, (size, fill_value, n, out), stream)


def _repeated(names: tuple[str, str], values: Any, lengths: Any, options: tuple, stream: Any) -> Any:
    """Make a call whose arrays have such names in messages. ``options`` are size, fill value, n and out."""
    size, fill_value, n, out = options
    adapter = arrays.adapter(values, names[0])
    on_host = adapter is arrays.NUMPY
    runs, count = split(n, on_host)
    view, fill = arrays.view_of(values, names[0]), number(fill_value, "fill_value")
    lengths, stream = _for_each(view.size, lengths, names[1], (adapter, stream))
    alike = isinstance(lengths, (int, np.integer))
    times = integer(lengths, names[1], 0, MAX_LENGTH) if alike else 0
    size = size if size is None else integer(size, "size", 0, MAX_LENGTH)
    size = size if out is None else _length(out, size)
    total = None
    if alike:
        total = min(view.size, view.size if runs is None else runs) * times
    elif arrays.adapter(lengths, names[1]) is arrays.NUMPY:
        total = _total(lengths, names[1], runs)
    elif size is None:
        raise ArgumentValueError(explain("size", "None", "the length of the result, which only the device knows"))
    size = integer(total if size is None else size, "size", 0, MAX_LENGTH)
    given = None if alike else lengths
    others = (given, count) if count is not None else () if alike else (given,)
    arguments = names, size, fill, exact(fill), times, alike, runs
    found, count = _CALLS[names](arguments, values, None if out is None else (out, None), stream, others)
    return found if on_host else Selected(found, count)


def _for_each(count: int, lengths: Any, name: str, where: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return the lengths of ``count`` runs, which may be given as an array of one element, and the stream. ``where``
    has the adapter of the values, and the stream."""
    values, stream = where
    if isinstance(lengths, (int, np.integer)):
        return lengths, stream
    adapter, view = arrays.adapter(lengths, name), arrays.view_of(lengths, name)
    if view.size != 1 or count == 1 or view.dtype.kind not in "iu":
        return lengths, stream
    if adapter is arrays.NUMPY:
        return lengths.item() if values is adapter else lengths, stream
    same = DeviceArray(view.ptr, (count,), view.dtype, view.device, lengths, (0,))
    return same, adapter.stream(view.device) if stream is None else stream


def _total(lengths: np.ndarray, name: str, n: int | None) -> int:
    """Return the sum of the first ``n`` lengths, in an array of NumPy, after checking them."""
    _check_type(lengths.dtype, name)
    ends = ends_on_host(lengths, n, name)
    last = min(len(ends), len(ends) if n is None else n)
    return int(ends[last - 1]) if last else 0


def _check_type(dtype: Any, name: str) -> None:
    if dtype.kind not in "iu":
        raise ArgumentTypeError(explain(name, f"an array of {dtype}", "an array of integers"))


def _length(out: Any, size: int | None) -> int:
    """Return the length of ``out``."""
    shape = arrays.view_of(out, "out").shape
    if len(shape) != 1 or (size is not None and shape[0] != size):
        allowed = "an array of one axis" if size is None else f"shape ({size},), as size says"
        raise ArgumentValueError(explain("out", f"shape {tuple(shape)}", allowed))
    return int(shape[0])


def _parse(arguments: tuple, views: Views, out: View | None) -> DecodeSpec:
    """Check the arguments against the arrays, and return the Spec of the call."""
    names, size, fill, _, times, alike, runs = arguments
    values, lengths, count = views
    if lengths is not None:
        _check_type(lengths.dtype, names[1])
        if values.size != lengths.size:
            raise ArgumentValueError(explain(names[1], f"{lengths.size} elements", f"{values.size}, as {names[0]} has"))
    check(count)
    runs = values.size if runs is None else min(runs, values.size)
    kind = None if alike or runs == 0 else lengths.dtype
    layout = strided((values,) if kind is None else (values, lengths))
    decoding = Decoding(values.dtype, kind, count is not None, layout.layout if layout else None)
    return DecodeSpec(decoding, runs, size, scalar(fill, values.dtype, "fill_value"), times, layout)


_CALLS = {
    names: front_end(Family("run_length_decode", (*names, "n"), _parse, plan, outputs=2, strided=True, counting=True))
    for names in (("values", "lengths"), ("x", "repeats"))
}
