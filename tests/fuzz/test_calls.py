"""Random calls of every family agree with NumPy, on the emulator: results, the memory around them, repeats, other
values in the same arrays.

``--fuzz N --seed S`` plays the seeds from S to S + N - 1; a failure says how to repeat it.
"""

from __future__ import annotations

import functools

import numpy as np

from .draw import EMULATOR, draw
from .libraries import Library, Own
from .play import Tally, draw_seeds, play

CALLS, SEED = 60, 2_000_400  # in CI


def pytest_generate_tests(metafunc) -> None:
    draw_seeds(metafunc, CALLS, SEED, EMULATOR.themes)


def test_calls_agree_with_numpy(seeds, on_emulator, record_property):
    tally = Tally()
    for seed in seeds:
        case, rng = draw(seed, EMULATOR), np.random.default_rng([seed, 4])
        library = (Library, Own)[int(rng.integers(2))]()
        tally.one(seed, f"{library.name}: {case!r}", functools.partial(play, case, library, rng))
    tally.finish(record_property, "test_calls.py", seeds.start)
