"""Discontinuity flags and differences; the public functions are those of ``call``."""

from .call import adjacent_difference, flag_heads, flag_heads_and_tails, flag_tails

__all__ = ["adjacent_difference", "flag_heads", "flag_heads_and_tails", "flag_tails"]
