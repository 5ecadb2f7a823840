"""Guards the way from PTX to Python: only tokens of PTX come in, only text that instructions need is run.

A PTX text may come from anywhere (a file of a shared cache, say), and its opcodes become parts of Python source. So
each token must be made of the words of PTX (``words``) or match a pattern that holds no operator, quote or bracket;
what a handler puts into an expression comes from a closed table (``registry.word``); and the compiled text must be one
function that uses only the names bound by the program, a few builtins, and ``ATTRIBUTES``.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import CodeType, FunctionType

from ..errors import CutesyncError

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_$]*|[_$%][A-Za-z0-9_$]+|_", re.A)
BUILTINS = {"abs": abs, "int": int}
ATTRIBUTES = frozenset(
    [
        "R",
        "T",
        "array",
        "astype",
        "bits",
        "bitwise_or",
        "clip",
        "clock",
        "converged",
        "copy",
        "count",
        "dtype",
        "finfo",
        "full",
        "isfinite",
        "isinf",
        "isnan",
        "lanes",
        "live",
        "machine",
        "mask",
        "maximum",
        "minimum",
        "pc",
        "pick",
        "reduce",
        "reshape",
        "split",
        "sreg",
        "tiny",
        "view",
        "warp",
    ]
)
MALFORMED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What Python raises for operands that no compiler writes."""


@contextlib.contextmanager
def reported(error: Callable[[Exception], Exception]) -> Iterator[None]:
    """Raise ``error(fault)`` instead of a ``MALFORMED`` fault. Errors of cutesync pass."""
    try:
        yield
    except CutesyncError:
        raise
    except MALFORMED as fault:
        raise error(fault) from fault


class ForeignCode(CutesyncError, ValueError):
    """The text generated for a PTX kernel holds more than instructions need: the PTX was made to run Python."""


def function(source: str, name: str, names: dict) -> FunctionType:
    """The function that ``source`` defines, over the global ``names``. Nothing of the source runs here."""
    code = _compiled(source, name)
    _check(code, name, names)
    return FunctionType(code, names, name)


@lru_cache(maxsize=4096)
def _compiled(source: str, name: str) -> CodeType:
    """The code of the one function that ``source`` defines: kernels that differ little have most of it in common."""
    try:
        module = compile(source, f"<{name}>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as fault:
        raise ForeignCode(f"the text generated for {name} is no Python ({fault})") from fault
    made = [c for c in module.co_consts if isinstance(c, CodeType)]
    if module.co_names != (name,) or len(made) != 1 or made[0].co_name != name:
        raise ForeignCode(f"the text generated for {name} holds more than one function")
    return made[0]


def _check(code: CodeType, name: str, names: dict) -> None:
    foreign = {n for n in code.co_names if n not in names and n not in BUILTINS and n not in ATTRIBUTES}
    if foreign:
        used = ", ".join(sorted(foreign))
        raise ForeignCode(f"the text generated for {name} uses {used}, which no instruction needs")
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if inner.co_name != "<lambda>":
                raise ForeignCode(f"the text generated for {name} defines {inner.co_name}")
            _check(inner, name, names)
