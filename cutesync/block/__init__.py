"""Collectives of a block, for people's own CuTe kernels (device code: importing this imports the DSL)."""

from .reduce import Reduce

__all__ = ["Reduce"]
