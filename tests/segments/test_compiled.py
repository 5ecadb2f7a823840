"""Kernels of segments compile for sm_90a, without a GPU: no spills, no local memory, the shared memory that launches
declare. Other ones of all for each commit."""

from __future__ import annotations

import pytest

import cutesync as cs

from ..compiled import dry, needed, tell_figures, verify
from ..states import product

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh_compiler")]
LENGTHS = 1000, 1 << 20, 1 << 28


def calls(n: int) -> dict:
    """Calls that between them need every kind of kernel."""
    keys, x = dry((n,), "int32"), dry((n,), "float32")
    found = {f"reduce {t}": lambda t=t: cs.reduce_by_key(keys, dry((n,), t), stream=0) for t in ("int8", "float64")}
    return found | {
        "filled": lambda: cs.reduce_by_key(dry((n,), "int8", 1), x, size=1000, stream=0),
        "scan": lambda: cs.scan_by_key(keys, x, stream=0),
        "reverse": lambda: cs.scan_by_key(keys, x, reverse=True, exclusive=True, stream=0),
        "states": lambda: cs.scan_by_key(keys, (dry((n,), "int32"),) * 4, product, stream=0),
        "states of offsets": lambda: cs.segmented_reduce(
            (dry((n,), "int64"),) * 4, product, offsets=dry((n // 50,), "int64"), identity=(1, 0, 0, 1), stream=0
        ),
        **{
            f"offsets {t}": lambda t=t: cs.segmented_reduce(dry((n,), t), offsets=dry((n // 50,), "int64"), stream=0)
            for t in ("int8", "float32", "float64")
        },
        "many offsets": lambda: cs.segmented_reduce(x, offsets=dry((n // 12,), "int64"), stream=0),
        "offsets, scan": lambda: cs.segmented_scan(x, offsets=dry((n // 50,), "int32"), reverse=True, stream=0),
        "strided": lambda: cs.reduce_by_key(keys.reshape(8, -1).T, x.reshape(8, -1).T, size=1000, stream=0),
        "strided scan": lambda: cs.scan_by_key(
            keys.reshape(8, -1).T, x, reverse=True, out=dry((n, 2), "float32", base=1 << 45)[:, 0], stream=0
        ),
        "strided, offsets": lambda: cs.segmented_reduce(
            dry((n,), "int8").reshape(8, -1).T, offsets=dry((n // 50, 2), "int64")[:, 0], stream=0
        ),
        "strided states": lambda: cs.scan_by_key(
            keys.reshape(8, -1).T, (dry((n,), "int32").reshape(8, -1).T,) * 4, product, stream=0
        ),
        "strided states of offsets": lambda: cs.segmented_reduce(
            (dry((n,), "int64").reshape(8, -1).T,) * 4,
            product,
            offsets=dry((n // 50,), "int64"),
            identity=(1, 0, 0, 1),
            stream=0,
        ),
        "decode": lambda: _decoded(n, 1, "int32"),
        "decode narrow runs": lambda: _decoded(n, 8, "int8"),
        "decode shortest runs of two bytes": lambda: _decoded(n, 1, "int16", "int32"),
        "decode shortest wide runs": lambda: _decoded(n, 1, "int64", "int32"),
        "decode wide runs": lambda: _decoded(n, 8, "int64"),
        "decode long runs": lambda: _decoded(n, 200, "int32"),
        "decode strided runs": lambda: cs.repeat(
            dry((n,), "int64").reshape(8, -1).T, dry((n,), "int64").reshape(8, -1).T, size=n, stream=0
        ),
        "search": lambda: cs.searchsorted(x, dry((n,), "float32", 4), stream=0),
    }


def of_ranges(n: int) -> dict:
    """The same by begins and ends."""
    x = dry((n,), "float32")
    return {
        **{
            f"begins and ends {t}": lambda t=t: cs.segmented_reduce(dry((n,), t), offsets=_pair(n), stream=0)
            for t in ("int8", "int16", "float32", "float64")
        },
        "begins and ends of bytes": lambda: cs.segmented_reduce(
            dry((n,), "int8"), "max", offsets=_pair(n), identity=0, stream=0
        ),
        "begins and ends, a state of two values": lambda: cs.segmented_reduce(
            dry((n,), "float64"),
            "add",
            transform=lambda v: (v, v * v),
            dtype=("float64", "float64"),
            offsets=_pair(n),
            stream=0,
        ),
        "strided, begins and ends": lambda: cs.segmented_reduce(
            dry((n,), "float32").reshape(8, -1).T, offsets=_pair(n), stream=0
        ),
        "begins and ends, scan": lambda: cs.segmented_scan(x, offsets=_pair(n), reverse=True, stream=0),
        "states of begins and ends": lambda: cs.segmented_scan(
            (dry((n,), "int64").reshape(8, -1).T,) * 4, product, offsets=_pair(n), stream=0
        ),
    }


def _pair(n: int) -> tuple:
    return dry((n // 50,), "int32"), dry((n // 50, 2), "int64")[:, 0]


def _decoded(n: int, mean: int, dtype: str, length: str = "int64") -> None:
    cs.run_length_decode(dry((n // mean,), dtype), dry((n // mean,), length), size=n, stream=0)


def test_configurations(allocated, capsys, some):
    found = [
        [spec for spec in needed(call) if spec.key[0] != "scan"]
        for n in LENGTHS
        for call in (calls(n) | of_ranges(n)).values()
    ]
    assert all(found)
    specs = {spec.key: spec for of_call in found for spec in of_call}
    tell_figures(capsys, [verify(spec, allocated, slack=4096) for spec in some(specs.values(), 24)])
