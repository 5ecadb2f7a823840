"""Play a drawn call: make its arrays in a library, call twice, with other values and perhaps in other ways, and say
what is wrong."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cutesync.errors import CutesyncError
from cutesync.runtime import compiler

from .draw import Case, Undefined
from .judge import Wanted
from .libraries import Library, Placed, place
from .values import pick


class Hang(Exception):
    """A call took longer than a call may."""


@contextlib.contextmanager
def deadline(seconds: float):
    """Raise Hang inside after so many seconds (in the main thread, where signals arrive)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(*_):
        raise Hang(f"no answer in {seconds} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Stage:
    """The arrays of a case in a library, and its calls. ``around(call, stage)`` may run a call in a way of its own,
    such as on a stream."""

    def __init__(self, case: Case, library: Library, rng: np.random.Generator) -> None:
        self.case, self.library, self.rng = case, library, rng
        self.inputs = case.inputs
        self.placed = {name: self._place(name, x) for name, x in case.inputs.items()}
        self.options = dict(case.options)
        self.init: Placed | None = None
        if case.init_of is not None and library.on_device and library.holds(case.init_of) and rng.random() < 0.3:
            self.init = place(
                library, rng, np.full(pick(rng, ((), (1,), (1, 1))), self.options["init"], case.init_of.numpy)
            )
            self.options["init"] = self.init.array

    def _place(self, name: str, x: np.ndarray) -> Placed:
        offset, steps = self.case.layouts.get(name, (0, None))
        return place(self.library, self.rng, x, offset, steps if self.library.strided else None)

    def wanted(self) -> tuple[Wanted, ...] | None:
        """None where the call must be refused."""
        try:
            return self.case.wanted(self.inputs)
        except Undefined:
            return None

    def outs(self, wanted: tuple[Wanted, ...]) -> list[Placed]:
        """Memory for the results, as the case has it; none if the call makes them."""
        if self.case.out == "in place":
            return [self.placed[name] for name in self.case.targets]
        if self.case.out == "none" or not (self.case.numpy_out or self.library.on_device):
            return []
        offset, steps = self.case.layouts.get("out", (self.case.layouts.get("x", (0, None))[0], None))
        steps = steps if self.library.strided else None
        return [place(self.library, self.rng, np.zeros(one.low.shape, one.low.dtype), offset, steps) for one in wanted]

    def call(self, outs: list[Placed], **more) -> list[Any]:
        arrays = {name: one.array for name, one in self.placed.items()}
        if outs:
            more["out"] = outs[0].array if len(outs) == 1 else tuple(one.array for one in outs)
        result = self.case.function(**arrays, **self.options, **more)
        results = list(result) if isinstance(result, tuple) else [result]
        for out, one in zip(outs, results):
            assert one is out.array, "the result is not what was given as out"
        return results

    def judge(
        self, wanted: tuple[Wanted, ...], results: list[Any], outs: list[Placed]
    ) -> tuple[list[str], list[np.ndarray]]:
        """What is wrong with results and memory; and the results on the host."""
        faults, hosts = [], [self.library.numpy(one) for one in results]
        if len(hosts) != len(wanted):
            return [f"{len(hosts)} results instead of {len(wanted)}"], hosts
        for number, (host, one, result) in enumerate(zip(hosts, wanted, results)):
            faults.append(one.fault(host))
            if not self.case.host and not self.library.made(result):
                faults.append(f"result {number} is a {type(result).__name__}")
        for out, host in zip(outs, hosts):
            faults.append(out.fault(host if host.shape == out.shape else None))
        faults += [
            one.fault() for one in (*self.placed.values(), *([self.init] if self.init else [])) if one not in outs
        ]
        return [fault for fault in faults if fault], hosts

    def refill(self) -> None:
        """Other values in the same arrays."""
        self.inputs = self.case.fresh(self.rng)
        for name, one in self.placed.items():
            one.refill(self.inputs[name])


def play(
    case: Case, library: Library, rng: np.random.Generator, around: Callable = lambda stage, outs: stage.call(outs)
) -> list[str]:
    """Everything that is wrong with a case, in words; nothing if all is well."""
    stage = Stage(case, library, rng)
    wanted = stage.wanted()
    if wanted is None:
        return _refused(stage)
    outs = stage.outs(wanted)
    faults, first = stage.judge(wanted, around(stage, outs), outs)
    if faults:
        return faults
    if case.out == "in place":
        for name in case.targets:
            stage.placed[name].refill(stage.inputs[name])
    if case.repeats and rng.random() < 0.5:
        faults, second = stage.judge(wanted, around(stage, outs), outs)
        same = all(one.tobytes() == two.tobytes() for one, two in zip(first, second))
        return [f"in the second call: {fault}" for fault in faults] or (
            [] if same else ["the second call gave other bits"]
        )
    stage.refill()
    wanted = stage.wanted()
    faults, _ = stage.judge(wanted, around(stage, outs), outs)
    return [f"with other values in the same arrays: {fault}" for fault in faults]


def _refused(stage: Stage) -> list[str]:
    """A call that has no answer: a typed error, and nothing written."""
    try:
        stage.call([])
    except CutesyncError:
        return [fault for fault in (one.fault() for one in stage.placed.values()) if fault]
    return ["no error from a call that has no answer"]


def ranges(first: int, stop: int, size: int) -> list[range]:
    """The numbers from ``first`` to ``stop``, so many together."""
    return [range(start, min(start + size, stop)) for start in range(first, stop, size)]


def draw_seeds(metafunc, count: int, first: int, blocks: Callable[[int, int], list[range]]) -> None:
    """Parametrize the tests that take ``seeds``: ``count`` from ``first`` on, or as the options say, in
    ``blocks(first, count)``."""
    if "seeds" in metafunc.fixturenames:
        count, given = metafunc.config.getoption("--fuzz") or count, metafunc.config.getoption("--seed")
        found = blocks(first if given is None else given, count)
        metafunc.parametrize("seeds", found, ids=lambda block: f"{block.start}-{block.stop - 1}")


class Tally:
    """Counts of a run: calls, kernels compiled, and what was wrong."""

    def __init__(self) -> None:
        self.calls, self.wrong = 0, []
        self._before = compiler.counts()["compiled"]

    @property
    def compiled(self) -> int:
        return compiler.counts()["compiled"] - self._before

    def one(self, seed: int, what: Any, faults: Callable[[], list[str]], seconds: float = 60) -> None:
        """Count a call; any exception is a fault as well."""
        self.calls += 1
        try:
            with deadline(seconds):
                found = faults()
        except Exception as error:
            found = [f"{type(error).__name__}: {error}"]
        self.wrong += [f"seed {seed}: {what}\n    {fault[:600]}" for fault in found[:2]]

    def finish(self, record_property, file: str, first: int) -> None:
        """Tell the summary, and fail with every wrong call and how to repeat it."""
        record_property("fuzz", (self.calls, self.compiled, len(self.wrong)))
        if self.wrong:
            again = f"python -m pytest tests/fuzz/{file} -n 0 --fuzz 1 --seed SEED"
            again += f" (with the calls before it: --fuzz {self.calls} --seed {first})"
            pytest.fail("\n".join([*self.wrong, again]), pytrace=False)
