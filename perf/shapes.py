"""Random cases of a family: shapes, axes, types, strides and operators as users have them. See ``shapes_run.py``.

The number of elements is log-uniform in 2**8 .. 2**28. It is cut at random into 1 to 4 axes; half of the shapes are
rounded to powers of two. Any axis is taken, for a fifth of the reductions several. A third of the arrays are strided.
The same seed gives the same cases, whatever is installed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64"),
)
SIZES = dict(zip(DTYPES, (1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8)))
OPS = {
    "reduce": ("sum", "max", "any", "argmax", "lambda", "squares"),
    "scan": ("inclusive", "exclusive", "reverse", "max", "lambda"),
    "flags": ("heads", "tails", "both", "bits", "difference"),
}
LAYOUTS = ("transposed", "sliced last", "sliced outer", "stepped", "reversed", "broadcast", "off by one")
LEAST_LOG, MOST_LOG, MOST_MEMORY_LOG = 8, 28, 32
STRIDED, SEVERAL, ROUNDED = 0.35, 0.2, 0.5  # probabilities
STEPS = (2, 2, 3, 4, 8, 32)
LINE = 128  # bytes


@dataclass(frozen=True)
class Drawn:
    """A case. The array has ``shape`` and strides of ``steps`` elements, and begins at element ``offset`` of a memory
    of ``span`` elements. ``axis`` is an int, or a tuple of them; None: all axes."""

    number: int
    family: str
    op: str
    dtype: str
    shape: tuple[int, ...]
    axis: int | tuple[int, ...] | None
    layout: str
    steps: tuple[int, ...]
    offset: int
    span: int

    @property
    def name(self) -> str:
        how = "" if self.layout == "contiguous" else f" {self.layout} {self.steps}"
        return f"{self.op} {self.dtype} {self.shape} axis {self.axis}{how}"

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def results(self) -> tuple[tuple[tuple[int, ...], str], ...]:
        """Shape and type of each result."""
        if self.family == "reduce":
            axes = range(len(self.shape)) if self.axis is None else np.atleast_1d(self.axis) % len(self.shape)
            kept = tuple(extent for i, extent in enumerate(self.shape) if i not in axes)
            return ((kept, self._reduced_type()),)
        if self.family == "scan" or self.op == "difference":
            return ((self.shape, self.dtype),)
        if self.op == "bits":
            words = list(self.shape)
            words[self.axis] = -(-words[self.axis] // 32)
            return ((tuple(words), "uint32"),)
        return ((self.shape, "uint8"),) * (2 if self.op == "both" else 1)

    def _reduced_type(self) -> str:
        sums = "int64" if self.dtype[0] in "bi" and self.dtype != "bfloat16" else "uint64"
        sums = self.dtype if "float" in self.dtype else sums
        return {"sum": sums, "any": "bool", "argmax": "int64"}.get(self.op, self.dtype)

    @property
    def written(self) -> int:
        """Bytes of the results."""
        return sum(math.prod(shape) * SIZES[dtype] for shape, dtype in self.results)

    @property
    def rival_bytes(self) -> int:
        """Bytes that torch and CuPy move: of flags and differences, they leave out one result of each row."""
        left = self.written // self.shape[self.axis] if self.family == "flags" else 0
        return self.read + self.written - left

    @property
    def read(self) -> int:
        """Bytes of the different elements of the array."""
        return math.prod(n for n, step in zip(self.shape, self.steps) if step) * SIZES[self.dtype]

    @property
    def lines(self) -> int:
        """Bytes of the lines of memory that the array touches."""
        width = size = SIZES[self.dtype]
        blocks = 1
        for step, extent in sorted((abs(step) * size, n) for step, n in zip(self.steps, self.shape) if step and n > 1):
            if blocks == 1 and step <= max(width, LINE):
                width += step * (extent - 1)
            else:
                blocks *= extent
        whole = -(-width // LINE) * LINE
        return blocks * (width if blocks == 1 or width >= 8 * LINE else whole)

    @property
    def where(self) -> str:
        """Where the axis lies in a contiguous array."""
        axes = [i for i, n in enumerate(self.shape) if n > 1]
        taken = axes if self.axis is None else [int(i) % len(self.shape) for i in np.atleast_1d(self.axis)]
        taken = [i for i in taken if self.shape[i] > 1]
        if not taken or not axes or max(taken) == axes[-1]:
            return "last"
        return "first" if min(taken) == axes[0] else "middle"

    @property
    def kind(self) -> str:
        """The class of the case, size apart: contiguous and along which axis, or how strided."""
        if self.layout in ("contiguous", "off by one"):
            return f"contiguous, {self.where} axis"
        return "stepped" if self.lines > 2 * self.read + 4 * LINE else "strided with whole lines"


def draw(family: str, seed: int, count: int) -> list[Drawn]:
    """The first ``count`` cases of a seed."""
    return [_case(np.random.default_rng([seed, number]), family, number) for number in range(count)]


def _case(rng: np.random.Generator, family: str, number: int) -> Drawn:
    shape = _shape(rng)
    dtype, op = str(rng.choice(DTYPES)), str(rng.choice(OPS[family]))
    if dtype == "bool" and op in ("squares", "difference", "lambda"):
        op = OPS[family][0]
    axis: int | tuple[int, ...] | None = int(rng.integers(len(shape)))
    if family == "reduce" and len(shape) > 1 and rng.random() < SEVERAL:
        taken = rng.permutation(len(shape))[: rng.integers(2, len(shape) + 1)]
        axis = None if op == "argmax" or len(taken) == len(shape) else tuple(sorted(int(i) for i in taken))
    layout = str(rng.choice(LAYOUTS)) if rng.random() < STRIDED else "contiguous"
    steps, offset, span = _strides(rng, layout, shape)
    if span * SIZES[dtype] > 1 << MOST_MEMORY_LOG:
        layout, (steps, offset, span) = "contiguous", _strides(rng, "contiguous", shape)
    return Drawn(number, family, op, dtype, shape, axis, layout, steps, offset, span)


def _shape(rng: np.random.Generator) -> tuple[int, ...]:
    logs = rng.uniform(LEAST_LOG, MOST_LOG)
    cuts = np.sort(rng.uniform(0, logs, rng.integers(0, 4)))
    parts = np.diff([0, *cuts, logs])
    if rng.random() < ROUNDED:
        parts = np.round(parts)
    return tuple(max(1, round(2.0**part)) for part in parts)


def _strides(rng: np.random.Generator, layout: str, shape: tuple[int, ...]) -> tuple[tuple[int, ...], int, int]:
    """Strides, offset of the first element, and elements of the memory around the array."""
    wide, order, steps, offset = list(shape), list(range(len(shape))), [1] * len(shape), 0
    axis = int(rng.integers(len(shape)))
    first = [0] * len(shape)
    if layout == "transposed":
        order = [int(i) for i in rng.permutation(len(shape))]
    elif layout.startswith("sliced"):
        axis = len(shape) - 1 if layout == "sliced last" else int(rng.integers(max(1, len(shape) - 1)))
        more = int(rng.integers(1, shape[axis] // 2 + 9))
        wide[axis] += more
        first[axis] = int(rng.integers(more + 1))
    elif layout == "stepped":
        steps[axis] = int(rng.choice(STEPS))
        wide[axis] *= steps[axis]
    elif layout == "reversed":
        steps[axis], first[axis] = -1, shape[axis] - 1
    elif layout == "broadcast":
        steps[axis], wide[axis] = 0, 1
    elif layout == "off by one":
        offset = 1
    base, pace = [0] * len(shape), 1
    for i in reversed(order):
        base[i], pace = pace, pace * wide[i]
    offset += sum(at * step for at, step in zip(first, base))
    return tuple(a * b for a, b in zip(steps, base)), offset, pace + (layout == "off by one")
