"""Run lengths decoded, and elements repeated: the counterpart of ``run_length_encode``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arguments import exact, integer
from ...dtypes import INT64, DType, number, scalar
from ...errors import ArgumentTypeError, ArgumentValueError, explain
from ...runtime import arrays
from ...runtime.call import Family, Spec, Views, front_end
from ...runtime.device_array import DeviceArray
from ...runtime.kernel import KernelSpec, Pointer, Scalar as Number
from ...runtime.launch import Launch, Run, in_turn
from ...runtime.repeat import repeatable
from ...runtime.view import View
from ...types import Array, Scalar, Stream
from ..count import check, split
from ..layouts import Layout, Strided, strided
from ..select import Selected
from ..select.plan import summed
from .calls import MAX_LENGTH
from .lengths import ends_on_host

RESULTS = 8 * 32 * 32  # of a block of ``decode``
MAX_TURNS = 8  # tiles that a warp makes of one search
MANY_BLOCKS = 2640  # with fewer, four for each place of a GPU, a warp makes one
GROUP = 128  # runs whose sum ``sums`` stores
GROUPS = 8 * 8  # of a block of ``sums``


@dataclass(frozen=True)
class Lengths:
    """An array of how often values are repeated, of integers of type ``dtype``, read as ``layout`` says (None: it is
    contiguous). ``counted``: how many of them count is in device memory."""

    dtype: DType
    counted: bool
    layout: Layout | None


@dataclass(frozen=True)
class Decoding:
    """What a kernel repeats: values of type ``dtype``, as often as ``lengths`` say, or all of them as often as a number
    says (None). ``layout`` says how values, and lengths, are read (None: they are contiguous). ``counted``: how many
    values there are is in device memory."""

    dtype: DType
    lengths: DType | None
    counted: bool
    layout: Layout | None

    @property
    def alike(self) -> bool:
        return self.lengths is None


@dataclass(frozen=True)
class DecodeSpec(Spec):
    """A call: the first ``runs`` values make ``size`` results, each of them ``times`` ones if they are alike."""

    decoding: Decoding
    runs: int
    size: int
    fill: Any
    times: int
    strided: Strided | None

    @property
    def results(self) -> tuple[tuple[tuple[int, ...], DType], ...]:
        return ((self.size,), self.decoding.dtype), ((), INT64)


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

    The lengths of groups of runs are added up, and a scan of these sums tells each block where its results begin: the
    lengths are read twice, the values once.

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


def _plan(spec: DecodeSpec, views: Views, outs: Views, stream: int) -> tuple[Run, None]:
    """Prepare the launches of a call; at least one block decodes, which stores the count."""
    decode = _decode(spec, views, outs, stream)
    if spec.decoding.alike:
        return decode, None
    device, groups = views[0].device, -(-spec.runs // GROUP)
    inputs = _inputs(views)
    sums = inputs + len(outs)  # number of the array behind the call's own
    every = tuple(range(sums + 1))
    steps = [(_add(spec, views, stream, groups), (*every[1:inputs], sums)), (decode, every)]
    if groups > 1:
        steps.insert(1, (summed(groups, device, stream), (sums, sums)))
    return in_turn(steps, (8 * groups,), device), None


def _inputs(views: Views) -> int:
    """Return how many inputs a call has."""
    return 3 if views[2] is not None else 2 if views[1] is not None else 1


def _decode(spec: DecodeSpec, views: Views, outs: Views, stream: int) -> Run:
    """Prepare the launch that stores the results."""
    decoding = spec.decoding

    def make() -> Any:
        from .decode import Decode
        from .decode_ranks import RankDecode

        return (Decode if decoding.alike or decoding.dtype.size < 4 else RankDecode)(decoding)

    types = {"values": decoding.dtype, "out": decoding.dtype, "lengths": decoding.lengths or INT64}
    names = "values", "lengths", "n", "out", "count", "sums"
    pointers = [Pointer(name, types.get(name, INT64)) for name in names]
    numbers = [
        Number("fill", decoding.dtype.dsl),
        *(Number(k, "Int64") for k in ("runs", "size", "times", "step", "turns")),
    ]
    numbers += decoding.layout.parameters if decoding.layout else []
    kernel = KernelSpec(("decode", decoding), (pointers, numbers), make)
    values = {"runs": spec.runs, "size": spec.size, "fill": spec.fill, "times": spec.times}
    values |= {"step": outs[0].steps[0], **(spec.strided.values if spec.strided else {})}
    given = [*names[: _inputs(views)], *names[3 : 5 if decoding.alike else 6]]
    tiles = -(-spec.size // RESULTS)
    turns = max(1, min(MAX_TURNS, tiles // MANY_BLOCKS))
    values["turns"] = turns
    grid = max(1, -(-tiles // turns))
    return Launch(kernel, views[0].device, grid, values, given, None, stream).run


def _add(spec: DecodeSpec, views: Views, stream: int, groups: int) -> Run:
    """Prepare the launch that adds up the lengths of each of ``groups`` groups of runs."""
    view, layout = views[1], strided(views[1:2])
    lengths = Lengths(view.dtype, spec.decoding.counted, layout.layout if layout else None)

    def make() -> Any:
        from .sums import Sums

        return Sums(lengths)

    pointers = Pointer("lengths", view.dtype), Pointer("n", INT64), Pointer("sums", INT64)
    numbers = [Number("runs", "Int64"), Number("groups", "Int64"), *(layout.layout.parameters if layout else ())]
    kernel = KernelSpec(("run_sums", lengths), (pointers, numbers), make)
    values = {"runs": spec.runs, "groups": groups, **(layout.values if layout else {})}
    names = "lengths", *(("n",) * lengths.counted), "sums"
    return Launch(kernel, view.device, -(-groups // GROUPS), values, names, None, stream).run


_CALLS = {
    names: front_end(Family("run_length_decode", (*names, "n"), _parse, _plan, outputs=2, strided=True, counting=True))
    for names in (("values", "lengths"), ("x", "repeats"))
}
