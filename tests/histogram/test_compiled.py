"""Every kernel of the policy compiles for sm_90a, without a GPU: no spills, no local memory, the shared memory that
launches declare."""

from __future__ import annotations

import pytest

import cutesync as cs
from cutesync.kernels.histogram import call

from ..compiled import dry, needed, tell_figures, verify

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh_compiler")]


@pytest.mark.parametrize("dtype", ["uint8", "int64"])
def test_counts(dtype, allocated, capsys):
    x = dry((1 << 28,), dtype)
    specs = [spec for bins in (256, 1 << 15, 1 << 16) for spec in needed(cs.bincount, x, length=bins, stream=0)]
    tell_figures(capsys, [verify(spec, allocated) for spec in {spec.key: spec for spec in specs}.values()])


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_edges(dtype, allocated, capsys, monkeypatch):
    monkeypatch.setattr(call, "_on_device", lambda edges, ordinal: dry((len(edges) // 8,), "float64"))
    x = dry((1 << 28,), dtype)
    specs = needed(cs.histogram, x, 256, (0, 1), stream=0) + needed(cs.histogram, x, [0, 1, 3], stream=0)
    tell_figures(capsys, [verify(spec, allocated) for spec in {spec.key: spec for spec in specs}.values()])


@pytest.mark.parametrize("dtype", ["float64", "int64", "float32"])
def test_weights_and_densities(dtype, allocated, capsys, monkeypatch):
    monkeypatch.setattr(call, "_on_device", lambda edges, ordinal: dry((len(edges) // 8,), "float64"))
    x, y, w = dry((1 << 28,), "int32"), dry((1 << 20, 30), "float32")[:, ::2], dry((1 << 20, 15), dtype)
    specs = [
        spec
        for bins in (256, 11_500, 20_000, 1 << 16, 1 << 20)
        for spec in needed(cs.bincount, x, dry(x.shape, dtype), length=bins, stream=0)
    ]
    for bins in (10, 60_000):
        specs += needed(cs.histogram, y, bins, (0, 1), weights=w, stream=0)
        specs += needed(cs.histogram, y, bins, (0, 1), True, stream=0)
    tell_figures(capsys, [verify(spec, allocated) for spec in {spec.key: spec for spec in specs}.values()])
