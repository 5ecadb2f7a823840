"""float32 split into parts in the kernel: planted faults are found; partial sums lie on 16 bytes for any number of
stages."""

import pytest

import cutesync as cs
from cutesync.kernels.matmul.policy import MatmulPolicy

from ..faults import Edit, every, first, op
from .mutation_cases import CONSUMERS, PARTS, PRODUCER
from .support import multiplied, operand
from .test_mutations import bench

FAULTS: dict[str, tuple[Edit, set[str]]] = {
    "parts announced without a proxy fence": (
        first(op(r"fence\.proxy\.async"), after=PRODUCER, before=CONSUMERS),
        {"proxy", "proxy-read"},
    ),
    "the parts of a warp not waited for": (
        every(r"mov\.b32 (\t%r\d+), 3;(\s+mbarrier\.init)", r"mov.b32 \1, 2;\2"),
        {"race", "barrier", "uninitialised"},
    ),
    "the parts of a fourth warp waited for": (
        every(r"mov\.b32 (\t%r\d+), 3;(\s+mbarrier\.init)", r"mov.b32 \1, 4;\2"),
        {"deadlock"},
    ),
    "a stage released before its small products": (
        every(r"wgmma\.wait_group\.sync\.aligned \t0;", "wgmma.wait_group.sync.aligned \t1;"),
        {"race", "registers"},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_every_planted_fault_is_found(fault):
    edit, kinds = FAULTS[fault]
    bench(PARTS).check(edit, kinds)


@pytest.mark.parametrize(
    "config",
    [
        MatmulPolicy((64, 16), "pingpong", stages=3, splits=2),
        pytest.param(MatmulPolicy((128, 64), "cooperative", stages=3, splits=8), marks=pytest.mark.slow),
    ],
)
def test_odd_numbers_of_stages(config, on_emulator):
    """Partial sums beside the stages, and in them."""
    with cs.emulate(schedules=2, seed=3):
        multiplied(operand(70, 200, False, "float32") * 4097, operand(200, 20, True, "float32"), config=config)
