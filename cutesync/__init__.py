"""cutesync: Hopper kernels in the CuTe Python DSL.

Importing this module loads neither the DSL nor a driver. The public names are those that ``__init__.pyi`` imports; each
is imported on first use.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_HOMES = {name.name: node.module for node in _STUB.body if isinstance(node, ast.ImportFrom) for name in node.names}
__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cutesync' has no attribute {name!r}")
    home = _HOMES[name]
    if home is None:
        return importlib.import_module(f".{name}", __name__)
    value = globals()[name] = getattr(importlib.import_module(f".{home}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
