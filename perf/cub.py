"""CUB as a rival: one CUDA C++ file a family, compiled with nvcc when it is first needed and called through ctypes.

``cub_<family>.cu`` offers C functions ``f(temp, temp_bytes, pointers..., count, stream)`` and ``cccl_version()``; what
they share is in ``cub_interface.cuh``. Temporary storage is allocated once, before anything is timed. The headers of
the ``cuda-cccl`` wheel are used where it is installed (they are newer than the toolkit's), otherwise those of nvcc.

The library is kept in ``perf/build`` under a name that holds the hash of its sources, so it can be built once and
copied to a machine without nvcc. ``python perf/cub.py reduce`` builds it.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import script

HERE = Path(__file__).parent
BUILD = HERE / "build"
INTERFACE = HERE / "cub_interface.cuh"
FLAGS = ["-O3", "-std=c++17", "-arch=sm_90", "-shared", "-Xcompiler", "-fPIC"]


class Unavailable(RuntimeError):
    """CUB cannot take part: no nvcc and no library built earlier, or the build failed."""


def nvcc() -> str | None:
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    return shutil.which("nvcc") or next(
        (f"{home}/bin/nvcc" for home in homes if home and os.path.exists(f"{home}/bin/nvcc")), None
    )


def wheel_headers() -> Path | None:
    """The include folder of the cuda-cccl wheel, if it is installed. The package itself is not imported."""
    try:
        spec = importlib.util.find_spec("cuda.cccl")
    except ModuleNotFoundError:
        return None
    for folder in spec.submodule_search_locations if spec else ():
        include = Path(folder) / "headers" / "include"
        if (include / "cub" / "cub.cuh").exists():
            return include
    return None


def header_version(include: Path) -> int:
    return int(re.search(r"define CCCL_VERSION (\d+)", (include / "cuda/std/__cccl/version.h").read_text())[1])


def build(family: str, compiling: bool = True) -> Path:
    """The shared library of a family: the one in ``perf/build`` if its source is unchanged, else a new one."""
    source = HERE / f"cub_{family}.cu"
    everything = source.read_bytes() + INTERFACE.read_bytes() + " ".join(FLAGS).encode()
    stem = f"cub_{family}-{hashlib.sha256(everything).hexdigest()[:12]}"
    include = wheel_headers()
    version = header_version(include) if include else None
    built = sorted(BUILD.glob(f"{stem}-{version or '*'}.so"))
    if built:
        return built[0]
    compiler = nvcc()
    if compiler is None:
        raise Unavailable("nvcc is not installed")
    if not compiling:
        raise Unavailable(f"not built: python perf/cub.py {family}")
    BUILD.mkdir(exist_ok=True)
    target = BUILD / f"{stem}-{version or 'toolkit'}.so"
    unfinished = target.with_suffix(f".{os.getpid()}")
    command = [compiler, *FLAGS, *(["-I", str(include)] if include else []), str(source), "-o", str(unfinished)]
    print(f"compiling {source.name} with {compiler}", flush=True)
    answer = subprocess.run(command, capture_output=True, text=True)
    if answer.returncode:
        raise Unavailable(f"{source.name} does not compile: {answer.stderr.strip()[-400:]}")
    os.replace(unfinished, target)
    return target


class Cub:
    """The loaded library of one family."""

    def __init__(self, family: str, gpu, compiling: bool = True):
        self.gpu = gpu
        self.library = ctypes.CDLL(str(build(family, compiling)))
        self.version = self.library.cccl_version()

    def call(self, name: str, pointers: list[int], count: int):
        """A zero-argument call of ``name(temp, temp_bytes, *pointers, count, stream)`` with its storage allocated."""
        function = getattr(self.library, name)
        size = ctypes.c_size_t(0)
        rest = [
            *(ctypes.c_void_p(p) for p in pointers),
            ctypes.c_longlong(count),
            ctypes.c_void_p(self.gpu.stream.address),
        ]
        self._succeed(name, function(None, ctypes.byref(size), *rest))
        arguments = [ctypes.c_void_p(self.gpu.scratch(size.value)), ctypes.byref(size), *rest]
        return lambda: self._succeed(name, function(*arguments))

    def from_one_to_one(self, name: str, slot, count: int):
        """A call of a function from the first input to the first output; None if the library has no such function."""
        if not hasattr(self.library, name):
            return None
        return self.call(name, [slot.inputs[0].pointer, slot.outputs[0].pointer], count)

    @staticmethod
    def _succeed(name: str, code: int) -> None:
        if code:
            raise RuntimeError(f"CUB's {name} returned CUDA error {code}")


def main(argv=None) -> None:
    parser = script.parser(__doc__)
    parser.add_argument(
        "family",
        nargs="+",
        choices=sorted(path.stem.removeprefix("cub_") for path in HERE.glob("cub_*.cu")),
        help="families to build",
    )
    for family in parser.parse_args(argv).family:
        try:
            print(build(family))
        except Unavailable as error:
            sys.exit(f"cub.py: {error}")


if __name__ == "__main__":
    script.run(main)
