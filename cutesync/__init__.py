"""cutesync: Hopper kernels in the CuTe Python DSL.

Importing this module loads neither the DSL nor a driver; names are resolved on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import block, emulator, errors, patterns, reference, sync, warp
    from .cli.warm import warm
    from .emulation import emulate
    from .kernels.flags import adjacent_difference, flag_heads, flag_heads_and_tails, flag_tails
    from .kernels.matmul import MatmulPolicy, matmul
    from .kernels.reduce import all, any, argmax, argmin, max, min, prod, reduce, sum
    from .kernels.scan import cumprod, cumsum, scan
    from .runtime.device_array import DeviceArray, asarray, empty

__all__ = [
    "DeviceArray",
    "MatmulPolicy",
    "__version__",
    "adjacent_difference",
    "all",
    "any",
    "argmax",
    "argmin",
    "asarray",
    "block",
    "cumprod",
    "cumsum",
    "empty",
    "emulate",
    "emulator",
    "errors",
    "flag_heads",
    "flag_heads_and_tails",
    "flag_tails",
    "matmul",
    "max",
    "min",
    "patterns",
    "prod",
    "reduce",
    "reference",
    "scan",
    "sum",
    "sync",
    "warm",
    "warp",
]

_HOMES = {
    "cli.warm": ("warm",),
    "emulation": ("emulate",),
    "kernels.flags": ("flag_heads", "flag_tails", "flag_heads_and_tails", "adjacent_difference"),
    "kernels.matmul": ("MatmulPolicy", "matmul"),
    "kernels.reduce": ("reduce", "argmin", "argmax", "sum", "prod", "min", "max", "any", "all"),
    "kernels.scan": ("scan", "cumsum", "cumprod"),
    "runtime.device_array": ("DeviceArray", "asarray", "empty"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = ("block", "emulator", "errors", "patterns", "reference", "sync", "warp")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name not in _HOME_OF:
        raise AttributeError(f"module 'cutesync' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f".{_HOME_OF[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
