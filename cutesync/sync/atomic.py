"""Combining a value with memory by one atomic: the simplest way to reduce over blocks, in no particular order."""

from __future__ import annotations

import cutlass.cute as cute

OPERATIONS = {
    "add": cute.arch.atomic_add,
    "min": cute.arch.atomic_min,
    "max": cute.arch.atomic_max,
    "and": cute.arch.atomic_and,
    "or": cute.arch.atomic_or,
    "xor": cute.arch.atomic_xor,
}


def atomic_fold(name: str, address, value) -> None:
    """``memory[address] = op(memory[address], value)``, relaxed, GPU scope. 4- and 8-byte integers; floats only add."""
    OPERATIONS[name](address, value, sem="relaxed", scope="gpu")
