"""User callables: what happens while the DSL traces them inside a kernel. README.md here says what they may contain.

``paths`` runs a callable once for each way through its branches. ``translator`` gives it functions of registers in
place of those of ``math`` and of some built-ins. ``protocols`` makes registers answer NumPy and Python. ``integers``
refuses ints that no register holds, and ``errors`` names the user's line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .errors import operator_errors


def trace(what: str, fn: Callable, on: object, operands: tuple, registers_of: Callable[[Any], tuple]) -> tuple:
    """Return the registers that ``registers_of`` makes of the result of ``fn(*operands)``; where the callable branches
    on a register, those of the branch that is taken. Raise OperatorError for what cannot be traced.

    ``what`` and ``on`` (the types) are for messages. The types of the registers must be the same for every result.
    """
    with operator_errors(what, fn, on):
        from .integers import exact_integers
        from .paths import merged
        from .protocols import python_protocols
        from .translator import translated

        with exact_integers(), python_protocols():
            call = translated(fn)
            return merged(lambda: registers_of(call(*operands)))
