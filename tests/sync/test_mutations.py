"""Faults planted in kernels made of the building blocks: the emulator finds each, or the result is wrong."""

import pytest

from .. import faults
from .cases import KERNELS

pytestmark = pytest.mark.slow

OWN_THREADS = "only threads of the block use the barrier, and the block barrier orders them"
TWO_FENCES = "the other fence of thread 0 serves the barriers that copies signal"
HARMLESS = (
    {(name, "no init fence #0"): OWN_THREADS for name in ("tokens", "parity", "warps", "completion", "ring by threads")}
    | {
        ("ring by threads", "no init fence #1"): OWN_THREADS,
        ("ring by threads", "no init fence at all #0"): OWN_THREADS,
        (
            "peers",
            "no init fence #0",
        ): "the cluster barrier releases the initialisation to the other block's threads; no copy is involved",
        ("bytes", "a relaxed arrival #0"): "the copy has written everything there is to see",
        ("ring by tensor copies", "no sync_warp #0"): "the tensor copy elects a lane, for which the warp meets",
    }
    | {(f"ring by {kind} copies", f"no init fence #{i}"): TWO_FENCES for kind in ("bulk", "tensor") for i in range(2)}
)


@pytest.mark.parametrize("name", KERNELS)
def test_no_mutant_survives(name):
    bench = faults.of_function(*KERNELS[name], schedules=18)
    harmless = sorted(mutant for kernel, mutant in HARMLESS if kernel == name)
    assert sorted(bench.survivors(faults.TABLE, harmless)) == harmless


@pytest.mark.parametrize("name", ["ring by bulk copies", "ring by tensor copies"])
def test_a_ring_released_without_a_proxy_fence(name):
    faults.of_function(*KERNELS[name], schedules=18).check(faults.every(r"fence\.proxy\.async[^;]*;"), {"proxy-read"})
