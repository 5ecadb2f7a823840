"""What each PTX instruction does, as generated Python. ``emitter(instr)`` gives the function that emits it."""

from . import (  # noqa: F401 (each registers its opcodes)
    barrier,
    bits,
    bulk_copy,
    control,
    floating,
    integer,
    matrix_ops,
    memory_ops,
    moves,
    small_copy,
    tensor_copy,
    transfers,
    warp,
    wmma,
)
from .registry import emitter, gathers_lanes, splits_around

__all__ = ["emitter", "gathers_lanes", "splits_around"]
