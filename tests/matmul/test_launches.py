"""What a launch says of its surroundings: whether the next one may start, and how long the L2 keeps the operands."""

import pytest

import cutesync as cs
from cutesync.dtypes import BY_NAME
from cutesync.kernels.matmul import model, plan
from cutesync.kernels.matmul.model import Workload, lets_next_start
from cutesync.kernels.matmul.plan import EVICT_FIRST, EVICT_NORMAL, Operand, Problem, priorities
from cutesync.kernels.matmul.policy import MatmulPolicy
from cutesync.kernels.matmul.terms import TermsSpec

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
        (MatmulPolicy((64, 96), "pingpong"), 4096, 192, 64, False),  # 128 single blocks
        (MatmulPolicy((64, 96), "pingpong", (2, 1)), 4096, 192, 64, True),
    ],
)
def test_few_blocks_more_than_half_let_nobody_start(config, m, n, k_tiles, early):
    assert lets_next_start(config, Workload(m, n, k_tiles, 1, 2)) is early


def test_a_large_operand_that_is_read_once_leaves_the_l2_first():
    kind, strides = BY_NAME["float16"], (0, 0, 0)

    def of(m: int, n: int, k: int) -> tuple[int, int]:
        a, b = (Operand(True, k, 1, rows * k) for rows in (m, n))
        return priorities(Problem(m, n, k, 1, a, b, strides, strides, (kind, kind), kind, TermsSpec()), NARROW)

    assert of(4608, 24, 3584) == (EVICT_FIRST, EVICT_NORMAL) and of(24, 4608, 3584) == (EVICT_NORMAL, EVICT_FIRST)
    assert of(4608, 40, 3584) == of(1024, 24, 3584) == (EVICT_NORMAL, EVICT_NORMAL)


@pytest.mark.usefixtures("on_emulator")  # no GPU here, whatever the machine has
def test_the_results_do_not_depend_on_it(monkeypatch):
    few_blocks(monkeypatch, 4)
    monkeypatch.setattr(model, "LASTING", 0)
    monkeypatch.setattr(plan, "MIN_STREAMED_BYTES", 0)
    assert not lets_next_start(MatmulPolicy(*SMALL), Workload(200, 40, 2, 1, 2))
    with cs.emulate():
        multiplied(operand(200, 136, False), operand(136, 40, True), config=MatmulPolicy(*SMALL))
