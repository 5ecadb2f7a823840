"""Callables that reach a number in every way Python has, and whose number changes while they live.

A ``Capture`` is made from an expression in the arguments and ``K``. ``put`` changes what ``K`` is; ``fn`` is the
callable to use from then on, in most ways the same object. NumPy runs the same callable, so its answer is that of the
new number.
"""

from __future__ import annotations

import functools
import operator
import sys
import types
from collections.abc import Callable

SETTINGS = "fuzz_settings"  # a module that lives in sys.modules alone
FN = "def fn({arguments}):\n    return {expression}\n"


class Capture:
    """``way`` says how ``fn`` reaches its number."""

    def __init__(self, way: str, arguments: str, expression: str, value) -> None:
        self.way, self.arguments, self.expression = way, arguments, expression
        self.fn: Callable
        self._put = WAYS[way](self, value)
        self.value = value

    def __repr__(self) -> str:
        return f"<{self.way}: lambda {self.arguments}: {self.expression}, K={self.value!r}>"

    def put(self, value) -> None:
        self.value = value
        self._put(value)

    def define(self, reach: str, source: str = FN, **names) -> dict:
        """Execute ``source`` in a namespace of its own, with ``reach`` in the place of K."""
        text = source.format(arguments=self.arguments, expression=self.expression.replace("K", reach))
        exec(compile(text, f"<fuzz {self.way}>", "exec"), names)
        self.fn = names.get("fn")
        return names


def _cell(self: Capture, value):
    self.fn, put = self.define(
        "k",
        "def outer(k):\n    def fn({arguments}):\n        return {expression}\n"
        "    def put(value):\n        nonlocal k\n        k = value\n    return fn, put\n",
    )["outer"](value)
    return put


def _attribute(name: str, wrap: Callable, source: str):
    """Through an attribute of the function itself."""

    def way(self: Capture, value):
        self.define("k", source)

        def put(value):
            setattr(self.fn, name, wrap(value))

        put(value)
        return put

    return way


def _global(reach: str = "k", source: str = FN):
    """Through the global ``k``."""
    return lambda self, value: functools.partial(self.define(reach, source, k=value).__setitem__, "k")


def _held(make: Callable, put: Callable, key, reach: str, source: str = FN):
    """Through what ``make(value)`` holds as ``key``."""

    def way(self: Capture, value):
        held = make(value)
        self.define(reach, source, held=held)
        return functools.partial(put, held, key)

    return way


def _settings(value) -> types.ModuleType:
    module = sys.modules[SETTINGS] = types.ModuleType(SETTINGS)
    module.k = value
    return module


def _rebound(self: Capture, value):
    """Through a global function that is replaced by another."""
    names = self.define("helper()", helper=lambda: value)

    def put(value):
        names["helper"] = lambda: value

    return put


def _object(self: Capture, value):
    """Through an attribute of the object that is called, or whose method is."""
    name = "__call__" if self.way == "object" else "call"
    source = f"class Op:\n    def {name}(self, {{arguments}}):\n        return {{expression}}\n"
    owner = self.define("self.k", source)["Op"]()
    owner.k = value
    self.fn = owner if self.way == "object" else owner.call
    return functools.partial(setattr, owner, "k")


def _constant(self: Capture, value):
    """A function of other code each time, in the same function object."""
    self.define(repr(value))
    fn = self.fn

    def put(value):
        self.define(repr(value))
        fn.__code__, self.fn = self.fn.__code__, fn

    return put


def _anew(source: str):
    """A callable that ``make(k)`` makes anew each time, of the same code."""

    def way(self: Capture, value):
        make = self.define("k", source, functools=functools)["make"]

        def put(value):
            self.fn = make(value)

        put(value)
        return put

    return way


WAYS = {
    "cell": _cell,
    "default": _attribute(
        "__defaults__", lambda value: (value,), "def fn({arguments}, k=None):\n    return {expression}\n"
    ),
    "keyword": _attribute(
        "__kwdefaults__", lambda value: {"k": value}, "def fn({arguments}, *, k=None):\n    return {expression}\n"
    ),
    "global": _global(),
    "module": _held(_settings, setattr, "k", "held.k"),
    "imported": _held(
        _settings,
        setattr,
        "k",
        "settings.k",
        f"def fn({{arguments}}):\n    import {SETTINGS} as settings\n    return {{expression}}\n",
    ),
    "called": _global("helper()", "def helper():\n    return k\n" + FN),
    "rebound": _rebound,
    "inner": _global("inner()", "def fn({arguments}):\n    inner = lambda: k\n    return {expression}\n"),
    "object": _object,
    "method": _object,
    "class": _held(lambda value: type("Settings", (), {"k": value}), setattr, "k", "held.k"),
    "list": _held(lambda value: [value], operator.setitem, 0, "held[0]"),
    "dict": _held(lambda value: {"k": value}, operator.setitem, "k", "held['k']"),
    "partial": _anew(
        "def whole({arguments}, *, k):\n    return {expression}\n"
        "def make(k):\n    return functools.partial(whole, k=k)\n"
    ),
    "constant": _constant,
    "again": _anew("def make(k):\n    return lambda {arguments}: {expression}\n"),  # as of a lambda in a loop
    "branch": _global(  # the number decides which code is traced
        "k", "def fn({arguments}):\n    if k > 2:\n        return {expression}\n    k_ = k\n    return {expression}\n"
    ),
}
PLAIN = (
    "cell",
    "default",
    "keyword",
    "global",
    "module",
    "called",
    "inner",
    "constant",
    "again",
    "partial",
)  # must work; the others may be refused
