"""Every pattern kernel of the demo compiles for sm_90a without a spill, under its name, with the block it declares."""

import re

import pytest

from cutesync.cli import demo_patterns
from cutesync.runtime import compiler

from ..compiled import assert_overlaps, cubin_figures

pytestmark = pytest.mark.slow


def test_no_kernel_spills(monkeypatch):
    monkeypatch.setattr(compiler, "_kernels", {})
    for case in demo_patterns.cases("nowhere"):
        assert case.kernels()
    assert len(compiler._kernels) > 25
    for kernel in compiler._kernels.values():
        registers, frame = cubin_figures(kernel.cubin)
        assert frame == 0, f"{kernel.name} keeps {frame} bytes of local memory"
        assert registers * kernel.block[0] <= 65536, kernel.name
        assert kernel.name.startswith("cutesync_") and ".target sm_90a" in kernel.ptx
        assert_overlaps(kernel.ptx)
        assert re.search(r"\.reqntid (\d+)", kernel.ptx)[1] == str(kernel.block[0])


def test_the_stream_keeps_enough_in_flight():
    """48 KiB of loads a multiprocessor hide the memory's latency: stages of all blocks, but for the one being used in
    each."""
    from cutesync.patterns import producer_consumer as module

    assert module.BLOCKS_PER_SM * (module.STAGES - 1) * module.STAGE_BYTES >= 48 * 1024
    assert module.BLOCKS_PER_SM * (module.STAGES * (module.STAGE_BYTES + 16) + 128 + 1024) <= 228 * 1024
