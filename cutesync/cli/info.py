"""``python -m cutesync info``: what is installed, what the machine has, and what is missing. Every probe is guarded, so
the report never fails.

It imports neither the DSL nor any array library: versions come from package metadata, GPUs from the driver.
"""

from __future__ import annotations

import importlib.util
import platform
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path

from .. import __version__, env
from ..runtime import backend, cache, device

_REQUIRED = {
    "numpy": "pip install numpy",
    "nvidia-cutlass-dsl": "pip install 'nvidia-cutlass-dsl[cu13]>=4.8,<4.9'",
    "cuda-python": "pip install cuda-python",
    "cuda-bindings": "pip install cuda-python",
    "cuda-core": "pip install cuda-python",
}
_OPTIONAL = {
    "torch": ("torch", "torch tensors in and out; pip install torch"),
    "cupy": ("cupy", "CuPy arrays in and out; pip install cupy-cuda13x"),
    "ml_dtypes": ("ml_dtypes", "bfloat16 in NumPy; pip install 'cutesync[ml-dtypes]'"),
    "matplotlib": ("matplotlib", "plots of perf/; pip install 'cutesync[bench]'"),
    "cuda-cccl": ("cuda.cccl", "CUB and cuda.compute as rivals in perf/; pip install 'cutesync[bench]'"),
}
_WIDTH = 29


def report() -> list[str]:
    """Return the lines of ``python -m cutesync info``."""
    sections = (
        ("Versions", _versions),
        ("Backend", _backend),
        ("GPUs", _gpus),
        ("Cache", _cache),
        ("Environment", _environment),
        ("Optional", _optional),
    )
    lines: list[str] = []
    for title, section in sections:
        lines += ["", title] if lines else [title]
        lines += [f"  {name:<{_WIDTH}} {value}" for name, value in _guarded(section)]
    return lines


def _guarded(section: Callable[[], Iterable[tuple[str, str]]]) -> Iterator[tuple[str, str]]:
    """Yield the lines of a section; an exception ends it with a line of its own."""
    try:
        yield from section()
    except Exception as error:  # the report continues
        yield "not known", f"{type(error).__name__}: {error}"


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except Exception:  # absent, or its metadata is damaged
        return None


def _versions() -> Iterator[tuple[str, str]]:
    yield "cutesync", f"{__version__} in {Path(__file__).resolve().parent.parent}"
    yield "python", f"{platform.python_version()} ({sys.executable})"
    for name, advice in _REQUIRED.items():
        yield name, _version(name) or f"MISSING: {advice}"
    for line in cache.dsl_versions()[1:]:
        name, _, version = line.partition("==")
        yield name, version
    yield "DSL flavour", _flavour()


def _flavour() -> str:
    """Return which flavour of the DSL is used: the newest one that the driver can run; without a driver, the newest
    one."""
    spec = importlib.util.find_spec("nvidia_cutlass_dsl")
    if spec is None or not spec.submodule_search_locations:
        return "none: the DSL is not installed"
    found: set[int] = set()
    for folder in spec.submodule_search_locations:
        for path in Path(folder).glob("*/cutlass/_mlir/_mlir_libs/_cutlass_ir.cu*"):
            match = re.match(r"_cutlass_ir\.cu(\d+)\..*\.(so|pyd)$", path.name)
            if match:
                found.add(int(match[1]))
    if not found:
        return f"none for this Python ({platform.python_version()}): {_REQUIRED['nvidia-cutlass-dsl']}"
    installed = " and ".join(f"cu{flavour}" for flavour in sorted(found))
    driver = _driver_cuda()
    usable = [flavour for flavour in found if driver is None or flavour <= driver // 1000]
    if not usable:
        advice = "update the driver, or pip install nvidia-cutlass-dsl for cu12"
        return f"{installed} installed, none fits the driver (CUDA {_dotted(driver)}): {advice}"
    why = "no driver asks for another" if driver is None else f"the driver runs CUDA {_dotted(driver)}"
    return f"{installed} installed; cu{max(usable)} is loaded ({why})"


def _driver_cuda() -> int | None:
    """Return the result of cuDriverGetVersion, e.g. 13000; None without a driver."""
    try:
        from cuda.bindings import driver

        code, version = driver.cuDriverGetVersion()
        return int(version) if int(code) == 0 and version else None
    except Exception:
        return None


def _dotted(version: int | None) -> str:
    return "none" if version is None else f"{version // 1000}.{version % 1000 // 10}"


def _backend() -> Iterator[tuple[str, str]]:
    reason = device.unavailable()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        name = "emulator" if backend.current().on_host else "gpu"
    wanted = env.BACKEND.get()
    why = "CUTESYNC_BACKEND asks for it" if wanted != "auto" else reason or "there is a Hopper GPU"
    yield "backend", f"{name}: {why}"
    if name == "emulator" and importlib.util.find_spec("cutesync.emulator") is None:
        yield "emulator", "not part of this version: kernels compile for sm_90a here, none runs"
    if name == "gpu" and reason:
        yield "problem", reason


def _gpus() -> Iterator[tuple[str, str]]:
    version = _driver_cuda()
    yield (
        "driver",
        f"{_module_version()}, runs CUDA {_dotted(version)}"
        if version
        else "none: install the NVIDIA driver to run on a GPU",
    )
    if not version:
        return
    cu = device.driver()
    for ordinal in range(device.count()):
        major, minor = device.capability(ordinal)
        memory = device.check(cu.cuDeviceTotalMem(ordinal), "cuDeviceTotalMem")
        fit = "" if (major, minor) == (9, 0) else "; cutesync needs sm_90"
        yield (
            f"GPU {ordinal}",
            (
                f"{device.name(ordinal)}, sm_{major}{minor}, "
                f"{device.attribute(ordinal, 'MULTIPROCESSOR_COUNT')} SMs, {memory / 2**30:.0f} GiB{fit}"
            ),
        )


def _module_version() -> str:
    """Return the version of the driver, e.g. 580.159.03, as its kernel module reports it."""
    try:
        match = re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", Path("/proc/driver/nvidia/version").read_text())
    except OSError:
        match = None
    return match[0] if match else "number not known"


def _cache() -> Iterator[tuple[str, str]]:
    yield "folder", f"{env.cache_dir()}" + ("" if env.cache_dir().is_dir() else " (made on first use)")
    yield "kernels", f"{len(cache.entries())}, {cache.size() / 1e6:.1f} MB"
    if reason := cache.problem():
        yield "problem", f"not used: {reason}"


def _environment() -> Iterator[tuple[str, str]]:
    for variable in env.ALL:
        try:
            value = variable.get() or "not set"
        except Exception as error:
            value = str(error)
        yield variable.name, f"{value:<10} {variable.meaning}"


def _optional() -> Iterator[tuple[str, str]]:
    for name, (module, use) in _OPTIONAL.items():
        yield name, _found(name, module) or f"not installed: {use}"


def _found(name: str, module: str) -> str | None:
    version = _version(name)
    if version is None and name == "cupy":
        version = next(filter(None, map(_version, ("cupy-cuda13x", "cupy-cuda12x"))), None)
    if version is None:
        try:
            version = "found, version not known" if importlib.util.find_spec(module) else None
        except ImportError:
            return None
    return version
