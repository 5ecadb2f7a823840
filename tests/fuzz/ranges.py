"""Random operations on segments that begins and ends give: in any order, empty, overlapping, or one of all."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import cutesync as cs

from .draw import Case, Dice
from .judge import Wanted, exactly
from .values import NUMBERS, extent, pick

OFFSETS = ("int64", "int32", "uint32")
BEYOND = 9  # how far begins and ends lie outside of the array


def first(a, b):
    return a


def less_last(a, b):
    return a * 0 + b


OPERATORS: dict[Any, Callable] = {
    "add": lambda a, b: a + b,
    "max": max,
    "min": min,
    first: first,
    less_last: less_last,
}


def segments(dice: Dice) -> Case:
    """``cs.segmented_reduce`` or ``cs.segmented_scan``."""
    theme, rng = dice.theme, dice.rng
    scans, source = bool(theme.integers(2)), pick(theme, [t for t in NUMBERS if t.kind != "b"])
    op, kinds = pick(theme, tuple(OPERATORS)), (pick(theme, OFFSETS), pick(theme, OFFSETS))
    exclusive, reverse = (bool(theme.integers(2)) and scans for _ in range(2))
    start = "init" if theme.random() < 0.4 else "identity"
    (length,), count = dice.vector(dice.shapes((1,), most=900)), extent(rng, 300)
    n = pick(rng, (None, None, 0, count // 2, count + 3, -1))
    counting = slice(None) if scans or n is None or n >= count else slice(max(n, 0))
    options: dict[str, Any] = {"op": op, start: int(rng.integers(0, 5)), "n": n}
    options |= {"exclusive": exclusive, "reverse": reverse} if scans else {}

    def made(rng) -> dict[str, np.ndarray]:
        places = _apart(rng, length, count) if scans else _anywhere(rng, length, count)
        signed = [place if kind[0] == "i" else np.maximum(place, 0) for place, kind in zip(places, kinds)]
        begins, ends = (place.astype(kind) for place, kind in zip(signed, kinds))
        low = -3 if source.kind != "u" else 0
        return {"x": rng.integers(low, 4, length).astype(source.numpy), "begins": begins, "ends": ends}

    def wanted(inputs) -> tuple[Wanted, ...]:
        return (exactly((scanned if scans else reduced)(options, **inputs)[counting]),)

    call = cs.segmented_scan if scans else cs.segmented_reduce
    names = ("x", "begins", "ends")
    layouts = {name: (dice.offset(), (pick(rng, (1, 1, 2)),)) for name in names}
    out = "none" if scans or counting != slice(None) else pick(rng, ("none", "given"))
    function = functools.partial(_called, call, counting)
    return Case(f"cs.{call.__name__} of ranges", function, made(rng), options, wanted, made, layouts, out)


def _anywhere(rng, length: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    begins = rng.integers(-BEYOND, length + BEYOND, count)
    lengths = rng.integers(-BEYOND, pick(rng, (1, 4, 40)), count)
    lengths[rng.random(count) < pick(rng, (0.0, 0.0, 0.05))] = length + 2 * BEYOND
    return begins, begins + lengths


def _apart(rng, length: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Segments that do not overlap, in any order."""
    cuts, order = np.sort(rng.integers(0, length + 1, 2 * count)), rng.permutation(count)
    if rng.random() < 0.3:  # without gaps
        cuts[1:-1:2] = cuts[2::2]
    return cuts[::2][order], cuts[1::2][order]


def _called(call: Callable, counting: slice, x, begins, ends, **options) -> Any:
    """Make a call; return the results that are written."""
    found = call(x, offsets=(begins, ends), **options)
    return found if counting == slice(None) else found[counting]


def _states(options: dict, x: np.ndarray, begins: np.ndarray, ends: np.ndarray):
    """Each segment that counts: its number, its places in the order of the operation, and the states before and behind
    each of them; None if there is none."""
    combine, reverse = OPERATORS[options["op"]], options.get("reverse", False)
    start = options.get("init", options.get("identity") if options.get("exclusive") else None)
    count = len(begins) if options["n"] is None else min(max(options["n"], 0), len(begins))
    numbers = x.astype(np.float64).tolist() if x.dtype.kind not in "iu" else x.tolist()
    for k in range(count):
        stop = min(max(int(ends[k]), 0), len(x))
        places = range(min(max(int(begins[k]), 0), len(x)), stop)
        states = [start]
        for i in reversed(places) if reverse else places:
            pair = (numbers[i], states[-1]) if reverse else (states[-1], numbers[i])
            states.append(numbers[i] if states[-1] is None else combine(*pair))
        yield k, list(reversed(places)) if reverse else list(places), states


def _cast(found: list, x: np.ndarray) -> np.ndarray:
    wide = np.array(found, np.int64 if x.dtype.kind in "iu" else np.float64)
    return wide.astype(x.dtype)


def reduced(options: dict, x: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The result of each segment."""
    found = [0] * len(begins)
    for k, _, states in _states(options, x, begins, ends):
        found[k] = options.get("identity", 0) if states[-1] is None else states[-1]
    return _cast(found, x)


def scanned(options: dict, x: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The result of each element, 0 where there is none."""
    found = [0] * len(x)
    for _, places, states in _states(options, x, begins, ends):
        for i, state in zip(places, states if options["exclusive"] else states[1:]):
            found[i] = state
    return _cast(found, x)
