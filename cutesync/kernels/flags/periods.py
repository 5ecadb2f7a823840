"""Short rows as the periods of long ones."""

from __future__ import annotations

from .form import Form
from .order import pace_out, roles_of
from .strided_choice import Facts
from .strided_policy import choose_flat
from .tile_policy import MIN_TRANSPOSED, SECTOR


def in_periods(form: Form, facts: Facts) -> Form | None:
    """Return the form with short rows as periods of a long one, if their results lie side by side and their elements do
    not: a block that transposes then stores whole sectors. None for others."""
    flagged, (columns, rows) = form.flagged, roles_of(form)
    short = flagged.extent > 1 and flagged.extent * facts.result < SECTOR and pace_out(flagged) == 1
    turned = rows is flagged and columns is not None and not form.bits
    if not (short and turned) or facts.counted or form.rows * flagged.extent < MIN_TRANSPOSED:
        return None
    return form.in_periods() if choose_flat(form, facts) is None else None
