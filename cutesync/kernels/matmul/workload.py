"""What the model knows of a problem."""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from .policy import K_TILE_BYTES, MAX_ACCUMULATORS


class Access(NamedTuple):
    """How the operands are found: whether K is contiguous in B, and how many bytes lie between rows of A and of B.
    ``own_a``, ``own_b``: instructions for 16 bytes where the producer's threads load them, 0 for TMA."""

    b_k_major: bool = True
    pitch_a: int = K_TILE_BYTES
    pitch_b: int = K_TILE_BYTES
    own_a: int = 0
    own_b: int = 0


class Workload(
    namedtuple(
        "Workload",
        "m n k_tiles batch out_bytes promoted slices access accumulators by_tma parts copies copied activation "
        "by_elements by_columns odd",
        defaults=(False, 0, Access(), MAX_ACCUMULATORS, True, False, 0, 0, False, False, False, True),
    )
):
    """What the model knows of a problem; ``slices`` are those of K, 0 leaves them to the model, ``accumulators`` how
    many a thread may have, ``by_tma`` whether TMA stores the result, ``parts`` that float32 operands are split in the
    kernel, ``copies`` how many operands are packed before, ``copied`` the bytes that this reads and writes,
    ``activation`` whether the results pass a function, ``by_elements`` whether threads store them one by one and not in
    lines, ``by_columns`` whether columns of a tile are contiguous in the result, and ``odd`` whether
    ``MatmulPolicy.odd`` tiles suit it."""

    @property
    def own(self) -> bool:
        """Whether the producer's threads load an operand."""
        return self.access.own_a + self.access.own_b > 0

    @property
    def b_k_major(self) -> Any:
        """Whether K is contiguous in B."""
        return self.access.b_k_major

    @property
    def grain_a(self) -> Any:
        """The largest power of two, up to a cache line, that divides the pitch of A."""
        return _grain(self.access.pitch_a)

    @property
    def grain_b(self) -> Any:
        return _grain(self.access.pitch_b)

    @property
    def owned(self) -> Any:
        """How many operands the producer's threads load."""
        return 1 * (self.access.own_a > 0) + (self.access.own_b > 0)

    @property
    def instructions(self) -> Any:
        """Of the producer's threads for 16 bytes of each operand."""
        return self.access.own_a + self.access.own_b

    @property
    def moved(self) -> Any:
        """Bytes of the operands and the results."""
        return self.batch * (K_TILE_BYTES * self.k_tiles * (self.m + self.n) + self.m * self.n * self.out_bytes)


def _grain(pitch: Any) -> Any:
    return math.gcd(pitch, K_TILE_BYTES) if isinstance(pitch, int) else np.gcd(pitch, K_TILE_BYTES)


class Each(
    namedtuple(
        "Each",
        "m n k_tiles batch out_bytes moved accumulators slices copies copied by_tma by_columns activation promoted "
        "parts b_k_major grain_a grain_b instructions owned odd",
    )
):
    """Of several workloads what ``cost``, ``possible`` and the correction ask, an array each."""

    @staticmethod
    def rows(loads: Sequence[Workload]) -> np.ndarray:
        """A row for each field, a column for each workload."""
        return np.array([_fields(load) for load in loads], float).T


_fields = attrgetter(*Each._fields)
