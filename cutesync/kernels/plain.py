"""What kernels share whose blocks do not wait for each other: one launch of two groups of parameters. Device code."""

from __future__ import annotations

from typing import Any

import cutlass.cute as cute
from cutlass import Int32

from ..sync.overlap import await_launches


class PlainKernel:
    """A compiled kernel in blocks of ``threads``. A subclass has its ``name``; ``arguments(arrays, numbers)``, which
    makes a namedtuple of the parameters of a launch; and ``body``, which gets it."""

    name: str
    arguments: Any
    body: Any

    def __init__(self, threads: int, smem: int = 0, blocks_per_sm: int = 1) -> None:
        self.threads, self.smem, self.blocks_per_sm = threads, smem, blocks_per_sm

    @cute.jit
    def __call__(self, arrays: tuple, numbers: tuple, grid: Int32, stream):
        self.kernel.set_name_prefix(f"cutesync_{self.name}", remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(arrays, numbers).launch(
            grid=(grid, 1, 1),
            block=(self.threads, 1, 1),
            smem=self.smem,
            min_blocks_per_mp=self.blocks_per_sm,
            preferred_smem_carveout=-1,
            stream=stream,
        )

    @cute.kernel
    def kernel(self, arrays: tuple, numbers: tuple):
        await_launches()
        self.body(self.arguments(arrays, numbers))
