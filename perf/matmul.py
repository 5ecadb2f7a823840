"""Matmuls: the cases, the bars, and one call per rival. Run by ``python perf/sweep.py matmul``.

Data are random normal, because the power that they take limits the clock (cuBLAS is a sixth faster on zeros). Bytes are
both operands read and the result written once; a case also has its ``flops``. Groups:

  cubes       square products, bfloat16 NT
  others      long, wide and deep products
  skinny      few rows
  layers      few rows by the matrices of language models, most of which stay in the L2 from one call to the next
  odd         rows that TMA cannot read
  transposes  the other layouts and float16
  fused       bias and gelu; "c": a matrix C added, by ``torch.addmm`` at torch
  batched     many small products
  float8      fast and promoted sums, against ``torch._scaled_mm``
  int8
  float32     in full precision, and by tfloat32 against torch with TF32 allowed

``--cases random`` times random products instead (see matmul_sweep.py).

Bars are the times against torch (cuBLAS) and QuACK of calls back to back, at the clock that the power limit leaves.

QuACK is called with its defaults, ``quack.gemm_interface.gemm(a, b, out=out)``: in the first call for a shape, before
anything is timed, its tuner tries 44 configurations (``rivals.Libraries`` shortens its trials). Split-K, which must be
asked for, is not among them. It takes part where it offers the same function and is likely to be fast: 16-bit types,
rows of whole 16 bytes, no exact gelu.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from case import Bar, Case
from matmul_random import CLASSES
from rivals import numpy_dtype

DTYPES = ("bfloat16", "float16", "float8_e4m3fn", "int8", "float32")
USUAL_DTYPES = DTYPES[:2]
CUBES = (1024, 2048, 3072, 4096, 5120, 6144, 8192, 12288, 16384)
QUICK_CUBES = (1024, 4096, 8192)
OTHERS = ((8192, 8192, 512), (8192, 512, 8192), (4096, 14336, 4096), (512, 8192, 8192), (1000, 1000, 1000))
SKINNY = tuple((m, 8192, 8192) for m in (1, 4, 16, 64, 128))
LAYERS = tuple(
    (m, n, k) for n, k in ((4096, 4096), (4096, 14336), (14336, 4096), (6144, 4096), (1024, 4096)) for m in (16, 128)
)
ODD = ((4097, 4095, 4099), (8191, 8193, 8195), (1023, 2047, 4093))
BATCHES = ((64, 512), (1024, 128))
LAYOUTS = (
    "NT",
    "NN",
    "TN",
    "TT",
)  # of A and B as row-major matrices or their transposes; cuBLAS's best is NT here: both K-major
SAMPLED_ROWS = 48

QUICK_NAMES = (
    "8192x8192x512 bfloat16 NT",
    "4096x14336x4096 bfloat16 NT",
    "16x8192x8192 bfloat16 NT",
    "128x4096x4096 bfloat16 NT",
    "4097x4095x4099 bfloat16 NT",
    "8192x8192x4096 bfloat16 NT bias gelu",
    "512^3 bfloat16 NT batch 64",
    "4096^3 float8_e4m3fn NT fast",
    "4096^3 float8_e4m3fn NT promoted",
)
FLOAT8_CUBES = (4096, 8192, 16384)
SUSTAINED = "graph hot"

GROUPS = ("cubes", "others", "skinny", "layers", "odd", "transposes", "fused", "batched", "float8", "int8", "float32")
GROUP_BARS = (
    ("cubes", "torch", 1.02, SUSTAINED),
    ("others", "torch", 1.03, SUSTAINED),
    ("float8", "torch", 1.0, SUSTAINED),
)
RANDOM_GROUPS = ("random", *CLASSES)
OURS = "cutesync"
BASELINES: tuple[str, ...] = ()
ROOFS: tuple[str, ...] = ()
RIVALS = ("torch", "quack")
QUICK_RIVALS = RIVALS[:1]  # QuACK compiles 44 configurations for each shape
QUACK_GROUPS = ("cubes", "others", "skinny", "transposes", "batched")
QUACK_TRANSPOSES = tuple(
    f"4096^3 {layout}" for layout in ("bfloat16 NN", "bfloat16 TN", "bfloat16 TT", "float16 NT")
)  # each is another 44 compilations


def case(
    group: str,
    shape: tuple[int, int, int],
    dtype: str,
    limit: float | None,
    layout: str = "NT",
    batch: int = 0,
    op: str = "",
    more=(),
) -> Case:
    m, n, k = shape
    outer = (batch,) if batch else ()
    stored_a, stored_b = ((k, m) if layout[0] == "T" else (m, k)), ((n, k) if layout[1] == "T" else (k, n))
    term = {"bias gelu": (((n,), dtype),), "c": (((m, n), dtype),)}.get(op, ())
    inputs = (((*outer, *stored_a), dtype), ((*outer, *stored_b), dtype), *term)
    out = {"float8_e4m3fn": "bfloat16", "int8": "int32"}.get(dtype, dtype)
    size, out_size, count = numpy_dtype(dtype).itemsize, numpy_dtype(out).itemsize, max(batch, 1)
    words = f"{m}^3" if m == n == k else f"{m}x{n}x{k}"
    name = f"{words} {dtype} {layout}" + (f" batch {batch}" if batch else "") + (f" {op}" if op else "")
    moved = count * (size * (m * k + k * n + m * n * (op == "c")) + out_size * m * n)
    rivals = RIVALS if group in QUACK_GROUPS and (group != "transposes" or name in QUACK_TRANSPOSES) else RIVALS[:1]
    bars = (*(Bar(rival, limit, measure=SUSTAINED) for rival in rivals if limit), *more)
    return Case(
        group,
        name,
        f"{layout} {op}".strip(),
        inputs,
        (((*outer, m, n), out),),
        moved,
        (OURS, *rivals),
        bars,
        flops=2 * m * n * k * count,
    )


def cases(sizes, dtypes, quick: bool) -> list[Case]:
    """Every case, in the order of the report. ``sizes`` replaces the cubes."""
    chosen = dtypes or DTYPES
    found = []
    for dtype in [dtype for dtype in chosen if dtype in USUAL_DTYPES][: 1 if not dtypes else None]:
        found += [case("cubes", (n, n, n), dtype, 1 / 0.97) for n in sizes or (QUICK_CUBES if quick else CUBES)]
        found += [case("others", shape, dtype, 1 / 0.97) for shape in OTHERS]
        found += [
            case(
                "skinny",
                shape,
                dtype,
                1 / 0.95,
                more=(Bar("floor", 0.85, "rate", SUSTAINED),) if shape[0] <= 16 else (),
            )
            for shape in SKINNY
        ]
        found += [case("layers", shape, dtype, None) for shape in LAYERS]
        found += [case("odd", shape, dtype, 1 / 3) for shape in ODD]
        found.append(case("fused", (8192, 8192, 4096), dtype, 1 / 1.1, op="bias gelu"))
        found += [case("fused", shape, dtype, None, "NN", op="c") for shape in ((4096, 4096, 2048), (8192, 4096, 2048))]
        found += [case("batched", (n, n, n), dtype, 1.0, batch=batch) for batch, n in BATCHES]
    for dtype in [dtype for dtype in chosen if dtype in USUAL_DTYPES]:
        transposes = [
            case("transposes", (n, n, n), dtype, 1 / 0.97, layout) for n in (4096, 8192) for layout in LAYOUTS
        ]
        found += [one for one in transposes if one.name not in {other.name for other in found}]
    if "float8_e4m3fn" in chosen:
        found += [
            case("float8", (n, n, n), "float8_e4m3fn", 1 / 0.97, op=sums)
            for n in FLOAT8_CUBES
            for sums in ("fast", "promoted")
        ]
    if "int8" in chosen:
        found.append(case("int8", (8192, 8192, 8192), "int8", 1.0))
    if "float32" in chosen:
        found += [case("float32", (4096, 4096, 4096), "float32", None, op=precision) for precision in ("full", "tf32")]
    if quick:
        found = [one for one in found if one.name in QUICK_NAMES or one.group in ("cubes", "float32", "int8")]
    return sorted(found, key=lambda one: GROUPS.index(one.group))


# Data and the NumPy reference


@lru_cache(maxsize=2)
def block(dtype: str) -> np.ndarray:
    """Random normal elements; an odd count, so that rows never repeat in step with tiles."""
    random = np.random.default_rng(2026)
    if dtype == "int8":
        return random.integers(-128, 128, (1 << 22) + 3, np.int8)
    return random.standard_normal((1 << 22) + 3, np.float32).astype(numpy_dtype(dtype))


def data(case: Case) -> list[np.ndarray]:
    shift = block(case.dtype)
    return [np.resize(np.roll(shift, 7919 * i), shape) for i, (shape, _) in enumerate(case.inputs)]


def operands(case: Case, arrays) -> tuple:
    """A and B as they are multiplied, from the arrays as they are stored."""
    a, b = arrays[0], arrays[1]
    return (a.swapaxes(-1, -2) if case.op[0] == "T" else a), (b.swapaxes(-1, -2) if case.op[1] == "T" else b)


def reference(case: Case, hosts: list[np.ndarray]):
    """``(rows, wanted, allowed)``: some rows of the result in float64, and the error allowed.

    What is allowed is the rounding of the result and of the sums.
    """
    a, b = operands(case, hosts)
    rows = np.unique(np.random.default_rng(7).integers(0, a.shape[-2], SAMPLED_ROWS))
    items = slice(None) if a.ndim == 2 else slice(0, 4)
    part, other = (
        (a[rows] if a.ndim == 2 else a[items, rows]).astype(np.float64),
        (b[items] if b.ndim == 3 else b).astype(np.float64),
    )
    wanted = part @ other
    if "gelu" in case.op:
        wanted = wanted + hosts[2].astype(np.float64)
        wanted = wanted / 2 * (1 + np.vectorize(math.erf)(wanted / math.sqrt(2)))
    if added(case):
        wanted = wanted + hosts[2][rows].astype(np.float64)
    rounding = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8, "int32": 0.0}[case.outputs[0][1]]
    sums = 0.0 if case.dtype == "int8" else 1e-6 * a.shape[-1]
    if case.dtype == "float8_e4m3fn":
        sums = cut_sums(part, other, case.op.endswith("fast"))
    if case.op.endswith("tf32"):
        sums = 2.0**-10 * a.shape[-1] ** 0.5 * 4  # both factors rounded to 11 bits
    return rows, wanted, rounding * np.abs(wanted) + sums


def added(case: Case) -> bool:
    """Whether C is added."""
    return case.op.endswith(" c")


def cut_sums(a: np.ndarray, b: np.ndarray, fast: bool) -> np.ndarray:
    """How far the float8 sums of an H200 may be off, for elements of random sign.

    An instruction adds 32 products to the sum so far, all cut off 13 bits below the largest of them. Let
    r = |a| |b| / sqrt(K), the root mean square of a whole sum.

    Promoted: the sums of a k-tile of 4 instructions start at 0 and reach some 2 r sqrt(128 / K), each instruction is
    off by up to 2**-13 of that, and the K / 128 tiles are of either sign: 4 * 2**-13 * 2 r sqrt(128 / K) * sqrt(K /
    128) = 2**-10 r.

    Fast: K / 32 instructions cut a sum of up to 4 r, always towards 0, by 2**-14 of it on average: 2**-17 K r.

    (Computed so in NumPy, with K = 4096, these are the errors measured on an H200, digit for digit. Of these bounds 0.5
    and 0.3 are then used, and one fast result in 40 exceeds the promoted bound.)
    """
    k = a.shape[-1]
    r = np.outer(np.sqrt(np.einsum("mk,mk->m", a, a)), np.sqrt(np.einsum("kn,kn->n", b, b))) / math.sqrt(k)
    return (2.0**-17 * k if fast else 2.0**-10) * r


def accuracy(expected, got: np.ndarray) -> tuple[float, bool]:
    rows, wanted, allowed = expected
    error = np.abs((got[rows] if got.ndim == 2 else got[: len(wanted), rows]).astype(np.float64) - wanted)
    return float(error.max()), bool(np.all(error <= allowed))


# The contestants: each factory returns a call that only enqueues


def ours(case, slot, libraries):
    cs, stream = libraries.cutesync, libraries.stream
    arrays = [libraries.torch_view(x) for x in slot.inputs]
    (a, b), out = operands(case, arrays), libraries.torch_view(slot.outputs[0])
    terms = (
        {"bias": arrays[2], "activation": "gelu"}
        if "gelu" in case.op
        else {"c": arrays[2]}
        if added(case)
        else {"fast_accumulation": True}
        if case.op.endswith("fast")
        else {"precision": "tf32"}
        if case.op.endswith("tf32")
        else {}
    )
    return lambda: cs.matmul(a, b, out=out, stream=stream, **terms)


def torch(case, slot, libraries):
    library = libraries.torch
    arrays = [libraries.torch_view(x) for x in slot.inputs]
    (a, b), out = operands(case, arrays), libraries.torch_view(slot.outputs[0])
    if "gelu" in case.op:

        def call():
            slot.result = library.nn.functional.gelu(library.addmm(arrays[2], a, b))

        return call
    if added(case):
        return lambda: library.addmm(arrays[2], a, b, out=out)
    if case.dtype == "float8_e4m3fn":
        one, fast = library.ones((), device="cuda"), case.op.endswith("fast")
        return lambda: library._scaled_mm(
            a, b, scale_a=one, scale_b=one, out_dtype=library.bfloat16, use_fast_accum=fast, out=out
        )
    if case.dtype == "int8":
        return lambda: library._int_mm(a, b, out=out)
    if case.dtype == "float32":

        def call():
            library.backends.cuda.matmul.allow_tf32 = case.op.endswith("tf32")
            library.matmul(a, b, out=out)

        return call
    return lambda: library.matmul(a, b, out=out)


def quack(case, slot, libraries):
    (a, b), out = operands(case, [libraries.torch_view(x) for x in slot.inputs]), libraries.torch_view(slot.outputs[0])
    return lambda: libraries.quack.gemm(a, b, out=out)


def run_random(chosen) -> int:
    """``--cases random [CLASS ...]``."""
    from matmul_sweep import main

    return main(chosen)


CONTESTANTS = {OURS: ours, "torch": torch, "quack": quack}
