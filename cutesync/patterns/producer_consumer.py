"""``out[i] = fn(x[i])`` by a producer warp and consumer warps, through buffers in shared memory.

    producer warp     wait until a buffer is empty    fill it    say that it is full
                                 ^                                       |
    consumer warps    say that it is empty    use it    wait until it is full

The kernels are in two_buffers.py (two buffers, two barriers a buffer, in the three forms of the documents) and streaming.py (N stages filled by bulk
copies); here is the host's call.
"""

from __future__ import annotations

import numpy as np

from ..arguments import choice, whole
from ..errors import ArgumentValueError, explain
from .host import Call, multiprocessors, traceable
from .kernel import MOST_SHARED, WARP

FORMS = ("bulk", "tokens", "parity", "pipeline")
STAGES, STAGE_BYTES, BLOCKS_PER_SM = 8, 8192, 3  # 3 * 64 KiB of stages a multiprocessor
CONSUMERS = {"bulk": 8, "tokens": 4, "parity": 4, "pipeline": 4}
UNIT = WARP * 16  # bytes that a consumer warp handles at a time
BUFFER = 1024  # elements of each of the two buffers


def run(
    x,
    fn,
    *,
    form: str = "auto",
    stages: int = STAGES,
    buffer: int | None = None,
    consumers: int | None = None,
    blocks: int | None = None,
    out=None,
    stream=None,
):
    """``fn`` of every element of the vector ``x``.

    Parameters
    ----------
    x : contiguous vector of any type and length; NumPy, torch, CuPy, DeviceArray, ...
    fn : a callable of one value that the DSL can trace; its result is converted to the type of ``x``.
    form : "bulk", "tokens", "parity", "pipeline", or "auto": bulk where ``x`` and ``out`` lie on 16-byte boundaries, else parity.
    stages : stages of the ring ("bulk"; the other forms have two buffers).
    buffer : bytes of a stage, a multiple of 512 a consumer ("bulk"), or elements of a buffer, any number (the other forms).
    consumers : consumer warps, 1 to 31; default 8 ("bulk") or 4. blocks : blocks of the grid; default as many as run at once.
    out, stream : as in ``cs.reduce``; ``out`` of the shape and type of ``x``.

    Returns
    -------
    array of the library of ``x``.
    """
    call = Call(x, stream)
    choice(form, "form", (*FORMS, "auto"))
    stages = whole(stages, "stages")
    given = ((buffer, "buffer"), (consumers, "consumers"), (blocks, "blocks"))
    buffer, consumers, blocks = (None if number is None else whole(number, name) for number, name in given)
    if consumers is not None and not 1 <= consumers <= 31:
        raise ArgumentValueError(
            explain("consumers", f"{consumers} consumer warps + 1 producer warp", "2 to 32 warps a block")
        )
    if blocks is not None and not 1 <= blocks < 2**31:
        raise ArgumentValueError(explain("blocks", blocks, "1 to 2**31 - 1"))
    result = call.out(out, call.x.shape, call.x.dtype)
    target = call.pointer(result)
    aligned = (call.x.ptr | target) % 16 == 0
    if form == "auto":
        form = "bulk" if aligned else "parity"
    if form == "bulk" and not aligned:
        raise ArgumentValueError(
            explain(
                "form 'bulk'",
                f"x at {call.x.ptr:#x} and out at {target:#x}",
                "multiples of 16: bulk copies need that",
                "form='auto'",
            )
        )
    consumers = CONSUMERS[form] if consumers is None else consumers
    make = _bulk if form == "bulk" else _two_buffers
    host, tile_bytes, per_sm = make(traceable(fn, "fn"), call.x.dtype, form, stages, buffer, consumers)
    if call.size:
        grid = blocks or min(-(-call.x.nbytes // tile_bytes), per_sm * multiprocessors(call.device))
        types = (call.x.dtype,) * 3
        call.launch(host, call.x.ptr, target, types=types, n=call.size, grid=grid, counted=form == "bulk")
    return call.result(result)


def _bulk(fn, dtype, form: str, stages: int, stage_bytes: int | None, consumers: int):
    stage_bytes = consumers * UNIT * max(1, STAGE_BYTES // (consumers * UNIT)) if stage_bytes is None else stage_bytes
    if stages < 1:
        raise ArgumentValueError(explain("stages", stages, "at least 1"))
    if stage_bytes < 1 or stage_bytes % (consumers * UNIT):
        raise ArgumentValueError(
            explain(
                "buffer",
                f"{stage_bytes} bytes",
                f"a multiple of {consumers} consumers * {UNIT} = {consumers * UNIT} bytes",
            )
        )
    shared = stages * stage_bytes
    if shared + 1024 > MOST_SHARED:
        raise ArgumentValueError(
            explain(
                "stages * buffer",
                f"{stages} * {stage_bytes} = {shared} bytes",
                f"at most {MOST_SHARED - 1024} bytes of shared memory",
            )
        )

    def host():
        from .streaming import Streaming

        return Streaming(fn, dtype, stages, stage_bytes, consumers)

    return host, stage_bytes, max(1, min(BLOCKS_PER_SM, (MOST_SHARED + 1024) // (shared + 2048)))


def _two_buffers(fn, dtype, form: str, stages: int, buffer: int | None, consumers: int):
    buffer = BUFFER if buffer is None else buffer
    shared = 2 * buffer * dtype.size
    if buffer < 1 or shared + 1024 > MOST_SHARED:
        raise ArgumentValueError(
            explain(
                "buffer",
                f"2 * {buffer} * {dtype.size} = {shared} bytes",
                f"1 element to {MOST_SHARED - 1024} bytes of shared memory",
            )
        )

    def host():
        from .two_buffers import THREAD_FORMS

        return THREAD_FORMS[form](fn, dtype, buffer, consumers)

    return host, buffer * dtype.size, 8


def reference(x: np.ndarray, fn) -> np.ndarray:
    """The same in NumPy."""
    return np.asarray(fn(np.asarray(x))).astype(x.dtype)
