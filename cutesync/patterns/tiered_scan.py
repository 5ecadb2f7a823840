"""A running sum over many blocks, by launches alone: scan the tiles, scan their totals, add those.

With tiles of 4:

    x            3 1 4 1 | 5 9 2 6 | 5 3 5 8
    launch 1     reduce each tile        -->  totals    9 22 21
    launch 2     scan the totals         -->  9 31 52          (many totals: scanned in tiers themselves)
    launch 3     scan each tile, starting from the scanned total of the tile before it
                 3 4 8 9 | 14 23 25 31 | 36 39 44 52

Nobody waits inside a launch: a block that waited for the total of another block could wait for one that has not
started. The end of a launch is the barrier of the whole grid. There are as many tiers as the array needs. The device
code is that of ``cs.scan``, in kernels/scan/tiered.py, where the bytes are counted; kernels/scan/pipeline.py needs one
launch.
"""

from __future__ import annotations

from cutesync import reference as meaning
from cutesync.kernels.scan import scan


def run(x, op="add", *, exclusive=False, reverse=False, init=None, dtype=None, identity=None, out=None, stream=None):
    """``cs.scan`` of ``x`` along its last axis, with ``algorithm="tiered"``: its arguments, results and errors."""
    return scan(
        x,
        op,
        exclusive=exclusive,
        reverse=reverse,
        init=init,
        dtype=dtype,
        identity=identity,
        out=out,
        algorithm="tiered",
        stream=stream,
    )


def reference(x, op="add", **options):
    """The same in NumPy."""
    return meaning.scan(x, op, **options)
