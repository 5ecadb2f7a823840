"""``st.async`` and ``red.async``: stores into a cluster peer's shared memory that signal an mbarrier there."""

from __future__ import annotations

import numpy as np

from ..async_copy import Operation, Side
from ..clocks import each
from ..memory import SHARED_BITS
from ..syntax import SIZES, Vec
from .barrier import barrier_address
from .memory_ops import combiner
from .registry import handles
from .transfers import REDUCTIONS, aligned, announce_writes, target_barrier


def remote_store_maker(machine, site: int, width: int, operator: str, kind: str):
    """A store (or reduction) into a cluster peer's shared memory that signals the mbarrier there."""
    combine = combiner(operator, kind) if operator else None

    def run(f, lanes, address, barrier_at, values):
        for lane in each(lanes):
            operation = Operation(f.warp, lane, site, "asynchronous store")
            barrier = target_barrier(operation, int(barrier_at[lane]))
            region, offset = f.warp.block.shared_at(int(address[lane]) & SHARED_BITS)
            row = np.atleast_1d(values[lane])
            size = width * len(row)
            aligned(operation, "the address of an asynchronous store", int(address[lane]), size)
            if region is None or offset < 0 or offset + size > region.high:
                operation.fail("out-of-bounds", f"an asynchronous store of {size} bytes outside shared memory")
            side = Side(region, np.arange(offset, offset + size, width, dtype=np.int64), width)
            announce_writes(operation, [] if operator else [side])

            def land(side=side, row=row, barrier=barrier, operation=operation, size=size):
                new = row
                if combine is not None:
                    old = side.view[side.rows]
                    new = np.array([combine(int(a), int(b), 0) for a, b in zip(old, row)], old.dtype)
                side.write(slice(0, len(row)), new, machine)
                barrier.complete_bytes(size, operation.finished(), operation)

            operation.pieces = [land]
            operation.blocks |= {barrier.block.number}
            operation.start()

    return run


@handles("st.async", "red.async", switch=True)
def st_async(e, instr):
    address, source, barrier = instr.args[:3]
    kind = instr.parts[-1]
    items = source.items if isinstance(source, Vec) else (source,)
    bits = 8 * SIZES[kind]
    values = [e.u(x, bits) for x in items]
    data = values[0] if len(values) == 1 else e.temp(f"np.stack(({', '.join(values)}), 1)")
    operator = next((p for p in instr.parts if p in REDUCTIONS), "") if instr.parts[0] == "red" else ""
    e.effect(
        e.op(remote_store_maker, e.site(), SIZES[kind], operator, kind),
        barrier_address(e, address),
        barrier_address(e, barrier),
        data,
    )
