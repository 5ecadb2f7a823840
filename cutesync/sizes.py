"""Arithmetic of tile counts, for the host side of every family."""

from __future__ import annotations


def ceil_div(a: int, b: int) -> int:
    """Return the smallest integer that is not below a / b."""
    return -(-a // b)


def power_of_two(n: int) -> int:
    """Return the smallest power of two that is not below ``n``; 1 for 0."""
    return 1 << max(n - 1, 0).bit_length()


def power_of_two_below(n: int) -> int:
    """Return the largest power of two that is not above ``n``; 1 for 0."""
    return 1 << max(n, 1).bit_length() - 1
