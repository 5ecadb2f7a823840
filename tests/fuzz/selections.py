"""Random selections, partitions, runs and coordinates of arrays of any strides, flat and by rows, and NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np

import cutesync as cs
from cutesync.runtime.view import contiguous_strides

from .draw import Case, Dice
from .judge import Wanted, exactly
from .values import NUMBERS, pick, values

FORMS = ("select", "partition", "runs", "nonzero", "argwhere", "rows", "runs of rows")


def selection(dice: Dice) -> Case:
    """One of ``FORMS``, with results of a given size."""
    theme, rng = dice.theme, dice.rng
    form, source = pick(theme, FORMS), pick(theme, NUMBERS)
    axes = (1, 2, 3) if form not in ("select", "partition", "runs") else (0, 1, 1, 2, 3)
    extents = dice.shape(dice.shapes(axes, most=900))
    order, step = theme.permutation(3), int(theme.integers(1, 3))
    steps = steps_of(extents, order, step)
    options: dict[str, Any] = {}
    if form != "partition":
        options["size"] = int(rng.integers(0, int(np.prod(extents)) + 40))
    if form in ("rows", "runs of rows"):
        options["axis"] = int(rng.integers(-len(extents), len(extents)))
    masked = form in ("select", "partition", "rows")

    def made(rng) -> dict[str, np.ndarray]:
        found = {"x": values(rng, extents, source, pick(rng, ("runs", "runs", "special")))}
        return found | ({"where": rng.random(extents) < pick(rng, (0.0, 0.1, 0.5, 1.0))} if masked else {})

    def wanted(inputs) -> tuple[Wanted, ...]:
        return tuple(map(exactly, MEANINGS[form](options, **inputs)))

    layouts = {name: (dice.offset(), steps if rng.random() < 0.6 else None) for name in ("x", "where")}
    return Case(f"cs.{form}", CALLS[form], made(rng), options, wanted, made, layouts)


def steps_of(extents: tuple, order: np.ndarray, step: int) -> tuple[int, ...]:
    """Strides of an array whose axes lie in memory in another order, ``step`` elements apart at least."""
    places = [int(i) for i in order if i < len(extents)]
    inside = contiguous_strides(tuple(extents[i] for i in places))
    found = dict(zip(places, inside))
    return tuple(found[i] * step for i in range(len(extents)))


def _parts(found: Any) -> tuple:
    several = found.values if type(found.values) is tuple else (found.values,)
    return (*several, found.count, *found.more)


def _select(x, where, **options):
    return _parts(cs.select(x, where, indices=True, fill_value=1, **options))


def _partition(x, where, **options):
    return _parts(cs.partition(x, where, indices=True, **options))


def _runs(x, **options):
    found = cs.unique_consecutive(x, return_counts=True, return_inverse=True, fill_value=1, **options)
    return found if type(found) is tuple else (found.values, found.inverse, found.lengths)


def _encoded(x, **options):
    found = cs.run_length_encode(x, fill_value=1, **options)
    return found.values, found.count, found.lengths


def _nonzero(x, **options):
    found = cs.nonzero(x, fill_value=-1, **options)
    return found if type(found) is tuple else _parts(found)[:-1]


def _argwhere(x, **options):
    found = cs.argwhere(x, fill_value=-1, **options)
    return found if isinstance(found, np.ndarray) else found.values


CALLS = {
    "select": _select,
    "partition": _partition,
    "runs": _runs,
    "nonzero": _nonzero,
    "argwhere": _argwhere,
    "rows": _select,
    "runs of rows": _encoded,
}


def _filled(x: np.ndarray, size: int, value: Any) -> np.ndarray:
    rest = np.full((max(size - len(x), 0), *x.shape[1:]), value, x.dtype)
    return np.concatenate([x, rest])[:size]


def _heads(x: np.ndarray) -> np.ndarray:
    """Where the runs of an array begin; NaN is equal to NaN."""
    found = np.ones(len(x), bool)
    found[1:] = (x[1:] != x[:-1]) & ((x[1:] == x[1:]) | (x[:-1] == x[:-1]))
    return found


def _rows(x: np.ndarray, axis: int) -> tuple[np.ndarray, tuple]:
    moved = np.moveaxis(x, axis, -1)
    outer = moved.shape[:-1]
    return moved.reshape(int(np.prod(outer, dtype=int)), moved.shape[-1]), outer


def _stacked(parts: list, outer: tuple, size: int, dtype) -> np.ndarray:
    return np.concatenate([np.zeros((0, size), dtype), *(part[None] for part in parts)]).reshape(*outer, size)


def _of_select(options, x, where):
    size = options["size"]
    found = np.flatnonzero(where)
    return _filled(x.ravel()[found], size, 1), np.int64(len(found)), _filled(found, size, -1)


def _of_partition(options, x, where):
    order = np.concatenate([np.flatnonzero(where), np.flatnonzero(~where)])
    return x.ravel()[order], np.int64(where.sum()), order


def _of_runs(options, x):
    x, size = x.ravel(), options["size"]
    index = np.flatnonzero(heads := _heads(x))
    lengths = np.diff(np.append(index, len(x)))
    return _filled(x[index], size, 1), np.cumsum(heads) - 1, _filled(lengths, size, 0)


def _of_rows(options, x, where):
    (rows, outer), size = _rows(x, options["axis"]), options["size"]
    kept, _ = _rows(where, options["axis"])
    values = [_filled(row[m], size, 1) for row, m in zip(rows, kept)]
    places = [_filled(np.flatnonzero(m), size, -1) for m in kept]
    count = kept.sum(1).astype(np.int64).reshape(outer)
    return _stacked(values, outer, size, x.dtype), count, _stacked(places, outer, size, np.int64)


def _of_runs_of_rows(options, x):
    (rows, outer), size = _rows(x, options["axis"]), options["size"]
    heads = [_heads(row) for row in rows]
    values = [_filled(row[h], size, 1) for row, h in zip(rows, heads)]
    lengths = [_filled(np.diff(np.append(np.flatnonzero(h), len(h))), size, 0) for h in heads]
    count = np.array([h.sum() for h in heads], np.int64).reshape(outer)
    return _stacked(values, outer, size, x.dtype), count, _stacked(lengths, outer, size, np.int64)


MEANINGS = {
    "select": _of_select,
    "partition": _of_partition,
    "runs": _of_runs,
    "nonzero": lambda options, x: tuple(_filled(one, options["size"], -1) for one in np.nonzero(x)),
    "argwhere": lambda options, x: (_filled(np.argwhere(x), options["size"], -1),),
    "rows": _of_rows,
    "runs of rows": _of_runs_of_rows,
}
