"""Random calls of the patterns: the ladder of small kernels."""

from __future__ import annotations

import numpy as np

from cutesync import patterns
from cutesync.dtypes import INT32, DType, element_type

from .draw import Case, Dice
from .judge import Wanted, exactly
from .operators import capture
from .values import NUMBERS, pick, values

SUMMED = ("int32", "int64", "float32", "float64")
MOST = 3000  # elements, of those patterns whose time or reference grows faster than the length


def pattern(dice: Dice) -> Case:
    """One of the public ``run`` functions, or a channel."""
    return pick(dice.theme, MAKERS)(dice)


def _case(
    dice: Dice,
    name: str,
    function,
    element: DType,
    options: dict,
    wanted,
    kind=("exact",),
    **facts,
) -> Case:
    """A call of a vector, of ``most`` elements at most."""
    length = min(dice.vector(dice.shapes((1,)))[0], facts.pop("most", None) or dice.place.most)

    def made(rng) -> dict[str, np.ndarray]:
        return {"x": values(rng, (length,), element, pick(rng, kind))}

    takes_out = facts.pop("takes_out", True)
    return Case(
        f"cs.patterns.{name}",
        function,
        made(dice.rng),
        options,
        lambda inputs: (wanted(inputs["x"]),),
        made,
        {"x": (dice.offset(), None)},
        pick(dice.rng, ("none", "given")) if takes_out else "none",
        numpy_out=False,
        **facts,
    )


def _mapped(dice: Dice) -> Case:
    theme, module = dice.theme, patterns.producer_consumer
    element = pick(theme, [number for number in NUMBERS if number.kind != "b"])
    fn, form = (
        capture(theme, "v", pick(theme, ("v * K", "v + K", "v * K + 1"))).fn,
        pick(theme, ("auto", "auto", "tokens", "parity", "pipeline")),
    )
    options = {"fn": fn, "form": form}
    if form != "auto" and theme.random() < 0.6:
        options |= {
            "buffer": pick(theme, (32, 77, 100, 128)),
            "consumers": pick(theme, (1, 2, 3)),
            "blocks": pick(theme, (1, 2)),
        }
    return _case(
        dice, "producer_consumer.run", module.run, element, options, lambda x: exactly(module.reference(x, fn))
    )


def _kept(dice: Dice) -> Case:
    theme, module = dice.theme, patterns.output_list
    element = pick(theme, [number for number in NUMBERS if number.kind in "iuf"])
    keep, method = (
        capture(theme, "v", pick(theme, ("v > K", "(v > 0) & (v != K)", "v <= K"))).fn,
        pick(theme, (None, "block", "warp", "each", "scan")),
    )
    options = {"keep": keep} | ({} if method is None else {"method": method})
    if method in (None, "scan") and theme.random() < 0.5:
        options["ordered"] = True
    ordered = method == "scan" or "ordered" in options
    return _case(
        dice,
        "output_list.run",
        module.run,
        element,
        options,
        lambda x: _in_any_order(module.reference(x, keep), ordered),
        ("exact", "runs"),
        takes_out=False,
        repeats=ordered,
        captures=False,
    )


def _in_any_order(result: np.ndarray, ordered: bool = False) -> Wanted:
    return Wanted(result, result, None, ordered)


def _channel(dice: Dice) -> Case:
    """Two gifts and two takes: everything comes out once, as far as there was room."""
    theme = dice.theme
    element, method = (
        pick(theme, [number for number in NUMBERS if number.kind in "iuf"]),
        pick(theme, ("block", "warp", "each")),
    )
    keep = capture(theme, "v", pick(theme, ("v > K", "v <= K"))).fn

    def run(x, keep, method, stream=None) -> np.ndarray:
        channel = patterns.Channel(max(1, 2 * x.shape[0]), element.name)
        channel.give(x, keep, method=method, stream=stream).give(x, keep, method=method, stream=stream)
        some = channel.take(channel.size // 2, stream=0 if stream is None else stream)
        rest = channel.take(2 * x.shape[0], stream=0 if stream is None else stream)
        assert channel.size == 0 and channel.overflowed == 0
        return np.concatenate([some, rest])

    return _case(
        dice,
        "Channel",
        run,
        element,
        {"keep": keep, "method": method},
        lambda x: _in_any_order(np.tile(patterns.output_list.reference(x, keep), 2)),
        ("exact", "runs"),
        takes_out=False,
        repeats=False,
        captures=False,
        host=True,
    )


def _divergence(dice: Dice) -> Case:
    form, work, module = (
        pick(dice.theme, ("straight", "mixed", "regrouped")),
        int(dice.rng.integers(0, 5)),
        patterns.divergence,
    )
    return _case(
        dice,
        "divergence.run",
        module.run,
        INT32,
        {"form": form, "work": work},
        lambda x: exactly(module.reference(x, form, work)),
        most=MOST,
    )


def _summed(dice: Dice) -> Case:
    form, module = (
        pick(dice.theme, ("shared_tree", "register_tree", "launch_per_level", "chained", "block_atomic")),
        patterns.reductions,
    )
    element = element_type(pick(dice.theme, SUMMED))
    return _case(
        dice,
        "reductions.run",
        module.run,
        element,
        {"form": form},
        lambda x: exactly(module.reference(x, form)),
        takes_out=False,
        captures=False,
    )


def _running(dice: Dice) -> Case:
    module = patterns.completion
    return _case(
        dice,
        "completion.run",
        module.run,
        element_type(pick(dice.theme, SUMMED)),
        {},
        lambda x: exactly(module.reference(x)),
        most=10 * MOST,
    )


def _rounds(dice: Dice) -> Case:
    module = patterns.early_exit
    case = _case(dice, "early_exit.run", module.run, INT32, {}, lambda x: exactly(module.reference(x)), most=MOST)
    most, made = int(pick(dice.rng, (1, 7, 20, 256 if dice.place.name == "gpu" else 20))), case.fresh

    def few(rng) -> dict[str, np.ndarray]:
        return {"x": np.abs(made(rng)["x"].astype(np.int64) % (most + 1)).astype(np.int32)}

    case.fresh, case.inputs = few, few(dice.rng)
    return case


def _reversed(dice: Dice) -> Case:
    module, element = patterns.transactions, element_type(pick(dice.theme, ("int32", "float32")))
    case = _case(
        dice,
        "transactions.run",
        module.run,
        element,
        {"copy": bool(dice.theme.random() < 0.5)},
        lambda x: exactly(module.reference(x)),
        ("exact", "special"),
    )
    if case.options["copy"]:
        case.layouts["x"] = (0, None)
    return case


def _phases(dice: Dice) -> Case:
    how, threads, phases, module = (
        pick(dice.theme, ("token", "parity", "sync_threads")),
        pick(dice.theme, (32, 64, 96, 256)),
        int(dice.rng.integers(0, 9)),
        patterns.phases,
    )
    return _case(
        dice,
        "phases.run",
        module.run,
        INT32,
        {"phases": phases, "how": how, "threads": threads},
        lambda x: exactly(module.reference(x, phases, threads)),
        most=MOST,
    )


def _hashed(dice: Dice) -> Case:
    module = patterns.ping_pong
    return _case(dice, "ping_pong.run", module.run, INT32, {}, lambda x: exactly(module.reference(x)), most=10 * MOST)


def _relayed(dice: Dice) -> Case:
    theme, module = dice.theme, patterns.relay
    element = pick(theme, [number for number in NUMBERS if number.kind in "iuf"])
    options = {"capacity": pick(theme, (8, 64, 1024)), "items": pick(theme, (12, 60))}
    return _case(
        dice,
        "relay.run",
        module.run,
        element,
        options,
        _in_any_order,
        takes_out=False,
        repeats=False,
        captures=False,
        most=150 if dice.place.name == "emulator" else MOST,
    )


def _primes(dice: Dice) -> Case:
    method, limit = (
        pick(dice.theme, ("block", "warp", "each", "scan")),
        int(np.prod(dice.shape(dice.shapes((1,))), dtype=np.int64)),
    )
    return _case(
        dice,
        "primes.run",
        lambda x, **options: patterns.primes.run(**options),
        INT32,
        {"limit": limit, "method": method},
        lambda x: _in_any_order(patterns.primes.reference(limit), method == "scan"),
        most=1,
        takes_out=False,
        repeats=method == "scan",
        captures=False,
        host=True,
    )


def _phases_of_a_warp(dice: Dice) -> Case:
    module, phases = patterns.warp_entanglement, int(dice.rng.integers(1, 30))
    return _case(
        dice,
        "warp_entanglement.run",
        lambda x, phases, how, stream=None: np.array(module.run(phases, how)[0]),
        INT32,
        {"phases": phases, "how": pick(dice.theme, module.HOW)},
        lambda x: exactly(np.array(phases)),
        most=1,
        takes_out=False,
        captures=False,
        host=True,
    )


MAKERS = (
    _mapped,
    _mapped,
    _kept,
    _kept,
    _channel,
    _divergence,
    _summed,
    _running,
    _rounds,
    _reversed,
    _phases,
    _hashed,
    _relayed,
    _primes,
    _phases_of_a_warp,
)
