"""The quickest look whether a callable still means the same: one expression over all places that its walk read.

A call of ``launch`` repeats this look, and a loop over the places takes twice as long. The expression compares by
identity only, so it may say False where equal values came as other objects; ``identify`` then decides.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from .walk import ABSENT

_CHANGED = (AttributeError, KeyError, ValueError)  # raised where a place is no more, or a cell is empty
_DICTIONARIES = (dict, types.MappingProxyType)


def _places_of(fn: types.FunctionType) -> list[tuple]:
    """Return what is specific to a function object, as ``Walk.reads`` has it: its code, defaults and captures."""
    own = functools.partial(getattr, fn)
    reads: list[tuple] = [(own, name, getattr(fn, name)) for name in ("__code__", "__defaults__", "__kwdefaults__")]
    keywords = fn.__kwdefaults__ or {}
    reads += [(keywords.get, name, value) for name, value in keywords.items()]
    for cell in fn.__closure__ or ():
        get = functools.partial(getattr, cell)
        reads.append((get, "cell_contents", get("cell_contents", ABSENT)))
    return reads


def watch(fn: Any, reads: tuple) -> Callable[[], bool]:
    """Return a function that tells whether a callable and the places that were read for it (``Walk.reads``) still hold
    the same objects."""
    names: dict[str, Any] = {"ABSENT": ABSENT, "CHANGED": _CHANGED}
    known: dict[tuple, None] = {}
    tests: list[str] = []
    for get, name, value in (*(_places_of(fn) if type(fn) is types.FunctionType else ()), *reads):
        owner = get.args[0] if type(get) is functools.partial else getattr(get, "__self__", None)
        place = id(owner), name, id(value)
        if place in known:
            continue
        known[place], number = None, len(known)
        names[f"o{number}"], names[f"v{number}"], names[f"g{number}"] = owner, value, get
        if type(owner) in _DICTIONARIES and type(name) is str:
            test = f"{name!r} not in o{number}" if value is ABSENT else f"o{number}[{name!r}] is v{number}"
        elif _is_attribute(get, name) and value is not ABSENT:
            test = f"o{number}.{name} is v{number}"
        else:
            names[f"n{number}"] = name
            test = f"g{number}(n{number}, ABSENT) is v{number}"
        tests.append(test)
    text = " and ".join(tests)  # of names of attributes, and reprs of texts
    exec(f"def same():\n    try:\n        return {text}\n    except CHANGED:\n        return False", names)
    return names["same"]


def _is_attribute(get: Any, name: Any) -> bool:
    plain = type(get) is functools.partial and get.func is getattr and len(get.args) == 1 and not get.keywords
    return plain and type(name) is str and name.isidentifier()
