"""Collectives of a block, for people's own CuTe kernels (device code: importing this imports the DSL)."""

from .adjacent_difference import AdjacentDifference
from .discontinuity import Discontinuity
from .exchange import Exchange
from .load_store import Load, Store
from .reduce import Reduce
from .scan import Scan

__all__ = ["AdjacentDifference", "Discontinuity", "Exchange", "Load", "Reduce", "Scan", "Store"]
