"""Where elements belong in a sorted array: a thread searches for each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...arguments import choice
from ...dtypes import INT64, DType
from ...errors import ArgumentTypeError, ArgumentValueError, explain
from ...runtime.call import Family, Spec, Views, front_end
from ...runtime.kernel import KernelSpec, Pointer, Scalar
from ...runtime.launch import Launch, Run, nothing
from ...runtime.repeat import repeatable
from ...runtime.view import View
from ...types import Array, Stream
from ..count import check, split
from ..layouts import Layout, strided
from .lengths import sorter_on_host

THREADS = 256


@dataclass(frozen=True)
class Searching:
    """What a kernel searches: elements of type ``dtype``; ``right``: behind equal ones. ``sorter``: another array has
    the order of the elements. ``counted``: how many there are is in device memory. ``layout`` says how what is searched
    for is read, and how results are stored (None: both are contiguous); the plan fills it in."""

    dtype: DType
    right: bool
    sorter: bool
    counted: bool
    layout: Layout | None = None


@dataclass(frozen=True)
class SearchSpec(Spec):
    """A call: ``searching`` among ``length`` elements for elements of ``shape``."""

    searching: Searching
    shape: tuple[int, ...]
    length: int

    @property
    def result(self) -> tuple[tuple[int, ...], DType]:
        return self.shape, INT64


@repeatable
def searchsorted(
    a: Any,
    v: Any,
    side: str = "left",
    sorter: Array = None,
    *,
    n: Any = None,
    out: Array = None,
    stream: Stream = None,
) -> Any:
    """Return the index in the sorted array ``a`` before which each element of ``v`` belongs, as NumPy does.

    Parameters
    ----------
    a : array of one axis, of any stride, in ascending order, NaN last.
    v : array of the same library and type, of any shape and strides.
    side : "left": the lowest such index; "right": the highest one.
    sorter : None, or an array of int64 of the size of ``a``: ``a[sorter]`` is in ascending order. Its elements are
        places in ``a``, which is checked for NumPy arrays only.
    n : only the first ``n`` elements of ``a`` (with ``sorter``, of that) count: an int, or a 0-d array of int64 on the
        device.
    out : array of int64 of the shape of ``v``, of any strides, that is written and returned.
    stream : as for ``select``.

    Returns
    -------
    array of int64 of the shape of ``v``.

    Errors: ``cutesync.errors``.
    """
    number, count = split(n, type(a) is np.ndarray)
    if type(a) is type(sorter) is np.ndarray and sorter.dtype == np.int64:
        sorter_on_host(sorter, n, a.size)
    others = (v,) if sorter is None and count is None else (v, sorter, count)
    return _call((choice(side, "side", ("left", "right")), number), a, out, stream, others)


def _parse(arguments: tuple, views: Views, out: View | None) -> SearchSpec:
    """Check the arguments against the arrays, and return the Spec of the call."""
    (side, n), (a, v, sorter, count) = arguments, views
    if len(a.shape) != 1:
        raise ArgumentValueError(explain("a", f"shape {a.shape}", "an array of one axis"))
    if v.dtype is not a.dtype:
        raise ArgumentTypeError(explain("v", f"an array of {v.dtype}", f"one of {a.dtype}, as a is"))
    if sorter is not None and (sorter.dtype is not INT64 or sorter.shape != a.shape):
        came = f"{sorter.dtype} of shape {sorter.shape}"
        raise ArgumentTypeError(explain("sorter", came, f"int64 of shape {a.shape}"))
    check(count)
    searching = Searching(a.dtype, side == "right", sorter is not None, count is not None)
    return SearchSpec(searching, v.shape, a.size if n is None else min(n, a.size))


def _plan(spec: SearchSpec, views: Views, outs: Views, stream: int) -> tuple[Run, None]:
    """Prepare the launch of a call."""
    a, v, sorter, _ = views
    if v.size == 0:
        return nothing, None
    layout = strided((v, outs[0]))
    searching = replace(spec.searching, layout=layout.layout if layout else None)

    def make() -> Any:
        from .searching import Search

        return Search(searching, THREADS)

    names = "a", "v", "sorter", "n", "out"
    pointers = [Pointer(k, searching.dtype if k in ("a", "v") else INT64) for k in names]
    numbers = [Scalar(k, "Int64") for k in ("length", "count", "step", "sorter_step")]
    numbers += searching.layout.parameters if searching.layout else []
    kernel = KernelSpec(("searchsorted", searching), (pointers, numbers), make)
    values = {"length": spec.length, "count": v.size, "step": a.steps[0], **(layout.values if layout else {})}
    values |= {"sorter_step": sorter.steps[0]} if sorter else {}
    given = names if searching.sorter or searching.counted else ("a", "v", "out")
    return Launch(kernel, a.device, -(-v.size // THREADS), values, given, None, stream).run, None


_call = front_end(Family("searchsorted", ("a", "v", "sorter", "n"), _parse, _plan, strided=True, required=2))
