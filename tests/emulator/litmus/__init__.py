"""Litmus: small kernels whose answers from a Hopper GPU are stored, and which the emulator must give as well.

``python -m tests.emulator.litmus --out FILE`` runs every case on the GPU, prints where the emulator differs, and stores
the answers; ``tests/emulator/test_litmus.py`` replays the stored answers where there is no GPU.
"""

from collections.abc import Iterator

from .case import Case, MapOf

__all__ = ["Case", "MapOf", "all_cases"]


def all_cases() -> Iterator[Case]:
    from . import barrier, bulk, memory, rules, scalar, tensor_copy, tensor_core, warp, warpgroup

    for module in (scalar, memory, warp, tensor_core, tensor_copy, barrier, bulk, warpgroup, rules):
        yield from module.cases()
