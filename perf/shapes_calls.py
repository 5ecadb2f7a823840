"""What a random case calls: cutesync, torch and CuPy on the same memory, and what is right. See ``shapes_run.py``.

Values are 0, 1 and 2 (floats: -1, 0 and 1), so unsigned types may be seen as signed ones, which torch has.
"""

from __future__ import annotations

import math

import numpy as np
from shapes import Drawn

CARRIERS = {"uint16": "int16", "uint32": "int32", "uint64": "int64"}  # what torch computes with instead
BY_NUMPY = 1 << 14  # elements, up to which NumPy says what is right

ADD = lambda a, b: a + b  # noqa: E731
SQUARE = lambda v: v * v  # noqa: E731


def ours(cs, case: Drawn, x, outs, **options):
    """Make the call of cutesync on ``x``, into ``outs``."""
    out = {"out": outs[0]} | options
    if case.family == "reduce":
        if case.op == "squares":
            return cs.reduce(x, "add", axis=case.axis, transform=SQUARE, **out)
        if case.op == "lambda":
            return cs.reduce(x, ADD, axis=case.axis, **out)
        return getattr(cs, case.op)(x, axis=case.axis, **out)
    if case.family == "scan":
        op = {"max": "max", "lambda": ADD}.get(case.op, "add")
        modes = {"exclusive": case.op == "exclusive", "reverse": case.op == "reverse"}
        return cs.scan(x, op, axis=case.axis, **modes, **out)
    if case.op == "difference":
        return cs.adjacent_difference(x, axis=case.axis, **out)
    if case.op == "both":
        return cs.flag_heads_and_tails(x, axis=case.axis, **(out | {"out": tuple(outs)}))
    call = cs.flag_tails if case.op == "tails" else cs.flag_heads
    return call(x, axis=case.axis, dtype="bits" if case.op == "bits" else "uint8", **out)


def by_numpy(reference, case: Drawn, x: np.ndarray) -> tuple:
    """The results that are right, by NumPy."""
    if case.family == "reduce":
        if case.op == "squares":
            return (reference.reduce(x, "add", axis=case.axis, transform=np.square),)
        if case.op == "lambda":
            return (reference.reduce(x, "add", axis=case.axis),)
        return (np.asarray(getattr(reference, case.op)(x, axis=case.axis)),)
    if case.family == "scan":
        modes = {"exclusive": case.op == "exclusive", "reverse": case.op == "reverse"}
        return (reference.scan(x, "max" if case.op == "max" else "add", axis=case.axis, **modes),)
    if case.op == "difference":
        return (reference.adjacent_difference(x, axis=case.axis),)
    if case.op == "both":
        return reference.flag_heads_and_tails(x, axis=case.axis)
    call = reference.flag_tails if case.op == "tails" else reference.flag_heads
    return (call(x, axis=case.axis, dtype="bits" if case.op == "bits" else "uint8"),)


def by_torch(torch, case: Drawn, x) -> tuple:
    """The results that are right, by torch in a wide type. ``x`` has the carrier's type."""
    wide = x.to(torch.float64) if x.is_floating_point() else x.to(torch.int64)
    axes = tuple(range(x.ndim)) if case.axis is None else case.axis
    if case.family == "reduce":
        if case.op == "argmax":
            return (_first_largest(torch, wide, case.axis),)
        if case.op == "any":
            return ((wide != 0).any(axes),)
        largest = case.op == "max" or (case.dtype == "bool" and case.op != "sum")
        return (wide.amax(axes) if largest else (wide * wide if case.op == "squares" else wide).sum(axes),)
    if case.family == "scan":
        found = wide.flip(case.axis) if case.op == "reverse" else wide
        found = _scanned(torch, found.movedim(case.axis, -1), case.op == "max" or case.dtype == "bool")
        found = found.movedim(-1, case.axis)
        if case.op == "exclusive":
            found = torch.roll(found, 1, case.axis)
            found.select(case.axis, 0).zero_()
        return (found.flip(case.axis) if case.op == "reverse" else found,)
    return _flags(torch, case, x, wide)


def _scanned(torch, rows, largest: bool):
    """Running sums, or running maxima of -1 .. 2, along the last axis. One scan of one row each, which is the only one
    that is fast in torch."""

    def sums(values):
        whole = torch.cumsum(values.reshape(-1), 0).reshape(rows.shape)
        return whole - (whole[..., :1] - values[..., :1])

    if not largest:
        return sums(rows)
    return sum((sums((rows >= level).to(torch.int32)) > 0).to(torch.int8) for level in (0, 1, 2)) - 1


def _flags(torch, case: Drawn, x, wide) -> tuple:
    axis, length = case.axis, case.shape[case.axis]
    later, earlier = wide.narrow(axis, 1, length - 1), wide.narrow(axis, 0, length - 1)
    if case.op == "difference":
        found = wide.clone()
        found.narrow(axis, 1, length - 1).copy_(later - earlier)
        return (found,)
    heads = torch.ones(case.shape, dtype=torch.uint8, device=x.device)
    tails = heads.clone()
    heads.narrow(axis, 1, length - 1).copy_(later != earlier)
    tails.narrow(axis, 0, length - 1).copy_(later != earlier)
    if case.op != "bits":
        return {"heads": (heads,), "tails": (tails,), "both": (heads, tails)}[case.op]
    words = case.results[0][0]
    padded = torch.zeros(
        (*case.shape[:axis], words[axis] * 32, *case.shape[axis + 1 :]), dtype=torch.uint8, device=x.device
    )
    padded.narrow(axis, 0, length).copy_(heads)
    return (sum(padded[(slice(None),) * axis + (slice(k, None, 32),)].to(torch.int64) << k for k in range(32)),)


def _first_largest(torch, wide, axis):
    """The first index of the largest element; torch's argmax gives any."""
    rows = wide.reshape(-1) if axis is None else wide.movedim(axis, -1)
    largest = rows == rows.amax(-1, keepdim=True)
    return torch.where(largest, torch.arange(rows.shape[-1], device=rows.device), rows.shape[-1]).amin(-1)


def same(torch, case: Drawn, found, wanted) -> bool:
    """Whether a result is right: equal, or for floats near."""
    if isinstance(wanted, (np.ndarray, np.generic)):
        wanted = torch.as_tensor(np.array(wanted, order="C")).to(found.device)
    wanted = wanted.reshape(found.shape)
    if not found.is_floating_point():
        if found.dtype is torch.bool:
            return bool((found == wanted.to(torch.bool)).all())
        return bool((found == wanted.to(torch.int64).to(found.dtype)).all())
    near = {2: 2e-2, 4: 1e-4, 8: 1e-9}[found.element_size()]
    exact = wanted.to(torch.float64)
    limits = torch.finfo(found.dtype)
    exact = exact.clamp(limits.min, limits.max)  # beyond them the results are infinite
    scale = exact.abs().amax() if exact.numel() else 0
    found = found.to(torch.float64).clamp(limits.min, limits.max)
    return bool(((found - exact).abs() <= near * (exact.abs() + 0.1 * scale + near)).all())


def torch_call(torch, case: Drawn, x, outs):
    """The call of torch, or None if it has no such function."""
    axes = tuple(range(x.ndim)) if case.axis is None else case.axis
    if case.family == "reduce":
        return {
            "sum": lambda: torch.sum(x, axes),
            "max": lambda: torch.amax(x, axes),
            "any": lambda: torch.any(x, axes),
            "argmax": lambda: torch.argmax(x, case.axis),
            "lambda": lambda: torch.sum(x, axes, dtype=x.dtype),
            "squares": lambda: torch.sum(x * x, axes, dtype=x.dtype),
        }[case.op]
    if case.family == "scan":
        if case.op == "inclusive" and case.dtype != "bool":
            return lambda: torch.cumsum(x, case.axis, dtype=x.dtype, out=outs[0])
        return (lambda: torch.cummax(x, case.axis)) if case.op == "max" else None
    length = case.shape[case.axis] - 1
    if case.op in ("both", "bits") or length < 1:
        return None
    a, b = x.narrow(case.axis, 1, length), x.narrow(case.axis, 0, length)
    target = outs[0].narrow(case.axis, 0, length)
    if case.op == "difference":
        return lambda: torch.sub(a, b, out=target)
    target = target.view(torch.bool)
    return lambda: torch.ne(a, b, out=target)


def cupy_call(cupy, case: Drawn, x, outs):
    """The call of CuPy, or None if it has no such function."""
    if case.family == "reduce":
        if case.op in ("lambda", "squares"):
            return None
        call = {"sum": cupy.sum, "max": cupy.amax, "any": cupy.any, "argmax": cupy.argmax}[case.op]
        return lambda: call(x, axis=case.axis)
    if case.family == "scan":
        return (lambda: cupy.cumsum(x, case.axis, dtype=x.dtype, out=outs[0])) if case.op == "inclusive" else None
    if case.op in ("both", "bits"):
        return None

    def part(y, first):
        index = [slice(None)] * y.ndim
        index[case.axis] = slice(first, case.shape[case.axis] - 1 + first)
        return y[tuple(index)]

    function = cupy.subtract if case.op == "difference" else cupy.not_equal
    target = part(outs[0], 0) if case.op == "difference" else part(outs[0].view(bool), 0)
    return lambda: function(part(x, 1), part(x, 0), out=target)


def memory_bytes(case: Drawn) -> int:
    """Bytes of the memory around the array."""
    return case.span * np.dtype("u2" if case.dtype == "bfloat16" else case.dtype).itemsize


def elements(shape: tuple[int, ...]) -> int:
    return math.prod(shape)
