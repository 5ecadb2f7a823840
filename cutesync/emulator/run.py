"""From a compiled cute function and packed arguments to a checked run: device memory, repeated schedules."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from functools import lru_cache
from math import prod

import numpy as np

from ..errors import ArgumentValueError, CutesyncError, explain
from ..runtime import compiler, forks
from . import limits, overlap, ptx
from .codegen import Program
from .driver import Executable, Launch
from .gate import MALFORMED
from .machine import Machine
from .memory import POISON, Memory, Region
from .report import EmulationError, Report
from .rewind import Rewind
from .schedule import Schedule
from .settings import Settings, settings
from .trace import Trace


class Device:
    """Emulated device memory: real buffers of this process, registered by address."""

    def __init__(self):
        self.memory = Memory()

    def register(
        self,
        address: int,
        size: int,
        name: str = "a buffer",
        *,
        initialised: bool = True,
        writable: bool = True,
        owner=None,
    ) -> Region | None:
        """Make bytes at ``address`` visible to kernels, until ``unregister`` or for the life of their ``owner``.

        The caller keeps them alive until then. Bytes of a buffer that is not ``initialised`` must be written before
        they are read.
        """
        if size <= 0:
            return None
        region = _region(name, address, size, initialised, writable)
        region.owner = None if owner is None else weakref.ref(owner)
        self.memory.replace(self.memory.starting_at(address), (region,))
        return region

    def unregister(self, address: int) -> None:
        self.memory.replace(self.memory.starting_at(address), ())

    @contextlib.contextmanager
    def arrays(self, *arrays: np.ndarray, fresh=()):
        """Registers NumPy arrays for a ``with`` block, those in ``fresh`` as unwritten. Overlapping ones merge."""
        regions, hidden = [], []
        for address, size, name, initialised, writable in _buffers(arrays, fresh):
            regions.append(_region(name, address, size, initialised, writable))
            hidden += self.memory.starting_at(address)
        try:
            self.memory.replace(hidden, regions)
            yield self
        finally:
            self.memory.replace(regions, hidden)


def _region(name: str, address: int, size: int, initialised: bool, writable: bool) -> Region:
    region = Region.of_address(name, address, size, initialised=initialised, writable=writable)
    if not initialised and writable:
        region.data[region.low : region.high] = POISON
    return region


def _buffers(arrays, fresh) -> list[tuple[int, int, str, bool, bool]]:
    """(address, size, name, initialised, writable) of the memory under arrays, strided ones included."""
    found = []
    for i, a in enumerate(arrays):
        if a.size:
            reach = [(n - 1) * s for n, s in zip(a.shape, a.strides)]
            first = a.ctypes.data + sum(r for r in reach if r < 0)
            size = sum(map(abs, reach)) + a.itemsize
            initialised = not any(a is other for other in fresh)
            found.append((first, size, f"array {i} {a.dtype}{list(a.shape)}", initialised, a.flags.writeable))
    merged: list[tuple[int, int, str, bool, bool]] = []
    for first, size, name, initialised, writable in sorted(found):
        if merged and first < merged[-1][0] + merged[-1][1]:
            start, held, other, *flags = merged.pop()
            both = other if name == other else f"{other} with {name}"
            merged.append((start, max(held, first + size - start), both, initialised or flags[0], writable or flags[1]))
        else:
            merged.append((first, size, name, initialised, writable))
    return merged


DEVICE = Device()
LOCK = threading.RLock()  # launches run one at a time: generated code is bound to one machine
forks.wait_for(LOCK)
_EXECUTABLES: weakref.WeakKeyDictionary[object, Executable] = weakref.WeakKeyDictionary()


def executable(compiled) -> Executable:
    """The runnable form of a compiled cute function, made once."""
    found = _EXECUTABLES.get(compiled)
    if found is None:
        with compiler.alone():  # it makes an engine, which compiles the host code
            found = _EXECUTABLES.get(compiled) or _EXECUTABLES.setdefault(compiled, Executable(compiled))
    return found


def run(compiled, packed, device: Device = DEVICE, edit=None, close=None) -> None:
    """Run one compiled cute function through its packed host entry. Raises EmulationError on the first finding.

    ``packed`` is what ``compiled.to(None).capi_func`` would be given on a GPU. Global addresses must lie in buffers
    registered with ``device``. ``edit`` changes the PTX first (to plant faults). ``close(rewind)`` returns whether two
    schedules that leave different bytes leave the same result nevertheless.
    """
    made = executable(compiled)
    with LOCK:
        for launch in made.record(packed, edit):
            run_launch(launch, device, settings(), close)


@lru_cache(maxsize=512)
def program(text: str, kernel: str | None = None) -> Program:
    """The executable form of one kernel of a PTX text (its only one, if no name is given)."""
    module = ptx.parse(text)
    names = list(module.functions)
    if kernel is None and len(names) == 1:
        (kernel,) = names
    if kernel not in module.functions:
        raise ArgumentValueError(
            explain("kernel", kernel, f"the name of one of the text's kernels: {', '.join(names)}")
        )
    return Program(module.functions[kernel], module)


def launch(
    text: str,
    grid,
    block,
    parameters,
    *,
    cluster=None,
    shared_bytes: int = 0,
    kernel: str | None = None,
    **attributes: bool,
) -> None:
    """Launch a kernel given as PTX text, under the settings in force. Raises EmulationError on the first finding, and
    LaunchError for a launch that a GPU would refuse.

    ``parameters`` are the packed parameter bytes, or one integer a parameter (addresses, scalars as their bits).
    Addresses must lie in registered buffers. ``kernel`` names one of several in the text. ``attributes`` are
    ``cooperative`` (all blocks are resident at once) and ``programmatic``: the launch may start before those before it
    in its stream have ended, and to touch global memory before ``griddepcontrol.wait`` is a race.
    """
    compiler.refuse_while_tracing()
    with LOCK:
        code = program(text, kernel)
        wanted = Launch(
            code,
            limits.extents("grid", grid),
            limits.extents("block", block),
            limits.extents("cluster", limits.padded(code.function.cluster or ()) if cluster is None else cluster),
            limits.whole("shared_bytes", shared_bytes),
            _packed(code.function, parameters),
            **attributes,
        )
        run_launch(wanted, DEVICE, settings())


def _packed(function, parameters) -> bytes:
    """The bytes of a kernel's parameters."""
    if isinstance(parameters, (bytes, bytearray)):
        given, wanted = len(parameters), function.param_bytes()
    else:
        parameters = list(parameters)
        given, wanted = len(parameters), len(function.params)
    if given != wanted:
        raise ArgumentValueError(explain(f"parameters of {function.name}", given, wanted))
    if isinstance(parameters, (bytes, bytearray)):
        return bytes(parameters)
    packed = bytearray(function.param_bytes())
    for p, value in zip(function.params, parameters):
        packed[p.offset : p.offset + p.size] = (int(value) & ((1 << 8 * p.size) - 1)).to_bytes(p.size, "little")
    return bytes(packed)


def run_launch(launch: Launch, device: Device, how: Settings, close=None) -> None:
    """One launch, under one schedule or several; several must leave the same memory behind."""
    limits.check(launch)
    own = [
        Region.of_address(name, array.ctypes.data, max(v.size, 1), writable=v.space == "global")
        for name, (v, array) in launch.program.variables.items()
    ]
    try:
        device.memory.replace((), own)
        if how.schedules == 1:
            run_once(launch, device, how, how.schedule(0), how.trace)
        else:
            _run_all(launch, device, how, close)
        overlap.SEEN.finish(launch.programmatic)
    finally:
        device.memory.replace(own, ())


def _run_all(launch: Launch, device: Device, how: Settings, close) -> None:
    first, rewind = how.schedule(0), Rewind(device.memory)
    try:
        run_once(launch, device, how, first, how.trace)
        rewind.note_first()
        for schedule in map(how.schedule, range(1, how.schedules)):
            rewind.restore()
            run_once(launch, device, how, schedule)
            found = rewind.difference()
            if found is not None and not (close and close(rewind)):
                region, at = found
                _blame_poison(launch, device, how, rewind, close)
                raise EmulationError(
                    Report(
                        "mismatch",
                        f"two schedules leave different results in {region.name}, first at byte {at}",
                        launch.program.function.name,
                        [f"one with {first.describe()}"],
                        schedule.describe(),
                    )
                )
    finally:
        rewind.close()


def _blame_poison(launch: Launch, device: Device, how: Settings, rewind: Rewind, close) -> None:
    """Report unwritten shared memory if it alone changes the results: the first schedule once more, with other bits
    there."""
    reads = [
        note for note in how.findings if note.kind == "uninitialised" and note.kernel == launch.program.function.name
    ]
    if not reads:
        return
    again = how.schedule(0)
    again.poison = ~again.poison
    rewind.restore()
    run_once(launch, device, how, again)
    found = rewind.difference()
    if found is not None and not (close and close(rewind)):
        region, at = found
        raise EmulationError(
            Report(
                "uninitialised",
                f"what unwritten shared memory holds changes the result in {region.name}, first at byte {at}",
                launch.program.function.name,
                [line for note in reads for line in (note.title, *note.lines)],
                again.describe(),
                places=reads[0].places,
            )
        )


def run_once(launch: Launch, device: Device, how: Settings, schedule: Schedule, trace: Trace | None = None) -> None:
    regions = device.memory.regions
    for region in regions:
        region.shadow, region.watchers = None, []
    if launch.cooperative:
        schedule.limit = prod(launch.grid)
    try:
        machine = Machine(launch, device.memory, schedule, how, trace)
    except CutesyncError:
        raise
    except MALFORMED as fault:
        raise EmulationError(
            Report(
                "unsupported",
                f"the emulator cannot bind an instruction ({type(fault).__name__}: {fault})",
                launch.program.function.name,
            )
        ) from fault
    if trace is not None:
        trace.begin(machine)
    gc.freeze()  # the collector passes over what there was before the launch
    try:
        machine.run()
        if not how.unseen_launches:
            overlap.SEEN.ran(machine.name, regions)
    finally:
        gc.unfreeze()
        for note in machine.notes.values():
            how.note(note)
        if trace is not None:
            trace.end()
        for region in regions:
            region.shadow, region.watchers = None, []
        how.count(machine.steps)
