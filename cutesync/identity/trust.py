"""What is identified by name and version instead of by value: objects of the DSL, NumPy, the standard library and
cutesync.

Of the standard library, only functions that return the same result each time may be called: a kernel is traced once, so
the value of a clock or a random number would become a constant of it.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
import types
from importlib import metadata
from typing import Any

_DISTRIBUTIONS = {"cutlass": "nvidia-cutlass-dsl", "numpy": "numpy", "ml_dtypes": "ml_dtypes", "cutesync": None}
_PURE = frozenset(
    [
        "builtins",
        "math",
        "cmath",
        "operator",
        "_operator",
        "functools",
        "_functools",
        "itertools",
        "numbers",
        "fractions",
        "_pydecimal",
        "decimal",
        "_decimal",
        "enum",
        "dataclasses",
        "typing",
        "_typing",
        "collections",
        "_collections",
        "_collections_abc",
        "struct",
        "_struct",
        "types",
        "abc",
        "_abc",
        "string",
        "statistics",
        "_statistics",
        "bisect",
        "_bisect",
        "copy",
        "copyreg",
        "array",
        "contextlib",
        "re",
        "reprlib",
        "warnings",
        "__future__",
    ]
)
_IMPURE = frozenset(
    ["eval", "exec", "globals", "locals", "vars", "open", "input", "__import__", "compile", "breakpoint", "dir", "id"]
)  # built-ins whose result depends on more than their arguments
_NATIVE_PARTS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE


def scope_is_trusted(scope: dict) -> bool:
    """Return whether a function with these globals is identified by name."""
    return _trusted(scope.get("__name__") or "", scope.get("__file__"))


def module_is_trusted(module: types.ModuleType) -> bool:
    return _trusted(module.__name__, getattr(module, "__file__", None))


@functools.lru_cache(maxsize=4096)
def _trusted(name: str, file: str | None) -> bool:
    root = name.partition(".")[0]
    if root in _DISTRIBUTIONS:
        package = getattr(sys.modules.get(root), "__file__", None)
        return file is None or (package is not None and _inside(file, os.path.dirname(package)))
    if root not in sys.stdlib_module_names:
        return False
    if file is None:  # built in, or frozen
        return True
    paths = sysconfig.get_paths()
    own = any(_inside(file, paths[place]) for place in ("stdlib", "platstdlib"))
    return own and not any(_inside(file, paths[place]) for place in ("purelib", "platlib"))


def _inside(file: str, folder: str) -> bool:
    return os.path.realpath(file).startswith(os.path.realpath(folder) + os.sep)


@functools.lru_cache(maxsize=64)
def version(name: str) -> str:
    """Return the version of the distribution that a trusted module belongs to; "" for cutesync and the standard
    library, whose versions are part of every key on disk."""
    distribution = _DISTRIBUTIONS.get(name.partition(".")[0])
    try:
        return metadata.version(distribution) if distribution else ""
    except metadata.PackageNotFoundError:
        return ""


def is_pure(module: str, name: str) -> bool:
    """Return whether an object of a trusted module means the same each time: a function returns the same result, other
    objects do not change."""
    root = module.partition(".")[0]
    if root in _DISTRIBUTIONS:
        return not module.startswith("numpy.random")
    return root in _PURE and not (root == "builtins" and name in _IMPURE)


def public_name(value) -> tuple[str, str] | None:
    """Return the ``(module, qualified name)`` under which a trusted module holds this very object, or None."""
    module, name = (
        getattr(value, "__module__", None),
        getattr(value, "__qualname__", None) or getattr(value, "__name__", None),
    )
    if module is None and isinstance(getattr(value, "__self__", None), types.ModuleType):
        module = value.__self__.__name__
    home = sys.modules.get(module) if isinstance(module, str) else None
    if home is None or not isinstance(module, str) or not isinstance(name, str) or not module_is_trusted(home):
        return None
    place: Any = home
    for part in name.split("."):
        place = vars(place).get(part) if hasattr(place, "__dict__") else None
    place = place.__func__ if isinstance(place, (staticmethod, classmethod)) else place
    return (module, name) if place is value else None


def is_native(cls: type) -> bool:
    """Return whether a class is implemented in C, so that its instances may hold state which Python code cannot see."""
    if not cls.__flags__ & _HEAP_TYPE or isinstance(vars(cls).get("__new__"), types.BuiltinFunctionType):
        return True
    return any(isinstance(part, _NATIVE_PARTS) and part.__objclass__ is cls for part in vars(cls).values())
