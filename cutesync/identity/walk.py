"""The walk over everything that a callable reaches. It computes a digest by value, and records every place that it
reads."""

from __future__ import annotations

import builtins
import functools
import hashlib
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import OperatorError
from .code import facts_of
from .trust import is_native, is_pure, module_is_trusted, public_name, scope_is_trusted, version

ABSENT = object()
SCALARS = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented))
_MOST_VALUES = 20_000
_BUILT_IN = (
    types.BuiltinFunctionType,
    types.MethodWrapperType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
)
# Entries of a class that no operation reads, or that follow from the others.
_SKIPPED = frozenset(
    """
    __dict__ __weakref__ __doc__ __module__ __qualname__ __annotations__ __annotate__ __annotate_func__
    __annotations_cache__ __slots__ __abstractmethods__ _abc_impl __firstlineno__ __static_attributes__
    __match_args__ __dataclass_fields__ __dataclass_params__ __parameters__ __orig_bases__ __classdictcell__
    """.split()  # noqa: SIM905 (a list would take a line per name)
)


class Walk:
    """One walk. ``attributes`` are the names of the attributes that the code reached so far reads. They decide which
    entries of a module are part of the digest, so a walk that finds new names is repeated. ``reads`` are ``(get, name,
    value)``: ``get(name, ABSENT)`` returned that value. ``mutable`` means that some value can change in place, so that
    only another walk can detect a change."""

    def __init__(self, what: str, attributes: set[str]) -> None:
        self.what, self.attributes = what, set(attributes)
        self.digest = hashlib.sha256()
        self.reads: list[tuple[Callable, str, Any]] = []
        self.mutable = False
        self._seen: dict[int, int] = {}
        self._alive: list[Any] = []  # ids stay valid while their objects live

    def put(self, *texts: object) -> None:
        for text in texts:
            data = str(text).encode("utf-8", "surrogatepass")
            self.digest.update(b"%d:" % len(data) + data)

    def read(self, get: Callable, name: str, value: Any, where: str) -> None:
        """Add the value at a place to the digest, and record the place."""
        self.reads.append((get, name, value))
        if value is ABSENT:
            self.put("absent")
        else:
            self.add(value, where)

    def add(self, value: Any, where: str) -> None:
        """Add a value to the digest; ``where`` describes its place, for messages."""
        kind = type(value)
        if kind in SCALARS:
            self.put(kind.__name__, repr(value))
            return
        if id(value) in self._seen:
            self.put("again", self._seen[id(value)])
            return
        if len(self._seen) >= _MOST_VALUES:
            self.refuse("so many values that comparing them takes too long", where)
        self._seen[id(value)] = len(self._seen)
        self._alive.append(value)
        visit = _BY_TYPE.get(kind)
        if visit is None:
            visit = next((way for base, way in _BY_BASE if isinstance(value, base)), Walk._instance)
        visit(self, value, where)

    def refuse(self, came: str, where: str) -> None:
        raise OperatorError(
            f"{self.what}: reaches {came} ({where}), which cannot be identified by value, so its kernel could become "
            "stale; needs numbers, strings, tuples, NumPy arrays, Python functions and objects of Python classes; read "
            "what is needed before the call and capture that"
        )

    def function(self, fn: types.FunctionType, where: str, top: bool = False) -> None:
        """Add a function to the digest. With ``top``, the caller itself compares the function's code, defaults and
        cells, which are new with each function object."""
        if scope_is_trusted(fn.__globals__):
            known = public_name(fn)
            if known is not None:
                self._by_name(*known, where)
                return
            self._by_name(fn.__globals__["__name__"], fn.__code__.co_name, where)
            self.put(facts_of(fn.__code__).digest)  # the name may not be unique in its module
        else:
            self._code(fn, where, top)
        defaults, keywords = fn.__defaults__ or (), fn.__kwdefaults__ or {}
        if not top:
            self.reads += [
                (functools.partial(getattr, fn), "__defaults__", fn.__defaults__),
                (functools.partial(getattr, fn), "__kwdefaults__", fn.__kwdefaults__),
            ]
        self.put("defaults", len(defaults), len(keywords))
        for default in defaults:
            self.add(default, f"a default of {where}")
        for name, default in keywords.items():
            self.put(name)
            self.read(keywords.get, name, default, f"the default of {name!r} of {where}")
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or ()):
            try:
                value = cell.cell_contents
            except ValueError:
                value = ABSENT
            if top:
                self.put("absent") if value is ABSENT else self.add(value, f"{name!r}, which it captures,")
            else:
                self.read(
                    functools.partial(getattr, cell), "cell_contents", value, f"{name!r}, which {where} captures,"
                )

    def _code(self, fn: types.FunctionType, where: str, top: bool) -> None:
        """Add the code of a function, and the globals, imports and attributes of the function that this code names."""
        original = fn.__dict__.get("_original_code")  # of a jit function, whose code the DSL replaces
        facts = facts_of(original or fn.__code__)
        if not top:
            self.reads.append(
                (fn.__dict__.get, "_original_code", original)
                if original
                else (functools.partial(getattr, fn), "__code__", fn.__code__)
            )
        self.put("code", facts.digest)
        self.attributes |= facts.attributes
        if "getattr" in facts.globals:
            self.attributes |= facts.strings
        if "__dict__" in facts.attributes:
            self.refuse("code that reads a __dict__", where)
        scope = fn.__globals__
        for name in sorted(facts.globals):
            if name not in scope and hasattr(builtins, name):
                self.reads.append((scope.get, name, ABSENT))
                self.add(getattr(builtins, name), f"the built-in {name!r}")
            else:
                self.put(name)
                self.read(scope.get, name, scope.get(name, ABSENT), f"its global {name!r}")
        for name, names, level in facts.imports:
            self._import(scope, name, names, level)
        for name in sorted(self.attributes & fn.__dict__.keys()):
            self.put(name)
            self.read(fn.__dict__.get, name, fn.__dict__[name], f"{name!r} of {where}")
        if "_preprocess_enabled" in fn.__dict__:  # the DSL reads the annotations of its functions
            self.put(
                fn.__dict__["_preprocess_enabled"],
                *(f"{name}: {_annotation(note)}" for name, note in fn.__annotations__.items()),
            )

    def _import(self, scope: dict, name: str, names: tuple, level: int) -> None:
        """Add the module that the import statement returns when the code runs."""
        try:
            module = builtins.__import__(name, scope, {}, names, level)
        except ImportError:
            self.put("absent", name)
            self.mutable = True
            return
        self.read(sys.modules.get, module.__name__, module, f"the module {module.__name__!r}")

    def _module(self, module: types.ModuleType, where: str) -> None:
        trusted, own = module_is_trusted(module), vars(module)
        self.put("module", *((module.__name__, version(module.__name__)) if trusted else ()))
        for name in sorted(self.attributes):
            value = own.get(name, ABSENT)
            if value is ABSENT and "__getattr__" in own:
                value, self.mutable = getattr(module, name, ABSENT), self.mutable or not trusted
            if value is ABSENT and trusted:
                continue
            self.put(name)
            if trusted and not isinstance(value, (*SCALARS, types.ModuleType, types.FunctionType, *_BUILT_IN)):
                self._by_name(module.__name__, name, where)
            elif name in own:
                self.read(own.get, name, value, f"{module.__name__}.{name}")
            else:
                self.add(value, f"{module.__name__}.{name}")

    def _by_name(self, module: str, name: str, where: str) -> None:
        """Add an object of a trusted module, by name and version."""
        if not is_pure(module, name.partition(".")[0]):
            self.refuse(f"{module}.{name}", where)
        self.put("by name", module, name, version(module))

    def _built_in(self, fn: Any, where: str) -> None:
        owner = getattr(fn, "__self__", None)
        known = public_name(fn) or public_name(getattr(fn, "__objclass__", None))
        if known is not None:
            self._by_name(known[0], known[1], where)
            self.put(fn.__name__)
        elif owner is None or isinstance(owner, types.ModuleType):
            self.refuse(f"{getattr(fn, '__module__', None)}.{fn.__name__}, a function in C", where)
        else:
            self.put("method", fn.__name__)
            self.add(owner, f"what {where} belongs to")

    def _class(self, cls: type, where: str) -> None:
        known = public_name(cls)
        if known is not None:
            self._by_name(*known, where)
            return
        if is_native(cls):
            self.refuse(f"the class {cls.__module__}.{cls.__qualname__}, made in C", where)
        own = vars(cls)
        self.put("class", len(cls.__bases__))
        for base in (type(cls), *cls.__bases__):
            self.add(base, f"a base of {cls.__name__}")
        for name, value in list(own.items()):
            if name in _SKIPPED:
                continue
            self.put(name)
            if isinstance(value, (types.MemberDescriptorType, types.GetSetDescriptorType)):
                self.put("slot")
            else:
                self.read(own.get, name, value, f"{cls.__name__}.{name}")
        self.reads += [(own.get, name, ABSENT) for name in self.attributes if name not in own]

    def _instance(self, value: Any, where: str) -> None:
        cls = type(value)
        known = public_name(value)
        if known is not None:  # a function that is an object of some class, as many of NumPy's are
            self._by_name(*known, where)
            return
        if cls is functools._lru_cache_wrapper:
            self.add(value.__wrapped__, where)
            return
        trusted = public_name(cls)
        self.add(cls, f"the class of {where}")
        if trusted is not None and not is_pure(trusted[0], trusted[1]):
            self.refuse(f"a {cls.__name__} of {trusted[0]}", where)
        if any(is_native(base) and base not in _NATIVE_BASES for base in cls.__mro__):
            self._reduced(value, where, trusted is not None)
            return
        for base, way in _CONTENTS:
            if isinstance(value, base):
                way(self, value, where)
        self._state(value, where)

    def _state(self, value: Any, where: str) -> None:
        """Add the attributes of an object of a Python class: those in its dictionary and in its slots."""
        cls, own = type(value), getattr(value, "__dict__", {})
        self.reads.append((functools.partial(getattr, value), "__class__", cls))
        for name in sorted(own, key=str):
            self.put(name)
            self.read(own.get, name, own[name], f"{name!r} of {where}")
        self.reads += [(own.get, name, ABSENT) for name in self.attributes if name not in own]
        for base in cls.__mro__:
            for name, part in vars(base).items():
                if isinstance(part, types.MemberDescriptorType):
                    get = functools.partial(_slot, part, value)
                    self.put(name)
                    self.read(get, name, get(name, ABSENT), f"{name!r} of {where}")

    def _reduced(self, value: Any, where: str, trusted: bool) -> None:
        """Add an object of a C class of a trusted module, by what pickling would store."""
        try:
            if not trusted:
                raise TypeError
            parts = value.__reduce_ex__(4)
        except Exception:
            self.refuse(f"a {type(value).__module__}.{type(value).__qualname__}", where)
        self.mutable = True
        for part in parts if isinstance(parts, tuple) else (parts,):
            self.add(list(part) if hasattr(part, "__next__") else part, where)

    def _parts(self, value: Any, where: str) -> None:
        """Add an object that consists of its ``_PARTS``."""
        self.put(type(value).__name__)
        for name in _PARTS[type(value)]:
            self.add(getattr(value, name), where)

    def _partial(self, fn: functools.partial, where: str) -> None:
        self.put("partial", len(fn.args), len(fn.keywords))
        self.add(fn.func, where)
        for value in fn.args:
            self.add(value, f"an argument of {where}")
        for name, value in sorted(fn.keywords.items()):
            self.put(name)
            self.read(fn.keywords.get, name, value, f"{name!r} of {where}")

    def _ufunc(self, value: np.ufunc, where: str) -> None:
        if getattr(np, value.__name__, None) is not value:
            self.refuse(f"the ufunc {value.__name__!r}, which is not one of NumPy's", where)
        self._by_name("numpy", value.__name__, where)

    def _number(self, value: np.generic, where: str) -> None:
        if value.dtype.hasobject:
            self.refuse("a NumPy object", where)
        self.put(value.dtype.str, value.dtype.name, value.tobytes().hex())

    def _array(self, value: np.ndarray, where: str) -> None:
        if type(value) is not np.ndarray or value.dtype.hasobject:
            self.refuse(f"a {type(value).__name__} of {value.dtype}", where)
        self.mutable = True
        self.put("array", value.dtype.str, value.dtype.name, value.shape, hashlib.sha256(value.tobytes()).hexdigest())

    def _elements(self, value: Any, where: str) -> None:
        self.mutable = self.mutable or not isinstance(value, tuple)
        self.put("elements", len(value))
        for entry in tuple(value):
            self.add(entry, f"an element of {where}")

    def _unordered(self, value: Any, where: str) -> None:
        """Add the elements of a set: each by a digest of its own, as they have no order."""
        self.mutable = True
        digests = []
        for entry in value:
            walk = Walk(self.what, self.attributes)
            walk.add(entry, f"an element of {where}")
            self.attributes |= walk.attributes
            digests.append(walk.digest.hexdigest())
        self.put("set", *sorted(digests))

    def _mapping(self, value: Any, where: str) -> None:
        self.mutable = True
        self.put("mapping", len(value))
        for name, entry in list(value.items()):
            self.add(name, f"a key of {where}")
            self.add(entry, f"{where}[{name!r}]")

    def _as_text(self, value: Any, where: str) -> None:
        base = next(
            base for base in (int, float, complex, str, bytes, np.dtype, slice, range) if isinstance(value, base)
        )
        self.put(base.__name__, base.__repr__(value))


def _slot(descriptor: Any, value: Any, name: str, missing: Any) -> Any:
    try:
        return descriptor.__get__(value)
    except AttributeError:
        return missing


def _annotation(note: Any) -> str:
    return f"{note.__module__}.{note.__qualname__}" if isinstance(note, type) else repr(note)


_PARTS: dict[type, tuple[str, ...]] = {
    types.MethodType: ("__func__", "__self__"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset", "fdel"),
}
_BY_TYPE: dict[type, Callable] = {
    **dict.fromkeys(_PARTS, Walk._parts),
    types.FunctionType: Walk.function,
    types.ModuleType: Walk._module,
    functools.partial: Walk._partial,
    np.ufunc: Walk._ufunc,
    np.ndarray: Walk._array,
    list: Walk._elements,
    tuple: Walk._elements,
    dict: Walk._mapping,
    types.MappingProxyType: Walk._mapping,
    set: Walk._unordered,
    frozenset: Walk._unordered,
    slice: Walk._as_text,
    range: Walk._as_text,
    **dict.fromkeys(_BUILT_IN, Walk._built_in),
}
_BY_BASE: tuple[tuple[type, Callable], ...] = (
    (type, Walk._class),
    (types.ModuleType, Walk._module),
    (np.generic, Walk._number),
    (np.ndarray, Walk._array),
    (np.dtype, Walk._as_text),
)
_CONTENTS: tuple[tuple[type, Callable], ...] = (
    (dict, Walk._mapping),
    (list, Walk._elements),
    (tuple, Walk._elements),
    (set, Walk._unordered),
    (frozenset, Walk._unordered),
    *((base, Walk._as_text) for base in (int, float, complex, str, bytes)),
)
"""What an object of a Python class inherits from a built-in base, besides its attributes."""
_NATIVE_BASES = (object, *(base for base, _ in _CONTENTS))
