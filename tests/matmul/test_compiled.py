"""Every configuration compiles for sm_90a, without a GPU: setmaxnreg kept, multiplications as planned, no spills, no
local memory."""

import re
from dataclasses import replace

import pytest

from cutesync.dtypes import BY_NAME, TFLOAT32, element_type
from cutesync.kernels.matmul.candidates import CANDIDATES, OWN, PARTS, PROMOTED, PROMOTED_OWN
from cutesync.kernels.matmul.epilogue import Epilogue
from cutesync.kernels.matmul.pack_plan import pack_spec
from cutesync.kernels.matmul.plan import kernel_spec
from cutesync.kernels.matmul.policy import (
    K_TILE_BYTES,
    MAX_ACCUMULATORS_OF_MORE,
    PACK_RUN,
    THREADS,
    WARPGROUP,
    MatmulPolicy,
)
from cutesync.kernels.matmul.terms import TermsSpec

from ..compiled import assert_overlaps, cubin_figures

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fresh_compiler")]

MAJORS = [(True, True), (True, False), (False, True), (False, False)]
TILES = {(c.tile, c.schedule): c for c in CANDIDATES[::-1]}  # all that the model chooses among
BFLOAT16 = BY_NAME["bfloat16"]
FORMS = {
    "bfloat16": "k16\\.f32\\.bf16\\.bf16",
    "float8_e4m3fn": "k32\\.f32\\.e4m3\\.e4m3",
    "int8": "k32\\.satfinite\\.s32\\.s8\\.s8",
    "tfloat32": "k8\\.f32\\.tf32\\.tf32",
}
PLAIN = TermsSpec()
EVERYTHING = TermsSpec(True, BFLOAT16, "column", BFLOAT16, "gelu", True, "each", "each")


def verify(
    config: MatmulPolicy,
    out: str = "bfloat16",
    majors=(True, True),
    terms: TermsSpec = PLAIN,
    element: str = "bfloat16",
    loads: tuple[str, str] = ("tma", "tma"),
) -> str:
    result = element_type(out)
    terms = replace(terms, either=result.size == 2 and terms.pre is None)
    load_a, load_b = ("tma" if load == "tma" else "own" for load in loads)
    config = replace(config, load_a=load_a, load_b=load_b, parts=bool(config.parts))
    config = config.decided(terms.widest(result), several=terms.pre is None, wide=terms.either and terms.c is None)
    operand = TFLOAT32 if element == "tfloat32" else element_type(element)
    spec = kernel_spec(config, (operand, operand), result, majors, terms, loads)
    kernel = spec.kernel()
    ptx = kernel.ptx
    assert re.findall(r"\.entry (\w+)", ptx) == [kernel.name] and kernel.name.startswith("cutesync_matmul")
    assert kernel.block == (THREADS, 1, 1) and kernel.cluster == (config.cluster_size, 1, 1)
    assert kernel.params == tuple(p.size for p in spec.parameters)
    assert re.findall(r"setmaxnreg\.(\w+)\.sync\.aligned\.u32 \t(\d+)", ptx) == [
        ("dec", str(24 + 16 * config.parts + 128 * config.own)),
        ("inc", str(240 - 8 * config.parts - 64 * config.own)),
    ]
    touches = r"cp\.async\.(bulk\.tensor|ca)|\b(ld|st|atom|red)\.\S*global"
    prologue, *roles = re.split(r"setmaxnreg[^\n]*", ptx)
    assert not re.search(touches, prologue)
    for role in roles:  # the launch before may still run: nothing in global memory is touched before it has ended
        assert (
            role.count("griddepcontrol.wait") == 1
            and role.index("griddepcontrol.wait") < re.search(touches, role).start()
        )
    assert ("cp.async.bulk.prefetch.tensor" in ptx) is not config.own  # the L2 may be asked before
    a_k, b_k = majors
    transposed = f"{int(not a_k)}, {int(not b_k)};"
    ends = transposed if element == "bfloat16" else ";"
    instruction = rf"wgmma\.mma_async\.sync\.aligned\.m64n{config.columns}{FORMS[element]} [^;]*{ends}"
    deferred = config.rows // 64 * config.columns // config.sub_tile_columns(result.size) if config.deferred else 0
    ahead = Epilogue(config, result.cutlass, terms).c.ahead
    bodies = 3 if config.parts else 1 if config.promoted else 2 + ahead  # one loop before elements of C are loaded
    bodies = 4 if config.slices > 1 else bodies  # the first slice, and those behind it
    planned = (
        (bodies + deferred) * 4 * config.rows // 64
    )  # first k-tile, one beside each sub-tile, loop; 4 steps of 32 bytes each, every 64 rows
    assert len(re.findall(instruction, ptx)) == planned == ptx.count("wgmma.mma_async")
    assert not re.search(r"\.local\b|ld\.local|st\.local|\bcall\b|\btrap\b", ptx)
    assert kernel.smem == config.smem(terms.widest(result)) <= 227 * 1024
    allocated = [int(n) for n in re.findall(r"mbarrier\.init\.shared\.b64 \t\[%r\d+\+(\d+)\]", ptx)]
    in_stages = config.exchange_in_stages(terms.widest(result))
    # behind the barriers: the words of the turnstile, and the barrier of stages that have been read; room for a barrier
    # and two words a stage of dense loads, which is there without them, too
    words = 8 * (in_stages and not config.parts) if config.cluster_split else 8 * (config.splits > 1)
    words += 8 * config.own * config.stages * (1 if "dense" in loads else 2)
    exchanged = config.cluster_split * (2 + in_stages)
    assert ptx.count("mbarrier.init") == (2 + config.parts + ("dense" in loads)) * config.stages + exchanged
    assert max(allocated) + 8 + words == kernel.smem
    registers, frame = cubin_figures(kernel.cubin)
    assert frame == 0, f"{config}: {frame} bytes of stack a thread"
    assert registers == 168, "the compiler's budget before setmaxnreg: 65536 / 384"
    return ptx


TYPES_OF_TILES = ("float8_e4m3fn", None, None, None, "tfloat32", None, None, None)  # in turn, beside bfloat16


@pytest.mark.drawn(16)
@pytest.mark.parametrize(
    ("tile", "element"),
    [
        (tile, element)
        for i, (tile, config) in enumerate(TILES.items())
        for element in ("bfloat16" if config.accumulators >= 128 or i % 4 == 0 else None, TYPES_OF_TILES[i % 8])
        if element and not (element == "tfloat32" and config.odd)
    ],
    ids=str,
)
def test_every_tile(tile, element):
    """A stage's layout follows from the width of the elements and from the tile. Of small tiles, which never come near
    the registers that there are, one in four."""
    verify(TILES[tile], "float32" if element == "tfloat32" else "bfloat16", element=element)


WITH_C = [t for t in TILES if TILES[t].accumulators <= MAX_ACCUMULATORS_OF_MORE and not TILES[t].odd]


@pytest.mark.drawn(3)
@pytest.mark.parametrize("tile", WITH_C[::5], ids=str)
def test_every_tile_with_c_loaded_ahead(tile):
    verify(TILES[tile], terms=TermsSpec(c=BFLOAT16, together=8))


WIDE = MatmulPolicy((128, 256), "cooperative", (2, 1))
OTHERS = {
    # the widths that the model never chooses, too: the DSL has aborted the process on some of tfloat32
    **{
        f"{columns} columns": (MatmulPolicy((64, columns), "pingpong"), {"out": "float32", "element": "tfloat32"})
        for columns in range(16, 257, 64)
    },
    **{
        f"two sets of accumulators, {config.tile}": (config, {"element": "float8_e4m3fn"})
        for config in PROMOTED[::2]
        if config.accumulators >= 80
    },
    "float8": (MatmulPolicy((256, 192), "cooperative", (1, 2)), {"element": "float8_e4m3fn"}),
    "int8": (MatmulPolicy((128, 128), "pingpong", (2, 1)), {"element": "int8", "out": "int32"}),
    "tf32": (MatmulPolicy((256, 128), "cooperative", (1, 2)), {"out": "float32", "element": "tfloat32"}),
    **{
        f"3xTF32 in the kernel, {config.tile}, {config.splits}": (config, {"out": "float32", "element": "tfloat32"})
        for config in PARTS
        if config.splits == 3 and config.accumulators >= 40
    },
    **{
        f"slices in one block, {tile}": (MatmulPolicy(tile, schedule, slices=2), {})
        for tile, schedule in (((128, 192), "cooperative"), ((128, 96), "pingpong"))
    },
    "3xTF32": (
        MatmulPolicy((128, 192), "cooperative", (2, 1), promoted=True),
        {"out": "float32", "element": "tfloat32"},
    ),
    "split-K": (MatmulPolicy((128, 256), "cooperative", (2, 1), splits=5), {}),
    "cluster split-K, multicast": (MatmulPolicy((128, 256), "cooperative", (2, 1), splits=4), {}),
    "cluster split-K, a heavy epilogue": (
        MatmulPolicy((256, 128), "cooperative", splits=3),
        {"terms": replace(EVERYTHING, by_tma=False)},
    ),
    **{f"majors {majors}": (WIDE, {"majors": majors}) for majors in MAJORS[1:3]},
    "the heaviest epilogue": (MatmulPolicy((128, 256), "cooperative"), {"terms": replace(EVERYTHING, by_tma=False)}),
    "three results": (
        WIDE,
        {"terms": replace(EVERYTHING, pre=BFLOAT16, amax=True), "out": "float8_e4m3fn", "element": "float8_e4m3fn"},
    ),
    "two results": (
        MatmulPolicy((256, 192), "cooperative", (1, 2)),
        {"terms": TermsSpec(c=BFLOAT16, activation=lambda v, c: v * c, gated=True, pre=BFLOAT16)},
    ),
    "a heavy epilogue": (
        MatmulPolicy((128, 208), "pingpong"),
        {"terms": TermsSpec(bias="column", bias_type=BFLOAT16, activation="gelu")},
    ),
}


LOADS = [
    *(("vectors", "words"), ("elements", "elements"), ("vectors", "tma"), ("tma", "elements"), ("words", "words")),
    *(("dense", "dense"), ("dense", "elements")),
]
TYPES = {"bfloat16": "bfloat16", "int8": "int32", "tfloat32": "float32", "float8_e4m3fn": "bfloat16"}


@pytest.mark.drawn(4)
@pytest.mark.parametrize(
    ("element", "loads"),
    [(element, loads) for i, element in enumerate(TYPES) for loads in (LOADS if i == 0 else LOADS[i - 1 : i])],
    ids=str,
)
def test_own_loads(element, loads):
    """Of the largest tiles, and of those that have most in flight; rows of 16 bits that are contiguous."""
    most = 1 + 2 * (element == "bfloat16" and "vectors" in loads)
    for config in PROMOTED_OWN[:1] if element.startswith("float8") else OWN[0:most:2]:
        verify(config, TYPES[element], terms=replace(EVERYTHING, by_tma=False), element=element, loads=loads)
    if element == "bfloat16" and loads == ("vectors", "tma"):
        ptx = verify(OWN[2], majors=(False, False), loads=loads)
        vectors = OWN[2].tile[0] * K_TILE_BYTES // 16 // WARPGROUP  # of A, a thread
        assert len(re.findall(r"ld\.global\.v4", ptx)) == 2 * vectors, "each of two"


@pytest.mark.drawn(12)
@pytest.mark.parametrize("name", OTHERS)
def test_other_configurations(name):
    config, options = OTHERS[name]
    verify(config, **options)


@pytest.mark.parametrize(
    "config", [c for c in CANDIDATES if c.tile[1] < 64 and c.cluster == (2, 1)], ids=lambda c: str(c.tile)
)
def test_narrow_tiles(config):
    verify(replace(config, splits=5), terms=TermsSpec(by_tma=False))
    verify(replace(config, splits=2, cluster=(1, 1)), terms=TermsSpec(by_tma=False))


@pytest.mark.parametrize(
    ("element", "out", "converted"),
    [
        ("int8", "uint8", r"cvt\.pack\.sat\.u8\.s32\.b32"),
        ("int8", "int8", r"cvt\.pack\.sat\.s8\.s32\.b32"),
        ("bfloat16", "float8_e4m3fn", r"cvt\.rn\.satfinite\.e4m3x2\.f32"),
        ("float8_e4m3fn", "float8_e5m2", r"cvt\.rn\.satfinite\.e5m2x2\.f32"),
    ],
)
def test_results_of_eight_bits(element, out, converted):
    """Two elements an instruction."""
    config = MatmulPolicy((128, 256), "cooperative", (2, 1))
    terms = TermsSpec(True, None, "column", BFLOAT16, None, True, "each", "each") if out == "int8" else TermsSpec()
    ptx = verify(config, out, terms=terms, element=element)
    assert len(re.findall(converted, ptx)) == config.accumulators // 2 and len(
        re.findall(r"cvt\.rni\.s32\.f32", ptx)
    ) == (config.accumulators if out == "int8" else 0)


@pytest.mark.drawn(4)
@pytest.mark.parametrize(
    ("size", "form", "side"),
    [
        (1, "rows", ""),
        (2, "rows", ""),
        (4, "rows", "left"),
        (1, "apart", ""),
        (1, "transposed", ""),
        (2, "transposed", ""),
        (4, "apart", "left"),
        (4, "transposed", "right"),
    ],
)
def test_packing_kernels(size, form, side):
    kernel = pack_spec(BY_NAME[f"uint{8 * size}"], form, side).kernel()
    registers, frame = cubin_figures(kernel.cubin)
    assert_overlaps(kernel.ptx)
    assert kernel.name.startswith("cutesync_matmul_pack") and frame == 0 and registers <= 40, (
        "six blocks of 256 threads an SM"
    )
    lane = PACK_RUN // 32 if form == "rows" else 128 * 32 // 256  # bytes that a lane copies
    vectors = 2 * lane // 16 if form == "rows" else 0  # and of vectors also what lies behind each
    assert (
        len(re.findall(r"ld\.global\.v4", kernel.ptx)) == vectors
        and len(re.findall(r"ld\.global", kernel.ptx)) == vectors + lane // size
    ), "each element is read once"


@pytest.mark.parametrize(
    "config",
    [
        MatmulPolicy((64, 64), "pingpong", splits=8),
        MatmulPolicy((128, 128), "cooperative", splits=3),
        MatmulPolicy((128, 16), "cooperative", splits=2),
    ],
    ids=lambda c: f"{c.tile} {c.splits}",
)
def test_cluster_split_k(config):
    """A store of 16 bytes for 4 accumulators, to the shared memory of the block that adds them up; no atomics, and no
    memory of the launch's own."""
    ptx = verify(config)
    assert len(re.findall(r"st\.shared::cluster\.v4", ptx)) == config.accumulators // 4
    assert (
        ptx.count("mbarrier.arrive.release.cluster.shared::cluster") == 1 + config.exchange_in_stages(2)
        and "try_wait.parity.acquire.cluster" in ptx
        and "atom." not in ptx
    )
