"""The properties of a code object: a digest of what it computes, and the names that it looks up elsewhere."""

from __future__ import annotations

import dis
import hashlib
import sys
import types
from dataclasses import dataclass, field

_MOST = 4096
_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM", "LOAD_SUPER_ATTR", "LOAD_SUPER_METHOD")


@dataclass
class Facts:
    """Of a code object and of those nested in it: the ``digest``, the ``globals`` and the ``attributes`` that they
    name, their ``imports`` as ``(name, fromlist, level)``, and the ``strings`` among their constants."""

    code: types.CodeType
    digest: str = ""
    globals: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    imports: list[tuple] = field(default_factory=list)
    strings: set[str] = field(default_factory=set)


_facts: dict[int, Facts] = {}  # by the id of the code, which the entry keeps alive


def facts_of(code: types.CodeType) -> Facts:
    """Return the Facts of a code object."""
    found = _facts.get(id(code))
    if found is None:
        if len(_facts) >= _MOST:
            _facts.clear()
        found = Facts(code)
        found.digest = hashlib.sha256(_text(code, found).encode()).hexdigest()
        _facts[id(code)] = found
    return found


def _text(code: types.CodeType, facts: Facts) -> str:
    """Return everything of a code object that decides what it computes, as text. Add its names to ``facts``."""
    _look_up(code, facts)
    constants = [_constant(constant, facts) for constant in code.co_consts]
    arguments = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    table = getattr(code, "co_exceptiontable", b"")  # from Python 3.11 on
    return repr((sys.version_info[:2], code.co_code, table, arguments, names, constants))


def _constant(constant, facts: Facts) -> str:
    if isinstance(constant, types.CodeType):
        return _text(constant, facts)
    if isinstance(constant, str):
        facts.strings.add(constant)
    if isinstance(constant, tuple):
        return f"({', '.join(_constant(entry, facts) for entry in constant)})"
    if isinstance(constant, frozenset):  # unordered
        return f"{{{', '.join(sorted(_constant(entry, facts) for entry in constant))}}}"
    return f"{type(constant).__name__} {constant!r}"


def _look_up(code: types.CodeType, facts: Facts) -> None:
    before: list = [None, None]  # the operands of the last two instructions: the level and the names of an import
    for instruction in dis.get_instructions(code):
        if instruction.opname in _GLOBALS:
            facts.globals.add(instruction.argval)
        elif instruction.opname in _ATTRIBUTES:
            facts.attributes.add(instruction.argval)
        elif instruction.opname == "IMPORT_NAME":
            level, names = before
            facts.imports.append((instruction.argval, tuple(names or ()), level))
        if instruction.opname != "EXTENDED_ARG":
            before = [before[1], instruction.argval]
