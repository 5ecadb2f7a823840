"""Short rows as the periods of long ones."""

from __future__ import annotations

from dataclasses import replace

from .form import Form
from .order import pace_out, roles_of
from .strided_choice import Facts, FlatPolicy
from .strided_policy import choose_flat
from .tile_policy import MIN_TRANSPOSED, SECTOR

MIN_VECTORS = 1 << 20  # elements: of fewer, a short way counts, not the bytes of a load


def in_periods(form: Form, facts: Facts) -> Form | None:
    """Return the form with short rows as periods of a long one, if their results lie side by side and their elements do
    not: a block that transposes then stores whole sectors; or if the elements of long rows are loaded as vectors, but
    not those of short ones. None for others."""
    flagged, (columns, rows) = form.flagged, roles_of(form)
    if form.bits or facts.counted or flagged.extent == 1:
        return None
    flat = choose_flat(form, facts)
    if flat is not None:
        large = form.rows * flagged.extent >= MIN_VECTORS
        return _in_vectors(form, facts) if large and _single(flat.policy) else None
    short = flagged.extent * facts.result < SECTOR and pace_out(flagged) == 1
    turned = short and rows is flagged and columns is not None
    return form.in_periods() if turned and form.rows * flagged.extent >= MIN_TRANSPOSED else None


def _in_vectors(form: Form, facts: Facts) -> Form | None:
    """Return the form with long rows whose elements are loaded as vectors."""
    longer = form.in_periods()
    flat = longer and choose_flat(longer, replace(facts, periodic=True))
    return longer if flat and not _single(flat.policy) else None


def _single(policy) -> bool:
    """Return whether a thread loads elements one by one."""
    return isinstance(policy, FlatPolicy) and policy.piece == 1 and not policy.equal
