"""A callable with functions of registers in place of those of ``math`` and of some built-ins.

Functions in C take Python numbers only. So a callable is traced as a copy: the same code, in which the names of such
functions mean translations. The copy reaches helper functions, captured functions and modules of the user, too. Methods
of objects run as they are; there, ``numpy.exp(x)`` means what ``math.exp(x)`` means elsewhere.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import math
import types
from collections.abc import Callable
from typing import Any

from ..identity.code import facts_of
from ..identity.trust import module_is_trusted, scope_is_trusted
from . import functions
from .functions import is_register, of_real

_REAL = (
    "exp exp2 expm1 log2 log10 log1p sqrt cbrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
    "erf erfc atan2 pow copysign fma"
)
_SAME = "floor ceil trunc fabs isnan isinf isfinite hypot"
_TRANSLATED: dict[str, Any] = {
    **{name: of_real(name) for name in _REAL.split()},
    **{name: getattr(functions, name) for name in _SAME.split()},
    "log": functions.logarithm,
    "fmod": lambda a, b: functions.fmod(*functions.real(a, b)),
    "degrees": lambda x: functions.real(x)[0] * (180 / math.pi),
    "radians": lambda x: functions.real(x)[0] * (math.pi / 180),
}
_OF_OBJECTS = ("prod", "sumprod")  # they call the operators of their arguments


def _on_registers(name: str, plain: Callable) -> Callable:
    """The translation of a function of ``math``, for calls that have a register among their arguments."""

    @functools.wraps(plain)
    def function(*arguments: Any, **options: Any) -> Any:
        if not any(map(is_register, arguments)):
            return plain(*arguments, **options)
        if name not in _TRANSLATED:
            raise TypeError(f"math.{name} has no translation for values of a callable")
        return _TRANSLATED[name](*arguments, **options)

    return function


def _absolute(x: Any) -> Any:
    return functions.absolute(x) if is_register(x) else abs(x)


_FUNCTIONS = {
    name: _on_registers(name, value)
    for name, value in vars(math).items()
    if callable(value) and not name.startswith("_") and name not in _OF_OBJECTS
}
_MATH = types.ModuleType("math")
vars(_MATH).update({**vars(math), **_FUNCTIONS})
_BUILT_INS = {"min": functions.first_min, "max": functions.first_max, "abs": _absolute}
_BY_ID = {
    **{id(vars(math)[name]): value for name, value in _FUNCTIONS.items()},
    **{id(getattr(builtins, name)): value for name, value in _BUILT_INS.items()},
    id(math): _MATH,
}


class _Module(types.ModuleType):
    """A module of the user, whose functions are translated."""

    def __init__(self, module: types.ModuleType, translator: Translator) -> None:
        super().__init__(module.__name__)
        self._module, self._translator = module, translator

    def __getattr__(self, name: str) -> Any:
        return self._translator.of(getattr(self._module, name))


class Translator:
    """Copies of what one callable reaches. Each object has one copy, so functions may call each other."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Any, Any]] = {}  # by the id of the original, which the entry keeps alive
        self._built_ins = {**vars(builtins), **_BUILT_INS, "__import__": self._import}

    def of(self, value: Any) -> Any:
        """The translation of a value; the value itself if it has none."""
        if id(value) in _BY_ID:
            return _BY_ID[id(value)]
        kind = type(value)
        if kind is types.FunctionType:
            known = scope_is_trusted(value.__globals__) or "_dsl_cls" in vars(value)  # those of cute.jit are the DSL's
            return value if known else self._copy(value, self._function)
        if kind is types.MethodType:
            return types.MethodType(self.of(value.__func__), value.__self__)
        if kind is functools.partial:
            options = {name: self.of(option) for name, option in value.keywords.items()}
            return functools.partial(self.of(value.func), *map(self.of, value.args), **options)
        if kind is types.ModuleType and not module_is_trusted(value):
            return self._copy(value, lambda module: _Module(module, self))
        return value

    def _copy(self, value: Any, make: Callable) -> Any:
        if id(value) not in self._made:
            self._made[id(value)] = value, make(value)
        return self._made[id(value)][1]

    def _function(self, fn: types.FunctionType) -> types.FunctionType:
        scope = {**fn.__globals__, "__builtins__": self._built_ins}
        cells = tuple(types.CellType() for _ in fn.__closure__ or ())
        made = types.FunctionType(fn.__code__, scope, fn.__name__, fn.__defaults__, cells or None)
        self._made[id(fn)] = fn, made  # before what it reaches, which may reach it
        made.__qualname__ = fn.__qualname__
        made.__kwdefaults__ = {name: self.of(value) for name, value in (fn.__kwdefaults__ or {}).items()} or None
        made.__defaults__ = tuple(map(self.of, fn.__defaults__ or ())) or None
        vars(made).update(vars(fn))
        for name in facts_of(fn.__code__).globals & fn.__globals__.keys():
            scope[name] = self.of(scope[name])
        for cell, original in zip(cells, fn.__closure__ or ()):
            with contextlib.suppress(ValueError):  # an empty cell
                cell.cell_contents = self.of(original.cell_contents)
        return made

    def _import(self, *arguments: Any, **options: Any) -> Any:
        return self.of(builtins.__import__(*arguments, **options))


def translated(fn: Callable) -> Callable:
    """Return the copy of a callable; of an object with a method ``__call__``, that of the method."""
    translator = Translator()
    found = translator.of(fn)
    method = next((vars(base)["__call__"] for base in type(fn).__mro__ if "__call__" in vars(base)), None)
    return types.MethodType(translator.of(method), fn) if isinstance(method, types.FunctionType) else found
