"""Where tests run: markers, and the ``place`` through which one test body runs on the GPU and on the emulator."""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import importlib
import os
import re
import warnings
from types import SimpleNamespace

import pytest

import cutesync as cs
from cutesync.runtime import call, compiler, contexts, device
from cutesync.runtime.emulated import EMULATOR
from cutesync.runtime.kernel import KernelSpec

from . import draws
from .cases import fits
from .memory import Memory

os.environ.setdefault(
    "CUTE_DSL_ARCH", "sm_90a"
)  # tests that use the DSL directly; with no GPU it would take another architecture


def pytest_addoption(parser) -> None:
    group = parser.getgroup("fuzz", "random calls (tests/fuzz)")
    group.addoption(
        "--fuzz", type=int, metavar="N", help="how many random calls each fuzzer makes (default: a few hundred)"
    )
    group.addoption("--seed", type=int, metavar="S", help="the first of their seeds, which count up")
    parser.getgroup("draws", "cases that each run draws (tests/draws.py)").addoption(
        "--draw", metavar="SEED", help="of this seed (default: of the commit), or all"
    )


def pytest_configure(config) -> None:
    whole = config.args_source == pytest.Config.ArgsSource.TESTPATHS
    draws.seed = config.getoption("--draw") or (draws.of_commit() if whole else "all")
    config.option.draw = draws.seed  # also of the processes that this one starts


@functools.cache
def _cannot_run() -> tuple[tuple[str, ...], str]:
    """The markers of the tests that this machine cannot run, and why."""
    if reason := device.unavailable():
        return ("gpu", "multi_gpu"), re.split(r" \(|; ", reason)[0]
    return (("multi_gpu",), "one GPU found") if device.count() < 2 else ((), "")


def pytest_collection_modifyitems(config, items) -> None:
    """Tests that this machine cannot run, and cases that are not drawn, are deselected; the summary says why."""
    gone = {item for item in items if any(item.get_closest_marker(name) for name in _cannot_run()[0])}
    gone |= draws.left_out(items)
    if gone:
        config.hook.pytest_deselected(items=[item for item in items if item in gone])
        items[:] = [item for item in items if item not in gone]


def pytest_terminal_summary(terminalreporter) -> None:
    """A line for the deselected tests, for what was drawn, for the reasons of skips, and for all random calls of all
    processes."""
    stats, line = terminalreporter.stats, terminalreporter.write_line
    line(f"drawn cases: --draw {draws.seed} (--draw all runs all)")
    markers, reason = _cannot_run()
    if markers:
        line(f"deselected: tests marked {' or '.join(markers)} ({reason})")
    reasons = collections.Counter(report.longrepr[2].removeprefix("Skipped: ") for report in stats.get("skipped", ()))
    if reasons:
        line("skipped: " + ", ".join(f"{count} ({reason})" for reason, count in reasons.most_common()))
    reports = [report for kind in ("passed", "failed") for report in stats.get(kind, ())]
    counts = [value for report in reports for name, value in report.user_properties if name == "fuzz"]
    if counts:
        calls, compiled, wrong = map(sum, zip(*counts, strict=True))
        line(f"fuzz: {calls} calls, {compiled} kernels compiled, {wrong} wrong")


class Place:
    """``gpu`` or ``emulator``."""

    def __init__(self, name: str) -> None:
        self.name, self.ordinal = name, 0 if name == "gpu" else device.HOST

    def sizes(self, candidates) -> list:
        """Those of the lengths or shapes that are not too large for this place."""
        return [size for size in candidates if fits(size, self.name)]

    def some(self, cases, every: int = 2, first: int = 0) -> list:
        """All on the GPU; on the emulator, where each may be a kernel to compile, one of ``every`` from ``first``."""
        return list(cases)[first % every :: every] if self.name == "emulator" else list(cases)

    def schedules(self, count: int, seed: int):
        """Launches on the emulator run under so many schedules."""
        return cs.emulate(schedules=count, seed=seed) if self.name == "emulator" else contextlib.nullcontext()


@pytest.fixture(params=[pytest.param("gpu", marks=pytest.mark.gpu), "emulator"])
def place(request):
    """Where kernels run: everywhere, or as ``cases.places`` says. ``cs.asarray`` puts arrays where the place needs
    them."""
    with device.forced(request.param):
        yield Place(request.param)


@pytest.fixture(scope="session", autouse=True)
def _what_lives_for_the_whole_run_is_not_searched_for_garbage():
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    contexts.MOST_GROWTH = 1 << 30  # a search takes more than a second among the objects of a test process


@pytest.fixture(scope="module", autouse=True)
def _programs_of_other_modules_are_let_go():
    """A search for garbage takes seconds among the programs of a whole run."""
    yield
    importlib.import_module("cutesync.emulator.run").program.cache_clear()


@pytest.fixture(autouse=True)
def _no_stray_warnings():
    """A warning of the cache outside its own tests is a failure; the summary says that there is no GPU."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="cutesync cache")
        warnings.filterwarnings("ignore", message="cutesync: no Hopper GPU")
        yield


@pytest.fixture
def some(request):
    """``some(cases, count)``: those that this run draws."""
    return lambda cases, count: draws.some(cases, count, request.node.nodeid)


@pytest.fixture
def torch():
    """The library, where it is installed."""
    return pytest.importorskip("torch")


@pytest.fixture
def cupy():
    """The library, where it is installed."""
    return pytest.importorskip("cupy")


@pytest.fixture
def on_emulator():
    """Arrays live in host memory, whatever the machine has."""
    with device.forced("emulator"):
        yield


@pytest.fixture
def launches(on_emulator, monkeypatch):
    """The launches that a test's calls would make on the emulator, with their parameters by name. Nothing is compiled,
    nothing runs."""
    log: list[SimpleNamespace] = []

    def launcher(spec, ordinal, grid, make_block, claim):
        block = make_block()

        def run(addresses, stream):
            block.put(addresses, None)
            parameters = dict(zip((p.name for p in spec.parameters), block.packed(), strict=True))
            log.append(SimpleNamespace(spec=spec, grid=grid, parameters=parameters, claim=claim))

        return run

    monkeypatch.setattr(call, "_plans", {})
    monkeypatch.setattr(KernelSpec, "kernel", lambda spec, stream=0: spec)
    monkeypatch.setattr(EMULATOR, "launcher", launcher)
    return log


@pytest.fixture
def fresh_compiler(monkeypatch):
    """Kernels are compiled in this test, whatever is cached."""
    monkeypatch.setenv("CUTESYNC_CACHE", "0")
    monkeypatch.setattr(compiler, "_kernels", {})


@pytest.fixture
def allocated(monkeypatch):
    """Counts the bytes of shared memory that a kernel allocates while it is traced."""
    from cutlass.memory import SmemAllocator

    count, plain = SimpleNamespace(total=0), SmemAllocator.allocate

    def allocate(self, size, byte_alignment=1, **options):
        count.total += -count.total % byte_alignment + size
        return plain(self, size, byte_alignment, **options)

    monkeypatch.setattr(SmemAllocator, "allocate", allocate)
    return count


@pytest.fixture
def cache_folder(tmp_path, monkeypatch):
    """An empty kernel cache."""
    monkeypatch.setenv("CUTESYNC_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.setattr(compiler, "_kernels", {})
    return tmp_path / "kernels"


@pytest.fixture
def memory(place):
    """The memory of the default stream's workspace."""
    return Memory(place.ordinal)


@pytest.fixture(scope="module")
def ones():
    """2**32 + 2**16 bytes of 1."""
    array = cs.empty((1 << 32) + (1 << 16), "int8")
    device.check(device.driver().cuMemsetD8(array.ptr, 1, array.nbytes), "filling")
    yield array
    del array
