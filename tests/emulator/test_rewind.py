"""Between two schedules memory is as before the launch, and a difference in what they wrote is found to the byte."""

from types import SimpleNamespace

import numpy as np
import pytest

from cutesync.emulator.memory import Memory, Region
from cutesync.emulator.rewind import Rewind

UNITS = np.array([2, 5])  # that are written


@pytest.fixture
def written():
    """A region of 256 bytes that a launch is about to write, and what rewinds it."""
    content = np.arange(256, dtype=np.uint8)
    region, memory = Region.of_address("x", content.ctypes.data, 256), Memory()
    region.owner = lambda: content
    memory.replace((), (region,))
    rewind = Rewind(memory)
    rewind.keep(region)
    return region, rewind


def write(region: Region, size: int, units: np.ndarray, value: int) -> None:
    for unit in units.tolist():
        region.data[region.low + unit * size : region.low + (unit + 1) * size] = value
    region.changed(SimpleNamespace(effects=0), units + region.low // size, size)


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 32])
def test_what_is_written_is_put_back_and_compared(written, size):
    region, rewind = written
    before = region.data.copy()
    write(region, size, UNITS, 0xEE)
    rewind.note_first()
    rewind.restore()
    assert np.array_equal(region.data, before)
    write(region, size, UNITS, 0xEE)
    assert rewind.difference() is None
    last = 6 * size - 1
    region.data[region.low + last] = 0
    assert rewind.difference() == (region, last)
    region.data[region.low + 2 * size] = 0
    assert rewind.difference() == (region, 2 * size)


def test_what_no_run_has_written_may_change(written):
    region, rewind = written
    write(region, 16, UNITS, 1)
    rewind.note_first()
    region.data[region.low] += 1  # by another thread
    assert rewind.difference() is None
    rewind.restore()
    assert region.data[region.low] == 1


def test_units_of_several_sizes_have_one_first_byte(written):
    region, rewind = written
    write(region, 8, UNITS, 1)
    write(region, 1, np.array([3, 200]), 2)
    rewind.note_first()
    region.data[region.low + np.array([16, 3, 200])] = 9
    assert rewind.difference() == (region, 3)
