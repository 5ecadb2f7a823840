"""Streams and graphs for random calls on a GPU: work that comes late on the stream of a call, and calls that are
captured and replayed."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass
from typing import Any

import torch

from cutesync.errors import CaptureError
from cutesync.runtime import device

from .draw import Case
from .libraries import Library, Placed, importable
from .play import Stage, play
from .values import pick

DELAY = 400_000  # clocks that a stream is busy before the inputs arrive


@dataclass(frozen=True)
class Lane:
    """A stream: what a call is given as ``stream``, its handle, and what makes it current in its library, if the call
    is given none."""

    argument: Any
    handle: int
    current: Any = None
    keep: Any = None


@functools.cache
def lane(name: str, number: int) -> Lane:
    """One of a few streams of a kind. Those of the driver and of CuPy do not wait for the default stream."""
    torch.cuda.synchronize()  # the driver makes streams in a thread's context
    if name in ("driver", "number"):
        cu = device.driver()
        made = device.check(cu.cuStreamCreate(int(cu.CUstream_flags.CU_STREAM_NON_BLOCKING)), "cuStreamCreate")
        return Lane(made if name == "driver" else int(made), int(made), None, made)
    if name.startswith("cupy"):
        import cupy

        made = cupy.cuda.Stream(non_blocking=True)
        return Lane(None if name == "cupy current" else made, made.ptr, made, made)
    made = torch.cuda.Stream()
    return Lane(None if name == "torch current" else made, made.cuda_stream, torch.cuda.stream(made), made)


def any_lane(library: Library, rng) -> Lane:
    names = ["driver", "driver", "number", "torch"]
    if library.name == "torch":
        names.append("torch current")
    if importable("cupy"):
        names += ["cupy", "cupy current"] if library.name == "cupy" else ["cupy"]
    return lane(pick(rng, names), int(rng.integers(2)))


def on_a_stream(stage: Stage, outs: list[Placed]) -> list[Any]:
    """A call on a stream that is still busy when the call is made, and on which its inputs arrive only then. Whatever
    runs on another stream reads what was there before."""
    chosen = any_lane(stage.library, stage.rng)
    arrive = []
    if stage.library.on_device:
        for placed in stage.placed.values():
            arrive.append((placed, stage.library.memory(placed.before)))
            stage.library.write(placed.memory, placed.before[::-1].copy())
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.ExternalStream(chosen.handle)):
        torch.cuda._sleep(DELAY)
    for placed, source in arrive:
        to, at = stage.library.pointer(placed.memory), stage.library.pointer(source)
        device.check(
            device.driver().cuMemcpyDtoDAsync(to, at, placed.before.nbytes, chosen.handle), "cuMemcpyDtoDAsync"
        )
    current = chosen.current if chosen.argument is None else contextlib.nullcontext()
    with current:
        results = stage.call(outs, **({} if chosen.argument is None else {"stream": chosen.argument}))
    device.synchronize(chosen.handle)
    return results


def directly(stage: Stage, outs: list[Placed]) -> list[Any]:
    torch.cuda.synchronize()  # refilled arrays of libraries with other current streams
    return stage.call(outs)


def in_a_graph(case: Case, library: Library, rng) -> list[str]:
    """Captured once, replayed with other values in the arrays. A call that cannot be captured says so."""
    stage = Stage(case, library, rng)
    wanted = stage.wanted()
    outs = [] if wanted is None else stage.outs(wanted)
    if not outs or not library.on_device or not case.captures:
        return play(case, library, rng, directly)
    stage.call(outs)
    torch.cuda.synchronize()
    graph, results = torch.cuda.CUDAGraph(), []
    try:
        with torch.cuda.graph(graph):
            results = stage.call(
                outs, **({} if library.name == "torch" else {"stream": torch.cuda.current_stream().cuda_stream})
            )
    except CaptureError:
        return []
    for replay in range(3):
        stage.refill()
        for out in outs:
            library.write(out.memory, out.before)
        torch.cuda.synchronize()
        graph.replay()
        torch.cuda.synchronize()
        faults, _ = stage.judge(stage.wanted(), results, outs)
        if faults:
            return [f"in replay {replay}: {fault}" for fault in faults]
    return []


WAYS = {
    "in a graph": in_a_graph,
    "on a stream": lambda case, library, rng: play(case, library, rng, on_a_stream),
    "directly": lambda case, library, rng: play(case, library, rng, directly),
}
