"""More than 2**31 and 2**32 elements, and more than 2**32 bytes: nothing on the way counts in 32 bits."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync.runtime import device

pytestmark = [pytest.mark.gpu, pytest.mark.slow]


def mark_last(array, value: int) -> None:
    device.check(device.driver().cuMemsetD8(array.ptr + array.size - 1, value, 1), "marking")


def last_marked(call, array, value: int, **options) -> np.ndarray:
    """The result for ones of which the last is ``value``; afterwards it is 1 again."""
    mark_last(array, value)
    result = np.asarray(call(array, **options))
    mark_last(array, 1)
    return result


@pytest.mark.parametrize("count", [2**31 - 1, 2**31 + 5, 2**32 + 3])
@pytest.mark.parametrize("offset", [0, 3])
def test_sum_counts_every_element(ones, count, offset):
    assert int(last_marked(cs.sum, ones[offset : offset + count], 100)) == count + 99


@pytest.mark.parametrize("count", [2**31 + 5, 2**32 + 3])
def test_argmax_finds_the_last_element(ones, count):
    assert int(last_marked(cs.argmax, ones[:count], 2)) == count - 1


LINES = {  # rows and columns, and the axis of the sum
    "rows longer than 2**31": (2, 2**31 + 7, 1),
    "3 columns": (2**32 // 3 + 64, 3, 0),
    "8 columns": (2**32 // 8 + 64, 8, 0),
    "40 columns": (2**32 // 40 + 64, 40, 0),
    "2**20 columns": (2**12, 1 << 20, 0),
    **{f"rows of {length}": ((2**31 + 2**12) // length, length, 1) for length in (2, 37, 600)},
}


@pytest.mark.parametrize("name", LINES)
def test_rows_and_columns(ones, name):
    rows, columns, axis = LINES[name]
    sums = last_marked(cs.sum, ones[: rows * columns].reshape(rows, columns), 50, axis=axis)
    length = (rows, columns)[axis]
    assert (sums[:-1] == length).all() and sums[-1] == length + 49
