"""Random calls on a GPU agree with NumPy: torch, CuPy, NumPy arrays and DeviceArrays, on streams whose work comes late, in graphs with changed inputs.

    OPENBLAS_NUM_THREADS=1 python -m pytest tests/fuzz/test_gpu.py -n 16 --dist worksteal --fuzz 5000

plays 5,000 calls; ``--seed S`` others. The last line says how many calls, kernels and wrong ones there were.
"""

from __future__ import annotations

import faulthandler

import numpy as np
import pytest

from .draw import GPU, draw
from .libraries import Cupy, Library, Own, Torch, importable
from .play import Tally, play

pytestmark = pytest.mark.gpu
pytest.importorskip("torch")
from . import lanes  # noqa: E402 (it imports torch)

CALLS, SEED = 250, 5_000_000
PATIENCE = 240  # seconds for the calls of a theme; a GPU that hangs cannot be interrupted


def pytest_generate_tests(metafunc) -> None:
    if "seeds" in metafunc.fixturenames:
        calls, seed = metafunc.config.getoption("--fuzz") or CALLS, metafunc.config.getoption("--seed")
        seed = SEED if seed is None else seed
        metafunc.parametrize("seeds", GPU.themes(seed, calls), ids=lambda block: f"{block.start}-{block.stop - 1}")


def library_for(case, rng) -> Library:
    """Any that can hold the arrays."""
    kinds = [Torch, Torch, Own, Library]
    if importable("cupy") and not any(name in repr(case) for name in ("bfloat16", "float8")):
        kinds.append(Cupy)
    return kinds[int(rng.integers(len(kinds)))]()


def test_calls_agree_with_numpy(seeds, record_property):
    tally = Tally()
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    for seed in seeds:
        case, rng = draw(seed, GPU), np.random.default_rng([seed, 4])
        library, way = library_for(case, rng), float(rng.random())
        if way < 0.3:
            name, faults = "in a graph", lambda case=case, library=library, rng=rng: lanes.in_a_graph(case, library, rng)
        else:
            name, around = ("on a stream", lanes.on_a_stream) if way < 0.65 else ("directly", lanes.directly)
            faults = lambda case=case, library=library, rng=rng, around=around: play(case, library, rng, around)  # noqa: E731
        tally.one(seed, f"{library.name}, {name}: {case!r}", faults)
    faulthandler.cancel_dump_traceback_later()
    tally.finish(record_property, "test_gpu.py", seeds.start)
