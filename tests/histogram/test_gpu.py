"""Counts on a GPU: large arrays, graphs."""

from __future__ import annotations

import pytest

import cutesync as cs

pytestmark = pytest.mark.gpu


def test_chosen_kernels_agree(torch):
    for n in (1, 1000, (1 << 20) + 7, 10**7 + 19):
        for bins in (2, 256, 5000, 30_000, 65_536, 10**6):
            x = torch.randint(0, bins, (n + 1,), device="cuda", dtype=torch.int32)
            for part in (x[:-1], x[1:], x[:-1] // bins):
                assert torch.equal(cs.bincount(part, length=bins), torch.bincount(part, minlength=bins))


def test_edges_agree(torch):
    x = torch.randn(10**7 + 3, device="cuda")
    for bins in (1, 10, 256, 10_000):
        counts, edges = cs.histogram(x, bins, (-3, 3))
        wanted = torch.histogram(x.cpu(), bins, range=(-3, 3))
        assert (counts.cpu() - wanted.hist).abs().sum() <= bins  # torch rounds edges in its own way
        assert torch.allclose(edges.cpu().float(), wanted.bin_edges)
    inside = [-2.0, -1.5, 0.0, 0.1, 3.0]
    counts, _ = cs.histogram(x, inside)
    assert int(counts.sum()) == int(((x >= -2) & (x <= 3)).sum())


@pytest.mark.slow
def test_large_arrays_agree(torch):
    x = torch.randint(0, 65_536, (1 << 28,), device="cuda", dtype=torch.int32)
    for part, bins in ((x, 65_536), (x % 256, 256), (torch.zeros_like(x), 256)):
        assert torch.equal(cs.bincount(part, length=bins), torch.bincount(part, minlength=bins))


def test_in_a_graph(torch):
    x = torch.zeros(1 << 22, device="cuda", dtype=torch.int64)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        cs.bincount(x, length=100)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        counts = cs.bincount(x, length=100)
    for _ in range(3):
        x.random_(0, 100)
        graph.replay()
        assert torch.equal(counts, torch.bincount(x, minlength=100))
