"""Blocks of the arrays of all devices, which the others read in place: the host side of ``pull_kernel``."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..dtypes import BY_NAME, DType
from ..errors import ArgumentValueError, explain
from ..kernels.reduce.spec import Reduction
from ..runtime.kernel import KernelSpec, Pointer, Scalar
from ..runtime.launch import Run
from ..runtime.view import View, contiguous_strides
from .exchange import launch_each
from .memory import SymmetricMemory
from .recorder import launcher

if TYPE_CHECKING:
    from .group import Group
    from .work import Work

THREADS, UNROLL = 256, 4
MAX_BLOCKS = 2 * 132  # of a launch: two a multiprocessor of an H200
VECTOR_BYTES = 16
NUMBERS = 12  # of a block


class Part(NamedTuple):
    """A block of an array: its first indexes in the array and in the target, and its extents."""

    source: tuple[int, ...]
    target: tuple[int, ...]
    extents: tuple[int, ...]


class Geometry(NamedTuple):
    """The numbers of ``pull_kernel.Block``, in elements."""

    source: int
    target: int
    run: int
    rows: tuple[int, ...]
    source_steps: tuple[int, ...]
    target_steps: tuple[int, ...]

    @property
    def numbers(self) -> tuple[int, ...]:
        return self.source, self.target, self.run, *self.rows, *self.source_steps, *self.target_steps

    def counted_in(self, size: int, unit: int) -> Geometry:
        """Return the same in units of ``unit`` bytes, for elements of ``size``."""
        source, target, run = (n * size // unit for n in (self.source, self.target, self.run))
        steps = [tuple(step * size // unit for step in steps) for steps in (self.source_steps, self.target_steps)]
        return Geometry(source, target, run, self.rows, *steps)

    @property
    def total(self) -> int:
        return self.run * math.prod(self.rows)


NOTHING = Geometry(0, 0, 1, (0, 1, 1), (0, 0, 0), (0, 0, 0))


def geometry(part: Part, view: View, target: tuple[int, ...]) -> Geometry:
    """Return where a block of an array lies in it, and in a contiguous array of shape ``target``. Raise if its axes
    are not four at most, where those count as one that follow each other in memory."""
    if 0 in part.extents:
        return NOTHING
    steps = view.steps, contiguous_strides(target)
    source, to = (sum(i * step for i, step in zip(*pair)) for pair in zip(part, steps))
    axes: list[tuple[int, int, int]] = []
    for extent, step, step_to in zip(part.extents, *steps):
        if extent == 1:
            continue
        if axes and axes[-1][1:] == (step * extent, step_to * extent):
            axes[-1] = (axes[-1][0] * extent, step, step_to)
        else:
            axes.append((extent, step, step_to))
    if not axes or axes[-1][1:] != (1, 1):
        axes.append((1, 1, 1))
    if len(axes) > 4:
        came = f"a part of shape {view.shape} and strides {view.steps}"
        raise ArgumentValueError(explain("x", came, "a contiguous one", "copy it first"))
    *rows, (run, _, _) = [(1, 0, 0)] * (4 - len(axes)) + axes
    extents, *strides = zip(*rows)
    return Geometry(source, to, run, extents, *strides)


class Pull:
    """The launches of a call: device ``q`` gets a block ``blocks[q][r]`` of the array of each rank ``r``. ``pointers``
    are addresses of the arrays whose alignment those of all calls have. With ``reduction``, elements at one place are
    combined, and blocks of one device are all alike; results then have its result's type."""

    def __init__(
        self,
        group: Group,
        dtype: DType,
        blocks: Sequence[Sequence[Geometry]],
        pointers: Sequence[int],
        reduction: Reduction | None = None,
    ) -> None:
        self.group, self.reduction = group, reduction
        of_each = [_of_device(dtype, of_rank, pointers, reduction) for of_rank in blocks]
        self.units = [unit for unit, _ in of_each]
        self.blocks = [counted for _, counted in of_each]
        key = (dtype.name, blocks, "" if reduction is None else reduction.key)
        self.signature = zlib.crc32(repr(key).encode()) & 0x7FFFFFFF
        # Devices begin with their own array, then read that of the next rank: not all that of one. Combined in order.
        size = group.size
        self.orders = [[(q + r) % size if reduction is None else r for r in range(size)] for q in range(size)]
        self._launches: dict[SymmetricMemory, tuple[Run, ...]] = {}

    def launch_all(self, sources: Sequence[int], targets: Sequence[int], work: Work) -> None:
        """Launch on all devices. ``sources`` are the addresses of the arrays, ``targets`` those of the results."""
        runs = self._launches.get(work.memory)
        if runs is None:  # all are made, and their kernels loaded, before one runs
            runs = tuple(self._launch(work.memory, rank) for rank in range(self.group.size))
            self._launches[work.memory] = runs
        addresses = [(*(sources[r] for r in order), target) for order, target in zip(self.orders, targets)]
        launch_each(runs, addresses, work)

    def _launch(self, memory: SymmetricMemory, rank: int) -> Run:
        blocks, unit, order = self.blocks[rank], self.units[rank], self.orders[rank]
        units = max(block.total for block in blocks)
        reach = max(map(max, (block.numbers for block in blocks)))
        spec = kernel_spec(self.group.size, unit, max(units, reach) >= 1 << 30, self.reduction)
        numbers = [number for r in order for number in blocks[r].numbers]
        values = {f"block{i}": number for i, number in enumerate(numbers)}
        values |= {f"peer{r}": base for r, base in enumerate(memory.bases)}
        values |= {"rank": rank, "capacity": memory.capacity, "signature": self.signature}
        names = (*(f"x{r}" for r in range(self.group.size)), "out")
        grid = min(max(-(-units // (THREADS * UNROLL)), 1), MAX_BLOCKS)
        return launcher(spec, self.group.ordinals[rank], grid, values, names)


def _of_device(
    dtype: DType, blocks: Sequence[Geometry], pointers: Sequence[int], reduction: Reduction | None
) -> tuple[int, list[Geometry]]:
    """Return the unit of the blocks that a device reads, and the blocks counted in units. A unit has as many bytes, up
    to 16, as divide all addresses, runs and distances; of a combination, it has elements, whose results have as many
    bytes as divide those of the target."""
    taken = [block for block in blocks if block.total]
    if not taken:
        return 1, list(blocks)
    starts = [*pointers, *(number for b in taken for number in _lengths(b, dtype.size))]
    if reduction is None:
        unit = math.gcd(VECTOR_BYTES, *starts)
        return unit, [block.counted_in(dtype.size, unit) if block.total else block for block in blocks]
    widest = max(dtype.size, reduction.result.size)
    elements = max(VECTOR_BYTES // widest, 1)
    counts = [number for b in taken for number in _lengths(b, 1)]
    aligned = math.gcd(*pointers, dtype.size * elements) // dtype.size
    elements = math.gcd(elements, max(aligned, 1), *counts)
    return elements, [block.counted_in(1, elements) if block.total else block for block in blocks]


def _lengths(block: Geometry, size: int) -> list[int]:
    """Return all distances of a block that its units must divide."""
    return [n * size for n in (block.source, block.target, block.run, *block.source_steps, *block.target_steps)]


def kernel_spec(ranks: int, unit: int, wide: bool, reduction: Reduction | None) -> KernelSpec:
    """Return the kernel that copies, or combines by ``reduction``."""
    source = BY_NAME["uint8"] if reduction is None else reduction.source
    result = BY_NAME["uint8"] if reduction is None else reduction.result
    arrays = [Pointer(f"x{r}", source) for r in range(ranks)]
    out = Pointer("out", result)
    blocks = [Scalar(f"block{i}", "Int64") for i in range(NUMBERS * ranks)]
    peers = [Scalar(f"peer{r}", "Int64") for r in range(ranks)]
    call = [Scalar(name, "Int32") for name in ("rank", "count", "capacity", "take", "own", "signature")]

    def make() -> Any:
        from .pull_kernel import CombineKernel, CopyKernel

        if reduction is None:
            return CopyKernel(ranks, wide, unit)
        return CombineKernel(ranks, wide, unit, reduction.monoid())

    key = ("pull", ranks, unit, wide, *(() if reduction is None else reduction.key))
    return KernelSpec(key, (arrays, out, blocks, peers, call), make)
