"""cutesync: Hopper kernels in the CuTe Python DSL.

Importing this module loads neither the DSL nor a driver; names are resolved on first use.
"""

from __future__ import annotations

import importlib
import sys
import types

__version__ = "0.1.0"

_HOMES = {
    "matmul": "matmul",
    "reduce": "reduce",
    "argmin": "reduce",
    "argmax": "reduce",
    "sum": "reduce",
    "prod": "reduce",
    "min": "reduce",
    "max": "reduce",
    "any": "reduce",
    "all": "reduce",
    "scan": "scan",
    "cumsum": "scan",
    "cumprod": "scan",
    "flag_heads": "flags",
    "flag_tails": "flags",
    "flag_heads_and_tails": "flags",
    "adjacent_difference": "flags",
    "asarray": "runtime.device_array",
    "empty": "runtime.device_array",
    "DeviceArray": "runtime.device_array",
    "emulate": "emulation",
    "warm": "warm",
    "emulator": "emulator",
    "block": "block",
    "warp": "warp",
    "reference": "reference",
    "errors": "errors",
    "sync": "sync",
    "patterns": "patterns",
}
_MODULES = ("emulator", "block", "warp", "reference", "errors", "sync", "patterns")
__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str):
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'cutesync' has no attribute {name!r}")
    module = importlib.import_module(f".{home}", __name__)
    value = module if name in _MODULES else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(types.ModuleType):
    """Keeps ``cutesync.reduce`` the function: importing the folder of that name would otherwise replace it by a module."""

    def __setattr__(self, name: str, value) -> None:
        if not (isinstance(value, types.ModuleType) and name in _HOMES and name not in _MODULES):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
