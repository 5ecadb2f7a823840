"""Run lengths decoded, and elements repeated: the counterpart of ``run_length_encode``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arguments import integer
from ...dtypes import INT64, DType, number, scalar
from ...errors import ArgumentTypeError, ArgumentValueError, explain
from ...runtime import arrays
from ...runtime.call import Family, Spec, Views, front_end
from ...runtime.kernel import KernelSpec, Pointer, Scalar as Number
from ...runtime.launch import Launch, Run
from ...runtime.view import View
from ...types import Array, Scalar, Stream
from ..scan import cumsum
from ..select import Selected
from .calls import MAX_LENGTH

RESULTS = 8 * 32 * 32  # of a block


@dataclass(frozen=True)
class DecodeSpec(Spec):
    """A call: ``runs`` values of type ``dtype`` make ``size`` results."""

    dtype: DType
    runs: int
    size: int
    fill: Any

    @property
    def results(self) -> tuple[tuple[tuple[int, ...], DType], ...]:
        return ((self.size,), self.dtype), ((), INT64)


def run_length_decode(
    values: Any, lengths: Array, *, size: int | None = None, fill_value: Scalar = 0, stream: Stream = None
) -> Any:
    """Return each of ``values`` as often as ``lengths`` says. The time does not depend on how long runs are.

    Parameters
    ----------
    values : C-contiguous array of NumPy (copied to the device, the result is copied back), torch, CuPy, DeviceArray,
        DLPack or ``__cuda_array_interface__``, which is flattened.
    lengths : array of integers, none of which is negative, of the size of ``values``.
    size : the length of the result; it must be given unless arrays are NumPy's, as only the device knows how many
        elements there are. What lies behind them is filled with ``fill_value``.
    stream : as for ``select``.

    Returns
    -------
    Selected : ``values`` and ``count``, the sum of the lengths, a 0-d array of int64 on the device; if it is larger
        than ``size``, ``values`` has the first elements. An array for NumPy arrays.

    Errors: ``cutesync.errors``.
    """
    adapter = arrays.adapter(lengths, "lengths")
    kind = adapter.view(lengths).dtype
    if kind.kind not in "iu":
        raise ArgumentTypeError(explain("lengths", f"an array of {kind}", "an array of integers"))
    if adapter is arrays.NUMPY:
        ends: Any = np.cumsum(lengths, dtype=np.int64)
        size = (int(ends[-1]) if len(ends) else 0) if size is None else size
    else:
        if size is None:
            raise ArgumentValueError(explain("size", "None", "the length of the result, which only the device knows"))
        ends = cumsum(lengths, dtype="int64", stream=stream)
    size, fill = integer(size, "size", 0, MAX_LENGTH), number(fill_value, "fill_value")
    found, count = _call((size, fill, repr(fill)), values, None, stream, (ends,))
    return found if adapter is arrays.NUMPY else Selected(found, count)


def repeat(x: Any, repeats: Array, *, size: int | None = None, fill_value: Scalar = 0, stream: Stream = None) -> Any:
    """As ``run_length_decode``, by NumPy's name: each element of the flattened ``x``, ``repeats`` times."""
    return run_length_decode(x, repeats, size=size, fill_value=fill_value, stream=stream)


def _parse(arguments: tuple, views: Views, out: View | None) -> DecodeSpec:
    """Check the arguments against the arrays, and return the Spec of the call."""
    size, fill, _ = arguments
    values, ends = views
    if values.size != ends.size:
        raise ArgumentValueError(explain("lengths", f"{ends.size} elements", f"{values.size}, as values has"))
    return DecodeSpec(values.dtype, values.size, size, scalar(fill, values.dtype, "fill_value"))


def _plan(spec: DecodeSpec, views: Views, outs: Views, stream: int) -> tuple[Run, None]:
    """Prepare the launch of a call; at least one block, which stores the count."""

    def make() -> Any:
        from .decode import Decode

        return Decode()

    parameters = (
        *(Pointer("values", spec.dtype), Pointer("ends", INT64), Pointer("out", spec.dtype), Pointer("count", INT64)),
        *(Number("runs", "Int64"), Number("size", "Int64"), Number("fill", spec.dtype.dsl)),
    )
    kernel = KernelSpec(("decode", spec.dtype.name), parameters, make)
    values = {"runs": spec.runs, "size": spec.size, "fill": spec.fill}
    grid = max(1, -(-spec.size // RESULTS))
    return Launch(kernel, views[0].device, grid, values, ("values", "ends", "out", "count"), None, stream).run, None


_call = front_end(Family("run_length_decode", ("values", "lengths"), _parse, _plan, outputs=2))
