"""The identity of Python callables, by value. All families identify their kernels by this one rule.

A callable decides machine code by everything that it reaches: its code, constants, defaults and captures, the globals
and the attributes of modules that it names, the functions that it calls, and so on recursively. ``identify`` walks all
of this and returns the same ``Identity`` for callables of the same meaning. Modules of the DSL, NumPy, the standard
library and cutesync are identified by name and version. A callable that reaches something which cannot be identified by
value is refused, so that no kernel is ever stale.

A walk takes some 100 us. It records every place that it read, so that the next call only checks that these places still
hold the same values.
"""

from __future__ import annotations

import itertools
import operator
import types
from collections.abc import Callable
from typing import Any

from ..errors import OperatorError
from .walk import ABSENT, SCALARS, Walk

_MOST = 4096  # identities, and callables whose readings are stored
_MOST_READINGS = 8  # readings of one code object, with different captures
_EMPTY = object()  # stands for the content of an empty cell


class Identity:
    """The meaning of a callable: ``key`` is its digest, the same in every process; ``fn`` is the callable of this
    meaning that was given last.

    Callables of the same meaning share one object while they are in use, so comparison and hashing are by object.
    """

    __slots__ = ("fn", "key")

    def __init__(self, key: str, fn: Callable) -> None:
        self.key, self.fn = key, fn


_identities: dict[str, Identity] = {}
# By the id of a function's code, or of another callable; the reading keeps that object alive.
_readings: dict[int, list[tuple]] = {}


def identify(fn: Any, what: str = "op") -> Any:
    """Return the Identity of a callable. None, a name, an Identity and every other object that is not callable are
    returned unchanged.

    ``what`` is the argument's name. Raise OperatorError for a callable that reaches something which cannot be
    identified by value.
    """
    if type(fn) is types.FunctionType:
        for _, scope, captured, reads, found in _readings.get(id(fn.__code__), ()):
            if fn.__globals__ is scope and _same_captures(_captures(fn), captured) and (not reads or _unchanged(reads)):
                found.fn = fn
                return found
    elif not callable(fn) or type(fn) is Identity:
        return fn
    else:
        for kept, _, _, reads, found in _readings.get(id(fn), ()):
            if kept is fn and _unchanged(reads):
                return found
    return _walk(fn, what)


def identified(fn: Any, what: str = "op") -> tuple[Identity, tuple]:
    """Return the Identity of a callable, and the places that its walk read beyond what a function object has itself
    (see ``watch``): one tuple for as long as the identity rests on it; empty where only a walk can detect a change."""
    found = identify(fn, what)
    if type(fn) is types.FunctionType:
        for _, scope, captured, reads, same in _readings.get(id(fn.__code__), ()):
            if same is found and fn.__globals__ is scope and _same_captures(_captures(fn), captured):
                return found, reads
    else:
        for kept, _, _, reads, _ in _readings.get(id(fn), ()):
            if kept is fn:
                return found, reads
    return found, ()


def name_of(fn: Callable) -> str:
    """Return the name of a callable, for messages."""
    return getattr(fn, "__name__", type(fn).__name__)


def _walk(fn: Any, what: str) -> Identity:
    is_function = type(fn) is types.FunctionType
    captured = _captures(fn) if is_function else None
    attributes: set[str] = set()
    while True:
        walk = Walk(f"{what} {name_of(fn)!r}", attributes)
        try:
            if is_function:
                walk.function(fn, "it", top=True)
            else:
                walk.add(fn, "it")
        except OperatorError:
            raise
        except Exception as error:  # a callable's own attributes may raise anything, or nest without end
            raise OperatorError(
                f"{what} {name_of(fn)!r} cannot be identified by value: {type(error).__name__}: {error}"
            ) from error
        if walk.attributes == attributes:
            break
        attributes = walk.attributes
    found = _intern(walk.digest.hexdigest()[:32], fn)
    if not walk.mutable:
        _remember(
            fn.__code__ if is_function else fn, fn.__globals__ if is_function else None, captured, walk.reads, found
        )
    return found


def _intern(key: str, fn: Callable) -> Identity:
    found = _identities.get(key)
    if found is None:
        if len(_identities) >= _MOST:
            _identities.clear()
        found = _identities.setdefault(key, Identity(key, fn))
    found.fn = fn
    return found


def _remember(kept: Any, scope: dict | None, captured: tuple | None, reads: list, found: Identity) -> None:
    if len(_readings) >= _MOST:
        _readings.clear()
    others = _readings.get(id(kept), [])
    _readings[id(kept)] = [(kept, scope, captured, tuple(reads), found), *others[: _MOST_READINGS - 1]]


def _captures(fn: types.FunctionType) -> tuple | None:
    """Return what is specific to a function object: its defaults and the contents of its cells; None if it has none."""
    defaults, keywords, cells = fn.__defaults__, fn.__kwdefaults__, fn.__closure__
    if defaults is None and keywords is None and cells is None:
        return None
    values: list[Any] = []
    for cell in cells or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:
            values.append(_EMPTY)
    if defaults is None and keywords is None:
        return tuple(values)
    return (*values, _EMPTY, *(defaults or ()), _EMPTY, *itertools.chain(*(keywords or {}).items()))


def _same_captures(now: tuple | None, then: tuple | None) -> bool:
    if now is None or then is None or len(now) != len(then):
        return now is then
    return all(map(operator.is_, now, then)) or all(map(_same, now, then))


def _unchanged(reads: tuple) -> bool:
    """Return whether the places that were read still hold the same values."""
    try:
        for get, name, value in reads:
            now = get(name, ABSENT)
            if now is not value and not _same(now, value):
                return False
    except ValueError:  # a cell was emptied
        return False
    return True


def _same(now: Any, then: Any) -> bool:
    """Return whether both are one object, or equal numbers or texts of one type (0.0 and -0.0 differ)."""
    return now is then or (type(now) is type(then) and type(now) in SCALARS and now == then and repr(now) == repr(then))
