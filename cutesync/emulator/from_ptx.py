"""``check_ptx``: PTX from anywhere (nvcc, NVRTC, Triton, TileLang) on arrays, under many schedules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ArgumentValueError, explain
from .check import Memory
from .device import DEVICE
from .ptx_arguments import packed
from .run import LOCK, launch, program
from .schedule import POLICIES
from .settings import Settings, emulate


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
    in the width of their parameter, NumPy scalars, None for a null pointer, ``TiledMap`` for a tensor map; for a
    structure a tuple of its members (each with C's alignment; numbers as NumPy scalars) or its ``bytes``. ``reached=``
    are the arrays in host memory that the kernel reaches in another way, through addresses in ``bytes`` or in memory.
    ``smem`` is the dynamic shared memory in bytes. Arrays in ``fresh=`` count as unwritten memory. All other keywords
    are those of ``emulate`` and the launch attributes ``cooperative`` and ``programmatic``. Raises EmulationError on
    the first finding, and LaunchError for a launch that a GPU would refuse.
    """
    text = (ptx.decode() if isinstance(ptx, bytes) else ptx).rstrip("\0")
    function = program(text, entry).function
    if len(arguments) != len(function.params):
        raise ArgumentValueError(explain(f"arguments of {function.name}", len(arguments), f"{len(function.params)}"))
    memory = Memory()
    parameters = bytearray(function.param_bytes())
    for i, (parameter, value) in enumerate(zip(function.params, arguments)):
        data = packed(value, parameter.size, memory, f"argument {i}")
        parameters[parameter.offset : parameter.offset + parameter.size] = data
    for i, array in enumerate(how.pop("reached", ())):
        memory.view(array, f"reached[{i}]")
    attributes: dict[str, Any] = {name: how.pop(name) for name in ("cooperative", "programmatic") if name in how}
    attributes["cluster"] = None if cluster is None else _extents(cluster)
    fresh = how.pop("fresh", ())
    how = {"schedules": len(POLICIES), "initcheck": False, "unseen_launches": False, **how}
    with emulate(**how) as used, LOCK, DEVICE.arrays(*memory.arrays, fresh=fresh):
        launch(text, _extents(grid), _extents(block), parameters, shared_bytes=smem, kernel=function.name, **attributes)
    memory.write_back()
    return used


def _extents(value: Any) -> tuple:
    given = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return (*given, 1, 1)[:3] if len(given) < 3 else given
