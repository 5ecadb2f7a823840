"""Which terms a matmul's epilogue has, and which results, as the host knows them before any kernel exists; and the
activations by name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ...dtypes import DType
from ...identity import identify
from ...ops import required_parameters
from ..states import Argument

ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh")


@dataclass(frozen=True)
class TermsSpec:
    """``activation(alpha * A B + beta * C + bias)``: ``scaled`` if alpha is not 1, ``c`` the type of C if beta is not
    0, ``bias`` "", "row" or "column" with its type, ``activation`` a name of ``ACTIVATIONS``, a callable, or None;
    ``scale_a``, ``scale_b`` "", "one" or "each" (row of A, column of B); ``by_tma``: TMA stores the result,
    ``by_columns``: it is stored column by column, as those are contiguous and not the rows; ``either``: a parameter of
    the kernel says which, so that products and their transposes have one kernel.

    ``gated``: C is not added, but its element is the activation's second value. ``pre`` is the type of the second
    result, what was before the activation, or None; ``pre_by_tma``: TMA stores it. ``amax``: the largest magnitude of
    the results before they are rounded is a result, too. ``args`` follow the values that an activation takes.
    ``stepped``: elements of the bias are not neighbours in memory. ``together``: elements of C are floats of 16 bits,
    whose rows are contiguous (its columns, with ``c_by_columns``), and so many (2, 8) can be loaded together anywhere
    in them; 0 if that is not so."""

    scaled: bool = False
    c: DType | None = None
    bias: str = ""
    bias_type: DType | None = None
    activation: str | Callable | None = None
    by_tma: bool = True
    scale_a: str = ""
    scale_b: str = ""
    gated: bool = False
    pre: DType | None = None
    pre_by_tma: bool = True
    amax: bool = False
    by_columns: bool = False
    either: bool = False
    args: tuple[Argument, ...] = ()
    stepped: bool = False
    together: int = 0
    c_by_columns: bool = False

    @property
    def plain(self) -> bool:
        """Whether the result is the product itself, and the only one."""
        terms = self.scaled or self.c or self.bias or self.activation or self.scale_a or self.scale_b
        return not (terms or self.several)

    @property
    def several(self) -> bool:
        """Whether there is more than one result."""
        return self.pre is not None or self.amax

    def widest(self, out: DType) -> int:
        """Bytes of the wider of the elements of ``out`` and of the second result."""
        return max(out.size, self.pre.size if self.pre else 0)

    @property
    def of_kernel(self) -> TermsSpec:
        """Those that decide the machine code: along which way the bias lies is a parameter, too."""
        return replace(self, bias=self.bias and "either", by_columns=self.by_columns and not self.either)

    @property
    def maps_columns(self) -> bool:
        """Whether the kernel has a tensor map for the columns of the result."""
        return self.either and self.by_tma

    @property
    def transposed(self) -> TermsSpec:
        """Those of the transposed result."""
        if not (self.bias or self.scale_a or self.scale_b):
            return self
        bias = {"row": "column", "column": "row", "": ""}[self.bias]
        return replace(self, bias=bias, scale_a=self.scale_b, scale_b=self.scale_a)

    @property
    def key(self) -> tuple:
        """What names the machine code in caches."""
        activation = identify(self.activation, "activation").key if callable(self.activation) else self.activation
        return (
            self.scaled,
            self.c and self.c.name,
            self.bias,
            self.bias_type and self.bias_type.name,
            activation,
            self.by_tma,
            self.scale_a,
            self.scale_b,
            self.gated,
            self.pre and self.pre.name,
            self.pre_by_tma,
            self.amax,
            self.by_columns,
            self.either,
            self.stepped,
            self.together,
            self.c_by_columns,
            *((argument.dtype.name, argument.in_memory) for argument in self.args),
        )


def takes_c(activation: str | Callable | None, args: int = 0) -> bool:
    """Whether an activation is a callable of two values beside ``args`` run-time arguments; the second is an element of
    C."""
    return callable(activation) and required_parameters(activation) == 2 + args


def once_per_terms(make: Callable) -> Callable:
    """Keep what a function makes for its arguments. If the terms have a callable it is made anew: a callable may mean
    something else than an equal one, and than it meant before."""
    kept = functools.lru_cache(maxsize=1024)(make)

    @functools.wraps(make)
    def made(*args: Any) -> Any:
        changes = any(isinstance(arg, TermsSpec) and callable(arg.activation) for arg in args)
        return make(*args) if changes else kept(*args)

    return made
