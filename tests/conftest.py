"""Where tests run: markers, and the ``place`` through which one test body runs on the GPU and on the emulator."""

from __future__ import annotations

import importlib.util
import warnings

import pytest

from cutesync.runtime import device


def _emulator_runs_kernels() -> bool:
    if importlib.util.find_spec("cutesync.emulator") is None:
        return False
    return hasattr(importlib.import_module("cutesync.emulator"), "launch")


PLACES = [pytest.param("gpu", marks=pytest.mark.gpu)]
if _emulator_runs_kernels():
    PLACES.append("emulator")


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
        self.largest = 1 << 24 if name == "gpu" else 3000

    def sizes(self, candidates) -> list[int]:
        """The candidates that are not too large for this place."""
        return [n for n in candidates if n <= self.largest]

    def fits(self, count: int) -> None:
        if count > self.largest:
            pytest.skip(f"{count} elements are too many for the {self.name}")


@pytest.fixture(params=PLACES)
def place(request, monkeypatch):
    """Everywhere kernels run. Arrays come from ``cs.asarray``, which puts them where the place needs them."""
    monkeypatch.setenv("CUTESYNC_BACKEND", request.param)
    device.backend.cache_clear()
    yield Place(request.param)
    monkeypatch.undo()
    device.backend.cache_clear()


@pytest.fixture(autouse=True)
def _no_stray_warnings():
    """A warning of the cache outside its own tests is a failure."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="cutesync cache")
        yield
