"""Selections: the elements that a mask, bits or a callable choose, in order. Nothing here waits for the host."""

from __future__ import annotations

from .call import compress, partition, select
from .nonzero import argwhere, flatnonzero, nonzero
from .result import Selected
from .runs import run_length_encode, unique_consecutive
from .three import Partitioned, partition3

__all__ = [
    "Partitioned",
    "Selected",
    "argwhere",
    "compress",
    "flatnonzero",
    "nonzero",
    "partition",
    "partition3",
    "run_length_encode",
    "select",
    "unique_consecutive",
]
