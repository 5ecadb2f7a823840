"""The concurrent queue's ``try_give`` and ``try_take``, and tickets, under hostile schedules."""

import numpy as np
import pytest

from cutesync import emulator

from .. import faults
from ..cases import SCHEDULES
from . import kernels_queue as kernels
from .cases import queue


def zeros(n, dtype=np.int32):
    return np.zeros(n, dtype)


@pytest.mark.parametrize("log", [0, 2])
def test_full_refuses_empty_refuses_and_both_can_be_used_on(log):
    capacity, laps = 1 << log, 3
    items, turns, state, out = zeros(capacity), zeros(capacity), zeros(2, np.int64), zeros(99 * laps)
    emulator.check(kernels.in_turn, items, turns, state, out, log, laps, schedules=1)
    given, got, values = (out.reshape(laps, 99)[:, first : first + capacity + 1] for first in (0, 20, 40))
    for flags in (given, got):
        assert np.array_equal(flags, [[1] * capacity + [0]] * laps)
    assert np.array_equal(values[:, :-1], [[10 * lap + i for i in range(capacity)] for lap in range(laps)])
    assert state.tolist() == [laps * capacity] * 2


def test_every_item_is_taken_once_by_threads_that_keep_trying():
    bench = queue(1)
    bench.check(faults.every(r"st\.release", "st.relaxed"), {"race"})
    bench.check(faults.every(r"ld\.acquire", "ld.relaxed"), {"race"})


@pytest.mark.parametrize("count, blocks", [(0, 3), (1, 1), (20, 3), (2, 5)])
def test_every_ticket_is_dealt_once_launch_after_launch(count, blocks):
    word, out = zeros(1), zeros(max(count, 1))
    for launch in (1, 2):  # the second launch finds the word as the first has left it
        emulator.check(kernels.dealt, word, out, count, blocks, schedules=SCHEDULES)
        assert np.array_equal(out[:count], np.full(count, launch)) and word[0] == 0


def test_no_mutant_of_the_tickets_survives():
    bench = faults.of_function(kernels.dealt, (zeros(1), zeros(20), 20, 3), {0: [0], 1: np.ones(20)}, 9)
    bench.check(faults.every(r"\.inc\.u32", ".add.u32"), {faults.RESULT})
    bench.check(faults.every(r"\.gpu\.inc", ".cta.inc"), {"race"})
