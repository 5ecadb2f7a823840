"""The one launch of all kernels but those of products. Device code."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32

from ..sync.overlap import await_launches


class PlainKernel:
    """A compiled kernel: a grid of one dimension of blocks of ``threads`` with ``smem`` bytes of dynamic shared memory,
    of which ``blocks_per_sm`` must fit on a multiprocessor (0: any number), in clusters of ``cluster``. ``waits``: for
    the launches before, at once; otherwise the subclass does, before its first access to global memory.

    A subclass has its ``name``, and ``main``, which gets the parameters and groups of parameters of its KernelSpec; or
    ``arguments``, which makes a namedtuple of these, and ``body``, which gets it."""

    name: str
    threads: int
    smem, blocks_per_sm, cluster, waits = 0, 0, 1, True
    arguments: Any
    body: Any

    def __init__(self, threads: int, smem: int = 0, blocks_per_sm: int = 1) -> None:
        self.threads, self.smem, self.blocks_per_sm = threads, smem, blocks_per_sm

    @cute.jit
    def __call__(self, given: tuple, grid: Int32, stream):
        self.kernel.set_name_prefix(f"cutesync_{self.name}", remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(given).launch(
            grid=(grid, 1, 1),
            block=(self.threads, 1, 1),
            cluster=(self.cluster, 1, 1) if self.cluster > 1 else None,
            smem=self.smem,
            min_blocks_per_mp=self.blocks_per_sm,
            preferred_smem_carveout=-1,
            stream=stream,
        )

    @cute.kernel
    def kernel(self, given: tuple):
        if cutlass.const_expr(self.waits):
            await_launches()
        self.main(*given)

    def main(self, *args: Any, **kwargs: Any) -> None:
        self.body(self.arguments(*args))
