"""Kernels that take tiles: what they ask the L2 for before they wait, and where tiles lie in shared memory."""

from __future__ import annotations

import pytest

import cutesync as cs
from cutesync.dtypes import BY_NAME
from cutesync.kernels.segments import window as of_segments
from cutesync.kernels.select import window as of_selections
from cutesync.kernels.select.policy import Problem, choose
from cutesync.kernels.select.spec import Selection
from cutesync.sync.overlap import LINE_BYTES

from .compiled import assert_overlaps, dry, needed


def positive(value):
    return value > 0


CALLS = {
    "select": lambda x, **n: cs.select(x, positive, **n),
    "by key": lambda x, **n: cs.scan_by_key(x, x, **n),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("power", [12, pytest.param(24, marks=pytest.mark.slow)])
def test_tiles_are_asked_for_before_the_wait(call, power):
    """Unless memory says how many positions count: nothing is touched before the wait then."""
    x, n = dry((1 << power,), "int32"), dry((), "int64", base=1 << 41)
    for options, asks in (({}, True), ({"n": n}, False)):
        (spec,) = needed(CALLS[call], x, **options)
        ptx = spec.kernel().ptx
        assert_overlaps(ptx)
        assert ("prefetch.global.L2" in ptx[: ptx.find("griddepcontrol.wait")]) == asks


@pytest.mark.parametrize("shape", [(1 << 17, 8), *(pytest.param((1 << n,), marks=pytest.mark.slow) for n in (20, 23))])
def test_scans_ask_for_tiles_before_the_wait(shape):
    """Slabs, a wave, and the pipeline, in the same way."""
    x, n = dry(shape, "int32"), dry((), "int64", base=1 << 41)
    for options, asks in (({}, True), ({"n": n}, False)):
        (spec,) = needed(lambda x, **more: cs.scan(x, axis=0, **more), x, **options)
        ptx = spec.kernel().ptx
        assert_overlaps(ptx)
        assert ("prefetch.global.L2" in ptx[: ptx.find("griddepcontrol.wait")]) == asks


@pytest.mark.parametrize("size", ["int8", "int16", "int32", "int64"])
def test_tiles_lie_in_whole_lines(size):
    """A stage holds a tile that begins anywhere in a line, what comes before it, and, by key, behind it."""
    dtype, tile = BY_NAME[size], 1024
    for lead in (False, True):
        held = of_selections.TileBuffer(dtype, tile, lead).stage_bytes
        assert held % LINE_BYTES == 0 and held >= (1 + lead) * LINE_BYTES + tile * dtype.size
    held = of_segments.TileBuffer(dtype, tile, False).stage_bytes
    assert held % LINE_BYTES == 0 and held >= 2 * LINE_BYTES + tile * dtype.size + 16


@pytest.mark.parametrize("length", [5000, 1 << 19, 1 << 21, 1 << 28])
def test_tiles_of_many_arrays_fit(length):
    """The lines around the tiles of several arrays are counted."""
    for names in (("int8",) * 8, ("int16",) * 7 + ("int64",), ("int8",) * 4 + ("int32",) + ("int64",) * 3):
        sources = tuple(BY_NAME[name] for name in names)
        for counts in (None, BY_NAME["int64"]):
            sizes = tuple(dtype.size for dtype in sources)
            policy = choose(Problem(length, sizes, heads=True, located=counts is not None)).policy
            assert policy.make(Selection("heads", sources, lengths=counts)).smem <= 227 << 10
