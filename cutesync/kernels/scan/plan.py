"""From a checked scan to a launch: what is computed and the configuration become a kernel with its argument block."""

from __future__ import annotations

from dataclasses import dataclass

from ...dtypes import DType
from ...ops import Operator
from ...runtime import compiler, device_array, forks
from ...runtime.launch import Launch, bits
from .policy import Config, Problem, choose, tier


@dataclass(frozen=True)
class Meaning:
    """What is computed. ``start`` comes before the first element, or with ``start_in_memory`` what every launch gives the address of."""

    op: Operator
    source: DType
    accumulate: DType
    result: DType
    exclusive: bool
    reverse: bool
    start: int | float | None = None
    start_in_memory: bool = False

    @property
    def start_kind(self) -> str | None:
        return "memory" if self.start_in_memory else None if self.start is None else "value"

    @property
    def key(self) -> tuple:
        """What names the machine code in caches, the operator aside."""
        return (self.source.name, self.accumulate.name, self.result.name, self.exclusive, self.reverse, self.start_kind)

    def register(self) -> tuple[int, bool]:
        """Size in bytes, and whether floating, of the register that holds a value."""
        if self.accumulate.kind == "f":
            return max(self.accumulate.size, 4), True
        narrow = self.op.fn is not None and self.accumulate.kind != "b"
        return (self.accumulate.size if narrow else max(self.accumulate.size, 4)), False


def kernel_for(config: Config, meaning: Meaning, stream: int = 0) -> compiler.Kernel:
    """The compiled kernel of a configuration."""
    kind, *arguments = config.kernel
    op = meaning.op
    name = ("scan", *config.kernel, config.width, *meaning.key, op.key)

    def build() -> tuple:
        import cutlass.cute as cute
        from cutlass import Int32, Int64
        from cutlass.cute.runtime import make_ptr
        from cutlass.runtime import make_fake_stream

        from ...monoid import Monoid
        from .base import Scan
        from .columns import ColumnScan
        from .narrow import NarrowScan
        from .pipeline import PipelineScan
        from .rows import RowScan, ShortRowScan
        from .tiered import Tier
        from .wave import WaveScan

        kinds = {
            "short_rows": ShortRowScan,
            "rows": RowScan,
            "wave": WaveScan,
            "pipeline": PipelineScan,
            "columns": ColumnScan,
            "slabs": NarrowScan,
            "tier": Tier,
        }
        monoid = Monoid(op, meaning.source, meaning.accumulate, meaning.result)
        host = kinds[kind](
            Scan(monoid, meaning.exclusive, meaning.reverse, meaning.start_kind, config.width), *arguments
        )

        def pointer(element):
            return make_ptr(element, 0, cute.AddressSpace.gmem)

        result = meaning.result.cutlass
        pointers = [
            pointer(meaning.source.cutlass),
            pointer(result),
            pointer(result),
            monoid.types[0](0),
            pointer(Int64),
            pointer(Int32),
        ]
        return (
            host.__call__,
            [*pointers, *[Int64(0)] * 3, *[Int32(0)] * 2, make_fake_stream()],
            {"block": (host.threads, 1, 1), "smem": host.smem},
        )

    return compiler.get(name, build, stream=stream, warm="the same cutesync function")


def make_launch(meaning: Meaning, problem: Problem, ordinal: int, stream: int) -> Launch:
    """The prepared launch of a scan of at least one element."""
    config = choose(problem)
    kernel = kernel_for(config, meaning, stream)
    start = 0 if meaning.start is None else bits(meaning.start, *meaning.register())
    values = (0, 0, 0, start, 0, 0, problem.rows, problem.length, problem.inner, config.tiles)
    words = max(1, meaning.register()[0] // 4) * config.width
    return Launch(
        kernel, ordinal, config.grid, values, workspace=(5, 4) if config.slots else None, slots=config.slots * words
    )


TIER = (8, 4)  # warps and rows of vectors a tile: 16 KiB of 4-byte elements


class TieredScan:
    """All launches of a scan in tiers, see tiered.py."""

    def __init__(self, meaning: Meaning, problem: Problem, ordinal: int, stream: int) -> None:
        self.ordinal, self.width, self.lock = ordinal, meaning.accumulate, forks.lock()
        self.up, self.down, self.places = (
            [],
            [],
            [0],
        )  # launches by tier; where in the memory for totals each tier's begin, and the end
        start = 0 if meaning.start is None else bits(meaning.start, *meaning.register())
        tiles = 2
        while tiles > 1:
            config = tier(problem, False, *TIER)
            tiles, extents = config.tiles, (problem.rows, problem.length, 0, config.tiles)
            self.down.append(
                Launch(kernel_for(config, meaning, stream), ordinal, config.grid, (0, 0, 0, start, 0, 0, *extents))
            )
            if tiles > 1:
                fold = Meaning(meaning.op, meaning.source, self.width, self.width, False, meaning.reverse)
                self.up.append(
                    Launch(
                        kernel_for(tier(problem, True, *TIER), fold, stream),
                        ordinal,
                        config.grid,
                        (0, 0, 0, 0, 0, 0, *extents),
                    )
                )
                self.places.append(self.places[-1] + config.grid)
            meaning, start = Meaning(meaning.op, self.width, self.width, self.width, False, meaning.reverse), 0
            problem = Problem(problem.rows, tiles, 1, self.width.size, self.width.size, 0, 0)

    def run(self, x: int, out: int, stream: int, at: int = 0) -> None:
        """``at``: the address of a first operand in device memory."""
        totals = device_array.allocate((self.places[-1],), self.width, self.ordinal, stream)  # freed in stream order
        ends = [x, *(totals.ptr + self.width.size * place for place in self.places)]  # what each tier scans
        with self.lock:
            for number, launch in enumerate(self.up):
                launch.run(ends[number], ends[number + 1], stream)
            for number, launch in reversed(list(enumerate(self.down))):
                launch.parameters[4] = ends[number + 1]
                launch.run(ends[number], ends[number] if number else out, stream, 0 if number else at)
