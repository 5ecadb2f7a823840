"""Errors of user callables while the DSL traces them: each becomes an OperatorError that names the user's line."""

from __future__ import annotations

import contextlib
import functools
import linecache
import re
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..errors import CutesyncError, OperatorError

PAGE = "cutesync/callables/README.md"  # says what a callable may contain
_SAID = {"dynamic range should be always preprocessed to IR": "a cutlass.range needs a function with @cute.jit"}
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_DSL_ERROR = re.compile(r"error(?:\[\w+\])?:\s*(.+?)(?=\n\s*(?:-->|note:|suggestion:|error|\||$)|\Z)", re.S)


@contextlib.contextmanager
def operator_errors(what: str, fn: Callable, on) -> Iterator[None]:
    """Call ``fn`` and convert its result inside: every exception becomes an OperatorError."""
    try:
        yield
    except Exception as error:
        path, line = _place(error, fn)
        where = "" if path is None else f" ({path}:{line}: {linecache.getline(path, line).strip()[:160]})"
        made = OperatorError(f"{what} could not be traced on {on}: {_reason(error)}{where}; see {PAGE}")
        raise made from (error if _is_of_user(error) else None)


def _reason(error: BaseException) -> str:
    """Return one line that describes the error, without the DSL's colours, snippets and advice."""
    text = _ESCAPES.sub("", str(error))
    if isinstance(error, CutesyncError):
        return text
    if not type(error).__module__.startswith("cutlass"):
        return f"{type(error).__name__}: {text}"
    found = _DSL_ERROR.findall(text)
    said = " ".join((found[-1] if found else text).split())
    return _SAID.get(said, said)


def _place(error: BaseException, fn: Callable) -> tuple[str | None, int]:
    """Return file and line of the user's code that raised. If none did, as the result is at fault, return those of the
    callable itself."""
    found = _frames(error)
    if found:
        return found[-1]
    while isinstance(fn, functools.partial):
        fn = fn.func
    if not isinstance(fn, (types.FunctionType, types.MethodType)) and not hasattr(fn, "__wrapped__"):
        fn = type(fn).__call__
    code = getattr(getattr(fn, "__wrapped__", fn), "__code__", None)
    return (None, 0) if code is None or not _is_users(code.co_filename) else (code.co_filename, code.co_firstlineno)


def _frames(error: BaseException) -> list[tuple[str, int]]:
    """Return the frames of the user's code that an error passed through, outermost first."""
    return [(frame.f_code.co_filename, line) for frame, line in _walk(error) if _is_users(frame.f_code.co_filename)]


def _walk(error: BaseException) -> Iterator[tuple[Any, int]]:
    step = error.__traceback__
    while step is not None:
        yield step.tb_frame, step.tb_lineno
        step = step.tb_next


def _is_of_user(error: BaseException) -> bool:
    """Return whether a line of the user's code raised the error, so that its traceback is useful."""
    steps = list(_walk(error))
    return bool(steps) and _is_users(steps[-1][0].f_code.co_filename)


@functools.lru_cache(maxsize=1024)
def _is_users(path: str) -> bool:
    """Return whether a file belongs to none of this package, the DSL, NumPy and the standard library."""
    standard = path.startswith(("<frozen", f"{Path(contextlib.__file__).parent}/")) and "-packages/" not in path
    return not standard and not path.startswith(_foreign())


@functools.lru_cache(maxsize=1)
def _foreign() -> tuple[str, ...]:
    import cutlass
    import numpy

    home = Path(cutlass.__file__).parent
    whole = [parent for parent in home.parents if parent.name == "nvidia_cutlass_dsl"] or [home]
    return tuple(f"{folder}/" for folder in (*whole, Path(numpy.__file__).parent, Path(__file__).parents[1]))
