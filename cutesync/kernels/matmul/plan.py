"""From a checked problem to a launch: operands become tensor maps, terms become a kernel, extents become its
parameters."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...dtypes import BY_NAME, FLOAT32, INT32, DType
from ...errors import ArgumentValueError, explain
from ...runtime import backend, workspace
from ...runtime.kernel import KernelSpec, Packed, Parameter, Pointer, Scalar
from ...runtime.launch import Launch
from ...runtime.tensor_map import BYTES as TENSOR_MAP_BYTES, TiledMap
from .. import hardware
from ..states import numbered
from . import policy
from .model import corrected, raster, shortlist, table, vector_instructions
from .overlap import lets_next_start, streaming
from .parameters import COLUMN_MAPS, MAPS, PRE_MAPS, SOURCE, More, Operands, Order, Split, names_of
from .policy import K_TILE_BYTES, MatmulPolicy
from .terms import TermsSpec, once_per_terms
from .workload import Access, Workload

TMA_BYTES = 16  # bases and strides of what TMA reads or writes are multiples of this
MOST_KEPT = 1024  # policies, and kernels to compile


@dataclass(frozen=True)
class Operand:
    """A batch of matrices seen as (rows, K): ``k_major`` says which of the two is contiguous, ``step`` is the stride of
    the other and ``batch`` that of the items, in elements; ``items`` is 1 for an operand that all results share.
    ``rows`` that exist, if not all: the rest are zero. ``load`` is how the kernel loads it: "tma", or by the producer's
    threads as "dense", "vectors" or others (see ``own``). Their strides may be any; K has ``k_step`` then, and
    ``edges`` are where the memory of all elements begins and ends, counted from the first."""

    k_major: bool
    step: int
    items: int
    batch: int
    rows: int = 0
    load: str = "tma"
    k_step: int = 1
    edges: tuple[int, int] = (0, 0)

    @property
    def form(self) -> str:
        """``load`` as a kernel is made for it: one copies words or pairs of them."""
        return "words" if self.load == "pairs" else self.load


@dataclass(frozen=True)
class Problem:
    """D (M, N) = A (M, K) B (N, K)^T for each of ``items``. ``c``, ``d`` and ``pre`` are the strides (row, column,
    item) of C, of D and of what was before the activation, in elements. ``slices`` as in ``workload.Workload``."""

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
    slices: int = 0
    ordinal: int = -1
    pre: tuple[int, int, int] = (0, 0, 0)
    parts: bool = False

    @property
    def multiprocessors(self) -> int:
        """Of the device."""
        return backend.of(self.ordinal).multiprocessors(self.ordinal)

    @property
    def k_elements(self) -> int:
        """Elements of K in a k-tile."""
        return K_TILE_BYTES // self.elements[0].size

    @functools.cached_property
    def load(self) -> Workload:
        """What the model knows of it."""
        size = self.elements[0].size
        own = (vector_instructions(x.load, size) for x in (self.a, self.b))
        access = Access(self.b.k_major, self.a.step * size, self.b.step * size, *own)
        k_tiles = -(-self.k // self.k_elements)
        of_pre = self.terms.pre.size if self.terms.pre else 0
        more = of_pre > 0 or self.terms.c is not None
        most = policy.MAX_ACCUMULATORS_OF_MORE if more else policy.MAX_ACCUMULATORS
        stored = self.out.size + of_pre
        return Workload(
            self.m,
            self.n,
            k_tiles,
            self.items,
            stored,
            self.promoted,
            self.slices,
            access,
            most,
            self.terms.by_tma,
            self.parts,
            activation=self.terms.activation is not None,
            by_elements=not (self.terms.by_tma or self.terms.by_columns or self.d[1] == 1),
            by_columns=self.d[1] != 1,
            odd=self.takes_odd,
        )

    @property
    def takes_odd(self) -> bool:
        """Whether ``MatmulPolicy.odd`` tiles suit it: one result of 16 bits of floats, without C, and B with K
        contiguous. (The tensor cores have no instruction for integers of 40, 56, ... columns.)"""
        return self.takes_wide and self.b.k_major and self.elements[0].kind == "f"

    @property
    def takes_wide(self) -> bool:
        """Whether ``MatmulPolicy.wide`` stores suit it: one result of 16 bits, without C."""
        return self.out.size == 2 and self.terms.pre is None and self.terms.c is None

    def shortlist(self, count: int = 1) -> tuple[MatmulPolicy, ...]:
        """What the model chooses, best first."""
        return tuple(config for _, config in shortlist(self.load, count))

    def cost(self, config: MatmulPolicy | None) -> float:
        """Clocks that the model expects with this configuration, or with its own choice."""
        if config is None:
            return shortlist(self.load, 1)[0][0]  # the key that the choice itself looks up
        load, of = self.load, table([self.settled(config)], hardware.SMS)
        return float(corrected(of, load)[0])

    def settled(self, config: MatmulPolicy) -> MatmulPolicy:
        """The configuration with what the operands decide."""
        if self.slices > 1 and config.accumulators > policy.MAX_SPLIT_ACCUMULATORS:
            came = f"{config.tile} with batch_invariant, which cuts this K in {self.slices} slices"
            allowed = f"at most {policy.MAX_SPLIT_ACCUMULATORS} accumulators a thread"
            raise ArgumentValueError(explain("config.tile", came, allowed))
        if config.odd and not self.takes_odd:
            allowed = "a multiple of 16 columns; of 8 for one result of 16 bits of floats without C, K contiguous in B"
            raise ArgumentValueError(explain("config.tile", config.tile, allowed))
        loads = ("tma" if x.load == "tma" else "own" for x in (self.a, self.b))
        splits, slices = config.splits, config.slices
        if self.slices:
            splits, slices = (1, self.slices) if slices > 1 else (self.slices, 1)
        return _settled(config, splits, slices, self.parts, *loads)

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
            self.pre,
            *types,
            *self.terms.key,
            self.promoted,
            self.slices,
            self.parts,
        )


@functools.lru_cache(maxsize=MOST_KEPT)
def _settled(config: MatmulPolicy, splits: int, slices: int, parts: bool, load_a: str, load_b: str) -> MatmulPolicy:
    return replace(config, splits=splits, slices=slices, parts=parts, load_a=load_a, load_b=load_b)


@once_per_terms
def kernel_spec(
    config: MatmulPolicy,
    elements: tuple[DType, DType],
    out: DType,
    majors: tuple[bool, bool],
    terms: TermsSpec,
    loads: tuple[str, str] = ("tma", "tma"),
) -> KernelSpec:
    """The kernel; one serves all shapes of its layout class. ``config`` is ``decided``; ``loads`` are those of the
    operands (see ``Operand``)."""

    def make() -> Any:
        from .kernel import Matmul

        return Matmul(config, tuple(element.cutlass for element in elements), out.cutlass, majors, terms, loads)

    accumulator = INT32 if elements[0].kind in "iu" else FLOAT32
    own = [name for name, load in zip("ab", loads) if load != "tma"]
    names, maps = names_of(terms, own), (*MAPS, *COLUMN_MAPS, *PRE_MAPS)
    kinds = {"alpha": "Float32", "beta": "Float32", "bias_step": "Int64"}
    kinds |= {name: "Int64" for name in names if name.startswith(("c_", "d_", "pre_")) or name.endswith("_priority")}
    kinds |= {f"{name}_{field}": "Int64" for name in own for field in SOURCE[2:]}
    arrays = dict.fromkeys(("c", "bias", "d_pointer", "scale_a", "scale_b", "pre_pointer", *own), out)
    arrays |= {"scratch": accumulator, "counters": INT32, "amax": INT32}
    args = {name: argument.parameter(name) for name, argument in zip(numbered("arg", terms.args), terms.args)}
    parameters: list[Parameter] = []
    for name in names:
        if name in args:
            parameters.append(args[name])
        elif name in maps and name not in own:
            parameters.append(Packed(name, 12 if name.endswith("extents") else 128))
        else:
            parameters.append(Pointer(name, arrays[name]) if name in arrays else Scalar(name, kinds.get(name, "Int32")))
    key = ("matmul", *config.kernel, *(element.name for element in elements), out.name, *majors, *terms.key)
    key += loads if own else ()
    return KernelSpec(key, tuple(parameters), make, config.cluster_size, lambda: _examples(elements, out, terms, loads))


def _examples(elements: tuple[DType, DType], out: DType, terms: TermsSpec, loads: tuple[str, str]) -> list:
    """Arguments of the kernel's host function, but the grid and the stream, as the DSL is shown them."""
    import cutlass.cute as cute
    from cutlass import Float32, Int32, Int64
    from cutlass.cute.runtime import make_ptr

    def pointer(dtype: DType | None, align: int | None = None) -> Any:
        kind = (dtype or out).cutlass
        return make_ptr(kind, 0, cute.AddressSpace.gmem, assumed_align=align or kind.width // 8)

    def moved(dtype: DType | None) -> DType | None:
        """As the epilogue moves them."""
        return BY_NAME["uint8"] if dtype and dtype.size == 1 else dtype

    stored = moved(out)
    accumulator = INT32 if elements[0].kind in "iu" else FLOAT32
    word, long = Int32(0), Int64(0)
    steps = [(long, long) if load == "tma" else (word, word, *(long,) * 5) for load in loads]
    scale, strides = pointer(FLOAT32), (long,) * 3
    more = More(pointer(moved(terms.pre)), *strides, pointer(INT32)) if terms.several else ()
    args = tuple(argument.parameter(name).example() for name, argument in zip(numbered("arg", terms.args), terms.args))
    return [
        *(pointer(of, TMA_BYTES if load == "tma" else None) for of, load in zip(elements, loads)),
        pointer(stored, TMA_BYTES),
        (word,) * 4,
        (*steps, (long, long)),
        Order(*(word,) * 8, *(long,) * 2),
        Split(word, word, pointer(accumulator, TMA_BYTES), pointer(INT32)),
        Operands(
            *(Float32(0),) * 2,
            pointer(moved(terms.c)),
            *strides,
            pointer(terms.bias_type),
            word,
            pointer(stored),
            *strides,
            scale,
            scale,
            more,
            (long,) if terms.stepped else (),
            args,
        ),
    ]


def make_launch(
    problem: Problem, config: MatmulPolicy | None, scalars: tuple[float, ...], names: Sequence[str], stream: int
) -> Launch:
    """The prepared launch, with ``scalars`` = (alpha, beta), and the bias's step if it has one. ``names`` says what
    each address that ``run`` is given is to the kernel: "a", "b", "c", "bias", "scale_a", "scale_b", "d", "pre" or
    "amax"."""
    ordinal = problem.ordinal
    config = decided(problem, config)
    majors, loads = (problem.a.k_major, problem.b.k_major), (problem.a.form, problem.b.form)
    spec = kernel_spec(config, problem.elements, problem.out, majors, problem.terms.of_kernel, loads)
    along_n, group = raster(config, problem.m, problem.n)
    k_tiles = -(-problem.k // problem.k_elements)
    of_slice = -(-k_tiles // (config.splits * config.slices))
    slices = -(-k_tiles // of_slice)
    splits = slices if config.splits > 1 else 1
    tiles = math.prod(config.tiles(problem.m, problem.n)) * problem.items
    clusters = tiles if config.cluster_split else min(tiles * splits, config.slots(problem.multiprocessors))
    values: dict[str, Any] = {"splits": slices, "k_tiles": of_slice}
    values |= zip(("alpha", "beta", "bias_step"), scalars)
    values["bias_by_rows"] = int(problem.terms.bias == "row")
    batched = int(problem.a.items > 1), int(problem.b.items > 1)
    early = int(lets_next_start(config, problem.load))
    by_columns = int(problem.terms.by_columns)
    ahead, priorities = streaming(problem, config, early)
    values |= Order(int(along_n), group, *batched, early, by_columns, *ahead, *priorities)._asdict()
    for name, strides in (("c", problem.c), ("d", problem.d), ("pre", problem.pre)):
        values |= zip((f"{name}_row", f"{name}_column", f"{name}_batch"), strides)
    by_tma = {"d": problem.terms.by_tma, "pre": problem.terms.pre_by_tma}
    arrays = [name if by_tma.get(name, True) else f"{name}_pointer" for name in names]
    if problem.terms.maps_columns and by_columns:
        arrays = ["d_by_columns" if name == "d" else name for name in arrays]
    claim = None
    if config.splits > 1 and not config.cluster_split:
        parts = config.turnstile_parts(problem.m, problem.n, problem.items)
        size = 4 * config.accumulators * policy.WARPGROUP * parts * splits
        claim = functools.partial(workspace.counters_and_scratch, counter_bytes=4 * parts, scratch_bytes=size)
    grid = clusters * config.cluster_size
    values |= _sources(problem) | _maps(problem, config)
    return Launch(spec, ordinal, grid, values, arrays, claim, stream)


def decided(problem: Problem, config: MatmulPolicy | None) -> MatmulPolicy:
    """The configuration, or the model's if there is none, with everything decided that follows from the problem and the
    GPU."""
    config = problem.settled(config or problem.shortlist()[0])
    if problem.terms.pre is not None:
        if config.deferred:
            came = "True with pre_activation=True"
            raise ArgumentValueError(explain("config.deferred", came, "None or False: registers hold one result"))
        config = replace(config, deferred=False)
    tiles = math.prod(config.tiles(problem.m, problem.n)) * problem.items
    # Blocks of one tile and of several have one kernel: it is as fast for both, but with an activation (H200).
    several = problem.terms.activation is None or tiles > config.slots(problem.multiprocessors)
    return config.decided(problem.terms.widest(problem.out), several, problem.takes_wide)


def _sources(problem: Problem) -> dict[str, Any]:
    """The parameters of operands that the producer's threads load: ``parameters.Source``."""
    found: dict[str, Any] = {}
    for name, operand, rows, element in zip("ab", (problem.a, problem.b), (problem.m, problem.n), problem.elements):
        if operand.load != "tma":
            outer, inner = (rows, problem.k) if operand.k_major else (problem.k, rows)
            of_lines = operand.step, operand.k_step, operand.batch, *operand.edges
            numbers = outer, inner, *(element.size * number for number in of_lines)
            found |= {f"{name}_{field}": number for field, number in zip(SOURCE, numbers)}
    return found


def _maps(problem: Problem, config: MatmulPolicy) -> dict[str, Any]:
    """The parameters that are tensor maps, with the extents that the DSL passes beside each."""
    m, n, k, terms = problem.m, problem.n, problem.k, problem.terms
    tile_m, tile_n = config.tile
    of_result = struct.pack("<3i", m, n, problem.items)
    more = {}
    if terms.pre is not None and terms.pre_by_tma:
        more = {"pre": result_map(problem, config, terms.pre, problem.pre), "pre_extents": of_result}
    sides = (
        ("a", problem.a, problem.elements[0], m, (tile_m, tile_m), config.cluster[1]),
        ("b", problem.b, problem.elements[1], n, (tile_n, config.columns), config.parts_of_b),
    )
    for name, operand, element, rows, of_tile, parts in sides:
        if operand.load == "tma":
            more[name] = operand_map(problem, element, operand, rows, of_tile, parts)
            more[f"{name}_extents"] = struct.pack("<3i", rows, k, operand.items)
    maps: dict[str, Any] = {"d": bytes(TENSOR_MAP_BYTES), "d_extents": of_result}
    if terms.maps_columns:
        maps |= zip(COLUMN_MAPS, (bytes(TENSOR_MAP_BYTES), of_result))
    if terms.by_tma:
        name = "d_by_columns" if terms.maps_columns and terms.by_columns else "d"
        maps[name] = result_map(problem, config, problem.out, problem.d)
    return more | maps


def operand_map(
    problem: Problem, element: DType, operand: Operand, rows: int, of_tile: tuple[int, int], parts: int
) -> TiledMap:
    """The map that loads a block's part of a stage: (tile_rows, k-tile) cut in ``parts`` along the way that is not
    contiguous. ``of_tile`` are (tile_rows, those of them that a warpgroup multiplies).

    A box is as wide as its swizzle, the widest that divides the latter. The layout of a stage (CuTe's K_SW* or MN_SW*)
    is made of such boxes.
    """
    k = problem.k_elements
    inner, outer = (k, of_tile[0]) if operand.k_major else (of_tile[1], k)
    swizzle = math.gcd(inner * element.size, 128)
    rows = operand.rows or rows
    extents = (problem.k, rows, operand.items) if operand.k_major else (rows, problem.k, operand.items)
    box = (swizzle // element.size, outer // parts, 1)
    name = "float32" if problem.parts else element.name  # TMA rounds to tfloat32
    return TiledMap(name, extents, (operand.step * element.size, operand.batch * element.size), box, swizzle)


def result_map(problem: Problem, config: MatmulPolicy, out: DType, steps: tuple[int, int, int]) -> TiledMap:
    """The map that stores a sub-tile of a result of this type and these strides."""
    columns = config.sub_tile_columns(problem.terms.widest(problem.out))
    row, column, item = (step * out.size for step in steps)
    if problem.terms.by_columns:
        outer, inner, step, box = problem.n, problem.m, column, (64, columns, 1)
    else:
        outer, inner, step, box = problem.m, problem.n, row, (columns, 64, 1)
    row_bytes = box[0] * out.size
    swizzle = row_bytes if row_bytes in (32, 64, 128) else 0
    strides = step if outer > 1 else 0, item if problem.items > 1 else 0
    return TiledMap(out.name, (inner, outer, problem.items), strides, box, swizzle)
