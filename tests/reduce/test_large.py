"""More than 2**31 and 2**32 elements, and more than 2**32 bytes: nothing on the way counts in 32 bits."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync.runtime import device

pytestmark = [pytest.mark.gpu, pytest.mark.slow]


def mark(array, at: int, value: int) -> None:
    device.check(device.driver().cuMemsetD8(array.ptr + at, value & 0xFF, 1), "marking")


@pytest.mark.parametrize("count", [2**31 - 1, 2**31 + 5, 2**32 + 3])
@pytest.mark.parametrize("offset", [0, 3])
def test_sum_counts_every_element(ones, count, offset):
    view = ones[offset : offset + count]
    mark(view, count - 1, 100)
    total = int(np.asarray(cs.sum(view)))
    mark(view, count - 1, 1)
    assert total == count + 99


@pytest.mark.parametrize("count", [2**31 + 5, 2**32 + 3])
def test_argmax_finds_the_last_element(ones, count):
    mark(ones, count - 1, 2)
    found = int(np.asarray(cs.argmax(ones[:count])))
    mark(ones, count - 1, 1)
    assert found == count - 1


def test_rows_longer_than_2_to_the_31(ones):
    rows = ones[: 2 * (2**31 + 7)].reshape(2, 2**31 + 7)
    mark(ones, 2**31 + 7, 50)
    sums = np.asarray(cs.sum(rows, axis=1))
    mark(ones, 2**31 + 7, 1)
    assert sums.tolist() == [2**31 + 7, 2**31 + 7 + 49]


@pytest.mark.parametrize("columns", [3, 8, 40, 1 << 20])
def test_columns_beyond_2_to_the_32_elements(ones, columns):
    rows = (2**32 + 64 * columns) // columns if columns < 1 << 10 else 2**32 // columns
    rows = min(rows, (2**32 + 2**16) // columns)
    table = ones[: rows * columns].reshape(rows, columns)
    mark(ones, rows * columns - 1, 50)
    sums = np.asarray(cs.sum(table, axis=0))
    mark(ones, rows * columns - 1, 1)
    assert (sums[:-1] == rows).all() and sums[-1] == rows + 49


@pytest.mark.parametrize("length", [2, 37, 600])
def test_more_than_2_to_the_31_elements_in_short_rows(ones, length):
    rows = (2**31 + 2**12) // length
    table = ones[: rows * length].reshape(rows, length)
    mark(ones, rows * length - 1, 50)
    sums = np.asarray(cs.sum(table, axis=1))
    mark(ones, rows * length - 1, 1)
    assert (sums[:-1] == length).all() and sums[-1] == length + 49
