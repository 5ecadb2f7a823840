"""More than 2**31 and 2**32 elements: nothing on the way counts in 32 bits."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync.runtime import device

pytestmark = [pytest.mark.gpu, pytest.mark.slow]


def window(array, start: int, count: int = 4096) -> np.ndarray:
    assert start + count <= array.size
    return np.asarray(array[start : start + count])


def wrapped(values: np.ndarray) -> np.ndarray:
    return values.astype(np.int8)


@pytest.mark.parametrize("count", [2**31 - 1, 2**31 + 5, 2**32 + 3])
@pytest.mark.parametrize("offset", [0, 3])
def test_running_sum_counts_every_element(ones, count, offset):
    """Of int8, modulo 256: windows at the ends, at every multiple of 2**28 and around 2**31 and 2**32."""
    result = cs.scan(ones[offset : offset + count])
    for start in (0, *(at for at in (2**31 - 2000, *range(2**28, count, 2**28)) if at + 4096 <= count), count - 4096):
        assert np.array_equal(window(result, start), wrapped(np.arange(start + 1, start + 4097))), start


def test_reverse_and_in_place(ones):
    count = 2**31 + 5
    array = cs.empty(count, "int8")
    device.check(device.driver().cuMemcpyDtoD(array.ptr, ones.ptr, count), "copying")
    cs.scan(array, reverse=True, out=array)
    for start in (0, 2**31 - 5000, count - 4096):
        assert np.array_equal(window(array, start), wrapped(count - np.arange(start, start + 4096))), start


def test_a_wide_result_of_more_than_2_to_the_31_elements(ones):
    count = 2**31 + 5
    result = cs.scan(ones[:count], dtype="int64")
    for start in (0, 2**30, 2**31 - 5000, count - 4096):
        assert np.array_equal(window(result, start), np.arange(start + 1, start + 4097)), start


@pytest.mark.parametrize("length", [2, 37, 600, 5000, 2**31 + 7])
def test_rows(ones, length):
    rows = 2 if length > 2**31 else (2**31 + 2**12) // length
    if rows * length > ones.size:
        rows = 1
    result = cs.scan(ones[: rows * length].reshape(rows, length), axis=1).reshape(rows * length)
    for start in (0, 2**30, rows * length - 4096):
        assert np.array_equal(window(result, start), wrapped(np.arange(start, start + 4096) % length + 1)), start


@pytest.mark.parametrize("columns", [3, 40, 1 << 20])
def test_columns(ones, columns):
    rows = (2**32 + 2**16) // columns
    result = cs.scan(ones[: rows * columns].reshape(rows, columns), axis=0).reshape(rows * columns)
    for start in (0, 2**31 - 2000, rows * columns - 4096):
        assert np.array_equal(window(result, start), wrapped(np.arange(start, start + 4096) // columns + 1)), start
