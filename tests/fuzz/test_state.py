"""What a callable reaches may change between two calls: each call's answer is that of the new value, in every family,
however the value is reached.

A stale kernel or plan shows only in a later call of the same process, so every seed here is a history: one callable, a
few shapes, and numbers that change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import cutesync as cs
from cutesync import patterns, reference
from cutesync.errors import OperatorError

from .. import cases
from .captures import PLAIN, WAYS, Capture
from .play import Tally, draw_seeds, ranges
from .values import pick

HISTORIES, SEED, STEPS = 11, 7_000_004, 3  # in CI; calls of a history


class User(NamedTuple):
    """Something that takes a callable: of which arguments, what it may compute, the call, and what NumPy makes of
    it."""

    arguments: str
    expressions: tuple[str, ...]
    call: Callable[[np.ndarray, Any], Any]
    wanted: Callable[[np.ndarray, Any], Any]
    element: str = "int32"


def _square(x: np.ndarray) -> np.ndarray:
    return np.resize(x % 4, (8, 8)).astype(np.float16)


def _given(x: np.ndarray, keep) -> np.ndarray:
    return np.sort(patterns.Channel(x.size, x.dtype.name).give(x, keep).to_numpy())


USERS = {
    "reduce": User(
        "a, b", ("a + b + K", "a ^ b ^ K", "b * (b != K) + a * (b == K)"), cs.reduce, lambda x, fn: cases.fold(fn, x)
    ),
    "reduce rows": User(
        "a, b",
        ("a + b + K",),
        lambda x, fn: cs.reduce(x.reshape(4, -1), fn, axis=1),
        lambda x, fn: cases.fold(fn, x.reshape(4, -1)),
    ),
    "transform": User(
        "v",
        ("v * K", "v + K"),
        lambda x, fn: cs.reduce(x, "add", transform=fn),
        lambda x, fn: np.sum(fn(x), dtype=x.dtype),
    ),
    "scan": User("a, b", ("a + b + K", "a + b + a * b * K"), cs.scan, cases.running),
    "flags": User("a, b", ("(b > K) & (a <= b)", "b == K"), cs.flag_heads, reference.flag_heads),
    "indexed flags": User(
        "a, b, index",
        ("index % 7 == K",),
        lambda x, fn: cs.flag_tails(x, fn, tile=16),
        lambda x, fn: reference.flag_tails(x, fn, tile=16),
    ),
    "difference": User("a, b", ("a + b * K",), cs.adjacent_difference, reference.adjacent_difference),
    "activation": User(
        "v",
        ("v * K", "v + K"),
        lambda x, fn: cs.matmul(_square(x), _square(x), activation=fn),
        lambda x, fn: reference.matmul(_square(x), _square(x), activation=fn),
    ),
    "map": User(
        "v",
        ("v * K", "v + K"),
        patterns.producer_consumer.run,
        patterns.producer_consumer.reference,
    ),
    "keep": User(
        "v",
        ("v > K", "v % 5 == K"),
        lambda x, fn: patterns.output_list.run(x, fn, ordered=True),
        patterns.output_list.reference,
    ),
    "channel": User("v", ("v > K",), _given, lambda x, fn: np.sort(patterns.output_list.reference(x, fn))),
}


def pytest_generate_tests(metafunc) -> None:
    draw_seeds(metafunc, HISTORIES, SEED, lambda first, count: ranges(first, first + count, 1))


def test_each_answer_is_that_of_the_new_value(seeds, on_emulator, record_property):
    tally, seed = Tally(), seeds.start
    rng = np.random.default_rng([seed, 5])
    user, way = tuple(USERS)[seed % len(USERS)], tuple(WAYS)[seed * 5 % len(WAYS)]
    arguments, expressions, call, wanted, element = USERS[user]
    held = Capture(way, arguments, pick(rng, expressions), 1)
    arrays = [rng.integers(0, 6, length).astype(element) for length in pick(rng, ((40,), (40, 300), (64, 40)))]
    for step in range(STEPS):
        if step:
            held.put(pick(rng, [k for k in (1, 2, 3) if k != held.value]))
        x = pick(rng, arrays)
        tally.one(seed, f"call {step} of {user} with {held!r} on {x.size}", lambda x=x: _faults(call, wanted, x, held))
    tally.finish(record_property, "test_state.py", seed)


def _faults(call, wanted, x: np.ndarray, held: Capture) -> list[str]:
    expected = np.asarray(wanted(x, held.fn))
    try:
        found = np.asarray(call(x, held.fn))
    except OperatorError as error:  # what cannot be identified by value may be refused
        return [f"refused: {error}"] if held.way in PLAIN else []
    if found.dtype == expected.dtype and np.array_equal(found, expected):
        return []
    return [f"{found.ravel()[:6]}, wanted {expected.ravel()[:6]}"]
