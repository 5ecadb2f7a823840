"""``config="tune"``: the model's best few configurations are timed once for a problem, and the answer is kept.

Each candidate is launched several times between two events; candidates take turns, so that a change of clocks affects
all of them, and the median of the rounds counts. The stream is kept busy before, so that the launches are queued and
not waited for.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable

from ...dtypes import BY_NAME
from ...runtime import backend, cache, device, device_array
from .plan import Problem
from .policy import MatmulPolicy

CANDIDATES, ROUNDS = 6, 7
_LAUNCHES, _SECONDS = 20, 1e-3  # of a candidate in a round: this number, or fewer if they take longer
_BUSY_BYTES, _BUSY_TIMES = 1 << 26, 20  # memory set before a round: some 400 us on an H200, and the L2 emptied
_MARGIN = 0.99  # another candidate must take less than this part of the time of the model's choice

_answers: dict[tuple, MatmulPolicy] = {}


def choose(problem: Problem, run_of: Callable[[MatmulPolicy], Callable[[], None]], stream: int) -> MatmulPolicy:
    """The fastest configuration for a problem on this GPU: what was measured before, else what is measured now, else
    what the model says.

    ``run_of(config)`` is a function that queues the work on ``stream``, and may be called any number of times."""
    ordinal = problem.ordinal
    place = backend.of(ordinal)
    key = ("matmul tune", place.name(ordinal), *problem.key)
    if key not in _answers:
        found = cache.recall(key)
        if found is None:
            candidates = problem.shortlist(CANDIDATES)
            if not place.can_time(stream):
                return candidates[0]
            seconds = measure([run_of(config) for config in candidates], ordinal, stream)
            best = min(range(len(candidates)), key=seconds.__getitem__)
            _answers[key] = candidates[best if seconds[best] < _MARGIN * seconds[0] else 0]
            cache.note(key, dataclasses.asdict(_answers[key]))
        else:
            _answers[key] = MatmulPolicy(**found | {"tile": tuple(found["tile"]), "cluster": tuple(found["cluster"])})
    return _answers[key]


def measure(runs: list[Callable[[], None]], ordinal: int, stream: int) -> list[float]:
    """Seconds that each takes on the GPU."""
    cu = device.driver()
    busy = device_array.allocate((_BUSY_BYTES,), BY_NAME["uint8"], ordinal, stream)
    with device.using(ordinal):
        events = [device.check(cu.cuEventCreate(0), "cuEventCreate") for _ in range(2)]

        def lap(run: Callable[[], None], launches: int) -> float:
            for _ in range(_BUSY_TIMES):
                device.check(cu.cuMemsetD8Async(busy.ptr, 0, _BUSY_BYTES, stream), "cuMemsetD8Async")
            device.check(cu.cuEventRecord(events[0], stream), "cuEventRecord")
            for _ in range(launches):
                run()
            device.check(cu.cuEventRecord(events[1], stream), "cuEventRecord")
            device.check(cu.cuEventSynchronize(events[1]), "cuEventSynchronize")
            return device.check(cu.cuEventElapsedTime(*events), "cuEventElapsedTime") * 1e-3 / launches

        try:
            for run in runs:
                run()  # loads the kernel and makes its workspace
            launches = [max(1, min(_LAUNCHES, int(_SECONDS / lap(run, 1)))) for run in runs]
            laps = [[lap(run, n) for run, n in zip(runs, launches)] for _ in range(ROUNDS)]
        finally:
            for event in events:
                device.check(cu.cuEventDestroy(event), "cuEventDestroy")
    return [statistics.median(of) for of in zip(*laps)]
