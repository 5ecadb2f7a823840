"""From a compiled cute function and packed arguments to a checked run: settings, device memory, and repeated schedules."""

from __future__ import annotations

import contextlib
import threading
import weakref
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from ..arguments import choice, flag, integer
from . import ptx
from .codegen import Program
from .driver import Executable, Launch
from .machine import Machine
from .memory import Memory, Region
from .report import EmulationError, Report
from .schedule import POLICIES, Schedule
from .trace import Trace


@dataclass
class Settings:
    """How launches run: the policy and seed, how many schedules each, whether the sanitizer watches, where the trace goes."""

    policy: str | None = None
    seed: int = 0
    schedules: int = 1
    sanitize: bool = True
    resident: int = 16
    trace: Trace | None = None
    steps: int = field(default=0, compare=False)
    launches: int = field(default=0, compare=False)

    def __post_init__(self):
        if self.policy is not None:
            choice(self.policy, "policy", POLICIES)
        integer(self.seed, "seed", -(1 << 63), (1 << 63) - 1)
        integer(self.schedules, "schedules", 1, 1 << 31)
        integer(self.resident, "resident", 1, 1 << 31)
        flag(self.sanitize, "sanitize", numbers=True)

    def schedule(self, number: int) -> Schedule:
        """The schedule of the n-th run of a launch: the policy asked for, or each in turn; seeds count up."""
        names = list(POLICIES)
        policy = self.policy or ("random" if self.schedules == 1 else names[number % len(names)])
        return Schedule(policy, self.seed + (number if self.policy else number // len(names)), self.resident)


class Device:
    """Emulated device memory: real buffers of this process, registered by address."""

    def __init__(self):
        self.memory = Memory()
        self.by_address: dict[int, Region] = {}

    def register(self, address: int, size: int, name: str = "a buffer", *, initialised: bool = True, writable: bool = True) -> Region | None:
        """Make ``size`` bytes at ``address`` visible to kernels. The caller keeps them alive until ``unregister``. Bytes of a buffer
        that is not ``initialised`` must be written before they are read."""
        if size <= 0:
            return None
        self.unregister(address)
        region = Region.of_address(name, address, size, initialised=initialised, writable=writable)
        if not initialised and writable:
            region.data[region.low:region.high] = 0xCD
        self.memory.add(region)
        self.by_address[address] = region
        return region

    def unregister(self, address: int) -> None:
        region = self.by_address.pop(address, None)
        if region is not None:
            self.memory.remove(region)

    @contextlib.contextmanager
    def arrays(self, *arrays: np.ndarray, fresh=()):
        """The given NumPy arrays registered for the time of a ``with`` block; those also in ``fresh`` as memory nobody has written."""
        for i, a in enumerate(arrays):
            unwritten = any(a is other for other in fresh)
            self.register(a.ctypes.data, a.nbytes, f"array {i} {a.dtype}{list(a.shape)}", initialised=not unwritten, writable=a.flags.writeable)
        try:
            yield self
        finally:
            for a in arrays:
                self.unregister(a.ctypes.data)


DEVICE = Device()
LOCK = threading.RLock()     # launches run one at a time: generated code is bound to one machine, and the DSL compiles one thing at a time
_SETTINGS: list[Settings] = [Settings()]
_EXECUTABLES: "weakref.WeakKeyDictionary[object, Executable]" = weakref.WeakKeyDictionary()


def settings() -> Settings:
    return _SETTINGS[-1]


@contextlib.contextmanager
def emulate(policy: str | None = None, seed: int = 0, schedules: int = 1, sanitize: bool = True, trace=None, resident: int = 16):
    """Within the block launches on the emulator run under these settings. Yields them; ``steps`` and ``launches`` count what ran.

    ``schedules=N`` runs each launch N times from the same memory and refuses different results; without a ``policy`` all take turns.
    ``trace`` is a path: the first schedule of each launch is written there as a Chrome trace. ``resident`` bounds the blocks in flight.
    """
    made = Settings(policy, seed, schedules, sanitize, resident, None if trace is None else Trace(trace))
    _SETTINGS.append(made)
    try:
        yield made
    finally:
        _SETTINGS.remove(made)
        if made.trace is not None:
            made.trace.write()


def executable(compiled) -> Executable:
    """The runnable form of a compiled cute function, made once."""
    found = _EXECUTABLES.get(compiled)
    if found is None:
        found = _EXECUTABLES[compiled] = Executable(compiled)
    return found


def run(compiled, packed, device: Device = DEVICE, edit=None) -> None:
    """Run one compiled cute function through its packed host entry; ``packed`` is what ``compiled.to(None).capi_func`` would be given
    on a GPU. Global addresses must lie in buffers registered with ``device``. Raises EmulationError on the first finding. ``edit``
    changes the PTX first (to plant faults)."""
    with LOCK:
        for launch in executable(compiled).record(packed, edit):
            run_launch(launch, device, settings())


@lru_cache(maxsize=512)
def program(text: str, kernel: str | None = None) -> Program:
    """The executable form of one kernel of a PTX text (its only one, if no name is given)."""
    module = ptx.parse(text)
    if kernel is None:
        (kernel,) = module.functions
    return Program(module.functions[kernel], module)


def launch(text: str, grid, block, parameters, *, cluster=(1, 1, 1), shared_bytes: int = 0, cooperative: bool = False,
           programmatic: bool = False, kernel: str | None = None, device: Device = DEVICE) -> None:
    """Launch a kernel given as PTX text, under the settings in force. ``parameters`` are the packed parameter bytes, or one integer a
    parameter (addresses, scalars as their bits). Addresses must lie in registered buffers. A ``programmatic`` launch may start before those
    before it in its stream have ended: what touches global memory before ``griddepcontrol.wait`` is a race. Raises EmulationError on the
    first finding."""
    with LOCK:
        code = program(text, kernel)
        if not isinstance(parameters, (bytes, bytearray)):
            packed = bytearray(code.function.param_bytes())
            for p, value in zip(code.function.params, parameters, strict=True):
                packed[p.offset:p.offset + p.size] = (int(value) & ((1 << 8 * p.size) - 1)).to_bytes(p.size, "little")
            parameters = bytes(packed)
        run_launch(Launch(code, tuple(grid), tuple(block), tuple(cluster), shared_bytes, bytes(parameters), cooperative, programmatic=programmatic), device, settings())


def run_launch(launch: Launch, device: Device, how: Settings) -> None:
    """One launch, under one schedule or several; several must leave the same memory behind."""
    if how.schedules == 1:
        run_once(launch, device, how, how.schedule(0), how.trace)
        return
    before = _snapshot(device)
    first = how.schedule(0)
    run_once(launch, device, how, first, how.trace)
    outcome = _snapshot(device)
    for number in range(1, how.schedules):
        _restore(device, before)
        schedule = how.schedule(number)
        run_once(launch, device, how, schedule)
        _compare(launch, device, outcome, first, schedule)


def run_once(launch: Launch, device: Device, how: Settings, schedule: Schedule, trace: Trace | None = None) -> Machine:
    program = launch.program
    content = np.zeros(max(len(launch.parameters), 16) + 15 & ~15, np.uint8)
    content[: len(launch.parameters)] = np.frombuffer(launch.parameters, np.uint8)
    parameters = Region("the kernel's parameters", 0, content, high=max(len(launch.parameters), 1), initialised=True, writable=False)
    regions = device.memory.regions
    for region in regions:
        region.shadow, region.watchers = None, []
    own = [device.memory.add(Region.of_address(name, array.ctypes.data, max(v.size, 1), writable=v.space == "global"))
           for name, (v, array) in program.variables.items()]
    if launch.cooperative:
        schedule.limit = launch.grid[0] * launch.grid[1] * launch.grid[2]
    machine = Machine(program, launch.grid, launch.block, launch.cluster, launch.shared_bytes + program.static_shared, launch.shared_bytes,
                      parameters, device.memory, schedule, sanitize=how.sanitize, trace=trace,
                      clustered=launch.clustered or launch.cluster != (1, 1, 1) or bool(program.function.cluster), programmatic=launch.programmatic)
    if trace is not None:
        trace.begin(machine)
    try:
        machine.run()
    finally:
        if trace is not None:
            trace.end()
        for region in own:
            device.memory.remove(region)
        for region in regions:
            region.shadow, region.watchers = None, []
        how.steps += machine.steps
        how.launches += 1
    return machine


def _snapshot(device: Device) -> list:
    return [(r, r.data[r.low:r.high].copy(), None if r.valid is None else r.valid.copy()) for r in device.memory.regions if r.writable]


def _restore(device: Device, snapshot: list) -> None:
    """Put back what was there, but for arrays that have been freed since: their memory is somebody else's."""
    held = {id(region) for region in device.memory.regions}
    for region, data, valid in snapshot:
        if id(region) in held:
            region.data[region.low:region.high] = data
            if valid is not None:
                region.valid[:] = valid


def _compare(launch: Launch, device: Device, outcome: list, first: Schedule, second: Schedule) -> None:
    """Refuse memory that differs from what the first schedule left, but for arrays that have been freed since."""
    held = {id(region) for region in device.memory.regions}
    for region, left, _ in outcome:
        right = region.data[region.low:region.high]
        if id(region) in held and not np.array_equal(left, right):
            at = int(np.flatnonzero(left != right)[0])
            raise EmulationError(Report("mismatch", f"two schedules leave different results in {region.name}, first at byte {at}",
                                        launch.program.function.name, [f"one with {first.describe()}"], second.describe()))
