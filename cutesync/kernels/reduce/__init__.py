"""Reductions; the public functions are those of ``call``."""

from .call import all, any, argmax, argmin, max, min, prod, reduce, sum

__all__ = ["all", "any", "argmax", "argmin", "max", "min", "prod", "reduce", "sum"]
