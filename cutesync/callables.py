"""Python callables of users while the DSL traces them: what goes wrong is an OperatorError that names the user's line.

Of a Python int that a register cannot hold the DSL takes the low bits, with a warning at most. In a callable that is an
error.
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
_WRAPPING = (
    operator.add,
    operator.sub,
    operator.mul,
    operator.and_,
    operator.or_,
    operator.xor,
)  # exact in the low bits


@contextlib.contextmanager
def user_code(what: str, fn: Callable, on) -> Iterator[None]:
    """What is raised inside, where ``fn`` is called and its result converted, is raised as OperatorError."""
    try:
        with exact_integers():
            yield
    except Exception as error:
        path, line = _place(error, fn)
        where = "" if path is None else f" ({path}:{line}: {linecache.getline(path, line).strip()[:160]})"
        made = OperatorError(f"{what} could not be traced on {on}: {_reason(error)}{where}")
        raise made from (error if _is_of_user(error) else None)


def _reason(error: BaseException) -> str:
    """One line that says what happened, without the colours, snippets and advice of the DSL."""
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
    """File and line of the user's code where it happened; the callable's own where none ran, or its result is to
    blame."""
    found = _frames(error)
    if found:
        return found[-1]
    while isinstance(fn, functools.partial):
        fn = fn.func
    if not isinstance(fn, (types.FunctionType, types.MethodType)) and not hasattr(fn, "__wrapped__"):
        fn = getattr(type(fn), "__call__", fn)
    code = getattr(getattr(fn, "__wrapped__", fn), "__code__", None)
    return (None, 0) if code is None or not _is_users(code.co_filename) else (code.co_filename, code.co_firstlineno)


def _frames(error: BaseException) -> list[tuple[str, int]]:
    """The frames of the user's code that an error went through, outermost first."""
    return [(frame.f_code.co_filename, line) for frame, line in _walk(error) if _is_users(frame.f_code.co_filename)]


def _walk(error: BaseException) -> Iterator[tuple[Any, int]]:
    step = error.__traceback__
    while step is not None:
        yield step.tb_frame, step.tb_lineno
        step = step.tb_next


def _is_of_user(error: BaseException) -> bool:
    """Whether it was raised by a line of the user's, so that its traceback says something."""
    steps = list(_walk(error))
    return bool(steps) and _is_users(steps[-1][0].f_code.co_filename)


@functools.lru_cache(maxsize=1024)
def _is_users(path: str) -> bool:
    """Whether a file is neither this package's, the DSL's, NumPy's nor of the standard library."""
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
    """While this is entered, a Python int that would lose bits in a DSL register is an OverflowError. A DSL that builds
    its operators or warns in another way is left as it is."""
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
    """Whether the DSL's result of ``op`` on a register and a Python int is right. It takes the int as Int32, or else as
    Int64, and the wider of the two types for both. Sums, products and bits that wrap as the register does are right as
    well."""
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
