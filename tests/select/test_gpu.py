"""Selections on a GPU: large arrays, streams, graphs whose counts change from replay to replay."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs

from ..libraries import captured

pytestmark = pytest.mark.gpu


def positive(value):
    return value > 0


def test_chosen_kernels_agree(torch):
    for n in (1, 1000, 1 << 16, (1 << 20) + 7, 10**7 + 19):
        for dtype in (torch.int8, torch.float16, torch.int32, torch.int64):
            x = torch.randint(-100, 100, (n,), device="cuda").to(dtype)
            for part in (x, x[1:]):
                mask = torch.rand(part.shape, device="cuda") < 0.5
                found = cs.select(part, mask, indices=True)
                values, places = found.exact()
                assert torch.equal(values, part[mask])
                assert torch.equal(places, mask.nonzero()[:, 0])
                assert torch.equal(cs.select(part, positive).exact(), part[part > 0])


def test_runs_agree(torch):
    for n, mean in ((1000, 3), (1 << 20, 8), (10**7 + 19, 1), (10**7 + 19, 5000)):
        x = (torch.rand(n, device="cuda") * mean < 1).cumsum(0)
        found = cs.unique_consecutive(x, return_inverse=True, return_counts=True).exact()
        wanted = torch.unique_consecutive(x, return_inverse=True, return_counts=True)
        assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


def test_long_arrays_of_runs_agree(torch):
    """Tiles of any number of selected elements, many of which fill the room for them to its end."""
    n = (1 << 26) + 5
    for mean in (1, 2, 4, 8, 16, 1000):
        runs = (torch.rand(n, device="cuda") * mean < 1).cumsum(0, dtype=torch.int32)
        for dtype in (torch.int16, torch.int32, torch.int64):
            x = runs.to(dtype)
            wanted = torch.unique_consecutive(x, return_counts=True)
            assert torch.equal(cs.unique_consecutive(x).exact(), wanted[0])
            found = cs.run_length_encode(x).exact()
            assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
            assert torch.equal(cs.select(x, positive).exact(), x[x > 0])


def test_strided_arrays_and_coordinates_agree(torch):
    for shape in ((7, 300), (1000, 1025), (130, 33, 129)):
        x = torch.randint(-9, 9, shape, device="cuda", dtype=torch.int32)
        mask = torch.rand(shape, device="cuda") < 0.5
        for view in (
            lambda a: a,
            lambda a: a.transpose(0, -1),
            lambda a: a[1:, ::2],
            lambda a: a[:, :1].expand(a.shape),
        ):
            y, m = view(x), view(mask)
            values, places = cs.select(y, m, indices=True).exact()
            assert torch.equal(values, y[m])
            assert torch.equal(places, m.reshape(-1).nonzero()[:, 0])
            assert torch.equal(cs.argwhere(y).exact(), y.nonzero())
            assert all(torch.equal(one, other) for one, other in zip(cs.nonzero(y).exact(), y.nonzero(as_tuple=True)))
            found = cs.partition(y, m, indices=True)
            assert torch.equal(found.values, torch.cat([y[m], y[~m]]))
            assert torch.equal(y.reshape(-1)[found.indices], found.values)
            found = cs.partition3(y, m, lambda v: v > 3)
            assert torch.equal(found.values, torch.cat([y[m], y[~m & (y > 3)], y[~m & (y <= 3)]]))
            runs = cs.unique_consecutive(y, return_inverse=True, return_counts=True).exact()
            wanted = torch.unique_consecutive(y.reshape(-1), return_inverse=True, return_counts=True)
            assert all(torch.equal(one.reshape(-1), other) for one, other in zip(runs, wanted, strict=True))


def test_rows_agree(torch):
    for shape, axis in (((5, 70_001), 1), ((4000, 40), 1), ((40, 4000), 0), ((300, 700), 1), ((20, 9, 300), 1)):
        x = torch.randint(0, 3, shape, device="cuda", dtype=torch.int16)
        rows = x.movedim(axis, -1).reshape(-1, shape[axis])
        kept = cs.select(x, lambda v: v > 0, axis=axis)
        assert torch.equal(kept.count.reshape(-1), (rows > 0).sum(1))
        packed = cs.select(x, lambda v: v > 0, axis=axis, packed=True)
        assert torch.equal(packed.exact()[0], rows[rows > 0])
        assert torch.equal(packed.offsets[1:], (rows > 0).sum(1).cumsum(0))
        assert torch.equal(torch.cat(kept.exact()), rows[rows > 0])
        values, lengths = cs.run_length_encode(x, axis=axis).exact()
        for row, value, length in zip(rows[:50], values, lengths):
            wanted = torch.unique_consecutive(row, return_counts=True)
            assert torch.equal(value, wanted[0]) and torch.equal(length, wanted[1])


def test_a_chain_in_a_graph_with_changing_counts(torch):
    """select, then a selection of the selected, and runs of these: no wait, right in every replay."""
    x = torch.zeros(1 << 20, dtype=torch.int32, device="cuda")

    def chain():
        first = cs.select(x, positive)
        second = cs.select(first.values, lambda v: v % 2 == 0, n=first.count)
        return second, cs.run_length_encode(second.values, n=second.count)

    graph, (second, runs) = captured(torch, chain)
    for low, high in ((-50, 5), (1, 3), (-9, 0), (-3, 100)):
        x.copy_(torch.randint(low, high, x.shape, device="cuda", dtype=torch.int32))
        graph.replay()
        wanted = x[x > 0]
        wanted = wanted[wanted % 2 == 0]
        assert torch.equal(second.exact(), wanted)
        values, lengths = runs.exact()
        expected = torch.unique_consecutive(wanted, return_counts=True)
        assert torch.equal(values, expected[0])
        assert torch.equal(lengths, expected[1])


def test_the_same_bits_every_time(torch):
    x = torch.rand(3_000_001, device="cuda")
    first = cs.select(x, x < 0.3).exact()
    assert all(torch.equal(cs.select(x, x < 0.3).exact(), first) for _ in range(20))


@pytest.mark.slow
def test_more_than_two_to_the_32_elements(torch):
    n = (1 << 32) + 5
    if torch.cuda.mem_get_info()[0] < 3 * n:
        pytest.skip("too little memory")
    x = torch.zeros(n, dtype=torch.int8, device="cuda")
    places = torch.tensor([0, 1, (1 << 31) - 1, 1 << 32, n - 1], device="cuda")
    x[places] = 7
    found = cs.flatnonzero(x, size=10, fill_value=-1)
    assert np.array_equal(found.values.cpu(), [*places.tolist(), *[-1] * 5])
    assert int(found.count) == 5


@pytest.mark.slow
def test_runs_of_more_than_two_to_the_32_elements(torch):
    """Values, runs and their lengths, which int8 elements give; the last run ends behind 2**32."""
    n = (1 << 32) + 5
    if torch.cuda.mem_get_info()[0] < 7 * n:
        pytest.skip("too little memory")
    x = torch.ones(n, dtype=torch.int8, device="cuda")
    ends = [0, 3, (1 << 31) - 1, (1 << 31) + 1, (1 << 32) + 1, n]
    for first, stop in zip(ends[1::2], ends[2::2]):
        x[first:stop] = 2
    room = [torch.empty(9, dtype=kind, device="cuda") for kind in (torch.int8, torch.int64)]
    runs = cs.run_length_encode(x, out=tuple(room))
    assert int(runs.count) == 5
    assert runs.values[:5].tolist() == [1, 2, 1, 2, 1] and runs.lengths[:5].tolist() == np.diff(ends).tolist()
    unique = cs.unique_consecutive(x, out=room[0])
    assert unique.exact().tolist() == [1, 2, 1, 2, 1]
    twos = cs.select(x, lambda value: value > 1)
    total = (1 << 31) - 4 + (1 << 31)
    assert int(twos.count) == total and bool((twos.values[:total] == 2).all())


@pytest.mark.slow
def test_coordinates_and_strides_of_more_than_two_to_the_31_elements(torch):
    shape = (3, (1 << 30) + 1)
    if torch.cuda.mem_get_info()[0] < 12 << 30:
        pytest.skip("too little memory")
    x = torch.zeros(shape, dtype=torch.int8, device="cuda")
    places = torch.tensor([[0, 0], [0, 1 << 30], [1, 7], [2, 1 << 30]], device="cuda")
    x[places[:, 0], places[:, 1]] = 5
    for y, wanted in ((x, places), (x.T, places.flip(1)[[0, 2, 1, 3]])):
        found = cs.argwhere(y, size=6, fill_value=-1)
        assert int(found.count) == 4
        assert torch.equal(found.values[:4], wanted)
    assert torch.equal(cs.select(x, lambda v: v > 0, axis=1, size=2).count, torch.tensor([2, 1, 1], device="cuda"))
    assert int(cs.partition(x, lambda v: v > 0).values[:4].sum()) == 20


def test_rows_take_bits_and_results(torch):
    x = torch.randint(-9, 9, (3000, 1001), device="cuda", dtype=torch.int32)
    mask = torch.rand(x.shape, device="cuda") < 0.4
    for axis in (0, 1):
        bits = cs.flag_heads(mask.to(torch.uint8), lambda a, b: b != 0, predecessor=0, dtype="bits", axis=axis)
        found, wanted = (cs.select(x, where, axis=axis, packed=True).exact() for where in (bits, mask))
        assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
        out = torch.full((x.shape[1 - axis], 500, 2), 77, device="cuda", dtype=torch.int32)
        count = cs.select(x, mask, axis=axis, out=out[..., 1]).count
        filled = cs.select(x, mask, axis=axis, size=500, fill_value=77)
        assert torch.equal(out[..., 1], filled.values) and torch.equal(count, filled.count)
        assert bool((out[..., 0] == 77).all())


def test_select_sum_scan_select_in_a_graph(torch):
    """Nothing is allocated in the graph, and nothing waits: every result is given, the counts, too."""
    x = torch.zeros(1 << 20, dtype=torch.int32, device="cuda")
    kept, running, even = torch.empty_like(x), torch.empty_like(x).long(), torch.empty_like(x).long()
    count, total, last = (torch.zeros((), dtype=torch.int64, device="cuda") for _ in range(3))

    def chain():
        cs.select(x, positive, out=(kept, count))
        cs.sum(kept, axis=0, n=count, out=total)
        cs.cumsum(kept, axis=0, n=count, out=running)
        cs.select(running, lambda v: v % 2 == 0, n=count, out=(even, last))

    graph, _ = captured(torch, chain)
    for low, high in ((-50, 5), (1, 3), (-9, 0), (-3, 100)):
        x.copy_(torch.randint(low, high, x.shape, device="cuda", dtype=torch.int32))
        graph.replay()
        wanted = x[x > 0].cumsum(0)
        assert int(total) == int(x[x > 0].sum())
        wanted = wanted[wanted % 2 == 0]
        assert int(last) == len(wanted) and torch.equal(even[: len(wanted)], wanted)
