"""Operations on segments on a GPU: large arrays, and graphs whose counts change from replay to replay."""

from __future__ import annotations

import pytest

import cutesync as cs

from ..libraries import captured

pytestmark = pytest.mark.gpu


def grouped(torch, n: int, mean: float):
    """Keys in segments of a length that is ``mean`` on average, values, and the segment of each element."""
    segment = (torch.rand(n, device="cuda") * mean < 1).cumsum(0)
    segment -= segment[0].clone()
    return (segment % 100).to(torch.int32), torch.randint(-9, 9, (n,), device="cuda", dtype=torch.int32), segment


def test_chosen_kernels_agree(torch):
    for n, mean in ((1, 1), (1000, 3), (1 << 16, 8), (10**7 + 19, 1), (10**7 + 19, 5000), (1 << 26, 9)):
        keys, x, segment = grouped(torch, n, mean)
        groups = int(segment[-1]) + 1
        sums = torch.zeros(groups, dtype=torch.int32, device="cuda").index_add_(0, segment, x)
        found, values = cs.reduce_by_key(keys, x).exact()
        assert torch.equal(found, torch.unique_consecutive(keys))
        assert torch.equal(values, sums)
        total = x.cumsum(0)
        heads = torch.searchsorted(segment, torch.arange(groups, device="cuda"))
        running = total - (total[heads] - x[heads])[segment]
        assert torch.equal(cs.scan_by_key(keys, x), running.int())
        assert torch.equal(cs.scan_by_key(keys, x, reverse=True), (sums[segment] - running + x).int())


def test_strided_arrays_agree(torch):
    keys, x, _ = grouped(torch, 1 << 20, 9)
    keys, x = keys.reshape(64, -1), x.reshape(64, -1)
    for k, v in ((keys, x.reshape(-1, 64).T), (keys.reshape(-1, 64).T, x), (keys.flip(0)[::2], x[::2])):
        found, sums = cs.reduce_by_key(k, v).exact()
        wanted, wanted_sums = cs.reduce_by_key(k.contiguous(), v.contiguous()).exact()
        assert torch.equal(found, wanted) and torch.equal(sums, wanted_sums)
        out = torch.zeros((k.numel(), 2), dtype=torch.int32, device="cuda")
        cs.scan_by_key(k, v, reverse=True, out=out[:, 1])
        assert torch.equal(out[:, 1], cs.scan_by_key(k.contiguous(), v.contiguous(), reverse=True))
    offsets = torch.arange(0, x.numel() + 1, 37, device="cuda").repeat_interleave(2)[::2]
    sums = cs.segmented_reduce(x.T, offsets=offsets)
    assert torch.equal(sums, cs.segmented_reduce(x.T.contiguous(), offsets=offsets.contiguous()))


def test_offsets_agree(torch):
    """Uniform segments, one giant, many empty ones; in a graph, too."""
    n = (1 << 22) + 5
    x = torch.randint(-9, 9, (n,), device="cuda", dtype=torch.int32)
    total = torch.cat([x.new_zeros(1), x.cumsum(0).int()])
    cases = [torch.arange(0, n + 1, step, device="cuda") for step in (1, 7, 5000)]
    cases += [torch.tensor([0, n], device="cuda"), torch.randint(0, n + 1, (1 << 20,), device="cuda").sort().values]
    cases += [torch.cat([cases[2], torch.full((300_000,), n, device="cuda")])]
    for offsets in cases:
        sums = total[offsets[1:]] - total[offsets[:-1]]
        assert torch.equal(cs.segmented_reduce(x, offsets=offsets), sums)
        lengths = offsets[1:] - offsets[:-1]
        first = int(offsets[0])
        begins = torch.repeat_interleave(total[offsets[:-1]], lengths)
        found = cs.segmented_scan(x, offsets=offsets)[first : first + len(begins)]
        assert torch.equal(found, total[1:][first : first + len(begins)] - begins)
        decoded = cs.run_length_decode(sums, lengths, size=n, fill_value=-1)
        assert torch.equal(decoded.exact(), torch.repeat_interleave(sums, lengths))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            again = cs.segmented_reduce(x, offsets=offsets)
        graph.replay()
        assert torch.equal(again, sums)


def test_begins_and_ends_agree(torch):
    """Windows that overlap, one giant, empty ones, of every length; segments apart in any order. In a graph, too."""
    n = (1 << 21) + 5
    x = torch.randint(-9, 9, (n,), device="cuda", dtype=torch.int32)
    total = torch.cat([x.new_zeros(1), x.cumsum(0).int()])
    for segments, most in ((1 << 18, 30), (3000, 5000), (4, n)):
        begins = torch.randint(0, n + 1, (segments,), device="cuda", dtype=torch.int32)
        ends = (begins + torch.randint(-9, most, (segments,), device="cuda")).clamp(max=n)
        sums = torch.where(ends > begins, total[ends] - total[begins.long()], 0)
        assert torch.equal(cs.segmented_reduce(x, offsets=(begins, ends)), sums.int())
        cuts = torch.randint(0, n + 1, (2 * segments,), device="cuda").sort().values.view(-1, 2)
        begins, ends = cuts[torch.randperm(segments, device="cuda")].T
        place = torch.arange(n, device="cuda")
        owner = torch.searchsorted(cuts[:, 0].contiguous(), place, right=True) - 1
        inside = (owner >= 0) & (place < cuts[owner.clamp(min=0), 1])
        first = cuts[owner.clamp(min=0), 0]
        for wanted, how in ((total[1:] - total[first], {}), (total[cuts[owner, 1]] - total[:-1], {"reverse": True})):
            out = torch.full_like(x, 7)
            cs.segmented_scan(x, offsets=(begins, ends), out=out, **how)
            assert torch.equal(out, torch.where(inside, wanted, 7))
            new = cs.segmented_scan(x, offsets=(begins, ends), **how)
            assert torch.equal(new, torch.where(inside, wanted, 0))
    assert torch.equal(cs.segmented_reduce(x, offsets=(begins, ends)), total[ends] - total[begins])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        again = cs.segmented_reduce(x, offsets=(begins, ends))
    x.neg_()
    graph.replay()
    assert torch.equal(again, total[begins] - total[ends])


def test_searches_agree(torch):
    a, v = torch.randn(1 << 20, device="cuda").sort().values, torch.randn(1 << 20, device="cuda")
    for side in ("left", "right"):
        assert torch.equal(cs.searchsorted(a, v, side), torch.searchsorted(a, v, right=side == "right"))


def test_group_by_in_a_graph_with_changing_counts(torch):
    """Selected rows are grouped: no wait, right in every replay."""
    keys, x, _ = grouped(torch, 1 << 20, 7)

    def chain():
        rows = cs.select((keys, x), lambda k, v: v > 0)
        return cs.reduce_by_key(*rows.values, n=rows.count)

    graph, sums = captured(torch, chain)
    for low, high in ((-50, 5), (1, 3), (-9, 0), (-3, 100)):
        x.copy_(torch.randint(low, high, x.shape, device="cuda", dtype=torch.int32))
        graph.replay()
        kept = x > 0
        wanted, sizes = torch.unique_consecutive(keys[kept], return_counts=True)
        found, values = sums.exact()
        assert torch.equal(found, wanted)
        group = torch.arange(len(sizes), device="cuda").repeat_interleave(sizes)
        assert torch.equal(values, torch.zeros_like(wanted).index_add_(0, group, x[kept]))


def test_counts_on_the_device(torch):
    """What run lengths give, decoding, reductions by lengths and searches take; strided values, ints as lengths."""
    x = torch.randint(0, 3, (3_000_017,), device="cuda", dtype=torch.int32)
    groups, sums = cs.run_length_encode(x), cs.reduce_by_key(x, x)
    count = int(groups.count)
    assert torch.equal(cs.run_length_decode(groups.values, groups.lengths, n=groups.count, size=len(x)).values, x)
    found = cs.segmented_reduce(x, lengths=groups.lengths, n=groups.count)
    assert torch.equal(found[:count], sums.values[:count])
    given = torch.empty_like(x), torch.empty_like(x), torch.zeros((), dtype=torch.int64, device="cuda")
    cs.reduce_by_key(x, x, out=given)
    assert int(given[2]) == count and torch.equal(given[1][:count], sums.values[:count])
    assert torch.equal(cs.repeat(x[::2], 3).values, torch.repeat_interleave(x[::2], 3))
    a, v = x.sort().values[::2], x[::3]
    found = cs.searchsorted(a, v, n=torch.tensor(1_000_000, device="cuda"))
    assert torch.equal(found, torch.searchsorted(a[:1_000_000].contiguous(), v.contiguous()))


@pytest.mark.slow
def test_more_than_two_to_the_32_elements(torch):
    """Segments of int8 that begin, end and lie behind 2**32; sums in int64."""
    n = (1 << 32) + 5
    if torch.cuda.mem_get_info()[0] < 4 * n:
        pytest.skip("too little memory")
    x = torch.ones(n, dtype=torch.int8, device="cuda")
    ends = [0, 3, 3, (1 << 31) - 1, (1 << 32) + 1, n]
    offsets = torch.tensor(ends, device="cuda")
    wanted = offsets.diff()
    assert torch.equal(cs.segmented_reduce(x, offsets=offsets, dtype="int64"), wanted)
    lengths = cs.segmented_reduce(x, lengths=wanted, dtype="int64")
    assert torch.equal(lengths, wanted)
    keys = torch.zeros(n, dtype=torch.int8, device="cuda")
    keys[3 : (1 << 31) - 1] = 1
    keys[(1 << 32) + 1 :] = 1
    out = tuple(torch.empty(6, dtype=kind, device="cuda") for kind in (torch.int8, torch.int64))
    found = cs.reduce_by_key(keys, x, dtype="int64", out=out)
    assert int(found.count) == 4
    assert found.keys[:4].tolist() == [0, 1, 0, 1]
    assert found.values[:4].tolist() == wanted[wanted > 0].tolist()
