"""Reductions; the public functions are those of ``call`` and ``named``."""

from .call import all, any, argmax, argmin, max, min, prod, reduce, sum
from .named import count_nonzero, logsumexp, mean, minmax, std, var, var_mean

__all__ = [
    "all",
    "any",
    "argmax",
    "argmin",
    "count_nonzero",
    "logsumexp",
    "max",
    "mean",
    "min",
    "minmax",
    "prod",
    "reduce",
    "std",
    "sum",
    "var",
    "var_mean",
]
