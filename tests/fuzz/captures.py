"""Callables that reach a number in every way Python has, and whose number changes while they live.

A ``Capture`` is made from an expression in the arguments and ``K``. ``put`` changes what ``K`` is; ``fn`` is the
callable to use from then on, in most ways the same object. NumPy runs the same callable, so its answer is that of the
new number.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable

SETTINGS = "fuzz_settings"  # a module that lives in sys.modules alone


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

    def define(self, reach: str, source: str = "def fn({arguments}):\n    return {expression}\n", **names) -> dict:
        """Execute ``source`` in a namespace of its own, with ``reach`` in the place of K."""
        text = source.format(arguments=self.arguments, expression=self.expression.replace("K", reach))
        exec(compile(text, f"<fuzz {self.way}>", "exec"), names)
        self.fn = names.get("fn")
        return names


def _cell(self: Capture, value):
    names = self.define(
        "k",
        "def outer(k):\n    def fn({arguments}):\n        return {expression}\n"
        "    def put(value):\n        nonlocal k\n        k = value\n    return fn, put\n",
    )
    self.fn, put = names["outer"](value)
    return put


def _default(self: Capture, value):
    self.define("k", "def fn({arguments}, k=None):\n    return {expression}\n")

    def put(value):
        self.fn.__defaults__ = (value,)

    put(value)
    return put


def _keyword(self: Capture, value):
    self.define("k", "def fn({arguments}, *, k=None):\n    return {expression}\n")

    def put(value):
        self.fn.__kwdefaults__ = {"k": value}

    put(value)
    return put


def _global(self: Capture, value):
    names = self.define("k", k=value)
    return functools.partial(names.__setitem__, "k")


def _settings(value):
    module = sys.modules[SETTINGS] = types.ModuleType(SETTINGS)
    module.k = value
    return module, functools.partial(setattr, module, "k")


def _module(self: Capture, value):
    module, put = _settings(value)
    self.define("settings.k", settings=module)
    return put


def _imported(self: Capture, value):
    _, put = _settings(value)
    self.define("settings.k", f"def fn({{arguments}}):\n    import {SETTINGS} as settings\n    return {{expression}}\n")
    return put


def _called(self: Capture, value):
    """Through a function that it calls, which reads a global."""
    names = self.define(
        "helper()", "def helper():\n    return k\ndef fn({arguments}):\n    return {expression}\n", k=value
    )
    return functools.partial(names.__setitem__, "k")


def _rebound(self: Capture, value):
    """Through a global function that is replaced by another."""
    names = self.define("helper()", helper=lambda: value)

    def put(value):
        names["helper"] = lambda: value

    return put


def _inner(self: Capture, value):
    """Through a function inside, which reads the global."""
    names = self.define("inner()", "def fn({arguments}):\n    inner = lambda: k\n    return {expression}\n", k=value)
    return functools.partial(names.__setitem__, "k")


def _object(self: Capture, value):
    names = self.define("self.k", "class Op:\n    def __call__(self, {arguments}):\n        return {expression}\n")
    self.fn = names["Op"]()
    self.fn.k = value
    return functools.partial(setattr, self.fn, "k")


def _method(self: Capture, value):
    names = self.define("self.k", "class Op:\n    def call(self, {arguments}):\n        return {expression}\n")
    owner = names["Op"]()
    owner.k = value
    self.fn = owner.call
    return functools.partial(setattr, owner, "k")


def _class(self: Capture, value):
    class Settings:
        k = value

    self.define("settings.k", settings=Settings)
    return functools.partial(setattr, Settings, "k")


def _list(self: Capture, value):
    held = [value]
    self.define("held[0]", held=held)
    return functools.partial(held.__setitem__, 0)


def _dict(self: Capture, value):
    held = {"k": value}
    self.define("held['k']", held=held)
    return functools.partial(held.__setitem__, "k")


def _partial(self: Capture, value):
    whole = self.define("k", "def fn({arguments}, *, k):\n    return {expression}\n")["fn"]

    def put(value):
        self.fn = functools.partial(whole, k=value)

    put(value)
    return put


def _constant(self: Capture, value):
    """A function of other code each time, in the same function object."""
    self.define(repr(value))
    fn = self.fn

    def put(value):
        self.define(repr(value))
        fn.__code__, self.fn = self.fn.__code__, fn

    return put


def _again(self: Capture, value):
    """The same code, a function object anew each time, as of a lambda in a loop."""
    make = self.define("k", "def make(k):\n    return lambda {arguments}: {expression}\n")["make"]

    def put(value):
        self.fn = make(value)

    put(value)
    return put


def _branch(self: Capture, value):
    """The number decides which code is traced."""
    names = self.define(
        "k",
        "def fn({arguments}):\n    if k > 2:\n        return {expression}\n    k_ = k\n    return {expression}\n",
        k=value,
    )
    return functools.partial(names.__setitem__, "k")


WAYS = {
    "cell": _cell,
    "default": _default,
    "keyword": _keyword,
    "global": _global,
    "module": _module,
    "imported": _imported,
    "called": _called,
    "rebound": _rebound,
    "inner": _inner,
    "object": _object,
    "method": _method,
    "class": _class,
    "list": _list,
    "dict": _dict,
    "partial": _partial,
    "constant": _constant,
    "again": _again,
    "branch": _branch,
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
