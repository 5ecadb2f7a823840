"""Every pattern kernel of the demo compiles for sm_90a without a spill, under its name, with the block it declares."""

import re

import pytest

from cutesync.cli import demo_patterns

from ..compiled import assert_overlaps, cubin_figures, needed

pytestmark = pytest.mark.slow


def test_no_kernel_spills():
    specs = {}
    for case in demo_patterns.cases("nowhere"):
        found = needed(case.prepare)
        assert found, case.operation
        specs |= {spec.key: spec for spec in found}
    assert len(specs) > 25
    for spec in specs.values():
        kernel = spec.kernel()
        registers, frame = cubin_figures(kernel.cubin)
        assert frame == 0, f"{kernel.name} keeps {frame} bytes of local memory"
        assert registers * kernel.block[0] <= 65536, kernel.name
        assert kernel.name.startswith("cutesync_") and ".target sm_90a" in kernel.ptx
        assert_overlaps(kernel.ptx)
        assert re.search(r"\.reqntid (\d+)", kernel.ptx)[1] == str(kernel.block[0])


def test_the_stream_keeps_enough_in_flight():
    """48 KiB of loads a multiprocessor hide the memory's latency: all stages but the one that each block uses."""
    from cutesync.patterns import streaming as module

    assert module.BLOCKS_PER_SM * (module.STAGES - 1) * module.STAGE_BYTES >= 48 * 1024
    assert module.BLOCKS_PER_SM * (module.STAGES * (module.STAGE_BYTES + 16) + 128 + 1024) <= 228 * 1024
