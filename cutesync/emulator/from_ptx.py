"""``check_ptx``: PTX from anywhere (nvcc, NVRTC, Triton, TileLang) on arrays, under many schedules."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ArgumentTypeError, ArgumentValueError, explain
from .check import Memory
from .device import DEVICE
from .run import LOCK, launch, program
from .schedule import POLICIES
from .settings import Settings, emulate

_FLOATS = {2: "e", 4: "f", 8: "d"}


def check_ptx(
    ptx: str | bytes,
    entry: str | None,
    grid: Any,
    block: Any,
    arguments: Sequence[Any],
    *,
    cluster: Any = None,
    smem: int = 0,
    **how: Any,
) -> Settings:
    """Run one kernel of a PTX text under ``schedules`` schedules (default: one of each policy).

    ``entry`` names the kernel (None: the only one). ``grid``, ``block`` and ``cluster`` are an int or up to three.
    ``arguments`` are those of the kernel in order: arrays of any library, which are changed in place, integers, floats
    in the width of their parameter, NumPy scalars, None for a null pointer, ``bytes`` for structures. ``smem`` is the
    dynamic shared memory in bytes. Arrays in ``fresh=`` count as unwritten memory. All other keywords are those of
    ``emulate`` and the launch attributes ``cooperative`` and ``programmatic``. Raises EmulationError on the first
    finding, and LaunchError for a launch that a GPU would refuse.
    """
    text = (ptx.decode() if isinstance(ptx, bytes) else ptx).rstrip("\0")
    function = program(text, entry).function
    if len(arguments) != len(function.params):
        raise ArgumentValueError(explain(f"arguments of {function.name}", len(arguments), f"{len(function.params)}"))
    memory = Memory()
    packed = bytearray(function.param_bytes())
    for i, (parameter, value) in enumerate(zip(function.params, arguments)):
        data = _bytes_of(value, parameter.size, memory, f"argument {i}")
        packed[parameter.offset : parameter.offset + parameter.size] = data
    attributes: dict[str, Any] = {name: how.pop(name) for name in ("cooperative", "programmatic") if name in how}
    attributes["cluster"] = None if cluster is None else _extents(cluster)
    how.setdefault("schedules", len(POLICIES))
    fresh = how.pop("fresh", ())
    with emulate(**how) as used, LOCK, DEVICE.arrays(*memory.arrays, fresh=fresh):
        launch(text, _extents(grid), _extents(block), packed, shared_bytes=smem, kernel=function.name, **attributes)
    memory.write_back()
    return used


def _extents(value: Any) -> tuple:
    given = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return (*given, 1, 1)[:3] if len(given) < 3 else given


def _bytes_of(value: Any, size: int, memory: Memory, name: str) -> bytes:
    """The bytes of one parameter."""
    if isinstance(value, (bytes, bytearray)):
        data = bytes(value)
    elif isinstance(value, np.generic):
        data = value.tobytes()
    elif isinstance(value, float):
        if size not in _FLOATS:
            raise ArgumentTypeError(explain(name, "a float", f"{size} bytes", "give its bytes"))
        data = struct.pack("<" + _FLOATS[size], value)
    elif value is None or isinstance(value, int):
        data = (int(value or 0) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    else:
        data = memory.view(value, name).ptr.to_bytes(8, "little")
    if len(data) != size:
        raise ArgumentTypeError(explain(name, f"{len(data)} bytes ({value!r:.40})", f"{size} bytes"))
    return data
