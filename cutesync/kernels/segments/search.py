"""Where elements belong in a sorted array: a thread searches for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...arguments import choice
from ...dtypes import INT64, DType
from ...errors import ArgumentTypeError, ArgumentValueError, explain
from ...runtime.call import Family, Spec, Views, front_end
from ...runtime.kernel import KernelSpec, Pointer, Scalar
from ...runtime.launch import Launch, Run, nothing
from ...runtime.view import View
from ...types import Array, Stream

THREADS = 256


@dataclass(frozen=True)
class SearchSpec(Spec):
    """A call: ``length`` elements of type ``dtype`` are searched for elements of ``shape``; ``right``: behind equal
    ones. ``sorter``: another array has the order of the elements."""

    shape: tuple[int, ...]
    dtype: DType
    length: int
    right: bool
    sorter: bool

    @property
    def result(self) -> tuple[tuple[int, ...], DType]:
        return self.shape, INT64


def searchsorted(
    a: Any, v: Any, side: str = "left", sorter: Array = None, *, out: Array = None, stream: Stream = None
) -> Any:
    """Return the index in the sorted array ``a`` before which each element of ``v`` belongs, as NumPy does.

    Parameters
    ----------
    a : C-contiguous array of one axis, in ascending order, NaN last.
    v : array of the same library and type, of any shape.
    side : "left": the lowest such index; "right": the highest one.
    sorter : None, or an array of int64 of the size of ``a``: ``a[sorter]`` is in ascending order.
    out : array of int64 of the shape of ``v`` that is written and returned.
    stream : as for ``select``.

    Returns
    -------
    array of int64 of the shape of ``v``.

    Errors: ``cutesync.errors``.
    """
    return _call((choice(side, "side", ("left", "right")),), a, out, stream, (v, sorter))


def _parse(arguments: tuple, views: Views, out: View | None) -> SearchSpec:
    """Check the arguments against the arrays, and return the Spec of the call."""
    (side,), (a, v, sorter) = arguments, views
    if len(a.shape) != 1:
        raise ArgumentValueError(explain("a", f"shape {a.shape}", "an array of one axis"))
    if v.dtype is not a.dtype:
        raise ArgumentTypeError(explain("v", f"an array of {v.dtype}", f"one of {a.dtype}, as a is"))
    if sorter is not None and (sorter.dtype is not INT64 or sorter.shape != a.shape):
        came = f"{sorter.dtype} of shape {sorter.shape}"
        raise ArgumentTypeError(explain("sorter", came, f"int64 of shape {a.shape}"))
    return SearchSpec(v.shape, a.dtype, a.size, side == "right", sorter is not None)


def _plan(spec: SearchSpec, views: Views, outs: Views, stream: int) -> tuple[Run, None]:
    """Prepare the launch of a call."""
    count = views[1].size
    if count == 0:
        return nothing, None

    def make() -> Any:
        from .searching import Search

        return Search(spec, THREADS)

    pointers = Pointer("a", spec.dtype), Pointer("v", spec.dtype), Pointer("sorter", INT64), Pointer("out", INT64)
    kernel = KernelSpec(
        ("searchsorted", spec.dtype.name, spec.right, spec.sorter),
        (*pointers, Scalar("length", "Int64"), Scalar("count", "Int64")),
        make,
    )
    values = {"length": spec.length, "count": count}
    names = ("a", "v", "sorter", "out")
    return Launch(kernel, views[0].device, -(-count // THREADS), values, names, None, stream).run, None


_call = front_end(Family("searchsorted", ("a", "v", "sorter"), _parse, _plan))
