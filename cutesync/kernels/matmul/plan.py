"""From a checked problem to a launch: operands become tensor maps, terms become a kernel, extents become its
parameters."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from ...dtypes import BY_NAME, FLOAT32, INT32, DType
from ...runtime import compiler, device, device_array
from ...runtime.device_array import DeviceArray
from ...runtime.launch import Launch, MapLaunch, bits
from ...runtime.tensor_map import TiledMap
from . import policy
from .model import Access, Workload, raster, row_cost, shortlist
from .parameters import NAMES, Operands, Order, Split
from .policy import K_TILE_BYTES, MatmulPolicy
from .terms import TermsSpec

TMA_BYTES = 16  # bases and strides of what TMA reads or writes are multiples of this


@dataclass(frozen=True)
class Operand:
    """A batch of matrices seen as (rows, K): ``k_major`` says which of the two is contiguous, ``step`` is the stride of
    the other and ``batch`` that of the items, in elements; ``items`` is 1 for an operand that all results share.
    ``rows`` that exist, if not all: the rest are zero."""

    k_major: bool
    step: int
    items: int
    batch: int
    rows: int = 0


@dataclass(frozen=True)
class Problem:
    """D (M, N) = A (M, K) B (N, K)^T for each of ``items``. ``c`` and ``d`` are the strides (row, column, item) of C
    and D in elements."""

    m: int
    n: int
    k: int
    items: int
    a: Operand
    b: Operand
    c: tuple[int, int, int]
    d: tuple[int, int, int]
    elements: tuple[DType, DType]
    out: DType
    terms: TermsSpec
    promoted: bool = False
    split: bool = True

    @property
    def k_elements(self) -> int:
        """Elements of K in a k-tile."""
        return K_TILE_BYTES // self.elements[0].size

    def shortlist(self, count: int = 1) -> tuple[MatmulPolicy, ...]:
        """What the model chooses, best first."""
        size = self.elements[0].size
        access = Access(self.b.k_major, row_cost(self.a.step * size), row_cost(self.b.step * size))
        k_tiles = -(-self.k // self.k_elements)
        return shortlist(
            Workload(self.m, self.n, k_tiles, self.items, self.out.size, self.promoted, self.split, access), count
        )

    @property
    def key(self) -> tuple:
        """What its speed depends on."""
        types = (*(element.name for element in self.elements), self.out.name)
        return (
            self.m,
            self.n,
            self.k,
            self.items,
            repr(self.a),
            repr(self.b),
            self.c,
            self.d,
            *types,
            *self.terms.key,
            self.promoted,
            self.split,
        )


def kernel_for(
    config: MatmulPolicy,
    elements: tuple[DType, DType],
    out: DType,
    majors: tuple[bool, bool],
    terms: TermsSpec,
    stream: int = 0,
) -> compiler.Kernel:
    """The compiled kernel; one serves all shapes of its layout class. ``config`` is ``decided``."""
    key = ("matmul", *config.kernel, *(element.name for element in elements), out.name, *majors, *terms.key)

    def build() -> tuple:
        from cutlass.runtime import make_fake_stream

        from .kernel import Matmul

        host = Matmul(config, tuple(element.cutlass for element in elements), out.cutlass, majors, terms)
        arguments = [*_examples(elements, out, terms), make_fake_stream()]
        facts = {"block": (host.threads, 1, 1), "smem": host.smem, "cluster": (config.cluster_size, 1, 1)}
        return host.__call__, arguments, facts

    return compiler.get(key, build, stream=stream, warm="cutesync.matmul")


def _examples(elements: tuple[DType, DType], out: DType, terms: TermsSpec) -> list:
    """Arguments of the kernel's host function, but the stream, as the DSL is shown them."""
    import cutlass.cute as cute
    from cutlass import Float32, Int32, Int64
    from cutlass.cute.runtime import make_ptr

    def pointer(dtype: DType | None, align: int | None = None):
        kind = (dtype or out).cutlass
        return make_ptr(kind, 0, cute.AddressSpace.gmem, assumed_align=align or kind.width // 8)

    stored = BY_NAME["uint8"] if out.size == 1 else out  # as the epilogue moves them
    accumulator = INT32 if elements[0].kind in "iu" else FLOAT32
    word, long = Int32(0), Int64(0)
    scale, strides = pointer(FLOAT32), (long,) * 3
    return [
        *(pointer(element, TMA_BYTES) for element in (*elements, stored)),
        (word,) * 4,
        ((long, long),) * 3,
        Order(*(word,) * 4),
        Split(word, word, pointer(accumulator, TMA_BYTES), pointer(INT32)),
        Operands(
            *(Float32(0),) * 2,
            pointer(terms.c),
            *strides,
            pointer(terms.bias_type),
            pointer(stored),
            *strides,
            scale,
            scale,
        ),
        word,
    ]


def make_launch(
    problem: Problem, config: MatmulPolicy | None, alpha: float, beta: float, ordinal: int, stream: int
) -> MapLaunch:
    """The prepared launch. Its ``run`` takes the addresses of A, B, D, C, the bias and the two scales (0 where there is
    none) and the stream."""
    config = decided(problem, config, ordinal)
    majors = problem.a.k_major, problem.b.k_major
    kernel = kernel_for(config, problem.elements, problem.out, majors, problem.terms, stream)
    along_n, group = raster(config, problem.m, problem.n)
    k_tiles = -(-problem.k // problem.k_elements)
    of_slice = -(-k_tiles // config.splits)
    splits = -(-k_tiles // of_slice)
    tiles = math.prod(config.tiles(problem.m, problem.n)) * problem.items
    clusters = tiles if config.cluster_split else min(tiles * splits, config.slots(multiprocessors(ordinal)))
    numbers = Order(int(along_n), group, int(problem.a.items > 1), int(problem.b.items > 1))._asdict()
    numbers |= {"splits": splits, "k_tiles": of_slice, "alpha": bits(alpha, 4, True), "beta": bits(beta, 4, True)}
    for name, strides in (("c", problem.c), ("d", problem.d)):
        numbers |= zip((f"{name}_row", f"{name}_column", f"{name}_batch"), strides)
    values = _maps(problem, config) | numbers
    arrays = ("a", "b", "d" if problem.terms.by_tma else "d_pointer", "c", "bias", "scale_a", "scale_b")
    workspace = None
    if config.splits > 1 and not config.cluster_split:
        parts = config.turnstile_parts(problem.m, problem.n, problem.items)
        sizes = 4 * parts, 4 * config.accumulators * policy.WARPGROUP * parts * splits
        workspace = NAMES.index("counters"), NAMES.index("scratch"), *sizes
    parameters, positions = [values.get(name, 0) for name in NAMES], [NAMES.index(name) for name in arrays]
    return MapLaunch(kernel, ordinal, clusters * config.cluster_size, parameters, positions, workspace)


def decided(problem: Problem, config: MatmulPolicy | None, ordinal: int) -> MatmulPolicy:
    """The configuration, or the model's if there is none, with everything decided that follows from the problem and the
    GPU."""
    config = config or problem.shortlist()[0]
    several = math.prod(config.tiles(problem.m, problem.n)) * problem.items > config.slots(multiprocessors(ordinal))
    return config.decided(problem.out.size, several)


def _maps(problem: Problem, config: MatmulPolicy) -> dict[str, Any]:
    """The parameters that are tensor maps, with the extents that the DSL passes beside each."""
    m, n, k = problem.m, problem.n, problem.k
    (tile_m, tile_n), (peers_m, peers_n) = config.tile, config.cluster
    return {
        "a": operand_map(problem, problem.elements[0], problem.a, m, tile_m, peers_n),
        "a_extents": struct.pack("<3i", m, k, problem.a.items),
        "b": operand_map(problem, problem.elements[1], problem.b, n, tile_n, peers_m),
        "b_extents": struct.pack("<3i", n, k, problem.b.items),
        "d": result_map(problem, config) if problem.terms.by_tma else bytes(128),
        "d_extents": struct.pack("<3i", m, n, problem.items),
    }


def operand_map(problem: Problem, element: DType, operand: Operand, rows: int, tile_rows: int, peers: int) -> TiledMap:
    """The map that loads a block's part of a stage: (tile_rows, k-tile) cut among ``peers`` along the way that is not
    contiguous.

    A box is as wide as its swizzle, the widest that divides the tile. The layout of a stage (CuTe's K_SW* or MN_SW*) is
    made of such boxes.
    """
    k = problem.k_elements
    inner, outer = (k, tile_rows) if operand.k_major else (tile_rows, k)
    swizzle = math.gcd(inner * element.size, 128)
    rows = operand.rows or rows
    extents = (problem.k, rows, operand.items) if operand.k_major else (rows, problem.k, operand.items)
    box = (swizzle // element.size, outer // peers, 1)
    return TiledMap(element.name, extents, (operand.step * element.size, operand.batch * element.size), box, swizzle)


def result_map(problem: Problem, config: MatmulPolicy) -> TiledMap:
    """The map that stores a sub-tile of the epilogue."""
    out, columns = problem.out, config.sub_tile_columns(problem.out.size)
    strides = (problem.d[0] * out.size, problem.d[2] * out.size)
    swizzle = columns * out.size if columns * out.size > 16 else 0
    return TiledMap(out.name, (problem.n, problem.m, problem.items), strides, (columns, 64, 1), swizzle)


def multiprocessors(ordinal: int) -> int:
    return policy.SMS if ordinal == device.HOST else device.attribute(ordinal, "MULTIPROCESSOR_COUNT")


def make_pack(job, element: DType, ordinal: int, stream: int) -> Launch:
    """The launch that packs an operand (see ``problem.PackJob``)."""
    span, kernel = job.span * element.size, pack_kernel(element, job.form, job.side, stream)
    if job.form == "rows":
        lines, across = job.items * job.rows, -(-span // policy.PACK_RUN)
        inner, *steps = (element.size * length for length in (job.inner, *job.strides[:2], *job.edges))
        blocks = -(-lines * across * 32 // kernel.block[0])
        return Launch(kernel, ordinal, blocks, (0, 0, lines, job.rows, inner, *steps, span, across))
    words = span // 4
    across, down = -(-words // policy.PACK_WORDS), -(-job.rows // policy.PACK_ROWS)
    values = (0, 0, job.rows, job.inner, *job.strides, words, across, down)
    return Launch(kernel, ordinal, job.items * across * down, values)


def pack_kernel(element: DType, form: str, side: str, stream: int) -> compiler.Kernel:
    """The kernel for elements of this size, which are moved as bits."""
    moved = BY_NAME[f"uint{8 * element.size}"]

    def build() -> tuple:
        import cutlass.cute as cute
        from cutlass import Int32, Int64, Uint32
        from cutlass.cute.runtime import make_ptr
        from cutlass.runtime import make_fake_stream

        from .pack import Pack
        from .pack_rows import PackRows

        space, long, count = cute.AddressSpace.gmem, Int64(0), Uint32(0)
        pointers = [make_ptr(moved.cutlass, 0, space, assumed_align=align) for align in (element.size, TMA_BYTES)]
        host: Any = PackRows(moved.cutlass, side) if form == "rows" else Pack(moved.cutlass, form == "transposed", side)
        numbers: tuple = (long, long, (long,) * 3, long, count, count)
        if form == "rows":
            numbers = (count, count, long, (long,) * 2, (long,) * 2, long, count)
        facts = {"block": (host.threads, 1, 1), "smem": host.smem}
        return host.__call__, [*pointers, *numbers, Int32(0), make_fake_stream()], facts

    return compiler.get(("matmul pack", element.size, form, side), build, stream=stream, warm="cutesync.matmul")


def without_k(problem: Problem, ordinal: int) -> tuple[Problem, DeviceArray]:
    """A product over no elements, computed as one over a single zero: both operands become one zero, which TMA pads
    with zeros. Also returns the array of that zero."""
    unit = TMA_BYTES // problem.elements[0].size
    one = Operand(True, unit, 1, unit, rows=1)
    return replace(problem, k=1, a=one, b=one), _zeros(ordinal)


@cache
def _zeros(ordinal: int) -> DeviceArray:
    return device_array.from_numpy(np.zeros(TMA_BYTES, np.uint8), BY_NAME["uint8"], ordinal)
