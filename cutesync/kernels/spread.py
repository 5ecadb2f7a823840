"""Results of broadcast arrays: those along a broadcast axis are equal, so they are computed once and then copied.

A call of a family whose results keep the axes of its input (a scan, flags) runs on the first slice of the axis; a
kernel copies the results of this slice to the others. Each byte is written once, in vectors. Slices too short for that,
of results that are one run of memory, go to a temporary array without the axis, from which all results are copied.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..dtypes import BY_NAME
from ..runtime.call import Views
from ..runtime.kernel import KernelSpec, Pointer, Scalar
from ..runtime.launch import Launch, Run, in_turn
from ..runtime.layout import Axis, axes_of, merged
from ..runtime.view import View, is_c_contiguous
from ..sizes import ceil_div, power_of_two
from .axes import NUMBER_BITS, divisor, numbers, parameters
from .hardware import SECTOR_BYTES, VECTOR_BYTES
from .policy import Policy

THREADS = 256
WIDEST = 8  # bytes of an element
UNROLL = 2  # vectors of a thread
BLOCK_BYTES = THREADS * UNROLL * VECTOR_BYTES
# Of a slice whose vectors are joined from words: of shorter ones most warps have some that are not (H200, 101 bytes:
# 29.8 us, so 33.0 us; 1316 bytes: 138 us, so 68 us).
MIN_VECTORS = 64
# A second launch takes about 1 us, in which an H200 copies 2 MB (int32 (32, 32768) from one row: 5.2 us, so 4.2).
MIN_COPIES, MIN_BYTES = 4, 1 << 23
# The same of results from a temporary array (max bool (40, 8, 660, 33) repeated along its last axis: 19.1 us, so 7.1;
# but tails float32 (119082, 48): 3.2 and 5.3 us); as many of each output.
MIN_DENSE_BYTES = 6 << 20
MIN_SLICE_BYTES, MIN_SHORT_BYTES = 256, 64  # a result and its copies; less is a few vectors, which must be whole


@dataclass(frozen=True)
class SpreadPolicy(Policy, kernel=".spread_kernel:Spread"):
    """Compile-time choices of the kernel: bytes of an element, the axes of slices, whether each slice is
    whole vectors on their boundaries, whether a slice and its copies are few whole vectors, which a block has."""

    size: int
    rank: int
    whole: bool
    short: bool


@dataclass(frozen=True)
class DensePolicy(Policy, kernel=".spread_dense:DenseSpread"):
    """Compile-time choices of the kernel that copies results from an array that has each once: bytes of an element, and
    what a thread loads for a vector: "one" result, of which all are copies, "two", of which the second may follow the
    first, a "few", each copied more than once, a "vector", or "each" result."""

    size: int
    loads: str


class Spread(NamedTuple):
    """``copies`` results along ``axis`` are equal. In the memory of each output, ``inner`` neighbours are followed by
    those of the next copy; ``outer`` are the other axes, with the strides of the outputs. ``dense``: results come from
    a temporary array."""

    axis: int
    copies: int
    inner: int
    outer: tuple[Axis, ...]
    dense: bool = False


def find(views: Views, outs: Views, kept: int, least: int = 1, read: int = 0) -> Spread | None:
    """Return the broadcast axis of the inputs, but for axis ``kept``, along which results are worth copying: that of
    most copies. Elements whose copies are neighbours count as ``least`` bytes at least; all others, as ``read``."""
    shape = outs[0].shape
    found = [i for i, n in enumerate(shape) if i != kept and n >= MIN_COPIES and not any(v.steps[i] for v in views)]
    for axis in sorted(found, key=lambda i: -shape[i]):
        spread = _along(axis, outs, math.prod(views[0].shape), least, read)
        if spread is not None:
            return spread
    return None


def _along(axis: int, outs: Views, elements: int, least: int, read: int) -> Spread | None:
    """Return the copies along an axis of the results of so many ``elements``, a byte each at least, or ``least`` as in
    ``find``, which are so many bytes ``read`` else; None if copies of a slice do not follow each other in memory, or
    are few."""
    axes = axes_of(outs[0].shape, *(out.steps for out in outs))
    (pace, *others), copies = axes[axis].steps, axes[axis].extent
    inside = [each for i, each in enumerate(axes) if i != axis and 0 < each.steps[0] < pace and each.extent > 1]
    inside = merged(sorted(inside, key=lambda each: -each.steps[0]))
    if set(others) - {pace} or len(inside) > 1 or any(set(each.steps) != {1} for each in inside):
        return None
    inner = math.prod(each.extent for each in inside)
    size, total = min(out.dtype.size for out in outs), outs[0].size
    outer = [each for i, each in enumerate(axes) if i != axis and not 0 < each.steps[0] < pace]
    found = Spread(axis, copies, inner, tuple(merged(outer)))
    written = max(total * size, *((elements * least,) if inner == 1 else (elements, read)))
    if inner != pace or written < min(MIN_BYTES, MIN_DENSE_BYTES) or total >= 1 << NUMBER_BITS:
        return None  # the kernels count in 32 bits
    short = copies * inner * size < MIN_SLICE_BYTES
    parts = inner * size < SECTOR_BYTES  # memory is read where less of a sector is written
    fits = written >= MIN_DENSE_BYTES * len(outs) and total + BLOCK_BYTES < 1 << NUMBER_BITS
    dense = fits and _is_dense(outs)
    if dense and (inner == 1 or (short and parts)):
        return found._replace(dense=True)
    if written >= MIN_BYTES and all(_is_short(found, k, out) for k, out in enumerate(outs)):
        return found
    if dense and short:
        return found._replace(dense=True)
    return None if short or written < MIN_BYTES else found


def _is_dense(outs: Views) -> bool:
    """Return whether each output is one run of memory, with its axes in the same order as the others."""
    axes = merged(
        sorted(axes_of(outs[0].shape, *(out.steps for out in outs)), key=lambda axis: axis.steps, reverse=True)
    )
    return len(axes) == 1 and set(axes[0].steps) == {1}


def _is_short(spread: Spread, k: int, out: View) -> bool:
    """Return whether the slices of output ``k`` with their copies are a power of two of whole vectors, at most those
    of a block."""
    vector, length = VECTOR_BYTES // out.dtype.size, spread.copies * spread.inner
    apart = out.ptr % VECTOR_BYTES or any(axis.steps[k] % vector for axis in spread.outer)
    large = length * out.dtype.size >= MIN_SHORT_BYTES
    return not apart and large and length // vector <= THREADS and not length & (length - 1)


def first_slices(views: Views, axis: int) -> Views:
    """Return the arrays without the other elements along an axis."""
    return tuple(
        replace(v, shape=(*v.shape[:axis], 1, *v.shape[axis + 1 :]), strides=v.steps, contiguous=False) for v in views
    )


def results_once(outs: Views, spread: Spread) -> Views:
    """Return the arrays of the results that differ: first slices of the outputs, or temporary ones."""
    if not spread.dense:
        return first_slices(outs, spread.axis)
    found = []
    for out in outs:
        pace = out.steps[spread.axis]
        shape = (*out.shape[: spread.axis], 1, *out.shape[spread.axis + 1 :])
        steps = tuple(step // spread.copies if step > pace else step for step in out.steps)
        found.append(replace(out, ptr=0, shape=shape, strides=steps, contiguous=is_c_contiguous(shape, steps)))
    return tuple(found)


def then_copied(run: Run, spread: Spread, views: Views, outs: Views, stream: int) -> Run:
    """Return ``run``, which computes each result once (``results_once``), and after it the launches that copy them."""
    given = sum(view is not None for view in views)
    if spread.dense:
        last = given + len(outs)
        steps = [(run, (*range(given), *range(last, last + len(outs))))]
        steps += [(_dense(spread, out, stream).run, (last + k, given + k)) for k, out in enumerate(outs)]
        sizes = [out.nbytes // spread.copies for out in outs]
        return in_turn(steps, sizes, outs[0].device)
    steps = [(run, tuple(range(given + len(outs))))]
    for k, out in enumerate(outs):
        steps.append((_launch(spread, k, out, stream).run, (given + k,)))
    return in_turn(steps, (), outs[0].device)


def _launch(spread: Spread, k: int, out: View, stream: int) -> Launch:
    """Prepare the launch that copies the results of output ``k``."""
    size, vector = out.dtype.size, VECTOR_BYTES // out.dtype.size
    short = _is_short(spread, k, out)
    span = (spread.copies - (not short)) * spread.inner  # with the slice itself, or without it
    units = span // vector if short else ceil_div(span, vector) + 1  # the first and the last need not be whole
    axes = [*(Axis(axis.extent, (axis.steps[k], 0)) for axis in spread.outer), Axis(units, (0, vector))]
    steps = [spread.inner, *(axis.steps[k] for axis in spread.outer)]
    whole = out.ptr % VECTOR_BYTES == 0 and not any(step % vector for step in steps)
    policy = SpreadPolicy(size, power_of_two(len(axes)), whole, short)
    names = [p.name for p in parameters("axis", policy.rank, 2, False)]
    values = dict(zip(names, numbers(axes, policy.rank, 2, False)))
    factor, shift = divisor(spread.inner)
    count = math.prod(axis.extent for axis in axes)
    values |= {"count": count, "span": span, "inner": spread.inner, "factor": factor, "shift": shift}
    return Launch(kernel_spec(policy), out.device, ceil_div(count, THREADS * UNROLL), values, ("out",), stream=stream)


def _dense(spread: Spread, out: View, stream: int) -> Launch:
    """Prepare the launch that stores all results of an output, from an array that has each once."""
    beside = math.gcd(spread.inner, WIDEST // out.dtype.size)  # neighbours that are copied as one
    while out.ptr % (beside * out.dtype.size):
        beside //= 2
    size, inner, count = out.dtype.size * beside, spread.inner // beside, out.size // beside
    vector = VECTOR_BYTES // size
    policy = DensePolicy(size, _loads(spread.copies, inner, out.ptr % VECTOR_BYTES == 0, vector))
    values = {"count": count, "copies": spread.copies, "inner": inner}
    for name, number in (("copies", spread.copies), ("inner", inner)):
        factor, shift = divisor(number)
        values |= {f"{name}_factor": factor, f"{name}_shift": shift}
    kinds = {name: "Uint32" for name in values if name.endswith(("factor", "shift"))}
    numbers = tuple(Scalar(name, kinds.get(name, "Int32")) for name in sorted(values))
    kind = BY_NAME[f"uint{8 * size}"]
    spec = KernelSpec(("spread", policy), (Pointer("x", kind), Pointer("out", kind), *numbers), policy.make)
    vectors = ceil_div(count, vector) + 1  # the first and the last may be partial
    return Launch(spec, out.device, ceil_div(vectors, THREADS * UNROLL), values, stream=stream)


def _loads(copies: int, inner: int, whole: bool, vector: int) -> str:
    """Return what a thread loads for a vector; ``whole``: vectors begin at multiples of their length."""
    if inner > 1:
        return "vector" if whole and inner % vector == 0 else "each"
    return "one" if whole and copies % vector == 0 else "two" if copies >= vector else "few"


def kernel_spec(policy: SpreadPolicy) -> KernelSpec:
    """Return the kernel of a policy."""
    kinds = {"factor": "Uint32", "shift": "Uint32"}
    out = Pointer("out", BY_NAME[f"uint{8 * policy.size}"])
    first = tuple(Scalar(name, kinds.get(name, "Int32")) for name in ("count", "span", "inner", "factor", "shift"))
    axes = tuple(parameters("axis", policy.rank, 2, False))
    return KernelSpec(("spread", policy), (out, *first, axes), policy.make)
