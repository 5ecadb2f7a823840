"""What the lanes of a warp do together: shuffles, votes, matches, reductions, and 8 x 8 matrices with ``mma.sync``."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import numpy as np

from cutesync.emulator.instructions import matrix

from .case import HEADER, Case, integers, stream

# --- shuffles and votes -----------------------------------------------------------------------------------------------


def warp_kernel(body: str) -> str:
    """Lane values a and b in, results d and e out (two 32-bit words a lane); the lane number is in i."""
    return "\n".join(
        [
            HEADER,
            ".visible .entry litmus(.param .u64 in_a, .param .u64 in_b, .param .u64 out)\n{",
            ".reg .b64 p0, p1;",
            ".reg .b32 i, a, b, d, e, t0, t1;",
            ".reg .pred p, q;",
            "mov.u32 i, %tid.x;",
            "mul.wide.u32 p1, i, 4;",
            "ld.param.u64 p0, [in_a];",
            "add.u64 p0, p0, p1;",
            "ld.global.b32 a, [p0];",
            "ld.param.u64 p0, [in_b];",
            "add.u64 p0, p0, p1;",
            "ld.global.b32 b, [p0];",
            "mov.b32 d, 0;",
            "mov.b32 e, 0;",
            body,
            "ld.param.u64 p0, [out];",
            "mul.wide.u32 p1, i, 8;",
            "add.u64 p0, p0, p1;",
            "st.global.v2.b32 [p0], {d, e};",
            "ret;\n}\n",
        ]
    )


def lane_case(name: str, body: str, expected: Callable | None = None, low: int = 0, high: int = 1 << 32) -> Case:
    a, b = (integers(f"{name}/{n}", low, high, (32,)).astype(np.uint32) for n in "ab")
    out = np.zeros((32, 2), np.uint32)
    return Case(name, warp_kernel(body), (a, b, out), 2, (lambda: expected(a, b)) if expected else None)


def shuffled(mode: str, clamp: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The ISA's pseudo-code of ``shfl.sync`` with every lane active."""
    lanes = np.arange(32)
    distance, limit, mask = (b & 31).astype(int), clamp & 31, (clamp >> 8) & 31
    top = (lanes & mask) | (limit & ~mask)
    if mode == "up":
        source, inside = lanes - distance, lanes - distance >= top
    elif mode == "idx":
        source = (lanes & mask) | (distance & ~mask & 31)
        inside = source <= top
    else:
        source = lanes + distance if mode == "down" else lanes ^ distance
        inside = source <= top
    return np.stack([a[np.where(inside, source, lanes)], inside.astype(np.uint32)], axis=1)


def shuffle_cases() -> Iterator[Case]:
    clamps = (0, 0x1F, 0x1000, 0x1807, 0x181F, 0x1C00, 0x1C03, 0x1E1F, 0x0A1B)
    for mode, clamp in product(("up", "down", "bfly", "idx"), clamps):
        body = f"shfl.sync.{mode}.b32 d|p, a, b, {clamp}, -1;\nselp.b32 e, 1, 0, p;"
        yield lane_case(f"shfl.{mode}.{clamp:#x}", body, partial(shuffled, mode, clamp), 0, 64)


ANY = 1 << 32
VOTES = {  # name: body, the values of a and b end before
    **{
        f"vote.{name}": (
            f"setp.ne.u32 p, a, 0;\nvote.sync.{name}.pred q, p, -1;\nselp.b32 d, 1, 0, q;\n"
            f"setp.ne.u32 p, a, 99;\nvote.sync.{name}.pred q, p, -1;\nselp.b32 e, 1, 0, q;",
            3,
        )
        for name in ("all", "any", "uni")
    },
    "vote.ballot": ("setp.lt.u32 p, a, b;\nvote.sync.ballot.b32 d, p, -1;\nvote.sync.ballot.b32 e, !p, -1;", ANY),
    "vote.partial": (
        "setp.lt.u32 p, i, 11;\n@!p bra END;\nsetp.gt.u32 q, a, 3;\nvote.sync.ballot.b32 d, q, 0x7ff;\n"
        "activemask.b32 e;\nEND:\n"
        "bar.warp.sync -1;",
        8,
    ),
    "match.any": ("match.any.sync.b32 d, a, -1;", 5),
    "match.all": (
        "match.all.sync.b32 d|p, a, -1;\nselp.b32 e, 1, 0, p;\nmov.b32 t0, 7;\nmatch.all.sync.b32 t1|q, t0, -1;\n"
        "selp.b32 t0, 2, 0, q;\nor.b32 e, e, t0;\nxor.b32 d, d, t1;",
        2,
    ),
    **{
        f"redux.{name}": (
            f"redux.sync.{name} d, a, -1;\nsetp.lt.u32 p, i, 16;\n@p redux.sync.{name} e, b, 0xffff;\n"
            f"@!p redux.sync.{name} e, b, 0xffff0000;",
            ANY,
        )
        for name in ("add.u32", "add.s32", "min.s32", "max.u32", "and.b32", "or.b32", "xor.b32")
    },
    "elect": ("elect.sync d|p, -1;\nselp.b32 e, 1, 0, p;", ANY),
    "elect.partial": (
        "setp.gt.u32 q, i, 6;\n@!q bra END;\nelect.sync d|p, 0xffffff80;\nselp.b32 e, 1, 0, p;\nEND:\n"
        "bar.warp.sync -1;",
        ANY,
    ),
}


def lane_masks(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.array([[(1 << i) - 1, (1 << 32) - (1 << i)] for i in range(32)], np.uint32)


# --- matrices ---------------------------------------------------------------------------------------------------------


def matrix_kernel(loads: dict[str, int], body: str, results: int, shared: int = 0) -> str:
    """Registers r<name><n> are loaded from global arrays (count, 32) of 32-bit words; rd0.. are stored. Shared memory
    is ``buffer``.
    """
    params = [f".param .u64 in_{n}" for n in loads] + [".param .u64 out"]
    text = [
        HEADER,
        ".visible .entry litmus(" + ", ".join(params) + ")\n{",
        ".reg .b64 p0, p1;",
        ".reg .b32 i, t0, t1, t2, base;",
    ]
    text += [f".reg .b32 r{n}<{count}>;" for n, count in loads.items()] + [f".reg .b32 rd<{results}>;"]
    text += [f".shared .align 128 .b8 buffer[{shared}];", "mov.u32 base, buffer;"] if shared else []
    text += ["mov.u32 i, %tid.x;", "mul.wide.u32 p1, i, 4;"]
    for n, count in loads.items():
        text += [f"ld.param.u64 p0, [in_{n}];", "add.u64 p0, p0, p1;"] + [
            f"ld.global.b32 r{n}{r}, [p0+{128 * r}];" for r in range(count)
        ]
    text += [body, "ld.param.u64 p0, [out];", "add.u64 p0, p0, p1;"] + [
        f"st.global.b32 [p0+{128 * r}], rd{r};" for r in range(results)
    ]
    return "\n".join([*text, "ret;\n}\n"])


def group(name: str, count: int) -> str:
    return "{" + ", ".join(f"r{name}{r}" for r in range(count)) + "}"


WORDS = stream("ldmatrix", 4 * 32).astype(np.uint32).reshape(4, 32)
PLACES = (np.arange(32) * 7 + 3) % 32  # the row of each lane's address


def loaded(count: int, transposed: bool) -> np.ndarray:
    return matrix.load_matrices(np.ascontiguousarray(WORDS.T).view(np.uint8)[PLACES[: 8 * count]], transposed)


def stored(count: int, transposed: bool) -> np.ndarray:
    after = np.zeros((32, 16), np.uint8)
    after[PLACES[: 8 * count]] = matrix.store_matrices(WORDS[:count], transposed)
    return np.ascontiguousarray(after.view(np.uint32).T)


def matrix_case(name: str, body: str, sources: int, results: int, shared: int, expected: Callable) -> Case:
    text = matrix_kernel({"a": sources}, body, results, shared)
    return Case(name, text, (WORDS[:sources], np.zeros((results, 32), np.uint32)), 1, expected)


def eight_by_eight_cases() -> Iterator[Case]:
    """Every lane writes 16 bytes; lanes read the rows in another order (with stmatrix: write them)."""
    own = "shl.b32 t0, i, 4;\nadd.u32 t0, t0, base;\nst.shared.v4.b32 [t0], {%s};\nbar.warp.sync -1;\n"
    order = "mul.lo.u32 t1, i, 7;\nadd.u32 t1, t1, 3;\nand.b32 t1, t1, 31;\nshl.b32 t1, t1, 4;\nadd.u32 t1, t1, base;\n"
    for count, transposed in product((1, 2, 4), (False, True)):
        suffix = f"x{count}{'.trans' if transposed else ''}"
        load = f"ldmatrix.sync.aligned.m8n8.{suffix}.shared.b16 {group('d', count)}, [t1];"
        body = own % "ra0, ra1, ra2, ra3" + order + load
        yield matrix_case(f"ldmatrix.{suffix}", body, 4, count, 512, partial(loaded, count, transposed))
        store = f"stmatrix.sync.aligned.m8n8.{suffix}.shared.b16 [t1], {group('a', count)};\nbar.warp.sync -1;\n"
        body = f"mov.b32 t2, 0;\n{own % 't2, t2, t2, t2'}{order}{store}ld.shared.v4.b32 {{rd0, rd1, rd2, rd3}}, [t0];"
        yield matrix_case(f"stmatrix.{suffix}", body, 4, 4, 512, partial(stored, count, transposed))
    body = "movmatrix.sync.aligned.m8n8.trans.b16 rd0, ra0;"
    yield matrix_case("movmatrix", body, 1, 1, 0, lambda: matrix.transpose_matrix(WORDS[0])[None])


MMA = [
    "m16n8k8.row.col.f16.f16.f16.f16",
    "m16n8k16.row.col.f16.f16.f16.f16",
    "m16n8k16.row.col.f32.f16.f16.f32",
    "m16n8k8.row.col.f32.bf16.bf16.f32",
    "m16n8k16.row.col.f32.bf16.bf16.f32",
    "m16n8k4.row.col.f32.tf32.tf32.f32",
    "m16n8k8.row.col.f32.tf32.tf32.f32",
    "m16n8k32.row.col.f32.e4m3.e5m2.f32",
    "m16n8k16.row.col.f32.e4m3.e4m3.f32",
    "m8n8k16.row.col.s32.s8.u8.s32",
    "m16n8k32.row.col.s32.s8.s8.s32",
    "m16n8k32.row.col.satfinite.s32.u8.u8.s32",
    "m16n8k16.row.col.s32.u8.s8.s32",
    "m16n8k32.row.col.s32.s4.u4.s32",
    "m16n8k64.row.col.s32.u4.s4.s32",
    "m16n8k256.row.col.s32.b1.b1.s32.and.popc",
    "m16n8k128.row.col.s32.b1.b1.s32.xor.popc",
    "m8n8k128.row.col.s32.b1.b1.s32.and.popc",
]


def small_numbers(name: str, kind: str, count: int) -> np.ndarray:
    """32-bit registers full of small integers of ``kind`` (whole range for integer types), so that sums are exact."""
    if kind in ("s8", "u8", "s4", "u4", "b1"):
        return stream(name, count).astype(np.uint32)
    per = {"tf32": 1, "f32": 1, "e4m3": 4, "e5m2": 4}.get(kind, 2)
    values = integers(name, -3, 4, (count * per,))
    if kind in ("tf32", "f32"):
        return values.astype(np.float32).view(np.uint32)
    if kind == "f16":
        return values.astype(np.float16).view(np.uint32)
    if kind == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16).view(np.uint32)
    codes = {"e4m3": [0xC4, 0xC0, 0xB8, 0, 0x38, 0x40, 0x44], "e5m2": [0xC2, 0xC0, 0xBC, 0, 0x3C, 0x40, 0x42]}[kind]
    return np.array(codes, np.uint8)[values + 3].view(np.uint32)


def mma_cases() -> Iterator[Case]:
    for form in MMA:
        opcode = "mma.sync.aligned." + form
        step = matrix.instruction(opcode)
        bits = matrix.ELEMENT_BITS
        count_a, count_b = step.m * step.k * bits[step.a_type] // 1024, step.k * bits[step.b_type] // 128
        count_c = step.m // 8 if step.d_type == "f16" else step.m // 4
        a, b = (
            small_numbers(f"{form}/{n}", kind, 32 * count).reshape(count, 32)
            for n, kind, count in (("a", step.a_type, count_a), ("b", step.b_type, count_b))
        )
        c = small_numbers(f"{form}/c", "u8" if step.d_type == "s32" else step.c_type, 32 * count_c).reshape(count_c, 32)
        body = f"{opcode} {group('d', count_c)}, {group('a', count_a)}, {group('b', count_b)}, {group('c', count_c)};"
        kernel = matrix_kernel({"a": count_a, "b": count_b, "c": count_c}, body, count_c)
        out = np.zeros((count_c, 32), np.uint32)
        yield Case("mma." + form, kernel, (a, b, c, out), 3, partial(matrix.multiply, step, a, b, c))


def cases() -> Iterator[Case]:
    yield from shuffle_cases()
    yield from (lane_case(name, body, high=high) for name, (body, high) in VOTES.items())
    yield lane_case("lanemask", "mov.u32 d, %lanemask_lt;\nmov.u32 e, %lanemask_ge;", lane_masks)
    yield from eight_by_eight_cases()
    yield from mma_cases()
