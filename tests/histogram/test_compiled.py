"""Every kernel of the policy compiles for sm_90a, without a GPU: no spills, no local memory, the shared memory that
launches declare."""

from __future__ import annotations

import pytest

import cutesync as cs

from ..compiled import dry, needed, tell_figures, verify

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh_compiler")]


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
def test_counts(dtype, allocated, capsys):
    x = dry((1 << 28,), dtype)
    specs = [spec for bins in (256, 1 << 15, 1 << 16) for spec in needed(cs.bincount, x, length=bins, stream=0)]
    tell_figures(capsys, [verify(spec, allocated) for spec in specs])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_edges(dtype, allocated, capsys, monkeypatch):
    from cutesync.kernels.histogram import call

    monkeypatch.setattr(call, "_on_device", lambda edges, ordinal: dry((len(edges) // 8,), "float64"))
    x = dry((1 << 28,), dtype)
    specs = needed(cs.histogram, x, 256, (0, 1), stream=0) + needed(cs.histogram, x, [0, 1, 3], stream=0)
    tell_figures(capsys, [verify(spec, allocated) for spec in specs])
