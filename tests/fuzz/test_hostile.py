"""Hostile arguments to every public function: a typed error with nothing written, or the right answer. Never another exception, never a hang.

A call that succeeds is right if NumPy's meaning of the same arguments is the same result; where NumPy refuses them, so must the call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable

import numpy as np

import cutesync as cs
from cutesync import patterns, reference
from cutesync.errors import CutesyncError

from . import rubbish
from .play import Tally
from .values import pick

CALLS, SEED, BLOCK = 200, 3_000_000, 50


@dataclass(frozen=True)
class Target:
    """A public function: arguments that are right, which pools hold what is wrong for each, and what NumPy makes of it (None: any answer will do)."""

    name: str
    function: Callable
    arguments: dict[str, Any]
    pools: dict[str, str]
    meaning: Callable | None
    element: str = "int32"
    shape: tuple[int, ...] = (3, 4)
    arrays: tuple[str, ...] = ("x",)
    skips: tuple[str, ...] = field(default=("out", "stream", "algorithm", "config", "form", "method"))  # of what NumPy does not know


REDUCES = {"axis": "axes", "keepdims": "things", "out": "outs", "stream": "streams"}
FOLDS = REDUCES | {"op": "callables", "init": "numbers", "dtype": "dtypes", "identity": "numbers", "algorithm": "things"}
FLAGS = {"op": "callables", "dtype": "dtypes", "tile": "numbers", "out": "outs", "stream": "streams"}


def _targets() -> list[Target]:
    found = [
        Target("reduce", cs.reduce, {"axis": 1}, FOLDS | {"transform": "callables"}, reference.reduce), Target("scan", cs.scan, {}, {name: pool for name, pool in FOLDS.items() if name != "keepdims"} | {"exclusive": "things", "reverse": "things"}, reference.scan),
        Target("flag_heads", cs.flag_heads, {}, FLAGS | {"predecessor": "numbers"}, reference.flag_heads), Target("flag_tails", cs.flag_tails, {}, FLAGS | {"successor": "numbers"}, reference.flag_tails),
        Target("flag_heads_and_tails", cs.flag_heads_and_tails, {}, FLAGS | {"predecessor": "numbers", "successor": "numbers"}, reference.flag_heads_and_tails),
        Target("adjacent_difference", cs.adjacent_difference, {}, {"op": "callables", "reverse": "things", "out": "outs", "stream": "streams"}, reference.adjacent_difference),
    ]  # fmt: skip
    for name in ("sum", "prod", "min", "max", "any", "all", "argmin", "argmax"):
        found.append(Target(name, getattr(cs, name), {"axis": 1}, REDUCES | ({"dtype": "dtypes"} if name in ("sum", "prod") else {}), getattr(reference, name)))
    for name in ("cumsum", "cumprod"):
        found.append(Target(name, getattr(cs, name), {"axis": 1}, {"axis": "axes", "dtype": "dtypes", "out": "outs", "stream": "streams"}, getattr(reference, name)))
    terms = {"c": "arrays", "alpha": "numbers", "beta": "numbers", "bias": "arrays", "activation": "callables", "out_dtype": "dtypes", "scale_a": "arrays", "scale_b": "numbers", "precision": "things", "fast_accumulation": "things", "batch_invariant": "things"}
    found.append(Target("matmul", cs.matmul, {}, terms | {"config": "things", "out": "outs", "stream": "streams"}, None, "float16", (4, 4), ("a", "b")))
    return found + _patterns()


def _patterns() -> list[Target]:
    plain = {"out": "outs", "stream": "streams"}
    run = lambda name: getattr(patterns, name).run  # noqa: E731
    meaning = lambda name: getattr(patterns, name).reference  # noqa: E731
    vector = {"shape": (40,)}
    return [
        Target("producer_consumer", run("producer_consumer"), {"fn": _triple}, plain | {"fn": "callables", "form": "things", "stages": "numbers", "buffer": "numbers", "consumers": "numbers", "blocks": "numbers"}, None, **vector),
        Target("divergence", run("divergence"), {}, plain | {"form": "things", "work": "numbers"}, None, **vector), Target("reductions", run("reductions"), {}, {"form": "things", "stream": "streams"}, None, **vector),
        Target("early_exit", run("early_exit"), {}, plain, meaning("early_exit"), **vector), Target("completion", run("completion"), {}, plain, meaning("completion"), **vector), Target("transactions", run("transactions"), {}, plain | {"copy": "things"}, None, **vector),
        Target("phases", run("phases"), {"phases": 2}, plain | {"phases": "numbers", "how": "things", "threads": "numbers"}, None, **vector), Target("ping_pong", run("ping_pong"), {}, plain, meaning("ping_pong"), **vector),
        Target("tiered_scan", run("tiered_scan"), {}, plain | {"op": "callables", "init": "numbers", "dtype": "dtypes"}, meaning("tiered_scan"), **vector), Target("relay", run("relay"), {"capacity": 8}, {"capacity": "numbers", "items": "numbers", "stream": "streams"}, None, **vector),
        Target("output_list", run("output_list"), {"keep": _few}, {"keep": "callables", "method": "things", "ordered": "things", "capacity": "numbers", "stream": "streams"}, None, **vector),
        Target("primes", lambda x, **options: run("primes")(**options), {"limit": 50}, {"limit": "numbers", "method": "things", "capacity": "numbers", "stream": "streams"}, None, **vector),
        Target("Channel", _channel, {"capacity": 50, "dtype": "int32", "count": 9}, {"capacity": "numbers", "dtype": "dtypes", "keep": "callables", "method": "things", "count": "numbers", "stream": "streams"}, None, **vector),
        Target("asarray", lambda x: cs.asarray(x), {}, {}, lambda x: np.asarray(x)), Target("empty", lambda x, **options: cs.empty(**options), {"shape": (3,), "dtype": "int32"}, {"shape": "axes", "dtype": "dtypes"}, None),
        Target("emulate", _emulated, {}, {"policy": "things", "seed": "numbers", "schedules": "numbers", "sanitize": "things", "trace": "things"}, None),
        Target("warm", lambda x, **options: cs.warm(**options), {"families": (), "dtypes": ("int8",), "ops": ("add",), "layouts": ("whole",)}, {"families": "things", "dtypes": "things", "ops": "callables", "layouts": "things"}, None),
        Target("DeviceArray", _slices, {"rows": slice(1, 2)}, {"rows": "axes", "shape": "axes"}, None),
    ]  # fmt: skip


def _triple(v):
    return v * 3


def _few(v):
    return v > 1


def _channel(x, capacity, dtype, count, keep=None, method="block", stream=0):
    return patterns.Channel(capacity, dtype).give(x, keep, method=method, stream=stream).take(count, stream=stream)


def _emulated(x, **options):
    with cs.emulate(**options):
        return cs.sum(x if isinstance(x, np.ndarray) else np.ones(3, np.int32))


def _slices(x, rows, shape=None):
    found = cs.asarray(x)[rows]
    return found if shape is None else found.reshape(shape)


TARGETS = _targets()
POOLS: dict[str, dict[str, Any]] = {
    "numbers": rubbish.NUMBERS, "things": rubbish.THINGS, "callables": rubbish.CALLABLES, "arrays": rubbish.ARRAYS, "axes": {**rubbish.NUMBERS, **rubbish.THINGS}, "dtypes": {**rubbish.DTYPES, **rubbish.THINGS},
    "streams": {**rubbish.STREAMS, **rubbish.THINGS},
}  # fmt: skip


class Attack:
    """One call with one or two arguments that are wrong, or strange."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng([seed, 6])
        self.target = target = pick(rng, TARGETS)
        self.own = bool(rng.random() < 0.4)
        hosts = {name: np.arange(12 if len(target.shape) > 1 and target.element == "int32" else int(np.prod(target.shape))).reshape(target.shape).astype(target.element) % 7 for name in target.arrays}
        self.arguments = {name: cs.asarray(x) if self.own else x for name, x in hosts.items()} | dict(target.arguments)
        self.strange = {}
        for _ in range(1 if rng.random() < 0.7 else 2):
            name = pick(rng, (*target.pools, *target.arrays))
            pool = rubbish.outs(hosts[target.arrays[0]], self.own) if target.pools.get(name) == "outs" else POOLS[target.pools.get(name, "arrays")]
            if rng.random() < 0.15:
                pool = {**rubbish.THINGS, **rubbish.NUMBERS}
            what = pick(rng, tuple(pool))
            self.arguments[name], self.strange[name] = pool[what](), what

    def __repr__(self) -> str:
        return f"{self.target.name} of {'DeviceArrays' if self.own else 'NumPy arrays'} with {self.strange}"

    def _bytes(self) -> list[bytes]:
        """What all plain arrays among the arguments hold."""
        given = [entry for value in self.arguments.values() for entry in (value if isinstance(value, tuple) else (value,))]
        return [np.asarray(x).tobytes() for x in given if type(x) in (np.ndarray, cs.DeviceArray) and x.nbytes < 10**6 and x.dtype != object]

    def faults(self) -> list[str]:
        before = self._bytes()
        try:
            found = self.target.function(**self.arguments)
        except (CutesyncError, rubbish.OwnError):
            return [] if self._bytes() == before else ["it was refused, and something was written"]
        if self.target.meaning is None:
            return []
        given = {name: np.asarray(value) if isinstance(value, cs.DeviceArray) else value for name, value in self.arguments.items() if name not in self.target.skips}
        if self.arguments.get("out") is not None and any(np.shares_memory(self.arguments["out"], x) for x in given.values() if isinstance(x, np.ndarray) and isinstance(self.arguments["out"], np.ndarray)):
            return []  # in place: what NumPy would make of it now is another question
        try:
            wanted = self.target.meaning(**given)
        except OverflowError:  # NumPy's alone: a truth value of hundreds of digits
            return []
        except Exception as error:
            return [f"it was accepted; in NumPy: {type(error).__name__}: {error}"]
        pairs = list(zip(found, wanted)) if isinstance(wanted, tuple) else [(found, wanted)]
        return [f"{one!r:.200}, wanted {other!r:.200}" for one, other in pairs if not _same(np.asarray(one), np.asarray(other))]


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def pytest_generate_tests(metafunc) -> None:
    if "seeds" in metafunc.fixturenames:
        calls, seed = metafunc.config.getoption("--fuzz") or CALLS, metafunc.config.getoption("--seed")
        seed = SEED if seed is None else seed
        metafunc.parametrize("seeds", [range(start, min(start + BLOCK, seed + calls)) for start in range(seed, seed + calls, BLOCK)], ids=lambda block: f"{block.start}-{block.stop - 1}")


def test_a_typed_error_or_the_right_answer(seeds, on_emulator, record_property):
    tally = Tally()
    for seed in seeds:
        attack = Attack(seed)
        tally.one(seed, attack, attack.faults, seconds=30)
    tally.finish(record_property, "test_hostile.py", seeds.start)
