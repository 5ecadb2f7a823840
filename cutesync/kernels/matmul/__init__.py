"""Matrix multiplication; the public functions are those of ``call``."""

from .call import matmul
from .policy import MatmulPolicy

__all__ = ["MatmulPolicy", "matmul"]
