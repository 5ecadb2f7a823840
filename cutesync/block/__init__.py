"""Collectives of a block, for people's own CuTe kernels (device code: importing this imports the DSL)."""

from .adjacent_difference import AdjacentDifference
from .compact import Compact
from .discontinuity import Discontinuity
from .exchange import Exchange
from .load_store import Load, Store
from .merge_path import merge_path
from .reduce import Reduce
from .run_length_decode import RunLengthDecode
from .scan import Scan

__all__ = [
    "AdjacentDifference",
    "Compact",
    "Discontinuity",
    "Exchange",
    "Load",
    "Reduce",
    "RunLengthDecode",
    "Scan",
    "Store",
    "merge_path",
]
