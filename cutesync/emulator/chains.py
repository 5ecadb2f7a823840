"""Which calls led from a kernel to the line of an instruction, and in which role: recorded while the DSL traces.

PTX names one line for each instruction, the innermost outside of the DSL: in a helper that many places call, that is
the helper's. So while kernels are traced here, the column of a location, which nobody else needs, is a number that
stands for the chain of calls. The DSL itself has columns from Python 3.11 on; those written here need none of them.
"""

from __future__ import annotations

import contextlib
import sys
import zlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

from . import source

Calls = tuple[tuple[str, int], ...]  # file and line of each call, the kernel's first, without the instruction's own


class Chain(NamedTuple):
    """What led to an instruction; ``role``: the name that ``sync.in_role`` gave to its warps."""

    calls: Calls = ()
    role: str = ""


_FIRST, _COUNT = 1 << 10, (1 << 16) - (1 << 10)  # LLVM keeps 16 bits of a column; those of source lines are lower
_KERNEL = "kernel_wrapper"  # the DSL's function that calls the kernel's
_UNKNOWN = Chain()
_known: dict[tuple[str, int, int], Chain] = {}


def of(file: str, line: int, column: int) -> Chain:
    """What led to a line, by its column in PTX; empty if there were no calls or they are not known."""
    return _known.get((file, line, column), _UNKNOWN)


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

    from ..sync import wait

    dsl: Any = op
    plain = dsl._get_caller_frame_info

    def skipped(frame: Any) -> bool:
        """The DSL's frames, and those between a kernel and the function of a role."""
        between = frame.f_code is wait.in_role.__code__ or frame.f_globals.get("__name__") == "cutesync.sync.roles"
        return between or dsl._is_framework_stack_frame(frame)

    def caller() -> Any:
        frame = dsl._find_user_frame(sys._getframe(2))
        if frame is None:
            return None
        info = dsl._fast_frameinfo(frame)
        number = _number(_calls(frame, skipped), wait.role())
        if not number:
            return info
        positions = SimpleNamespace(lineno=info.lineno, col_offset=number)
        facts = {name: getattr(info, name) for name in ("filename", "lineno", "function", "code_context")}
        return SimpleNamespace(**facts, positions=positions)

    def undo() -> None:
        dsl._get_caller_frame_info = plain

    dsl._get_caller_frame_info = caller
    return undo


def _calls(frame: Any, skipped: Any) -> list[tuple[str, int]]:
    """The lines of the user's frames of a kernel, the kernel's first; one a function."""
    lines: list[tuple[str, int]] = []
    names: list[tuple[str, str]] = []
    while frame is not None and frame.f_code.co_name != _KERNEL:
        if not lines or not skipped(frame):
            file, line = frame.f_code.co_filename, frame.f_lineno
            name = file, source.function_at(source.Place(file, line))
            if not names or names[-1] != name:  # else an outer part of the same function: a branch or a loop
                lines.append((file, line))
                names.append(name)
        frame = frame.f_back
    return lines[::-1] if frame is not None else []


def _number(lines: list[tuple[str, int]], role: str) -> int:
    """The column that stands for a chain; 0 if it has the instruction's own line alone, and no role."""
    if not lines or (len(lines) < 2 and not role):
        return 0
    chain, (file, line) = Chain(tuple(lines[:-1]), role), lines[-1]
    column = _FIRST + zlib.crc32(repr(tuple(chain)).encode()) % _COUNT
    _known[file, line, column] = chain
    return column
