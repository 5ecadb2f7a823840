"""The launches that pack operands (see ``pack`` and ``pack_rows``)."""

from __future__ import annotations

from typing import Any

from ...dtypes import BY_NAME, DType
from ...runtime.kernel import KernelSpec, Pointer, Scalar
from ...runtime.launch import Launch
from . import policy
from .pack_job import PackJob
from .plan import TMA_BYTES

PACK_THREADS = 256  # of a block


def make_pack(job: PackJob, element: DType, ordinal: int, stream: int) -> Launch:
    """The launch that packs an operand (see ``problem.PackJob``)."""
    span, spec = job.span * element.size, pack_spec(element, job.form, job.side)
    if job.form == "rows":
        lines, across = job.items * job.rows, -(-span // policy.PACK_RUN)
        blocks = -(-lines * across * 32 // PACK_THREADS)
        numbers = [
            lines,
            job.rows,
            *(element.size * n for n in (job.inner, *job.strides[:2], *job.edges)),
            span,
            across,
        ]
    else:
        words = span // 4
        across, down = -(-words // policy.PACK_WORDS), -(-job.rows // policy.PACK_ROWS)
        blocks = job.items * across * down
        numbers = [job.rows, job.inner, *job.strides, words, across, down]
    names = [p.name for p in spec.parameters[2:]]
    return Launch(spec, ordinal, blocks, dict(zip(names, numbers)), stream=stream)


def pack_spec(element: DType, form: str, side: str) -> KernelSpec:
    """The kernel for elements of this size, which are moved as bits."""
    moved = BY_NAME[f"uint{8 * element.size}"]

    def make() -> Any:
        from .pack import Pack
        from .pack_rows import PackRows

        return PackRows(moved.cutlass, side) if form == "rows" else Pack(moved.cutlass, form == "transposed", side)

    longs: tuple[str, ...] = ("rows", "inner", "item_stride", "row_stride", "inner_stride", "words")
    words: tuple[str, ...] = ("across", "down")
    order = (*longs, *words)
    if form == "rows":
        longs, words = ("inner", "item_stride", "row_stride", "low", "high", "span"), ("lines", "rows", "across")
        order = ("lines", "rows", *longs, "across")
    kinds = dict.fromkeys(longs, "Int64") | dict.fromkeys(words, "Uint32")
    pointers = Pointer("x", moved), Pointer("out", moved, TMA_BYTES)
    numbers = [Scalar(name, kinds[name]) for name in order]
    return KernelSpec(("matmul pack", element.size, form, side), (*pointers, numbers), make)
