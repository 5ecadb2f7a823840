"""The building blocks on a GPU: the kernels whose mutations the emulator kills, and longer runs of some of them."""

import numpy as np
import pytest

from . import kernels, kernels_queue
from .cases import KERNELS, launched

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    "name", [name for name, (_, _, wanted) in KERNELS.items() if all(want is not None for want in wanted.values())]
)
def test_does_what_the_emulator_says(name):
    function, arguments, wanted = KERNELS[name]
    found = launched(function, arguments)
    for at, want in wanted.items():
        assert np.array_equal(found[at], want)


def test_blocks_of_a_full_grid_meet():
    blocks, rounds = 132, 20
    found = launched(
        kernels.grid,
        (
            np.zeros(rounds * 64 * blocks, np.int32),
            np.zeros(64 * blocks, np.int32),
            np.zeros(4, np.int32),
            rounds,
            blocks,
        ),
    )
    value = np.arange(64 * blocks).reshape(blocks, 64)
    for _ in range(rounds):
        value = np.roll(value, -1, 0)[:, ::-1] + 1
    assert np.array_equal(found[1], value.ravel())


def test_every_item_and_every_ticket_once():
    n, blocks = 100_000, 264
    word, dealt, _, _ = launched(kernels_queue.dealt, (np.zeros(4, np.int32), np.zeros(n, np.int32), n, blocks))
    assert word[0] == 0 and np.array_equal(dealt, np.ones(n))
    taken = np.zeros(blocks * kernels_queue.THREADS, np.int32)
    found = launched(
        kernels_queue.at_once, (np.zeros(4, np.int32), np.zeros(4, np.int32), np.zeros(2, np.int64), taken, 1, blocks)
    )
    assert np.array_equal(found[3], np.ones(taken.size))
