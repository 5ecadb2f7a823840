"""Reductions of whole arrays and along axes, with any associative operator, in one launch.

``reduce`` is the general call; ``argmin argmax sum prod min max any all`` are NumPy's names with NumPy's promotion. Operands keep
their order, so the operator need not be commutative, and the result is bitwise the same in every run and on every GPU. The method
is CUB's (vector loads, warp shuffles, one state a block) with the second kernel replaced by the block that started last.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...arguments import choice, flag, unshowable
from ...dtypes import BOOL, INT64, PROMOTED, DType, dtype, scalar, sum_dtype
from ...errors import ArgumentTypeError, ArgumentValueError, explain, shown
from ...identity import Identity, identify
from ...ops import operator
from ...runtime import device_array
from ...runtime.arrays import View
from ...runtime.call import caller
from .plan import AtomicLaunches, Folding, atomic_takes, make_fill, make_levels, make_stages

_ARG = object()  # the algorithm of argmin and argmax, which nobody can ask for


def reduce(
    x,
    op="add",
    *,
    axis=None,
    keepdims=False,
    init=None,
    dtype=None,
    transform=None,
    identity=None,
    out=None,
    algorithm="auto",
    stream=None,
):
    """Fold the elements of ``x`` along ``axis`` with an associative operator.

    Parameters
    ----------
    x : array of any shape, C-contiguous; NumPy (copied to the device and the result back), torch, CuPy, DeviceArray, or anything with
        DLPack or ``__cuda_array_interface__``. bool, int8..int64, uint8..uint64, float16, bfloat16, float32, float64.
    op : "add", "mul", "min", "max", "and", "or", "xor", "any", "all", or a callable of two scalars that the DSL can trace.
        ``op(a, b)`` gets ``a`` from lower indexes. NaN propagates through min and max, as in NumPy. A callable is known by its meaning
        (see ``cutesync.identity``): a changed capture is a new operator.
    axis : None (all), an int, or a tuple of ints; negative counts from the end.
    keepdims : keep reduced axes with extent 1.
    init : a scalar folded in before the first element; any, all: its truth value.
    dtype : the type of the operation and the result; default that of ``x`` (any, all: bool). 16-bit floats accumulate in float32.
    transform : a traced callable applied to every element (in the accumulator's type) before it is folded.
    identity : the result for an empty axis when ``op`` is a callable.
    out : where to write; right shape and dtype, not overlapping ``x``. Returned. Default: a new array of the library of ``x``.
    algorithm : "auto", or a slower rung kept for comparison: "atomic" (one atomic a block; not reproducible for floats) or
        "multi_launch" (one launch a level).
    stream : None (the current stream of the library of ``x``), an int, or an object with ``__cuda_stream__``.

    Returns
    -------
    array of the library of ``x`` with the reduced axes gone; a NumPy scalar where ``x`` is NumPy and everything is reduced.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError, DeviceError, OperatorError, CaptureError, WorkspaceError, NoGpuError.
    """
    if type(op) is not str:
        op = identify(op)
    if transform is not None:
        transform = identify(transform, "transform")
    if type(keepdims) is not bool:  # as keys 1 and True are one
        keepdims = flag(keepdims, "keepdims", numbers=True)
    arguments = (op, axis, keepdims, init, dtype, transform, identity, algorithm)
    if axis is not None or init is not None or identity is not None:
        try:
            arguments += (
                repr(axis),
                repr(init),
                repr(identity),
            )  # as keys 1, 1.0 and True are one, and so are 0.0 and -0.0
        except Exception as error:
            raise unshowable(axis, init, identity) from error
    return _call(arguments, x, out, stream)


def argmin(x, axis=None, *, keepdims=False, out=None, stream=None):
    """Index of the smallest element (int64), the lowest one on ties; a NaN counts as smallest. ``axis`` is None or an int."""
    return _arg("argmin", x, axis, keepdims, out, stream)


def argmax(x, axis=None, *, keepdims=False, out=None, stream=None):
    """Index of the largest element (int64), the lowest one on ties; a NaN counts as largest. ``axis`` is None or an int."""
    return _arg("argmax", x, axis, keepdims, out, stream)


def _arg(name: str, x, axis, keepdims, out, stream):
    if type(keepdims) is not bool:
        keepdims = flag(keepdims, "keepdims", numbers=True)
    try:
        arguments = (name, axis, keepdims, None, None, None, None, _ARG, repr(axis))
    except Exception as error:
        raise unshowable(axis) from error
    return _call(arguments, x, out, stream)


def sum(x, axis=None, *, dtype=None, keepdims=False, out=None, stream=None):
    """Sum. Without ``dtype`` bool and integers widen to 64 bits and floats keep their type, as in NumPy."""
    return reduce(
        x, "add", axis=axis, keepdims=keepdims, dtype=PROMOTED if dtype is None else dtype, out=out, stream=stream
    )


def prod(x, axis=None, *, dtype=None, keepdims=False, out=None, stream=None):
    """Product. Without ``dtype`` bool and integers widen to 64 bits and floats keep their type, as in NumPy."""
    return reduce(
        x, "mul", axis=axis, keepdims=keepdims, dtype=PROMOTED if dtype is None else dtype, out=out, stream=stream
    )


def min(x, axis=None, *, keepdims=False, out=None, stream=None):
    """Smallest element; NaN if there is one."""
    return reduce(x, "min", axis=axis, keepdims=keepdims, out=out, stream=stream)


def max(x, axis=None, *, keepdims=False, out=None, stream=None):
    """Largest element; NaN if there is one."""
    return reduce(x, "max", axis=axis, keepdims=keepdims, out=out, stream=stream)


def any(x, axis=None, *, keepdims=False, out=None, stream=None):
    """Whether some element is not zero (bool)."""
    return reduce(x, "any", axis=axis, keepdims=keepdims, out=out, stream=stream)


def all(x, axis=None, *, keepdims=False, out=None, stream=None):
    """Whether every element is not zero (bool)."""
    return reduce(x, "all", axis=axis, keepdims=keepdims, out=out, stream=stream)


def _run_of(launches: list, ordinal: int) -> Callable[[int, int, int], None]:
    """One function for all launches of a plan; intermediate results are freed in stream order."""
    *before, (last, _, _) = launches
    if not before:
        return last.run

    def run(x: int, out: int, stream: int) -> None:
        held = []
        for launch, count, element in before:
            held.append(device_array.allocate((count,), element, ordinal, stream))
            launch.run(x, held[-1].ptr, stream)
            x = held[-1].ptr
        last.run(x, out, stream)

    return run


class _Nothing:
    """The launch of an empty result."""

    @staticmethod
    def run(x: int, out: int, stream: int) -> None:
        del x, out, stream


def _result_of(arguments: tuple, view: View) -> tuple[tuple[int, ...], DType]:
    return _result(_parse(arguments, view))


def _plan_of(
    arguments: tuple, view: View, out: View | None, stream: int
) -> tuple[Callable[[int, int, int], None], bool]:
    launches = _launches(_parse(arguments, view), view, stream, out is None or out.ptr % 16 == 0)
    return _run_of(launches, view.device), False


_call = caller("reduce", _result_of, _plan_of)


def _launches(reduction: dict, view: View, stream: int, aligned_out: bool) -> list:
    folding, shape, axes = reduction["folding"], view.shape, reduction["axes"]
    count = math.prod(extent for axis, extent in enumerate(shape) if axis not in axes)
    if count == 0:
        return [(_Nothing, 0, folding.result)]
    if view.size and reduction["algorithm"] == "multi_launch":
        return make_levels(folding, view.size, reduction["init"], view.device, stream)
    if view.size and reduction["algorithm"] == "atomic":
        start = _atomic_start(folding) if reduction["init"] is None else reduction["init"]
        return [(AtomicLaunches(folding, view.size, start, view.device, stream), 1, folding.result)]
    if view.size:
        return make_stages(
            folding, shape, axes, reduction["init"], view.ptr % 16 == 0, aligned_out, view.device, stream
        )
    value = reduction["init"] if reduction["init"] is not None else _identity(folding)
    return [(make_fill(folding, count, value, view.device, stream), count, folding.result)]


def _atomic_start(folding: Folding):
    """What leaves the first value as it is: the identity, or the far end of the type for min and max."""
    if folding.op.name in ("min", "max"):
        info = np.iinfo(folding.result.numpy)
        return info.max if folding.op.name == "min" else info.min
    return folding.op.identity(folding.accumulate)


def _identity(folding: Folding):
    value = None if folding.is_arg else folding.op.identity(folding.accumulate)
    if value is None:
        name = folding.op if folding.is_arg else folding.op.name
        raise ArgumentValueError(
            explain(
                "x",
                f"an empty axis to reduce with {name!r}, which has no identity",
                "at least one element",
                "give init= or identity=",
            )
        )
    return scalar(value, folding.value, "identity")


def _parse(key: tuple, view: View) -> dict[str, Any]:
    """The call's arguments, checked against what ``x`` is."""
    op, axis, keepdims, init, wanted, transform, identity, algorithm = key[:8]
    axes = _axes(axis, len(view.shape))
    if algorithm is _ARG:
        if axis is not None and not isinstance(axis, (int, np.integer)):
            raise ArgumentTypeError(explain("axis", shown(axis), "None or an int"))
        folding = Folding(op, view.dtype, view.dtype, INT64)
    else:
        folding = _folding(op, identity, view.dtype, wanted, transform)
        _check_algorithm(algorithm, folding, axes, view)
    return {
        "folding": folding,
        "axes": axes,
        "keepdims": keepdims,
        "shape": view.shape,
        "init": None if init is None else scalar(init, folding.value, "init"),
        "algorithm": algorithm,
    }


def _folding(op, identity, source: DType, wanted, transform) -> Folding:
    parsed = operator(op, identity)
    if transform is not None:
        if type(transform) is not Identity:
            raise ArgumentTypeError(explain("transform", shown(transform), "a callable of one value"))
        transform = transform.fn
    if parsed.fn is None and parsed.name in ("any", "all"):
        if wanted is not None and dtype(wanted) is not BOOL:
            raise ArgumentTypeError(explain("dtype", shown(wanted), f"bool, the result of op={parsed.name!r}"))
        return Folding(parsed, source, source.accumulator, BOOL, transform)
    result = source if wanted is None else sum_dtype(source) if wanted is PROMOTED else dtype(wanted)
    parsed.check(result)
    if identity is not None:
        scalar(identity, result.accumulator, "identity")
    return Folding(parsed, source, result.accumulator, result, transform)


def _check_algorithm(algorithm, folding: Folding, axes: frozenset[int], view: View) -> None:
    choice(algorithm, "algorithm", ("auto", "atomic", "multi_launch"))
    if algorithm != "auto" and len(axes) != len(view.shape):
        raise ArgumentValueError(
            explain("algorithm", f"{algorithm!r} with some axes kept", "axis=None", "use algorithm='auto'")
        )
    if algorithm == "atomic" and not atomic_takes(folding):
        allowed = "add, min, max, and, or, xor of 4- and 8-byte integers, or add of float32 and float64"
        raise ArgumentValueError(
            explain("algorithm='atomic'", f"{folding.op.name} of {folding.result}", allowed, "use algorithm='auto'")
        )


def _axes(axis, ndim: int) -> frozenset[int]:
    if axis is None:
        return frozenset(range(ndim))
    given = axis if isinstance(axis, tuple) else (axis,)
    found = []
    for entry in given:
        if not isinstance(entry, (int, np.integer)) or isinstance(entry, bool):
            raise ArgumentTypeError(explain("axis", shown(axis), "None, an int or a tuple of ints"))
        if not -ndim <= entry < ndim:
            raise ArgumentValueError(
                explain("axis", shown(axis), f"{-ndim} to {ndim - 1} for an array of {ndim} dimensions")
            )
        found.append(int(entry) % ndim)
    if len(set(found)) != len(found):
        raise ArgumentValueError(explain("axis", shown(axis), "each axis once"))
    return frozenset(found)


def _result(reduction: dict) -> tuple[tuple[int, ...], DType]:
    """Shape and type of the result."""
    axes, keep = reduction["axes"], reduction["keepdims"]
    shape = tuple(
        1 if axis in axes else extent for axis, extent in enumerate(reduction["shape"]) if keep or axis not in axes
    )
    return shape, reduction["folding"].result
