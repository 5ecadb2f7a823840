"""From a compiled cute function and packed arguments to a checked run: device memory, repeated schedules."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache
from math import prod

import numpy as np

from ..errors import ArgumentValueError, CutesyncError, explain
from ..runtime import compiler, forks
from . import garbage, limits, minimal, overlap, ptx
from .codegen import Program
from .device import DEVICE, Device
from .driver import Executable, Launch
from .gate import MALFORMED
from .machine import Machine
from .meeting import ALONE, Alone, Meeting, Others
from .memory import Region
from .parallel import in_processes
from .report import EmulationError, Findings, Report
from .rewind import Rewind
from .schedule import Schedule
from .settings import Settings, settings
from .several import Ensemble, Several
from .trace import Trace

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
def program(text: str, kernel: str | None = None, device: int = 0) -> Program:
    """The executable form of one kernel of a PTX text (its only one, if no name is given). It is bound to one launch at
    a time, so each device has its own."""
    return program(text, kernel, 0).copy() if device else _program(text, kernel)


def _program(text: str, kernel: str | None) -> Program:
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
    device: int = 0,
    **attributes: bool,
) -> None:
    """Launch a kernel given as PTX text, under the settings in force. Raises EmulationError on the first finding, and
    LaunchError for a launch that a GPU would refuse.

    ``parameters`` are the packed parameter bytes, or one integer a parameter (addresses, scalars as their bits).
    Addresses must lie in registered buffers. ``kernel`` names one of several in the text. ``attributes`` are
    ``cooperative`` (all blocks are resident at once) and ``programmatic``: the launch may start before those before it
    in its stream have ended, and to touch global memory before ``griddepcontrol.wait`` is a race. ``device`` is the
    emulated device; inside ``at_once`` the launch waits for the end of that block.
    """
    compiler.refuse_while_tracing()
    with LOCK:
        code = program(text, kernel, device)
        wanted = Launch(
            code,
            limits.extents("grid", grid),
            limits.extents("block", block),
            limits.extents("cluster", limits.padded(code.function.cluster or ()) if cluster is None else cluster),
            limits.whole("shared_bytes", shared_bytes),
            _packed(code.function, parameters),
            **attributes,
        )
        if not enqueue(device, wanted):
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


@contextlib.contextmanager
def at_once(others: Alone | Meeting | Others = ALONE) -> Iterator[None]:
    """Launches inside, of this thread or task, wait for the end of the block. Then those of different devices run at
    the same time, and those of one device in order. An inner block belongs to the outer one. ``others``: so do those of
    other ranks."""
    if _waiting.get() is not None:
        yield
        return
    launches: list[tuple[int, Launch]] = []
    held: list[object] = []
    token = _waiting.set((launches, held))
    try:
        yield
    finally:
        _waiting.reset(token)

    others.run(launches, _run_several)


def _run_several(launches: list[tuple[int, Launch]], patience: float = 0.0) -> None:
    with LOCK:
        run_launch(Several(launches, patience), DEVICE, settings())


def enqueue(device: int, launch: Launch) -> bool:
    """Keep a launch for the end of the ``at_once`` block that it is in, with all memory that there is now; False if it
    is in none."""
    waiting = _waiting.get()
    if waiting is None:
        return False
    launches, held = waiting
    launches.append((device, launch))
    held += [region.owner() for region in DEVICE.memory.regions if region.owner is not None]
    return True


_waiting: ContextVar[tuple[list[tuple[int, Launch]], list[object]] | None] = ContextVar(
    "cutesync_waiting", default=None
)


def run_launch(launch: Launch | Several, device: Device, how: Settings, close=None, found=None) -> None:
    """One launch, under one schedule or several; several must leave the same memory behind.

    The first finding is raised. With ``found``, each schedule's finding goes there instead, and the launch leaves what
    it computes without checks, as far as it ends.
    """
    launches = [one for _, one in launch.launches] if isinstance(launch, Several) else [launch]
    for one in launches:
        limits.check(one)
    if isinstance(launch, Launch) and launch.cooperative:
        grid = np.array([_WORKSPACE, 0], np.uint32)  # its size, and the barrier's word
        launch = launches[0] = replace(launch, workspace=grid.ctypes.data)
    own = [
        Region.of_address(name, array.ctypes.data, max(v.size, 1), writable=v.space == "global")
        for program in {id(one.program): one.program for one in launches}.values()
        for name, (v, array) in program.variables.items()
    ]
    if launches[0].workspace:
        own.append(Region.of_address("the grid's workspace", launches[0].workspace, _WORKSPACE, writable=True))
    try:
        device.memory.replace((), own)
        if how.schedules == 1 and found is None:
            run_once(launch, device, how, how.schedule(0), how.trace)
        else:
            _run_all(launch, device, how, close, found)
        overlap.SEEN.finish(launch.programmatic)
    finally:
        device.memory.replace(own, ())


def _run_all(launch: Launch | Several, device: Device, how: Settings, close, found) -> None:
    first, rewind, failed = None, Rewind(device.memory), False

    def one(number: int, how: Settings) -> EmulationError | None:
        nonlocal first
        schedule = how.schedule(number)
        if number:
            rewind.restore()
        try:
            run_once(launch, device, how, schedule, how.trace if number == 0 else None)
            if first is None:
                first = schedule
                rewind.note_first()
            else:
                _compare(launch, device, how, rewind, close, (first, schedule))
        except EmulationError as error:
            if how.minimal and isinstance(launch, Launch):
                _add_shortest_order(launch, device, how, rewind, error.report, schedule)
            return error
        return None

    kept = [launch.program.kept] if isinstance(launch, Launch) else []
    try:
        for each in kept:
            each.begin()
        for error in _in_turn(how, one) if how.jobs == 1 else _side_by_side(how, one):
            if error is not None and found is None:
                raise error
            if error is not None:
                found(error)
                failed = True
        if failed:
            rewind.restore()
            _run_unchecked(launch, device, how, rewind, found)
    finally:
        for each in kept:
            each.end()
        rewind.close()


_WORKSPACE, _WARNINGS = 8, 3  # _WARNINGS: of a launch, that the report of a mismatch repeats
Errors = Iterator[EmulationError | None]


def _in_turn(how: Settings, one: Callable[[int, Settings], EmulationError | None]) -> Errors:
    for number in range(how.schedules):
        yield one(number, how)


def _side_by_side(how: Settings, one: Callable[[int, Settings], EmulationError | None]) -> Errors:
    """The first schedule here, for the others are compared with it; then these in processes."""
    yield one(0, how)

    def work(number: int) -> tuple[Report | None, list[Report], int]:
        garbage.leave()
        own = replace(how, findings=Findings(), outer=(), steps=0, launches=0)
        error = one(number, own)
        return None if error is None else error.report, list(own.findings), own.steps

    for report, notes, steps in in_processes(how.jobs, range(1, how.schedules), work).values():
        for note in notes:
            how.note(note)
        how.count(steps)
        yield None if report is None else EmulationError(report)


def _add_shortest_order(
    launch: Launch | Several, device: Device, how: Settings, rewind: Rewind, report: Report, schedule: Schedule
) -> None:
    """Add to the report of a fault the shortest change of order that shows it, if it is found in time."""
    own = replace(how, findings=Findings(), outer=(), trace=None)

    def fails(order: Schedule) -> bool:
        rewind.restore()
        try:
            run_once(launch, device, own, order)
        except EmulationError as error:
            return minimal.same(error.report, report)
        return report.kind == "mismatch" and rewind.difference() is not None

    report.lines += minimal.told(schedule, fails) if report.kind in minimal.KINDS else []


def _compare(launch: Launch | Several, device: Device, how: Settings, rewind: Rewind, close, both: tuple) -> None:
    """Raise EmulationError if the last of both schedules left another result than the first."""
    first, schedule = both
    difference = rewind.difference()
    if difference is not None and not (close and close(rewind)):
        region, at = difference
        _blame_poison(launch, device, how, rewind, close)
        name = launch.program.function.name
        warned = [f for f in how.findings if f.severity == "warning" and f.kernel == name]
        raise EmulationError(
            Report(
                "mismatch",
                f"two schedules leave different results in {region.name}, first at byte {at}",
                name,
                [
                    f"one with {first.describe()}",
                    *(f"warning: {f.kind}: {f.title}, at {' and '.join(f.places)}" for f in warned[:_WARNINGS]),
                ],
                schedule.describe(),
            )
        )


def _blame_poison(launch: Launch | Several, device: Device, how: Settings, rewind: Rewind, close) -> None:
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


def _run_unchecked(launch: Launch | Several, device: Device, how: Settings, rewind: Rewind, found) -> None:
    """Compute the result of a launch with findings, so that what follows it can go on."""
    try:
        run_once(launch, device, replace(how, sanitize=False, trace=None), Schedule("round_robin"))
    except EmulationError as error:
        found(error)
        rewind.restore()


def run_once(
    launch: Launch | Several, device: Device, how: Settings, schedule: Schedule, trace: Trace | None = None
) -> None:
    regions = device.memory.regions
    for region in regions:
        region.shadow, region.watchers, region.sums = None, [], ""
    if isinstance(launch, Launch) and (launch.cooperative or (how.co_resident and limits.fits(launch))):
        schedule.limit = prod(launch.grid)
    try:
        machine = _machine(launch, device, schedule, how, trace)
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
    trace = machine.trace
    if trace is not None:
        trace.begin(machine)
    try:
        with garbage.old_objects_left_alone():
            machine.run()
        if not how.unseen_launches:
            overlap.SEEN.ran(machine.name, regions)
    finally:
        for note in machine.notes.values():
            how.note(note)
        if trace is not None:
            trace.end()
        for region in regions:
            region.shadow, region.watchers = None, []
        how.count(machine.steps)


def _machine(
    launch: Launch | Several, device: Device, schedule: Schedule, how: Settings, trace: Trace | None
) -> Machine:
    if isinstance(launch, Several):
        return Ensemble(launch, device.memory, schedule, how)
    return Machine(launch, device.memory, schedule, how, trace)
