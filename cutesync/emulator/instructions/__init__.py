"""What each PTX instruction does, as generated Python. ``emitter(instr)`` gives the function that emits it."""

from . import (  # noqa: F401 (each registers its opcodes)
    barrier,
    bits,
    bulk_copy,
    calls,
    control,
    floating,
    integer,
    matrix_ops,
    memory_ops,
    moves,
    remote_store,
    small_copy,
    tensor_map_edit,
    warp,
    warpgroup,
)
from .registry import emitter, gathers_lanes, splits_around

__all__ = ["emitter", "gathers_lanes", "splits_around"]
