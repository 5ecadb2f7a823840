"""User callables while the DSL traces them: every failure is an OperatorError that names the user's line.

If a register cannot hold a Python int, the DSL uses its low bits, and at most warns. In a callable this is an error.
"""

from __future__ import annotations

import contextlib
import functools
import linecache
import operator
import re
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .errors import CutesyncError, OperatorError

_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_DSL_ERROR = re.compile(r"error(?:\[\w+\])?:\s*(.+?)(?=\n\s*(?:-->|note:|suggestion:|error|\||$)|\Z)", re.S)
_COMPARISONS = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
# Their low bits depend only on the low bits of their operands.
_WRAPPING = (operator.add, operator.sub, operator.mul, operator.and_, operator.or_, operator.xor)


@contextlib.contextmanager
def user_code(what: str, fn: Callable, on) -> Iterator[None]:
    """Call ``fn`` and convert its result inside: every exception becomes an OperatorError."""
    try:
        with exact_integers():
            yield
    except Exception as error:
        path, line = _place(error, fn)
        where = "" if path is None else f" ({path}:{line}: {linecache.getline(path, line).strip()[:160]})"
        made = OperatorError(f"{what} could not be traced on {on}: {_reason(error)}{where}")
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
    if "PHASE_DYNAMIC_TO_STATIC_BOOL" in text:
        said += "; choose with cutlass.select_(condition, a, b), or decorate the function with cute.jit"
    return said


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
    return tuple(f"{folder}/" for folder in (*whole, Path(numpy.__file__).parent, Path(__file__).parent))


@contextlib.contextmanager
def exact_integers() -> Iterator[None]:
    """Raise OverflowError for each Python int that would lose bits in a DSL register inside. A DSL that makes its
    operators or warns in another way is left unchanged."""
    from cutlass.base_dsl import diagnostics, typing

    built, warned = getattr(typing, "_binary_op", None), getattr(diagnostics, "report_warning", None)
    if built is None or warned is None:
        yield
        return

    def binary_op(op, *arguments, **options):
        plain = built(op, *arguments, **options)

        def checked(lhs, rhs, **places):
            if type(rhs) is int and not _fits(op, lhs, rhs):
                raise OverflowError(f"the Python int {rhs} does not fit {type(lhs).__name__}")
            return plain(lhs, rhs, **places)

        return checked

    def warn(kind, **fields):
        if getattr(kind, "name", "") == "TYPE_INT_LITERAL_OUT_OF_RANGE":
            raise OverflowError(f"the Python int {fields['value']} does not fit {fields['type']}")
        return warned(kind, **fields, stacklevel=fields.pop("stacklevel", 2) + 1)

    typing._binary_op, diagnostics.report_warning = binary_op, warn  # type: ignore[assignment]
    try:
        yield
    finally:
        typing._binary_op, diagnostics.report_warning = built, warned


def _fits(op, register, value: int) -> bool:
    """Return whether the DSL computes ``op`` on a register and a Python int correctly. The DSL converts the int to
    Int32, or else to Int64, and both operands to the wider type. Sums, products and bitwise operations that wrap as the
    register does are correct, too."""
    from cutlass import Int32, Int64, Integer

    kind = type(register)
    taken = Int32 if Int32.min <= value <= Int32.max else Int64
    if not isinstance(register, Integer) or kind.width == 1:
        return Int64.min <= value <= Int64.max
    if op in _WRAPPING:
        return -(1 << kind.width - 1) <= value < 1 << kind.width
    common = kind if kind.width >= taken.width else taken
    if op in _COMPARISONS or common is kind:
        return common.min <= value <= common.max
    return -(1 << kind.width - 1) <= value < 1 << kind.width
