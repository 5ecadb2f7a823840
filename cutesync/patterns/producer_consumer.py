"""``out[i] = fn(x[i])`` by a producer warp and consumer warps, through buffers in shared memory.

    producer warp     wait until a buffer is empty    fill it    say that it is full
                                 ^                                       |
    consumer warps    say that it is empty    use it    wait until it is full

The kernels are in two_buffers.py (two buffers, a thread moves an element: "tokens", "parity", "pipeline") and
streaming.py (N stages filled by bulk copies: "bulk"). This file chooses between them.
"""

from __future__ import annotations

import numpy as np

from cutesync.arguments import choice, whole
from cutesync.patterns import streaming, two_buffers
from cutesync.runtime import arrays

FORMS = ("bulk", *two_buffers.FORMS)
reference = two_buffers.reference


def run(x, fn, *, form: str = "auto", stages=None, buffer=None, consumers=None, blocks=None, out=None, stream=None):
    """``fn`` of every element of the vector ``x``.

    Parameters
    ----------
    x : contiguous vector of any type and length; NumPy, torch, CuPy, DeviceArray, ...
    fn : a callable of one value that the DSL can trace; its result is converted to the type of ``x``.
    form : "bulk", "tokens", "parity", "pipeline", or "auto": bulk where ``x`` and ``out`` lie on 16-byte boundaries,
        else parity.
    stages : stages of the ring ("bulk", default 8; the other forms have two buffers).
    buffer : bytes of a stage, a multiple of 512 a consumer ("bulk"), or elements of a buffer (the other forms).
    consumers : consumer warps, 1 to 31; default 8 ("bulk") or 4.
    blocks : blocks of the grid; default as many as run at once.
    out, stream : as in ``cs.reduce``; ``out`` of the shape and type of ``x``.

    Returns
    -------
    array of the library of ``x``.
    """
    choice(form, "form", (*FORMS, "auto"))
    stages = streaming.STAGES if stages is None else whole(stages, "stages")
    if form == "auto":
        form = "bulk" if all(_aligned(array) for array in (x, out) if array is not None) else "parity"
    options = {"buffer": buffer, "consumers": consumers, "blocks": blocks, "out": out, "stream": stream}
    if form == "bulk":
        return streaming.run(x, fn, stages=stages, **options)
    return two_buffers.run(x, fn, form=form, **options)


def _aligned(array) -> bool:
    """Whether bulk copies can move it; a NumPy array is copied to the device, which aligns it."""
    return isinstance(array, np.ndarray) or arrays.adapter(array).view(array).ptr % 16 == 0
