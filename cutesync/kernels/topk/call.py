"""The largest or smallest elements of rows, in order: one pass over the array for up to 2048 of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arguments import exact, flag, whole
from ...errors import ArgumentTypeError, ArgumentValueError, explain, shown
from ...runtime.call import Family, Views, front_end
from ...runtime.repeat import repeatable
from ...runtime.view import View
from ...types import Array, Stream
from ..count import check, split
from .plan import plan
from .spec import TopK, TopKSpec

MAX_LENGTH = 1 << 38  # elements of a row: chunks are counted in 32 bits
MAX_ROWS = (1 << 31) - 1


@repeatable
def topk(
    x: Array,
    k: int,
    axis: int = -1,
    *,
    largest: bool = True,
    sorted: bool = True,
    n: Any = None,
    out: Any = None,
    stream: Stream = None,
) -> tuple[Any, Any]:
    """Return the ``k`` largest elements along an axis, the largest first, and their indices. The call does not wait.

    Equal elements are in the order of their indices. NaN is the largest value, as in NumPy's sort; all NaN are equal,
    and so are 0.0 and -0.0. The result is the same in every run.

    Parameters
    ----------
    x : array of one axis or more, of any strides, of NumPy (copied to the device, the results are copied back), torch,
        CuPy, DeviceArray, DLPack or ``__cuda_array_interface__``: bool, int8..int64, uint8..uint64, float16, bfloat16,
        float32, float64.
    k : how many, 0 to the length of the axis. One launch gives up to 2048 and reads ``x`` once; more take a launch for
        each 2048.
    axis : an int; negative counts from the end.
    largest : False: the smallest elements, the smallest first; NaN comes last.
    sorted : accepted for callers of ``torch.topk``. Results are sorted in any case.
    n : only the first ``n`` elements along the axis count: an int, or a 0-d array of int64 on the device, which is read
        when the kernel runs. If that is less than ``k``, the results behind these are 0, their indices -1.
    out : a pair of arrays of the shape of the results, any strides, which do not overlap ``x`` or each other: values of
        the type of ``x``, indices of int64. Default: new C-contiguous arrays.
    stream : None (the current one of the library of ``x``), a handle as an int, or an object with ``__cuda_stream__``.

    Returns
    -------
    (values, indices) : arrays of the shape of ``x`` with ``k`` elements along the axis; indices are int64.

    Errors: ``cutesync.errors``. The method: each block streams its share past a limit that ``k`` elements are known to
    reach, and keeps the others in shared memory; the last block combines. Radix selections such as AIR top-k (Zhang et
    al. 2023) read the array several times. Parts of the array are visited in a scattered order, so ascending order
    (descending, for the smallest) takes hardly longer than others: 1.1 to 1.2 times as long.
    """
    flag(sorted, "sorted")
    return _made(True, x, k, axis, largest, n, out, stream)


@repeatable
def argtopk(
    x: Array,
    k: int,
    axis: int = -1,
    *,
    largest: bool = True,
    n: Any = None,
    out: Array = None,
    stream: Stream = None,
) -> Any:
    """Return the indices (int64) of the ``k`` largest elements along an axis, the largest first: those of ``topk``,
    whose arguments and errors it has. ``out`` is one array."""
    return _made(False, x, k, axis, largest, n, out, stream)


def _made(values: bool, x: Any, k: Any, axis: Any, largest: Any, n: Any, out: Any, stream: Any) -> Any:
    count, array = split(n, type(x) is np.ndarray)
    given = (values, k, axis, largest, count, exact(k, axis, largest))
    call = (_topk if values else _argtopk) if array is None else (_topk_counted if values else _argtopk_counted)
    return call(given, x, out, stream, () if array is None else (array,))


def _parse(arguments: tuple, views: Views, out: View | None) -> TopKSpec:
    """Check the arguments against ``x``, and return the Spec of the call."""
    values, k, axis, largest, n, _ = arguments
    x, counted = views[0], len(views) > 1
    check(views[1] if counted else None)
    if isinstance(axis, (bool, np.bool_)) or not isinstance(axis, (int, np.integer)):
        raise ArgumentTypeError(explain("axis", shown(axis), "an int"))
    if not x.shape:
        raise ArgumentValueError(explain("x", "an array of no axes", "an array of one axis or more"))
    if not -len(x.shape) <= axis < len(x.shape):
        allowed = f"{-len(x.shape)} to {len(x.shape) - 1} for an array of {len(x.shape)} dimensions"
        raise ArgumentValueError(explain("axis", shown(axis), allowed))
    axis = int(axis) % len(x.shape)
    length = x.shape[axis] if n is None else min(n, x.shape[axis])
    k = whole(k, "k")
    if not 0 <= k <= x.shape[axis]:
        allowed = f"0 to {x.shape[axis]}, the number of elements along the axis"
        raise ArgumentValueError(explain("k", shown(k), allowed))
    if length > MAX_LENGTH or (x.size and x.size // x.shape[axis] > MAX_ROWS):
        raise ArgumentValueError(explain("x", f"shape {x.shape}", f"rows of at most {MAX_LENGTH}, 2**31 - 1 of them"))
    operation = TopK(x.dtype, flag(largest, "largest"), values, counted)
    return TopKSpec(operation, x.shape, axis, length, k)


def _family(name: str, inputs: tuple[str, ...], outputs: int) -> Any:
    return front_end(Family(name, inputs, _parse, plan, outputs=outputs, strided=True))


_topk, _argtopk = _family("topk", ("x",), 2), _family("argtopk", ("x",), 1)
_topk_counted, _argtopk_counted = _family("counted topk", ("x", "n"), 2), _family("counted argtopk", ("x", "n"), 1)
