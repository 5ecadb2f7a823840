"""Hostile arguments to every public function: a typed error with nothing written, or the right answer. Never another
exception, never a hang.

A call that succeeds is right if NumPy's meaning of the same arguments is the same result; where NumPy refuses them, so
must the call.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import cutesync as cs
from cutesync.errors import CutesyncError

from . import rubbish
from .play import Tally, draw_seeds, ranges
from .targets import TARGETS, UNKNOWN
from .values import pick

CALLS, SEED, BLOCK = 200, 3_000_000, 50
PLAIN = (np.ndarray, cs.DeviceArray)
POOLS: dict[str, dict[str, Any]] = {
    "numbers": rubbish.NUMBERS,
    "things": rubbish.THINGS,
    "callables": rubbish.CALLABLES,
    "arrays": rubbish.ARRAYS,
    "axes": {**rubbish.NUMBERS, **rubbish.THINGS},
    "dtypes": {**rubbish.DTYPES, **rubbish.THINGS},
    "streams": {**rubbish.STREAMS, **rubbish.THINGS},
}


class Attack:
    """One call with one or two arguments that are wrong, or strange."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng([seed, 6])
        self.target = target = pick(rng, TARGETS)
        self.own = bool(rng.random() < 0.4)
        values = np.arange(math.prod(target.shape)).reshape(target.shape) % 7
        hosts = {name: values.astype(target.element) for name in target.arrays}
        given = {name: cs.asarray(x) if self.own else x for name, x in hosts.items()}
        self.arguments = given | dict(target.arguments)
        self.strange = {}
        for _ in range(1 if rng.random() < 0.7 else 2):
            name = pick(rng, (*target.pools, *target.arrays))
            pool = POOLS.get(target.pools.get(name, "arrays"))
            if pool is None:  # "outs"
                pool = rubbish.outs(hosts[target.arrays[0]], given[target.arrays[0]])
            if rng.random() < 0.15:
                pool = {**rubbish.THINGS, **rubbish.NUMBERS}
            what = pick(rng, tuple(pool))
            self.arguments[name], self.strange[name] = pool[what](), what

    def __repr__(self) -> str:
        return f"{self.target.name} of {'DeviceArrays' if self.own else 'NumPy arrays'} with {self.strange}"

    def _bytes(self) -> list[bytes]:
        """What all plain arrays among the arguments hold."""
        given = [x for value in self.arguments.values() for x in (value if isinstance(value, tuple) else (value,))]
        plain = [x for x in given if type(x) in PLAIN and x.nbytes < 10**6 and x.dtype != object]
        return [np.asarray(x).tobytes() for x in plain]

    def faults(self) -> list[str]:
        before = self._bytes()
        given = {name: _copy(value) for name, value in self.arguments.items() if name not in UNKNOWN}
        try:
            found = self.target.function(**self.arguments)
        except (CutesyncError, rubbish.OwnError):
            return [] if self._bytes() == before else ["it was refused, and something was written"]
        if self.target.meaning is None:
            return []
        try:
            wanted = self.target.meaning(**given)
        except OverflowError:  # NumPy's alone: a truth value of hundreds of digits
            return []
        except Exception as error:
            return [f"it was accepted; in NumPy: {type(error).__name__}: {error}"]
        pairs = zip(found, wanted) if isinstance(wanted, tuple) else [(found, wanted)]
        wrong = [pair for pair in pairs if not _same(*map(np.asarray, pair))]
        return [f"{one!r:.200}, wanted {other!r:.200}" for one, other in wrong]


def _copy(value: Any) -> Any:
    """As it is before the call, which may be in place."""
    return np.array(value) if type(value) in PLAIN and value.nbytes < 10**6 else value


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    alike = one.shape == other.shape and one.dtype == other.dtype
    return alike and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def pytest_generate_tests(metafunc) -> None:
    draw_seeds(metafunc, CALLS, SEED, lambda first, count: ranges(first, first + count, BLOCK))


def test_a_typed_error_or_the_right_answer(seeds, on_emulator, record_property, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # traces are written to any name
    tally = Tally()
    for seed in seeds:
        attack = Attack(seed)
        tally.one(seed, attack, attack.faults, seconds=30)
    tally.finish(record_property, "test_hostile.py", seeds.start)
