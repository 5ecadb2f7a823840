"""Where tests run: markers, and the ``place`` through which one test body runs on the GPU and on the emulator."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import warnings
from types import SimpleNamespace

import pytest

from cutesync.runtime import call, compiler, device
from cutesync.runtime.emulated import EMULATOR
from cutesync.runtime.kernel import KernelSpec

os.environ.setdefault(
    "CUTE_DSL_ARCH", "sm_90a"
)  # tests that use the DSL directly; with no GPU it would take another architecture


def _emulator_runs_kernels() -> bool:
    if importlib.util.find_spec("cutesync.emulator") is None:
        return False
    return hasattr(importlib.import_module("cutesync.emulator"), "launch")


PLACES = [pytest.param("gpu", marks=pytest.mark.gpu)]
if _emulator_runs_kernels():
    PLACES.append("emulator")


def pytest_addoption(parser) -> None:
    group = parser.getgroup("fuzz", "random calls (tests/fuzz)")
    group.addoption(
        "--fuzz", type=int, metavar="N", help="how many random calls each fuzzer makes (default: a few hundred)"
    )
    group.addoption("--seed", type=int, metavar="S", help="the first of their seeds, which count up")


def pytest_terminal_summary(terminalreporter) -> None:
    """One line for all random calls, whichever process made them."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, ())]
    counts = [value for report in reports for name, value in report.user_properties if name == "fuzz"]
    if counts:
        calls, compiled, wrong = map(sum, zip(*counts))
        terminalreporter.write_line(f"fuzz: {calls} calls, {compiled} kernels compiled, {wrong} wrong")


def pytest_collection_modifyitems(items) -> None:
    """Skip what this machine cannot run, with the reason the package itself gives."""
    reason = device.unavailable()
    gpus = 0 if reason else device.count()
    for item in items:
        if item.get_closest_marker("gpu") and reason:
            item.add_marker(pytest.mark.skip(reason=reason))
        elif item.get_closest_marker("multi_gpu") and gpus < 2:
            item.add_marker(pytest.mark.skip(reason=f"needs two GPUs, found {gpus}"))


class Place:
    """``gpu`` or ``emulator``. ``largest`` is the number of elements a test may use there."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.largest = 1 << 24 if name == "gpu" else 1100

    def sizes(self, candidates) -> list[int]:
        """The candidates that are not too large for this place."""
        return [n for n in candidates if n <= self.largest]

    def covers(self, dtype: str) -> None:
        """Skip on the emulator unless this type stands for its class there: what is not cached must be compiled in every run."""
        if self.name == "emulator" and dtype not in ("bool", "int8", "float16", "float64"):
            pytest.skip(f"{dtype} is left to the GPU and to the compilation tests")

    def only(self, value, *chosen) -> None:
        """Skip on the emulator unless the parameter is one of those chosen to stand for all of them there."""
        if self.name == "emulator" and value not in chosen:
            pytest.skip("left to the GPU")

    def fits(self, count: int) -> None:
        if count > self.largest:
            pytest.skip(f"{count} elements are too many for the {self.name}")


@pytest.fixture(params=PLACES)
def place(request):
    """Everywhere kernels run. Arrays come from ``cs.asarray``, which puts them where the place needs them."""
    with device.forced(request.param):
        yield Place(request.param)


@pytest.fixture(scope="session", autouse=True)
def _what_lives_for_the_whole_run_is_not_searched_for_garbage():
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@pytest.fixture(autouse=True)
def _no_stray_warnings():
    """A warning of the cache outside its own tests is a failure; that there is no GPU is said by the skips."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="cutesync cache")
        warnings.filterwarnings("ignore", message="cutesync: no Hopper GPU")
        yield


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
        parameters = dict(zip((p.name for p in spec.parameters), make_block().packed()))
        made = SimpleNamespace(spec=spec, grid=grid, parameters=parameters, claim=claim)
        return lambda addresses, stream: log.append(made)

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
