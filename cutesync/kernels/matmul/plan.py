"""From a checked problem to a launch: operands become tensor maps, terms become a kernel, extents become its parameters."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from ...dtypes import BY_NAME, FLOAT32, INT32, DType
from ...runtime import compiler, device, device_array
from ...runtime.device_array import DeviceArray
from ...runtime.launch import Launch, MapLaunch, bits
from ...runtime.tensor_map import TiledMap
from . import policy as configs
from .policy import K_TILE_BYTES, MatmulPolicy
from .terms import TermsSpec

TMA_BYTES = 16  # bases and strides of what TMA reads or writes are multiples of this


@dataclass(frozen=True)
class Operand:
    """A batch of matrices seen as (rows, K): ``k_major`` says which of the two is contiguous, ``step`` is the stride of the other and
    ``batch`` that of the items, in elements; ``items`` is 1 for an operand that all results share. ``rows`` that exist, if not all: the
    rest are zero."""

    k_major: bool
    step: int
    items: int
    batch: int
    rows: int = 0


@dataclass(frozen=True)
class Problem:
    """D (M, N) = A (M, K) B (N, K)^T for each of ``items``. ``c`` and ``d`` are the strides (row, column, item) of C and D in elements."""

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
        access = configs.Access(
            self.b.k_major, *(configs.row_cost(operand.step * self.elements[0].size) for operand in (self.a, self.b))
        )
        return configs.shortlist(
            self.m,
            self.n,
            -(-self.k // self.k_elements),
            self.items,
            self.out.size,
            self.promoted,
            self.split,
            access,
            count=count,
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
        import cutlass.cute as cute
        from cutlass import Float32, Int32, Int64
        from cutlass.cute.runtime import make_ptr
        from cutlass.runtime import make_fake_stream

        from .epilogue import Operands
        from .kernel import Matmul

        host = Matmul(config, tuple(element.cutlass for element in elements), out.cutlass, majors, terms.terms())

        def pointer(dtype: DType | None, align: int | None = TMA_BYTES):
            kind = (dtype or out).cutlass
            return make_ptr(kind, 0, cute.AddressSpace.gmem, assumed_align=align or kind.width // 8)

        stored = BY_NAME["uint8"] if out.size == 1 else out  # as the epilogue moves them
        word, long = Int32(0), Int64(0)
        strides = (long,) * 3
        operands = Operands(
            Float32(0),
            Float32(0),
            pointer(terms.c, None),
            *strides,
            pointer(terms.bias_type, None),
            pointer(stored, None),
            *strides,
            pointer(FLOAT32, None),
            pointer(FLOAT32, None),
        )
        accumulator = INT32 if elements[0].kind in "iu" else FLOAT32
        split = (word, word, pointer(accumulator), pointer(INT32, 4))
        arguments = [
            pointer(elements[0]),
            pointer(elements[1]),
            pointer(stored),
            (word,) * 4,
            ((long, long),) * 3,
            (word,) * 4,
            split,
            operands,
            word,
            make_fake_stream(),
        ]
        return (
            host.__call__,
            arguments,
            {"block": (host.threads, 1, 1), "smem": host.smem, "cluster": (config.cluster_size, 1, 1)},
        )

    return compiler.get(key, build, stream=stream, warm="cutesync.matmul")


def make_launch(
    problem: Problem, config: MatmulPolicy | None, alpha: float, beta: float, ordinal: int, stream: int
) -> MapLaunch:
    """The prepared launch. Its ``run`` takes the addresses of A, B, D, C, the bias and the two scales (0 where there is none) and the stream."""
    config = decided(problem, config, ordinal)
    kernel = kernel_for(
        config, problem.elements, problem.out, (problem.a.k_major, problem.b.k_major), problem.terms, stream
    )
    m, n, k, items = problem.m, problem.n, problem.k, problem.items
    (tile_m, tile_n), (peers_m, peers_n) = config.tile, config.cluster
    along_n, group = configs.raster(config, m, n)
    k_tiles = -(-k // problem.k_elements)
    share = -(-k_tiles // config.splits)
    splits = -(-k_tiles // share)
    tiles = math.prod(config.tiles(m, n)) * items
    clusters = tiles if config.meets else min(tiles * splits, config.slots(multiprocessors(ordinal)))
    d_map = result_map(problem, config) if problem.terms.by_tma else bytes(128)
    parameters = [
        operand_map(problem, problem.elements[0], problem.a, m, tile_m, peers_n),
        struct.pack("<3i", m, k, problem.a.items),
        operand_map(problem, problem.elements[1], problem.b, n, tile_n, peers_m),
        struct.pack("<3i", n, k, problem.b.items),
        d_map,
        struct.pack("<3i", m, n, items),
        int(along_n),
        group,
        int(problem.a.items > 1),
        int(problem.b.items > 1),
        splits,
        share,
        0,
        0,
        bits(alpha, 4, True),
        bits(beta, 4, True),
        0,
        *problem.c,
        0,
        0,
        *problem.d,
        0,
        0,
    ]
    arrays = (0, 2, 4 if problem.terms.by_tma else 21, 16, 20, 25, 26)
    return MapLaunch(
        kernel, ordinal, clusters * config.cluster_size, parameters, arrays, _workspace(problem, config, splits)
    )


def decided(problem: Problem, config: MatmulPolicy | None, ordinal: int) -> MatmulPolicy:
    """The configuration, or the model's if there is none, with everything decided that follows from the problem and the GPU."""
    config = config or problem.shortlist()[0]
    several = math.prod(config.tiles(problem.m, problem.n)) * problem.items > config.slots(multiprocessors(ordinal))
    return config.decided(problem.out.size, several)


def _workspace(problem: Problem, config: MatmulPolicy, splits: int) -> tuple[int, int, int, int] | None:
    """The positions of split-K's counters and shares among the parameters, and the bytes of each."""
    if config.splits == 1 or config.meets:
        return None
    parts = config.parts(problem.m, problem.n, problem.items)
    return 13, 12, 4 * parts, 4 * config.accumulators * configs.WARPGROUP * parts * splits


def operand_map(problem: Problem, element: DType, operand: Operand, rows: int, tile_rows: int, peers: int) -> TiledMap:
    """The map that loads a block's share of a stage: (tile_rows, k-tile) cut among ``peers`` along the way that is not contiguous.

    A box is as wide as its swizzle, the widest that divides the tile. The layout of a stage (CuTe's K_SW* or MN_SW*) is made of such boxes.
    """
    k = problem.k_elements
    inner, outer = (k, tile_rows) if operand.k_major else (tile_rows, k)
    swizzle = math.gcd(inner * element.size, 128)
    rows = operand.rows or rows
    extents = (problem.k, rows, operand.items) if operand.k_major else (rows, problem.k, operand.items)
    box = (swizzle // element.size, outer // peers, 1)
    return TiledMap(element.name, extents, (operand.step * element.size, operand.batch * element.size), box, swizzle)


def result_map(problem: Problem, config: MatmulPolicy) -> TiledMap:
    """The map that stores a slab of the epilogue."""
    out, columns = problem.out, config.slab_columns(problem.out.size)
    strides = (problem.d[0] * out.size, problem.d[2] * out.size)
    swizzle = columns * out.size if columns * out.size > 16 else 0
    return TiledMap(out.name, (problem.n, problem.m, problem.items), strides, (columns, 64, 1), swizzle)


def multiprocessors(ordinal: int) -> int:
    return configs.SMS if ordinal == device.HOST else device.attribute(ordinal, "MULTIPROCESSOR_COUNT")


def make_pack(job, element: DType, ordinal: int, stream: int) -> Launch:
    """The launch that packs an operand (see ``problem.PackJob``)."""
    span, kernel = job.span * element.size, pack_kernel(element, job.form, job.parts, stream)
    if job.form == "rows":
        lines, across = job.items * job.rows, -(-span // configs.PACK_RUN)
        inner, *steps = (element.size * length for length in (job.inner, *job.strides[:2], *job.edges))
        return Launch(
            kernel,
            ordinal,
            -(-lines * across * 32 // kernel.block[0]),
            (0, 0, lines, job.rows, inner, *steps, span, across),
        )
    words = span // 4
    across, down = -(-words // configs.PACK_WORDS), -(-job.rows // configs.PACK_ROWS)
    return Launch(
        kernel, ordinal, job.items * across * down, (0, 0, job.rows, job.inner, *job.strides, words, across, down)
    )


def pack_kernel(element: DType, form: str, parts: str, stream: int) -> compiler.Kernel:
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
        if form == "rows":
            host = PackRows(moved.cutlass, parts)
            arguments = [
                *pointers,
                count,
                count,
                long,
                (long,) * 2,
                (long,) * 2,
                long,
                count,
                Int32(0),
                make_fake_stream(),
            ]
        else:
            host = Pack(moved.cutlass, form == "turned", parts)
            arguments = [*pointers, long, long, (long,) * 3, long, count, count, Int32(0), make_fake_stream()]
        return host.__call__, arguments, {"block": (host.threads, 1, 1), "smem": host.smem}

    return compiler.get(("matmul pack", element.size, form, parts), build, stream=stream, warm="cutesync.matmul")


def without_k(problem: Problem, ordinal: int) -> tuple[Problem, DeviceArray]:
    """A product over no elements is that over one zero: both operands become one zero, which TMA pads with zeros."""
    unit = TMA_BYTES // problem.elements[0].size
    one = Operand(True, unit, 1, unit, rows=1)
    return replace(problem, k=1, a=one, b=one), _zeros(ordinal)


@cache
def _zeros(ordinal: int) -> DeviceArray:
    return device_array.from_numpy(np.zeros(TMA_BYTES, np.uint8), BY_NAME["uint8"], ordinal)
