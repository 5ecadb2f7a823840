"""In which order elements and results lie in memory, and which axes a thread's tile lies along."""

from __future__ import annotations

from ...runtime.layout import Axis
from .form import Form

MIN_REPEATED = 1 << 11  # words, of which rows repeat one each
FAR = 1 << 62  # the stride of an axis along which elements repeat: no neighbours in memory


def pace_in(axis: Axis) -> int:
    """Return the distance of neighbours along an axis in the input, in elements."""
    return abs(axis.steps[0]) or FAR


def pace_out(axis: Axis) -> int:
    return abs(axis.steps[1]) or FAR


def roles_of(form: Form) -> tuple[Axis | None, Axis | None]:
    """Return the axes of a tile's columns and rows; None for one without an axis."""
    if form.bits:
        columns, stored = (min(form.others, key=pace, default=None) for pace in (pace_in, pace_out))
        many = form.rows * form.results >= MIN_REPEATED
        if many and pace_in(form.flagged) == FAR and pace_out(form.flagged) == 1 < form.results:
            return None, form.flagged  # words that repeat, side by side
        repeated = stored is not None and pace_in(stored) == FAR and pace_out(stored) == 1
        return stored if repeated else columns, form.flagged
    axes = [*form.others, form.flagged]
    columns, stored = min(axes, key=pace_in), min(axes, key=pace_out)
    if pace_in(stored) == FAR:  # its elements repeat: the caches have them
        columns = stored
    if stored is not columns:
        return columns, stored
    if columns is not form.flagged:
        return columns, form.flagged
    return columns, min(form.others, key=pace_in, default=None)
