"""Indices in the parts of a sharded array, made indices in the whole array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dtypes import INT64
from ..runtime import arrays
from ..runtime.kernel import KernelSpec, Pointer, Scalar
from .recorder import launcher
from .sharded import Sharded

if TYPE_CHECKING:
    from .work import Work

THREADS = 256


class Shift:
    """The launches that add to the first indices of each part of ``x`` how many elements come before the part; each
    device has their number."""

    def __init__(self, x: Sharded) -> None:
        spec, self.runs = kernel_spec(), list[Any]()
        for at, before, view in zip(x.group.ordinals, x.offsets, x.views):
            inner = max(view.size // max(view.shape[x.axis or 0], 1), 1)
            values = {"capacity": view.size, "before": before * inner}
            grid = -(-max(view.size, 1) // THREADS)
            self.runs.append(launcher(spec, at, grid, values, ("indices", "count")))

    def launch(self, rank: int, indices: Any, count: Any, work: Work) -> None:
        """Launch on one device."""
        self.runs[rank](tuple(arrays.adapter(array).address(array) for array in (indices, count)), work.streams[rank])


def kernel_spec() -> KernelSpec:
    """Return the kernel of ``Shift``."""
    pointers = Pointer("indices", INT64), Pointer("count", INT64)
    numbers = Scalar("capacity", "Int64"), Scalar("before", "Int64")

    def make() -> Any:
        from .places_kernel import ShiftKernel

        return ShiftKernel(THREADS, blocks_per_sm=0)

    return KernelSpec(("shift indices",), (*pointers, *numbers), make)
