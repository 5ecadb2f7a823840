"""Every building block does what it says under 20 hostile schedules, the sanitizer watching."""

import numpy as np
import pytest

from .. import faults
from ..cases import SCHEDULES
from ..compiled import check
from . import kernels
from .cases import KERNELS, WAYS, zeros


@pytest.mark.drawn(16)
@pytest.mark.parametrize("name", [*KERNELS, *WAYS])
def test_does_what_it_says(name):
    """A bench runs its kernel and compares before anything is planted."""
    faults.of_function(*{**KERNELS, **WAYS}[name], SCHEDULES)


@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_blocks_meet_at_the_grid_barrier_launch_after_launch(blocks):
    rounds, n = 3, 64 * blocks
    out, word = zeros(n), zeros(1)
    for _ in range(2):  # the second launch finds the word as the first has left it
        check(kernels.grid, zeros(rounds * n), out, word, rounds, blocks, schedules=SCHEDULES)
    value = np.arange(n).reshape(blocks, 64)
    for _ in range(rounds):
        value = np.roll(value, -1, 0)[:, ::-1] + 1
    assert np.array_equal(out, value.ravel())
    assert word[0] & 0x7FFFFFFF == 0
