"""Which calls led from a kernel to the line of an instruction: recorded while the DSL traces.

PTX names one line for each instruction, the innermost outside of the DSL: in a helper that many places call, that is
the helper's. So while kernels are traced here, the column of a location, which nobody else needs, is a number that
stands for the chain of calls.
"""

from __future__ import annotations

import contextlib
import sys
import zlib
from collections.abc import Iterator
from typing import Any

from . import source

Chain = tuple[tuple[str, int], ...]  # file and line of each call, the kernel's first, without the instruction's own

_FIRST, _COUNT = 1 << 10, (1 << 16) - (1 << 10)  # LLVM keeps 16 bits of a column; those of source lines are lower
_KERNEL = "kernel_wrapper"  # the DSL's function that calls the kernel's
_known: dict[tuple[str, int, int], Chain] = {}


def of(file: str, line: int, column: int) -> Chain:
    """The calls that led to a line, by its column in PTX; empty if there were none or they are not known."""
    return _known.get((file, line, column), ())


@contextlib.contextmanager
def recorded() -> Iterator[None]:
    """Record the calls of what is traced inside."""
    undo = record()
    try:
        yield
    finally:
        undo()


def record() -> Any:
    """Record the calls of what is traced from now on. Return a function that ends it."""
    from cutlass._mlir_helpers import op

    dsl: Any = op
    plain = dsl._get_caller_frame_info
    if not getattr(dsl, "_HAS_CO_POSITIONS", False):  # Python 3.10: locations have no columns
        return lambda: None

    def caller() -> Any:
        frame = dsl._find_user_frame(sys._getframe(2))
        if frame is None:
            return None
        info = dsl._fast_frameinfo(frame)
        number = _number(_calls(frame, dsl._is_framework_stack_frame))
        if number:
            info.positions = info.positions._replace(col_offset=number)
        return info

    def undo() -> None:
        dsl._get_caller_frame_info = plain

    dsl._get_caller_frame_info = caller
    return undo


def _calls(frame: Any, in_dsl: Any) -> list[tuple[str, int]]:
    """The lines of the user's frames of a kernel, the kernel's first; one a function."""
    lines: list[tuple[str, int]] = []
    names: list[tuple[str, str]] = []
    while frame is not None and frame.f_code.co_name != _KERNEL:
        if not in_dsl(frame):
            file, line = frame.f_code.co_filename, frame.f_lineno
            name = file, source.function_at(source.Place(file, line))
            if not names or names[-1] != name:  # else an outer part of the same function: a branch or a loop
                lines.append((file, line))
                names.append(name)
        frame = frame.f_back
    return lines[::-1] if frame is not None else []


def _number(lines: list[tuple[str, int]]) -> int:
    """The column that stands for a chain; 0 if it has the instruction's own line alone."""
    if len(lines) < 2:
        return 0
    chain, (file, line) = tuple(lines[:-1]), lines[-1]
    column = _FIRST + zlib.crc32(repr(chain).encode()) % _COUNT
    _known[file, line, column] = chain
    return column
