"""The NumPy meaning of flags and differences; see ``reference``."""

from __future__ import annotations

import functools

import numpy as np

from .dtypes import DType, dtype as parse
from .ops import COMPARISONS, DIFFERENCES, neighbour_operator, takes_index


def _of_rows(function):
    """Return the function along any ``axis``, of which the first ``n`` items count: results from there on are 0."""

    @functools.wraps(function)
    def along(x, *arguments, axis=-1, n=None, **options):
        rows = np.moveaxis(np.asarray(x), axis, -1)
        length = rows.shape[-1]
        count = length if n is None else min(max(int(n), 0), length)
        found = function(rows[..., :count], *arguments, **options)
        words = -(-length // 32) if options.get("dtype") == "bits" else length
        result = np.zeros((*rows.shape[:-1], words), found.dtype)
        result[..., : found.shape[-1]] = found
        return np.ascontiguousarray(np.moveaxis(result, -1, axis))

    return along


@_of_rows
def flag_heads(x, op="ne", *, predecessor=None, dtype="uint8", tile=None, args=()):
    """Return the result of ``cs.flag_heads``, as a NumPy array. A callable is called only for the pairs that it
    decides."""
    x = np.asarray(x)
    values, place = _items(x), _places(x, tile)
    before = np.roll(values, 1, -1)
    return _flags(before, values, place, place == 0, predecessor, (op, args), dtype, x)


@_of_rows
def flag_tails(x, op="ne", *, successor=None, dtype="uint8", tile=None, args=()):
    """Return the result of ``cs.flag_tails``."""
    x = np.asarray(x)
    values, place = _items(x), _places(x, tile)
    last = np.roll(place, -1, -1) == 0  # the next item begins a row or tile
    return _flags(values, np.roll(values, -1, -1), place + 1, last, successor, (op, args), dtype, x)


def flag_heads_and_tails(x, op="ne", *, predecessor=None, successor=None, **options):
    """Return the results of ``cs.flag_heads_and_tails``."""
    return flag_heads(x, op, predecessor=predecessor, **options), flag_tails(x, op, successor=successor, **options)


def _items(x: np.ndarray) -> np.ndarray:
    return x.astype(_dtype(x).accumulator.numpy)


def _places(x: np.ndarray, tile) -> np.ndarray:
    """Return the index of every item in its row or tile."""
    place = np.arange(x.shape[-1], dtype=np.int64)
    return np.broadcast_to(place if tile is None else place % tile, x.shape)


def _flags(a, b, index, forced, end, rule, wanted, x):
    """Return flags between ``a`` and ``b`` by a ``rule``: the operator and its run-time arguments. Where ``forced``,
    ``end`` replaces the earlier (heads) or later (tails) operand; without ``end`` the flag is 1."""
    if end is not None:
        end = np.asarray(end).astype(x.dtype).astype(a.dtype)
        a, b = (np.where(forced, end, a), b) if np.all(index[forced] == 0) else (a, np.where(forced, end, b))
        forced = np.zeros_like(forced)
    op, args = rule
    parsed, pairs = neighbour_operator(op, COMPARISONS), ~forced
    operands = (a[pairs], b[pairs], index[pairs])[: 3 if takes_index(parsed.fn, len(args)) else 2]
    flags = np.ones(x.shape, bool)
    if pairs.any():
        flags[pairs] = np.asarray(parsed.numpy(*operands, *args)).astype(bool)
    return _packed(flags) if isinstance(wanted, str) and wanted == "bits" else flags.astype(parse(wanted).numpy)


def _packed(flags: np.ndarray) -> np.ndarray:
    """Pack 32 flags into each word, the first in the lowest bit."""
    *rows, length = flags.shape
    padded = np.zeros((*rows, -(-length // 32) * 32), bool)
    padded[..., :length] = flags
    return np.packbits(padded, -1, "little").view("<u4").astype(np.uint32)


@_of_rows
def adjacent_difference(x, op="sub", *, reverse=False, args=()):
    """Return the result of ``cs.adjacent_difference``."""
    x = np.asarray(x)
    values, out = _items(x), _items(x).copy()
    items, neighbours = (slice(0, -1), slice(1, None)) if reverse else (slice(1, None), slice(0, -1))
    with np.errstate(all="ignore"):
        out[..., items] = neighbour_operator(op, DIFFERENCES).numpy(values[..., items], values[..., neighbours], *args)
        return out.astype(x.dtype)


def _dtype(x: np.ndarray) -> DType:
    return parse(x.dtype)
