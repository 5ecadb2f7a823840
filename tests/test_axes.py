"""Axes of strided arrays as parameters of kernels."""

import numpy as np

from cutesync.kernels.axes import divisor


def test_division_by_multiplication():
    rng = np.random.default_rng(0)
    for count in [1, 2, 3, 5, 7, 641, 2**16 - 1, 2**16, 2**30 + 1, 2**31 - 1, *map(int, rng.integers(1, 2**31, 300))]:
        factor, shift = divisor(count)
        assert factor < 2**32 and shift < 32
        near = [k * count + d for k in (1, 2, 2**31 // count) for d in (-1, 0, 1)]
        for n in [0, 1, 2**31 - 1, *near, *map(int, rng.integers(0, 2**31, 20))]:
            if 0 <= n < 2**31:
                word = (n * factor >> 32) + n
                assert word < 2**32 and word >> shift == n // count
