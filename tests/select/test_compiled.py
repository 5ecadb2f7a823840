"""Every selection kernel compiles for sm_90a, without a GPU: no spills, no local memory, the shared memory that
launches declare."""

from __future__ import annotations

import functools

import pytest

import cutesync as cs

from ..compiled import dry, needed, tell_figures, verify

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh_compiler")]
LARGE = 1 << 28


def odd(value, index):
    return (value ^ index) & 1


def calls(n: int) -> dict:
    """Calls that between them need every kind of kernel."""
    select = functools.partial(cs.select, stream=0)
    masked = {
        t: functools.partial(select, dry((n,), t), dry((n,), "bool")) for t in ("int8", "int16", "int32", "int64")
    }
    x, mask = dry((n,), "int32"), dry((n,), "bool")
    return masked | {
        "indices, filled": lambda: cs.select(x, mask, indices=True, size=1000),
        "misaligned": lambda: cs.select(dry((n,), "int8", 1), dry((n,), "bool", 3)),
        "bits": lambda: cs.select(x, dry((-(-n // 32),), "uint32")),
        "callable": lambda: cs.select(x, odd),
        "two arrays": lambda: cs.select((x, dry((n,), "float64")), mask),
        "nonzero": lambda: cs.flatnonzero(x),
        "runs": lambda: cs.unique_consecutive(x, return_index=True, return_inverse=True, return_counts=True),
        "lengths": lambda: cs.run_length_encode(x, dtype="int32"),
    }


@pytest.mark.parametrize("n", [1000, LARGE])
def test_every_configuration(n, allocated, capsys):
    rows = []
    for call in calls(n).values():
        (spec,) = needed(call)
        rows.append(verify(spec, allocated, slack=2048))
    tell_figures(capsys, rows)
