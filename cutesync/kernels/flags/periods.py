"""Short rows as the periods of long ones."""

from __future__ import annotations

from dataclasses import replace

from ..hardware import SECTOR_BYTES
from .form import Form
from .order import pace_out, roles_of
from .strided_choice import Facts, FlatPolicy
from .strided_policy import choose_flat
from .tile_policy import MIN_TRANSPOSED

MIN_VECTORS = 1 << 20  # elements: of fewer, a short way counts, not the bytes of a load


def in_periods(form: Form, facts: Facts) -> Form | None:
    """Return the form with short rows as periods of a long one, if their results lie side by side and their elements do
    not: a block that transposes then stores whole sectors; or if the elements of long rows are loaded as vectors, but
    not those of short ones. None for others."""
    flagged, total = form.flagged, form.rows * form.flagged.extent
    longer = None if form.bits or facts.counted or flagged.extent == 1 else form.in_periods()
    if longer is None or total < min(MIN_VECTORS, MIN_TRANSPOSED):
        return None
    flat = choose_flat(form, facts)
    if flat is not None:
        return longer if total >= MIN_VECTORS and _single(flat.policy) and _in_vectors(longer, facts) else None
    short = flagged.extent * facts.result < SECTOR_BYTES and pace_out(flagged) == 1
    columns, rows = roles_of(form)
    turned = short and rows is flagged and columns is not None
    return longer if turned and total >= MIN_TRANSPOSED else None


def _in_vectors(longer: Form, facts: Facts) -> bool:
    """Return whether the elements of long rows are loaded as vectors."""
    flat = choose_flat(longer, replace(facts, periodic=True))
    return flat is not None and not _single(flat.policy)


def _single(policy) -> bool:
    """Return whether a thread loads elements one by one."""
    return isinstance(policy, FlatPolicy) and policy.piece == 1 and not policy.equal
