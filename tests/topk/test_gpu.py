"""Top-k on a GPU: large arrays, rows, graphs."""

from __future__ import annotations

import pytest

import cutesync as cs

from ..libraries import captured

pytestmark = pytest.mark.gpu


def agrees(torch, x, k: int, axis: int = -1, largest: bool = True) -> None:
    """Against a stable sort of torch, which puts NaN last in ascending order."""
    values, indices = cs.topk(x, k, axis, largest=largest)
    wanted = torch.sort(x, dim=axis, descending=largest, stable=True)
    assert torch.equal(indices, wanted.indices.narrow(axis, 0, k))
    assert torch.equal(values.nan_to_num(7), wanted.values.narrow(axis, 0, k).nan_to_num(7))


# a type takes a kernel for each length and number of results, and a second or two for each
TYPES = ["int8", "float16", "float32", "int64"]
TYPES += [pytest.param(name, marks=pytest.mark.slow) for name in ("bfloat16", "int32", "float64")]


@pytest.mark.parametrize("dtype", TYPES)
def test_chosen_kernels_agree(torch, dtype):
    for n in (1, 5000, (1 << 20) + 7):
        x = (torch.randn(n + 1, device="cuda") * 100).to(getattr(torch, dtype))
        for part in (x[:-1], x[1:]):
            for k in {1, min(64, n), min(2048, n)}:
                agrees(torch, part, k)


def test_many_results_and_the_smallest_agree(torch):
    x = torch.randn(10**7 + 19, device="cuda")
    agrees(torch, x, 5000)
    agrees(torch, x, 64, largest=False)


def test_orders_agree(torch):
    x = torch.randn(1 << 24, device="cuda")
    x[::1000] = float("nan")
    for y in (x, x.sort().values, x.sort(descending=True).values, torch.zeros_like(x)):
        for k in (64, 2048):
            agrees(torch, y, k)
            agrees(torch, y, k, largest=False)


def test_rows_and_columns_agree(torch):
    for shape in ((1 << 12, 1 << 12), (3, 1 << 22), (100_000, 100), (1000, 999, 3)):
        x = torch.randn(shape, device="cuda")
        for axis in range(x.ndim):
            agrees(torch, x, min(64, x.shape[axis]), axis)


@pytest.mark.parametrize("dtype", ["int8", "float32", "int64"])
def test_rows_in_shared_memory_agree(torch, dtype):
    """More rows than blocks; whole and other vectors, ties, and NaN of floats."""
    for rows, length, k in ((3000, 8192, 64), (5000, 2001, 100)):
        x = (torch.randn((rows, length), device="cuda") * 1000).round().to(getattr(torch, dtype))
        if x.is_floating_point():
            x[::7, ::5] = float("nan")
        for part in (x, x[:, 1:]):
            agrees(torch, part, k)
            agrees(torch, part, k, largest=False)


@pytest.mark.parametrize("dtype", ["int8", "bfloat16", "float32", "int64"])
def test_short_rows_agree(torch, dtype):
    """A warp for each row; ties, and NaN of floats."""
    for rows, length, k in ((100_003, 100, 8), (5000, 256, 16), (777, 1000, 12), (3, 1, 1)):
        x = (torch.randn((rows, length + 1), device="cuda") * 30).round().to(getattr(torch, dtype))
        if x.is_floating_point():
            x[::7, ::5] = float("nan")
        for part in (x[:, :-1], x[:, 1:]):
            agrees(torch, part, k)
            agrees(torch, part, k, largest=False)


@pytest.mark.slow
def test_large_arrays_agree_again_and_again(torch):
    x = torch.randn(1 << 28, device="cuda")
    for k in (64, 2048):
        values, indices = cs.topk(x, k)
        assert torch.equal(values, torch.topk(x, k).values)
        assert torch.equal(x[indices], values)
        for _ in range(20):
            assert torch.equal(cs.argtopk(x, k), indices)


def test_in_a_graph(torch):
    x = torch.randn(1 << 22, device="cuda")
    graph, (values, _) = captured(torch, lambda: cs.topk(x, 100))
    for _ in range(5):
        x.normal_()
        graph.replay()
        assert torch.equal(values, torch.topk(x, 100).values)
