"""Interleaved timing with CUDA events.

A measure is named by how it calls and by what the cache holds:

  event      two events around one call, inputs flushed from the L2 before each
  graph      two events around a graph of REPEATS calls on different buffers, flushed from the L2; time per call
  ... hot    the same on one buffer, which stays in the L2

Contestants take turns, another one first in each round, so that clocks, temperature and caches treat them alike. Each
sample uses the buffers used longest ago, because a flush leaves some of an array in the L2 (a sum of 16 MiB took 11.2
us when first in a round, 9.0 when third).

Before each sample a spin kernel holds the stream until the host has enqueued everything, so no host time is measured.
If the host was too slow, the sample is taken again with a longer hold. A call for which that does not help waits for
the GPU itself: it is timed without a hold, host time included, and its samples are counted as ``starved``. So is one
that says so by an attribute ``waits``: its work runs on another stream, which nothing holds.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

from gpu import Event, Gpu, Graph

REPEATS = 20
FLUSH_L2S = 4  # bytes read between samples, in sizes of the L2
MOST_HOLD_US = 20_000  # at most what a host takes to enqueue a call
ENOUGH, BUDGET_US = 5, 400_000  # a slow contestant stops after so many samples and so much time


@dataclass
class Contestant:
    """A named competitor: one zero-argument call per slot, each of which only enqueues work on the stream."""

    name: str
    calls: list
    hold: float = 30.0  # microseconds for which the stream is held before a sample; 0 for a call that waits for the GPU
    trouble: str = ""


class Timer:
    def __init__(self, gpu: Gpu):
        self.gpu = gpu
        self.flush_bytes = FLUSH_L2S * gpu.l2_bytes
        self.flush_buffer = gpu.allocate(self.flush_bytes)
        self.start, self.end = Event(), Event()

    def calibrate(self, contestant: Contestant) -> None:
        """Warm up, and hold the stream for three times what the host needs for one call."""
        seconds = []
        for call in contestant.calls:
            begin = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - begin)
        self.gpu.stream.synchronize()
        waits = getattr(contestant.calls[0], "waits", False)
        contestant.hold = 0.0 if waits else min(max(contestant.hold, 3e6 * min(seconds)), MOST_HOLD_US)

    def sample(self, contestant: Contestant, call, hot: bool) -> tuple[float, bool]:
        """Microseconds of one call, and whether the stream ran dry before the call was enqueued."""
        while True:
            if not hot:
                self.gpu.read_all(self.flush_buffer, self.flush_bytes)
            if contestant.hold:
                self.gpu.spin(contestant.hold)
            self.start.record(self.gpu.stream)
            call()
            starved = self.start.done()
            self.end.record(self.gpu.stream)
            self.gpu.stream.synchronize()
            if not starved or not contestant.hold:
                break
            contestant.hold = 2 * contestant.hold if contestant.hold < MOST_HOLD_US else 0.0
        return self.end.microseconds_since(self.start), starved

    def run(self, contestants: list[Contestant], measure: str, rounds: int) -> dict[str, dict]:
        """The summary of ``rounds`` samples of each contestant, taken in turns."""
        hot, graphed = measure.endswith("hot"), measure.startswith("graph")
        racing, graphs = [], []
        for contestant in contestants:
            calls = contestant.calls[:1] if hot else contestant.calls
            if graphed:
                graph = self._capture(contestant, calls * (REPEATS // len(calls)))
                if graph is None:
                    continue
                graphs.append(graph)
                calls = [graph.launch]
            self.sample(contestant, calls[0], hot)
            racing.append((contestant, calls, [], []))
        taken = 0
        for turn in range(rounds):
            for place in range(len(racing)):
                contestant, calls, times, dry = racing[(turn + place) % len(racing)]
                if len(times) >= ENOUGH and sum(times) > BUDGET_US:
                    continue
                microseconds, starved = self.sample(contestant, calls[taken % len(calls)], hot)
                taken += 1
                times.append(microseconds / (REPEATS if graphed else 1))
                dry.append(starved)
        for graph in graphs:
            graph.free()
        return {contestant.name: summary(times, sum(dry)) for contestant, _, times, dry in racing}

    def _capture(self, contestant: Contestant, calls: list) -> Graph | None:
        try:
            return Graph(self.gpu.stream, calls)
        except Exception as error:  # a rival that cannot be captured is named in the report and does not stop the sweep
            contestant.trouble = f"not captured ({type(error).__name__}: {error})".splitlines()[0][:160]
            return None


def percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


def summary(samples: list[float], starved: int) -> dict:
    ordered = sorted(samples)
    return {
        "median_us": statistics.median(ordered),
        "p5_us": percentile(ordered, 0.05),
        "p95_us": percentile(ordered, 0.95),
        "samples": len(ordered),
        "starved": starved,
    }
