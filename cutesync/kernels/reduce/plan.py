"""From a checked reduction to launches: shapes become (outer, length, inner) stages, stages become kernels with argument blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...dtypes import BOOL, DType
from ...identity import identify
from ...ops import Operator
from ...runtime import compiler
from ...runtime.launch import Launch, bits
from .policy import Config, Problem, choose


@dataclass(frozen=True)
class Folding:
    """What is computed: an operator (or "argmin" / "argmax"), the element types, and the map fused into the load."""

    op: Operator | str
    source: DType
    accumulate: DType
    result: DType
    transform: Callable | None = None

    @property
    def is_arg(self) -> bool:
        return isinstance(self.op, str)

    @property
    def key(self) -> tuple:
        """What names the machine code in caches."""
        op = self.op if self.is_arg else self.op.key
        transform = "" if self.transform is None else identify(self.transform).key
        return (op, transform, self.source.name, self.accumulate.name, self.result.name)

    def monoid(self):
        """The device code (imports the DSL)."""
        from ...monoid import ArgMonoid, Monoid

        if self.is_arg:
            return ArgMonoid(self.op == "argmax", self.source, self.result)
        return Monoid(self.op, self.source, self.accumulate, self.result, self.transform)

    @property
    def value(self) -> DType:
        """The type of a state's value, and of ``init``: any and all fold truth values."""
        return (
            self.source
            if self.is_arg
            else BOOL
            if self.op.name in ("any", "all") and self.op.fn is None
            else self.accumulate
        )

    def register(self) -> tuple[int, bool]:
        """Size in bytes, and whether floating, of the register that holds a value."""
        value = self.value
        if value.kind == "f":
            return max(value.size, 4), True
        narrow = not self.is_arg and self.op.fn is not None and value.kind != "b"
        return (value.size if narrow else max(value.size, 4)), False

    @property
    def slot_words(self) -> int:
        """32-bit words of a state."""
        return max(1, self.register()[0] // 4) + (2 if self.is_arg else 0)

    def first_of_two(self) -> Folding:
        """The folding whose results are states of this one: what an earlier stage computes."""
        return Folding(self.op, self.source, self.accumulate, self.between, self.transform)

    def second_of_two(self) -> Folding:
        """The folding of those states into the result."""
        return Folding(self.op, self.between, self.accumulate, self.result)

    @property
    def between(self) -> DType:
        return BOOL if self.op.name in ("any", "all") and self.op.fn is None else self.accumulate


def collapse(shape: tuple[int, ...], axes: frozenset[int]) -> list[tuple[int, bool]]:
    """``[(extent, reduced), ...]`` of a C-contiguous shape, neighbours of one kind merged and extents of 1 dropped."""
    merged: list[tuple[int, bool]] = []
    for axis, extent in enumerate(shape):
        if extent == 1:
            continue
        reduced = axis in axes
        if merged and merged[-1][1] == reduced:
            merged[-1] = (merged[-1][0] * extent, reduced)
        else:
            merged.append((extent, reduced))
    return merged


def stages(shape: tuple[int, ...], axes: frozenset[int]) -> list[tuple[int, int, int]]:
    """The (outer, length, inner) of each pass: the last group of reduced axes first, so that C order is kept."""
    groups = collapse(shape, axes)
    found = []
    while any(reduced for _, reduced in groups):
        last = max(i for i, (_, reduced) in enumerate(groups) if reduced)
        outer = inner = 1
        for extent, _ in groups[:last]:
            outer *= extent
        for extent, _ in groups[last + 1 :]:
            inner *= extent
        found.append((outer, groups[last][0], inner))
        groups = groups[:last] + groups[last + 1 :]
    if not found:
        size = 1
        for extent, _ in groups:
            size *= extent
        found.append((size, 1, 1))
    return found


def kernel_for(config: Config, folding: Folding, has_init: bool, stream: int = 0) -> compiler.Kernel:
    """The compiled kernel of a configuration."""
    kind, *arguments = config.kernel
    name = ("reduce", *config.kernel, has_init, *folding.key)

    def build() -> tuple:
        import cutlass.cute as cute
        from cutlass import Int32, Int64
        from cutlass.cute.runtime import make_ptr
        from cutlass.runtime import make_fake_stream

        from .columns import ColumnReduce
        from .fill import FillReduce
        from .narrow import NarrowColumnReduce
        from .rows import ShortRowReduce, WholeRowReduce
        from .segments import SegmentReduce

        monoid = folding.monoid()
        if kind == "fill":
            host = FillReduce(monoid)
        else:
            kinds = {
                "segments": SegmentReduce,
                "rows": ShortRowReduce,
                "whole_rows": WholeRowReduce,
                "columns": ColumnReduce,
                "narrow": NarrowColumnReduce,
            }
            host = kinds[kind](monoid, has_init, *arguments)
        space = cute.AddressSpace.gmem
        pointers = [make_ptr(folding.source.cutlass, 0, space), make_ptr(folding.result.cutlass, 0, space)]
        extents = [Int64(0)] * 3 + [Int32(0)] * 3
        arguments_ = [
            *pointers,
            monoid.types[0](0),
            make_ptr(Int64, 0, space),
            make_ptr(Int32, 0, space),
            *extents,
            make_fake_stream(),
        ]
        return host.__call__, arguments_, {"block": (host.threads, 1, 1), "smem": host.smem}

    return compiler.get(name, build, stream=stream, warm="the same cutesync function")


def _launch(
    config: Config,
    folding: Folding,
    extents: tuple[int, int, int],
    init,
    ordinal: int,
    stream: int,
    splits: int | None = None,
) -> Launch:
    """The prepared launch; ``splits`` overrides the configuration's where blocks share a row without the workspace."""
    kernel = kernel_for(config, folding, init is not None, stream)
    first = 0 if init is None else bits(init, *folding.register())
    values = (0, 0, first, 0, 0, *extents, splits or config.splits, config.tiles)
    return Launch(kernel, ordinal, config.grid, values, workspace=(4, 3) if config.splits > 1 else None)


def make_stages(
    folding: Folding, shape, axes, init, aligned: bool, aligned_out: bool, ordinal: int, stream: int
) -> list[tuple[Launch, int, DType]]:
    """Every launch of a reduction with the element count and type of what it writes."""
    plans = stages(shape, axes)
    made = []
    for i, (outer, length, inner) in enumerate(plans):
        last = i == len(plans) - 1
        current = folding if len(plans) == 1 else folding.first_of_two() if i == 0 else folding.second_of_two()
        if 0 < i < len(plans) - 1:
            current = Folding(folding.op, folding.between, folding.accumulate, folding.between)
        words = current.slot_words
        config = choose(
            Problem(outer, length, inner, current.source.size, words, aligned or i > 0, aligned_out or not last)
        )
        made.append(
            (
                _launch(config, current, (outer, length, inner), init if last else None, ordinal, stream),
                outer * inner,
                current.result,
            )
        )
    return made


def make_fill(folding: Folding, count: int, value, ordinal: int, stream: int) -> Launch:
    """The launch that stores ``value`` in ``count`` results."""
    config = Config(("fill",), 1, 1, -(-count // 256))
    return _launch(config, folding, (count, 0, 1), value, ordinal, stream)


LEVEL = 1 << 15  # elements that a block folds in one level of "multi_launch"


def make_levels(folding: Folding, count: int, init, ordinal: int, stream: int) -> list[tuple[Launch, int, DType]]:
    """The rung "multi_launch": every launch folds ``LEVEL`` elements a block, until one is left."""
    made = []
    while not made or count > 1:
        blocks = -(-count // LEVEL)
        last = blocks == 1
        current = (
            (folding if last else folding.first_of_two())
            if not made
            else (
                folding.second_of_two()
                if last
                else Folding(folding.op, folding.between, folding.accumulate, folding.between)
            )
        )
        config = Config(("segments", "level", 16, 4, 2), 1, 1, blocks)
        made.append(
            (
                _launch(config, current, (blocks, LEVEL, count), init if last else None, ordinal, stream),
                blocks,
                current.result,
            )
        )
        count = blocks
    return made


class AtomicLaunches:
    """The rung "atomic": one launch stores ``start`` in the result, the next folds every block's state into it."""

    def __init__(self, folding: Folding, count: int, start, ordinal: int, stream: int) -> None:
        blocks = max(1, min(512, count // 4096))
        self._fill = make_fill(folding, 1, start, ordinal, stream)
        config = Config(("segments", "atomic", 16, 4, 2), 1, 1, blocks)
        self._fold = _launch(config, folding, (1, count, 1), None, ordinal, stream, splits=blocks)

    def run(self, x: int, out: int, stream: int) -> None:
        self._fill.run(x, out, stream)
        self._fold.run(x, out, stream)


def atomic_takes(folding: Folding) -> bool:
    """Whether the GPU has an atomic for this operator and type."""
    name, result = folding.op.name, folding.result
    if folding.op.fn is not None or result is not folding.accumulate or result.size < 4:
        return False
    return name == "add" if result.kind == "f" else name in ("add", "min", "max", "and", "or", "xor")
