"""The choice of kernel: a pure function of the problem, within every limit of CUDA and of the workspace, for any
shape."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from cutesync.errors import ArgumentValueError
from cutesync.kernels.hardware import SMS
from cutesync.kernels.reduce.policy import choose, strided_is_faster
from cutesync.kernels.reduce.problem import (
    Choice,
    ColumnPolicy,
    NarrowPolicy,
    Problem,
    SegmentPolicy,
    ShortRowPolicy,
    WholeRowPolicy,
)
from cutesync.kernels.reduce.spec import ReduceSpec
from cutesync.runtime import device, workspace
from cutesync.runtime.kernel import KernelSpec
from cutesync.runtime.launch import Launch

EXTENTS = (
    1,
    2,
    3,
    5,
    8,
    16,
    17,
    31,
    32,
    33,
    63,
    64,
    100,
    127,
    128,
    129,
    255,
    512,
    1000,
    4096,
    12345,
    2**16,
    2**20 + 7,
    2**24,
    2**31 - 1,
    2**31,
    2**32 + 3,
    2**40,
)
LARGEST = 2**40


def problems():
    for outer, length, inner in itertools.product(EXTENTS, repeat=3):
        if outer * length * inner <= LARGEST:
            for size, words, aligned in itertools.product((1, 2, 4, 8), (1, 2, 4), (True, False)):
                yield Problem(outer, length, inner, size, words, aligned, aligned)


def random_problems(count: int):
    rng = np.random.default_rng(11)
    for _ in range(count):
        outer, length, inner = (int(2 ** rng.uniform(0, 14)) for _ in range(3))
        yield Problem(
            outer,
            length,
            inner,
            int(rng.choice([1, 2, 4, 8])),
            int(rng.choice([1, 2, 3, 4])),
            bool(rng.integers(2)),
            bool(rng.integers(2)),
        )


def slots_used(problem: Problem, choice: Choice) -> int:
    """Words the blocks of a launch leave for each other: a state a block and column, one flag more for few columns."""
    if choice.splits == 1:
        return 0
    words = problem.words + isinstance(choice.policy, NarrowPolicy)
    columns = 1 if isinstance(choice.policy, SegmentPolicy) else problem.inner
    return words * choice.splits * problem.outer * columns


def groups_used(problem: Problem, choice: Choice) -> int:
    return problem.outer * choice.tiles if choice.splits > 1 else 0


def checked(problem: Problem) -> Choice | None:
    choice = choose(problem)
    policy, splits = choice.policy, choice.splits
    if choice.grid >= 2**31:  # more blocks than a grid has: the launch is refused
        return None
    assert choice.grid >= 1
    assert splits >= 1 and choice.tiles >= 1
    assert splits < 2**31 and choice.tiles < 2**31
    assert slots_used(problem, choice) <= workspace.SLOTS, (problem, choice)
    assert groups_used(problem, choice) <= workspace.GROUPS, (problem, choice)
    if isinstance(policy, (ColumnPolicy, NarrowPolicy)):
        assert policy.split == (splits > 1)
    if isinstance(policy, SegmentPolicy):
        assert (policy.scope in ("grid", "grid_rows")) == (splits > 1)
        assert policy.scope != "grid" or problem.outer == 1
        chunks = problem.aligned and problem.length * problem.size % (512 * policy.unroll) == 0
        assert policy.whole == (policy.scope != "warp" and chunks)
        assert policy.few == (1 < splits <= 32)
    if splits > 1:
        assert choice.grid == problem.outer * choice.tiles * splits
        assert splits <= max(1, problem.length)
    return choice


def test_every_shape_stays_within_the_limits():
    """Refused are only problems of 2**31 results or more, and no rows that fit a GPU (up to 141 GB)."""
    refused = accepted = 0
    for problem in problems():
        if checked(problem) is None:
            refused += 1
            results = problem.outer * problem.inner
            fits = results * problem.length * problem.size < 141e9
            assert results >= 2**31 and not (fits and problem.inner == 1), f"refused without need: {problem}"
        else:
            accepted += 1
    assert accepted > 10 * refused


def test_random_shapes_stay_within_the_limits():
    for problem in random_problems(20_000):
        assert checked(problem) is not None


def test_blocks_cover_every_result():
    """No result without a block: the blocks of a kind hold as many results as there are."""
    for problem in random_problems(20_000):
        choice = choose(problem)
        policy = choice.policy
        if isinstance(policy, SegmentPolicy):
            per_block = policy.warps if policy.scope == "warp" else 1
            assert choice.grid // choice.splits * per_block >= problem.outer
        elif isinstance(policy, ShortRowPolicy):
            assert choice.grid * policy.warps * (32 // policy.group) * policy.unroll >= problem.outer
        elif isinstance(policy, WholeRowPolicy):
            row_bytes = problem.length * problem.size
            per_lane = policy.lane_bytes // row_bytes
            assert choice.grid * 32 * policy.warps * policy.unroll * per_lane >= problem.outer
            assert per_lane * row_bytes == policy.lane_bytes and policy.lane_bytes % 2 == 0
        elif isinstance(policy, ColumnPolicy):
            assert not policy.aligned_out or problem.aligned_out
            width = 16 // problem.size if policy.vectors else 1
            assert choice.tiles * policy.lanes * width >= problem.inner
            assert not policy.vectors or (problem.aligned and problem.inner * problem.size % 16 == 0)
        else:
            assert isinstance(policy, NarrowPolicy) and policy.columns == problem.inner
            assert problem.aligned or policy.anywhere


def test_blocks_are_whole_warps_within_1024_threads():
    for problem in random_problems(5000):
        policy = choose(problem).policy
        threads = policy.lanes * policy.groups if isinstance(policy, ColumnPolicy) else 32 * policy.warps
        assert 32 <= threads <= 1024 and threads % 32 == 0


def test_the_choice_does_not_ask_the_machine(monkeypatch):
    """Results are the same on every GPU because nothing about the GPU is asked."""
    sample = list(random_problems(500))
    before = [choose(problem) for problem in sample]

    def forbidden(*arguments):
        raise AssertionError("the configuration asked about the machine")

    for name in ("driver", "count", "current", "attribute", "name", "backend", "capability", "unavailable"):
        monkeypatch.setattr(device, name, forbidden)
    assert [choose(problem) for problem in sample] == before
    assert [choose(dataclasses.replace(problem)) for problem in reversed(sample)] == before[::-1]


def test_one_large_row_fills_the_chip():
    """A sum of 2**28 elements gets at least one block a multiprocessor, and a sum of 4096 gets one block."""
    for size in (1, 2, 4, 8):
        assert choose(Problem(1, 2**28, 1, size, 1, True, True)).grid >= SMS
        assert choose(Problem(1, 4096 // size, 1, size, 1, True, True)).grid == 1


@pytest.mark.parametrize("grid", [0, -1, 2**31])
def test_a_grid_that_cuda_cannot_launch_is_refused(grid):
    with pytest.raises(ArgumentValueError, match="blocks"):
        Launch(KernelSpec(("none",), (), None), device.HOST, grid, {})


def passes(shape, axes) -> list[tuple[int, int, int]]:
    return ReduceSpec(None, shape, frozenset(axes), False, None, "auto").passes()


@pytest.mark.parametrize(
    ("shape", "axes", "expected"),
    [
        ((7,), {0}, [(1, 7, 1)]),
        ((2, 3), {1}, [(2, 3, 1)]),
        ((2, 3), {0}, [(1, 2, 3)]),
        ((2, 3, 4), {1}, [(2, 3, 4)]),
        ((2, 3, 4), {1, 2}, [(2, 12, 1)]),
        ((2, 3, 4), {0, 1}, [(1, 6, 4)]),
        ((2, 3, 4), {0, 2}, [(6, 4, 1), (1, 2, 3)]),
        ((2, 1, 4), {0, 2}, [(1, 8, 1)]),
        ((2, 3), set(), [(6, 1, 1)]),
        ((1, 1), {0}, [(1, 1, 1)]),
        ((), set(), [(1, 1, 1)]),
        ((2, 1, 3, 4, 1), {0, 1, 2}, [(1, 6, 4)]),
        ((2, 3, 4, 5, 6), {0, 2, 4}, [(120, 6, 1), (6, 4, 5), (1, 2, 15)]),
    ],
)
def test_shapes_become_passes(shape, axes, expected):
    assert passes(shape, axes) == expected


def test_passes_reduce_everything_once():
    """The elements that go into a pass are those that came out of the one before."""
    rng = np.random.default_rng(2)
    for _ in range(2000):
        shape = tuple(int(n) for n in rng.integers(1, 6, rng.integers(0, 7)))
        axes = frozenset(a for a in range(len(shape)) if rng.integers(2))
        left = int(np.prod(shape))
        for outer, length, inner in passes(shape, axes):
            assert outer * length * inner == left
            left = outer * inner
        assert left == np.prod([n for a, n in enumerate(shape) if a not in axes])


def row_problem(rows: int, length: int, size: int, aligned: bool) -> Problem:
    return Problem(rows, length, 1, size, size // 4 or 1, aligned, True, in_turn=True)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_warps_of_rows_that_are_no_whole_chunks_have_one_chunk_or_end(size):
    for row_bytes in (300_008, 349_672, 1_028_864, 4_277_920, 7_000_008):
        for aligned in (True, False):
            choice = choose(row_problem(1, row_bytes // size, size, aligned))
            chunks = row_bytes // (32 * 16 * choice.policy.unroll)
            assert (
                not choice.policy.whole and chunks // choice.splits + (chunks % choice.splits > 0) < choice.policy.warps
            )
    for row_bytes, blocks in ((1 << 20, 32), (400 << 10, 13)):  # of whole chunks
        choice = choose(row_problem(1, row_bytes // size, size, True))
        assert choice.policy.whole and choice.splits == blocks


def test_few_rows_of_some_chunks_have_a_block_each():
    for rows, row_bytes, scope, warps in (
        (512, 16384, "block", 4),
        (400, 6008, "block", 4),
        (1100, 8192, "warp", 8),
        (1100, 16384, "block", 4),
        (2200, 16384, "warp", 8),
        (300, 2048, "warp", 8),
    ):
        policy = choose(row_problem(rows, row_bytes // 2, 2, False)).policy
        assert (policy.scope, policy.warps) == (scope, warps)


def test_short_rows_in_order_are_read_in_short_chunks():
    for row_bytes, unroll, blocks in ((1024, 2, 8), (1040, 4, 4)):
        problem = dataclasses.replace(row_problem(9000, row_bytes // 2, 2, True), in_turn=False)
        policy = choose(problem).policy
        assert (policy.scope, policy.unroll, policy.blocks_per_sm) == ("warp", unroll, blocks)


def test_short_rows_off_a_boundary_are_runs():
    assert strided_is_faster(row_problem(9000, 168, 4, False)) and strided_is_faster(row_problem(9000, 168, 4, True))
    assert not strided_is_faster(row_problem(500, 168, 4, False))
    assert strided_is_faster(row_problem(9000, 600, 4, False)) and not strided_is_faster(
        row_problem(9000, 600, 4, True)
    )
    assert not strided_is_faster(row_problem(2000, 600, 4, False))
    assert not strided_is_faster(row_problem(9000, 2048, 4, False))


def test_the_last_warp_of_blocks_that_share_a_row_reads_its_head():
    blocks = [
        choose(row_problem(rows, length, 2, False)).policy for rows, length in ((1, 17953), (1, 1 << 20), (400, 3004))
    ]
    assert [(p.scope, p.last_heads) for p in blocks] == [("block", False), ("grid", True), ("block", True)]
