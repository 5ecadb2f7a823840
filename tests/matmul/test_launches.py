"""What a launch says of its surroundings: whether the next one may start, what the L2 is asked for before the launches
before have ended, and how long it keeps the operands."""

import pytest

import cutesync as cs
from cutesync.dtypes import BY_NAME
from cutesync.kernels.matmul import overlap
from cutesync.kernels.matmul.overlap import EVICT_FIRST, EVICT_NORMAL, lets_next_start, streaming
from cutesync.kernels.matmul.plan import Operand, Problem
from cutesync.kernels.matmul.policy import MatmulPolicy
from cutesync.kernels.matmul.terms import TermsSpec
from cutesync.kernels.matmul.workload import Workload

from .support import SMALL, few_blocks, multiplied, operand

NARROW = MatmulPolicy((64, 32), "pingpong")


@pytest.mark.parametrize(
    ("config", "m", "n", "k_tiles", "early"),
    [
        (NARROW, 4608, 24, 56, False),  # 72 blocks, 33 MB
        (NARROW, 4608, 24, 5, True),  # too short
        (NARROW, 4096, 24, 80, True),  # 64 blocks leave room for as many
        (NARROW, 14336, 24, 64, True),  # more than one wave
        (MatmulPolicy((64, 32), "pingpong", (4, 1)), 4608, 24, 56, False),
        (MatmulPolicy((64, 32), "pingpong", (4, 1)), 4096, 24, 80, False),  # 16 clusters, of which 30 have places
        (MatmulPolicy((64, 32), "pingpong", (4, 1)), 8192, 24, 56, True),  # many clusters lie evenly
        (MatmulPolicy((64, 96), "pingpong"), 4096, 192, 64, False),  # 128 single blocks, two of which read the same
        (MatmulPolicy((64, 96), "pingpong"), 8192, 96, 64, True),  # 128 that share nothing large
        (MatmulPolicy((64, 96), "pingpong", (2, 1)), 4096, 192, 64, True),
    ],
)
def test_few_blocks_more_than_half_let_nobody_start(config, m, n, k_tiles, early):
    assert lets_next_start(config, Workload(m, n, k_tiles, 1, 2)) is early


def test_the_l2_is_asked_for_a_large_operand_that_is_read_once_and_gives_it_up_first():
    kind, strides = BY_NAME["float16"], (0, 0, 0)

    def of(m: int, n: int, k: int, config: MatmulPolicy = NARROW, early: int = 0, items: int = 1) -> tuple:
        a, b = (Operand(True, k, items, rows * k) for rows in (m, n))
        kinds = (kind, kind), kind
        return streaming(Problem(m, n, k, items, a, b, strides, strides, *kinds, TermsSpec()), config, early)

    assert of(4608, 24, 3584) == ((4, 0), (EVICT_FIRST, EVICT_NORMAL))
    assert of(24, 4608, 3584, early=1) == ((0, 16), (EVICT_NORMAL, EVICT_FIRST))
    assert of(40, 4608, 3584, MatmulPolicy((64, 96), "pingpong", (2, 1))) == ((0, 5), (EVICT_NORMAL, EVICT_FIRST))
    assert of(4608, 40, 3584) == ((2, 0), (EVICT_NORMAL, EVICT_NORMAL))
    assert of(1024, 24, 3584) == ((0, 0), (EVICT_NORMAL, EVICT_NORMAL))
    # what is beside it fills the L2 sooner where rows share lines
    wide = MatmulPolicy((64, 128), "pingpong")
    assert [of(64, 512, k, wide, items=300)[1] for k in (256, 208)] == [
        (EVICT_NORMAL, EVICT_FIRST),
        (EVICT_NORMAL,) * 2,
    ]
    assert of(64, 512, 256, wide, items=600)[1] == (EVICT_NORMAL, EVICT_NORMAL)


@pytest.mark.usefixtures("on_emulator")  # no GPU here, whatever the machine has
def test_the_results_do_not_depend_on_it(monkeypatch):
    few_blocks(monkeypatch, 4)
    monkeypatch.setattr(overlap, "LASTING", 0)
    monkeypatch.setattr(overlap, "MIN_STREAMED_BYTES", 0)
    assert not lets_next_start(MatmulPolicy(*SMALL), Workload(150, 40, 2, 1, 2))
    with cs.emulate():
        multiplied(operand(150, 136, False), operand(136, 40, True), config=MatmulPolicy(*SMALL))
