"""Random calls on a GPU agree with NumPy: torch, CuPy, NumPy arrays and DeviceArrays, on streams whose work comes late,
in graphs with changed inputs.

    OPENBLAS_NUM_THREADS=1 python -m pytest tests/fuzz/test_gpu.py -n 16 --dist worksteal --fuzz 5000

plays 5,000 calls; ``--seed S`` others. The last line says how many calls, kernels and wrong ones there were.
"""

from __future__ import annotations

import faulthandler
import functools

import numpy as np
import pytest

from .draw import GPU, draw
from .libraries import Cupy, Library, Own, Torch, importable
from .play import Tally, draw_seeds
from .values import pick

pytestmark = pytest.mark.gpu
pytest.importorskip("torch")
from . import lanes  # noqa: E402 (it imports torch)

CALLS, SEED = 250, 5_000_000
PATIENCE = 240  # seconds for the calls of a theme; a GPU that hangs cannot be interrupted


def pytest_generate_tests(metafunc) -> None:
    draw_seeds(metafunc, CALLS, SEED, GPU.themes)


def library_for(case, rng) -> Library:
    """Any that can hold the arrays."""
    kinds = [Torch, Torch, Own, Library]
    if importable("cupy") and not any(name in repr(case) for name in ("bfloat16", "float8")):
        kinds.append(Cupy)
    return kinds[int(rng.integers(len(kinds)))]()


@pytest.fixture
def watched():
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def test_calls_agree_with_numpy(seeds, watched, record_property):
    tally = Tally()
    for seed in seeds:
        case, rng = draw(seed, GPU), np.random.default_rng([seed, 4])
        library, way = library_for(case, rng), pick(rng, tuple(lanes.WAYS))
        tally.one(seed, f"{library.name}, {way}: {case!r}", functools.partial(lanes.WAYS[way], case, library, rng))
    tally.finish(record_property, "test_gpu.py", seeds.start)
