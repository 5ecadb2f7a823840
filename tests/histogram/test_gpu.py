"""Counts on a GPU: large arrays, graphs."""

from __future__ import annotations

import pytest

import cutesync as cs

from ..libraries import captured

pytestmark = pytest.mark.gpu


def test_chosen_kernels_agree(torch):
    for n in (1, 1000, (1 << 20) + 7, 10**7 + 19):
        for bins in (2, 256, 5000, 30_000, 65_536, 300_000, 10**6):
            x = torch.randint(0, bins, (n + 1,), device="cuda", dtype=torch.int32)
            for part in (x[:-1], x[1:], x[:-1] // bins):
                assert torch.equal(cs.bincount(part, length=bins), torch.bincount(part, minlength=bins))


def test_edges_agree(torch):
    x = torch.randn(10**7 + 3, device="cuda")
    for bins in (1, 10, 256, 10_000):
        counts, edges = cs.histogram(x, bins, (-3, 3))
        wanted = torch.histogram(x.cpu(), bins, range=(-3, 3))
        assert (counts.cpu() - wanted.hist).abs().sum() <= bins  # torch rounds edges in its own way
        # torch makes edges in float32: near 0 they are off by the rounding of numbers as large as the range
        assert torch.allclose(edges.cpu().float(), wanted.bin_edges, atol=1e-6)
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
    graph, counts = captured(torch, lambda: cs.bincount(x, length=100))
    for _ in range(3):
        x.random_(0, 100)
        graph.replay()
        assert torch.equal(counts, torch.bincount(x, minlength=100))


def test_weights_agree(torch):
    """Sums of integers are exact; others have the same bits in any order of the elements, and in every run."""
    for n in (1000, 10**6 + 7):
        for bins in (2, 256, 5000, 10_000, 20_000, 10**6):
            x = torch.randint(0, bins, (n,), device="cuda", dtype=torch.int32)
            whole = torch.randint(-1000, 1000, (n,), device="cuda")
            wanted = torch.bincount(x, whole.double(), minlength=bins)
            assert torch.equal(cs.bincount(x, whole, length=bins), wanted)
            for keys in (x, x // bins):
                w = torch.randn(n, device="cuda", dtype=torch.float64) * torch.exp(9 * torch.randn(n, device="cuda"))
                found, order = cs.bincount(keys, w, length=bins), torch.randperm(n, device="cuda")
                assert torch.equal(cs.bincount(keys[order], w[order], length=bins), found)
                sizes = torch.bincount(keys, w.abs(), minlength=bins)
                wanted = torch.bincount(keys, w, minlength=bins)
                assert ((found - wanted).abs() <= 1e-10 * sizes).all()


@pytest.mark.slow
def test_many_weights_agree(torch):
    """More than 2**24 elements: with parts of the bins, without, and with a bin that has half of the elements."""
    n = (1 << 25) + 7
    normal = torch.randn(n, device="cuda")
    far = normal.double() * torch.exp(9 * torch.randn(n, device="cuda", dtype=torch.float64))
    whole = torch.randint(-(10**9), 10**9, (n,), device="cuda", dtype=torch.int32)
    for bins in (20_000, 65_536, 10**6):
        x = torch.randint(0, bins, (n,), device="cuda", dtype=torch.int32)
        for keys in (x, torch.where(normal > 0, 7, x)):
            for w in (normal, far.float(), far, whole):
                found = cs.bincount(keys, w, length=bins)
                assert torch.equal(cs.bincount(keys.flip(0), w.flip(0), length=bins), found)
                wanted, sizes = (torch.bincount(keys, one.double(), minlength=bins) for one in (w, w.abs()))
                assert ((found - wanted).abs() <= 1e-10 * sizes).all()


def test_strided_arrays_and_densities_agree(torch):
    x = torch.randn(1003, 60, 50, device="cuda")
    for part in (x.permute(2, 0, 1), x[::2, :, 3:], x[:, 7], x[:1].expand(9, 60, 50)):
        flat = part.contiguous()
        for one, wanted in zip(cs.histogram(part, 100, (-3, 3)), cs.histogram(flat, 100, (-3, 3))):
            assert torch.equal(one, wanted)
        weights = cs.histogram(part, 100, (-3, 3), weights=part)[0]
        assert torch.equal(weights, cs.histogram(flat, 100, (-3, 3), weights=flat)[0])
    density, edges = cs.histogram(x, 100, (-3, 3), density=True)
    assert abs(float((density * edges.diff()).sum()) - 1) < 1e-12


def test_a_length_on_the_device(torch):
    x = torch.randint(0, 300, (3_000_017,), device="cuda", dtype=torch.int32)
    n = torch.tensor(1_000_003, device="cuda")
    assert torch.equal(cs.bincount(x, length=300, n=n), torch.bincount(x[:1_000_003], minlength=300))
    weights = torch.rand(len(x), device="cuda", dtype=torch.float64)
    assert torch.equal(cs.bincount(x, weights, length=300, n=n), cs.bincount(x, weights, length=300, n=1_000_003))
