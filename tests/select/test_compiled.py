"""Selection kernels compile for sm_90a, without a GPU: no spills, no local memory, the shared memory that launches
declare. Other ones of all for each commit."""

from __future__ import annotations

import functools

import pytest

import cutesync as cs

from ..compiled import dry, needed, tell_figures, verify

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh_compiler")]
LENGTHS = 1000, 1 << 20, 1 << 28


def odd(value, index):
    return (value ^ index) & 1


def odd_sum(value, other):
    return (value + other) > 1


def calls(n: int) -> dict:
    """Calls that between them need every kind of kernel."""
    select = functools.partial(cs.select, stream=0)
    masked = {t: functools.partial(select, dry((n,), t), dry((n,), "bool")) for t in ("int8", "int32", "int64")}
    x, mask = dry((n,), "int32"), dry((n,), "bool")
    return masked | {
        "indices, filled": lambda: cs.select(x, mask, indices=True, size=1000),
        "bits": lambda: cs.select(x, dry((-(-n // 32),), "uint32")),
        "callable": lambda: cs.select(x, odd),
        "two arrays": lambda: cs.select((x, dry((n,), "float64")), mask),
        "nonzero": lambda: cs.flatnonzero(x),
        "runs": lambda: cs.unique_consecutive(x, return_index=True, return_inverse=True, return_counts=True),
        "lengths": lambda: cs.run_length_encode(x, dtype="int32"),
        "lengths of bytes": lambda: cs.run_length_encode(dry((n,), "int8")),
        "coordinates": lambda: cs.nonzero(x.reshape(2, 2, -1, 2)),
        "rows of coordinates": lambda: cs.argwhere(x.reshape(2, -1)),
        "partition": lambda: cs.partition(x, mask, indices=True),
        "partition by a callable": lambda: cs.partition(dry((n,), "int8"), odd),
    }


def of_axes(n: int) -> dict:
    """The same of strided arrays, and by rows."""
    x, mask = dry((8, n // 8), "int32"), dry((8, n // 8), "bool")
    outs = dry((n, 2), "int32", base=1 << 45)[:, 0], dry((n,), "int64", base=1 << 46)
    short = dry((n // 40, 40), "int16")
    counts = {"return_index": True, "return_inverse": True, "return_counts": True}
    return {
        "strided": lambda: cs.select(x.T, mask.T),
        "strided, two arrays": lambda: cs.select((x[:, ::2], dry(x.shape, "float64")[:, ::2]), odd_sum),
        "strided bits": lambda: cs.select(x.T, dry((-(-x.size // 32), 2), "uint32")[:, 0]),
        "strided runs": lambda: cs.unique_consecutive(x.T, **counts),
        "strided results": lambda: cs.select(x, mask, indices=True, out=outs),
        "rows": lambda: cs.select(x, mask, axis=1, indices=True),
        "rows, packed, filled": lambda: cs.select(x, mask, axis=1, packed=True, size=1000),
        "short rows, filled": lambda: cs.select(short, odd, axis=1, size=20),
        "runs of rows": lambda: cs.unique_consecutive(short, axis=1, **counts),
        "lengths of packed rows": lambda: cs.run_length_encode(x, axis=1, packed=True),
        "columns": lambda: cs.run_length_encode(x, axis=0),
    }


@pytest.mark.parametrize("of", [calls, of_axes])
def test_configurations(of, allocated, capsys, some):
    specs = {spec.key: spec for n in LENGTHS for call in of(n).values() for spec in needed(call)}
    tell_figures(capsys, [verify(spec, allocated, slack=2048) for spec in some(specs.values(), 12)])
