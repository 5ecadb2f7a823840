"""Which strided arrays are flagged in tiles that are transposed in shared memory, with columns of two axes."""

from __future__ import annotations

from dataclasses import replace

from ...runtime.layout import Axis
from ..hardware import LINE_BYTES
from .form import Form
from .strided_choice import Facts, StridedChoice, TransposedPolicy
from .tile_policy import choose_tiles

MAX_COLUMNS = (1 << 31) - 1  # whose numbers are split in 32 bits


def choose_split(form: Form, facts: Facts) -> StridedChoice | None:
    """Return the tiles of arrays whose columns are shorter than a line of the input and go on along another axis there,
    but not in the outputs, where rows are neighbours; None for others. Both axes are the columns, so that whole lines
    are read. The last of the choice's axes has the extent of the short one, and the outputs' strides of the other
    (H200, heads float16 (1024, 16, 32, 64) along its last axis, read in the order of 0, 3, 2, 1: 52 us, so 34 us;
    difference bfloat16 (13, 3, 110582), in that of 1, 2, 0: 70 us, so 12 us). Where the short columns are neighbours,
    threads store what they have (difference uint64 (1024, 2, 16, 2), turned, along its second axis: 2.4 us, so 1.6 us;
    float32 (5467, 8, 8, 8): 25.2 us, so 7.8 us; float64 (61357, 8, 4, 8): 422 us, so 105 us)."""
    inner = next((axis for axis in form.others if axis.steps[0] == 1), None)
    if inner is None or inner.extent * facts.size >= LINE_BYTES or form.bits or facts.counted or facts.periodic:
        return None
    outer = next((axis for axis in form.others if axis.steps[0] == inner.extent), None)
    if outer is None or inner.extent * outer.extent > MAX_COLUMNS:
        return None
    others = tuple(axis for axis in form.others if axis is not inner and axis is not outer)
    both = Axis(inner.extent * outer.extent, (1, *outer.steps[1:]))
    found = choose_tiles(replace(form, others=(*others, both)), facts)
    policy, (columns, *axes) = found.policy, found.axes
    if not isinstance(policy, TransposedPolicy) or policy.stores == "run" or columns.extent != both.extent:
        return None
    if set(axes[policy.row - 1].steps[1:]) != {1}:
        return None
    policy = replace(policy, digits=policy.digits + 1, split=True)
    split = Axis(both.extent, inner.steps), *axes, Axis(inner.extent, (0, *outer.steps[1:]))
    return StridedChoice(policy, split, (*found.counts, 1))
