"""Every public function, with arguments that are right and where to look for those that are wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import cutesync as cs
from cutesync import patterns, reference

UNKNOWN = ("out", "stream", "algorithm", "config", "form", "method")  # arguments of which NumPy knows nothing


@dataclass(frozen=True)
class Target:
    """A public function: arguments that are right, which pool of ``rubbish`` holds what is wrong for each, and what
    NumPy makes of it (None: any answer will do)."""

    name: str
    function: Callable
    pools: dict[str, str]
    meaning: Callable | None = None
    arguments: tuple[tuple[str, Any], ...] = ()
    element: str = "int32"
    shape: tuple[int, ...] = (3, 4)
    arrays: tuple[str, ...] = ("x",)


def pools(text: str) -> dict[str, str]:
    """``"axes: axis; things: keepdims reverse"`` as the pool of each argument."""
    return {
        name: pool.strip() for pool, names in (part.split(":") for part in text.split(";")) for name in names.split()
    }


REDUCES = "axes: axis; things: keepdims; outs: out; streams: stream"
FOLDS = (
    "axes: axis; outs: out; streams: stream; callables: op; numbers: init identity; dtypes: dtype; things: algorithm"
)
FLAGS = "callables: op; dtypes: dtype; outs: out; streams: stream; numbers: tile"
TERMS = (
    "arrays: c bias scale_a; numbers: alpha beta scale_b; callables: activation; dtypes: out_dtype; outs: out;"
    "streams: stream; things: precision fast_accumulation batch_invariant config"
)
ALONG = (("axis", 1),)


def _plain(name: str, text: str, *arguments) -> Target:
    """One of cutesync's own names, whose meaning the reference knows by the same name."""
    return Target(name, getattr(cs, name), pools(text), getattr(reference, name), arguments)


def _pattern(name: str, text: str, *arguments, exact: bool = False) -> Target:
    module = getattr(patterns, name)
    text += "; streams: stream"
    return Target(name, module.run, pools(text), module.reference if exact else None, arguments, shape=(40,))


def _other(name: str, function: Callable, text: str, *arguments, shape=(3, 4)) -> Target:
    return Target(name, function, pools(text), None, arguments, shape=shape)


def triple(v):
    return v * 3


def few(v):
    return v > 1


def _channel(x, capacity, dtype, count, keep=None, method="block", stream=0):
    return patterns.Channel(capacity, dtype).give(x, keep, method=method, stream=stream).take(count, stream=stream)


def _emulated(x, **options):
    with cs.emulate(**options):
        return cs.sum(x if isinstance(x, np.ndarray) else np.ones(3, np.int32))


def _slices(x, rows, shape=None):
    found = cs.asarray(x)[rows]
    return found if shape is None else found.reshape(shape)


def _primes(x, **options):
    return patterns.primes.run(**options)


def _empty(x, **options):
    return cs.empty(**options)


def _warm(x, **options):
    return cs.warm(**options)


TARGETS = (
    _plain("reduce", FOLDS + " keepdims; callables: transform op", *ALONG),
    _plain("scan", FOLDS + " exclusive reverse"),
    *(_plain(name, REDUCES, *ALONG) for name in ("min", "max", "any", "all", "argmin", "argmax")),
    *(_plain(name, REDUCES + "; dtypes: dtype", *ALONG) for name in ("sum", "prod")),
    *(_plain(name, "axes: axis; dtypes: dtype; outs: out; streams: stream", *ALONG) for name in ("cumsum", "cumprod")),
    *(_other(name, getattr(cs, name), REDUCES, *ALONG) for name in ("logsumexp", "count_nonzero", "minmax")),
    *(
        _other(name, getattr(cs, name), REDUCES + "; dtypes: dtype", *ALONG)
        for name in ("mean", "var", "std", "var_mean")
    ),
    *(
        _other(name, getattr(cs, name), "axes: axis; outs: out; streams: stream", *ALONG)
        for name in ("cummax", "cummin", "ffill")
    ),
    _plain("flag_heads", FLAGS + " predecessor"),
    _plain("flag_tails", FLAGS + " successor"),
    _plain("flag_heads_and_tails", FLAGS + " predecessor successor"),
    _plain("adjacent_difference", "callables: op; things: reverse; outs: out; streams: stream"),
    Target("matmul", cs.matmul, pools(TERMS), None, (), "float16", (4, 4), ("a", "b")),
    _pattern(
        "producer_consumer",
        "callables: fn; things: form; numbers: stages buffer consumers blocks; outs: out",
        ("fn", triple),
    ),
    _pattern("divergence", "things: form; numbers: work; outs: out"),
    _pattern("reductions", "things: form"),
    _pattern("early_exit", "outs: out", exact=True),
    _pattern("completion", "outs: out", exact=True),
    _pattern("ping_pong", "outs: out", exact=True),
    _pattern("transactions", "things: copy; outs: out"),
    _pattern("phases", "numbers: phases threads; things: how; outs: out", ("phases", 2)),
    _pattern("tiered_scan", "callables: op; numbers: init; dtypes: dtype; outs: out", exact=True),
    _pattern("relay", "numbers: capacity items", ("capacity", 8)),
    _pattern("output_list", "callables: keep; things: method ordered; numbers: capacity", ("keep", few)),
    _other("primes", _primes, "numbers: limit capacity; things: method; streams: stream", ("limit", 50)),
    _other(
        "Channel",
        _channel,
        "numbers: capacity count; dtypes: dtype; callables: keep; things: method; streams: stream",
        *(("capacity", 50), ("dtype", "int32"), ("count", 9)),
        shape=(40,),
    ),
    Target("asarray", cs.asarray, {}, lambda x: np.asarray(x)),
    _other("empty", _empty, "axes: shape; dtypes: dtype", ("shape", (3,)), ("dtype", "int32")),
    _other("emulate", _emulated, "things: policy sanitize trace; numbers: seed schedules"),
    _other(
        "warm",
        _warm,
        "things: families dtypes layouts; callables: ops",
        *(("families", ()), ("dtypes", ("int8",)), ("ops", ("add",)), ("layouts", ("whole",))),
    ),
    _other("DeviceArray", _slices, "axes: rows shape", ("rows", slice(1, 2))),
)
