"""The fuzzer finds what it is for: planted faults of every kind that ``play`` looks for are reported."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cutesync.kernels.state_monoid import StateMonoid
from cutesync.ops import Operator
from cutesync.runtime import call, compiler

from . import families, states
from .draw import EMULATOR, Case, Dice
from .libraries import Library, Own
from .play import play


def drawn(family: Callable[[Dice], Case], *words: str) -> tuple[int, Case]:
    """The first call of a family whose text has these words."""
    for seed in range(0, 100_000, EMULATOR.calls):
        case = family(Dice(seed, EMULATOR))
        if all(word in repr(case) for word in words) and next(iter(case.inputs.values())).size > 3:
            return seed, case
    raise AssertionError(words)


def faults(seed: int, case: Case, library: Library) -> list[str]:
    return play(case, library, np.random.default_rng([seed, 4]))


def spoiled(case: Case, spoil) -> Case:
    """The case with ``spoil(result, out, x)`` after each call."""
    plain, turns = case.function, []

    def function(x, *, out=None, **options):
        turns.append(None)
        return spoil(plain(x, out=out, **options), x, len(turns))

    case.function = function
    return case


def _one_more(result, x, turn):
    result[..., -1] = result[..., -1] + 1 if result.dtype.kind in "iu" else ~result[..., -1]
    return result


def _beyond(result, x, turn):
    np.ndarray(1, np.uint8, result.base, result.ctypes.data - result.base.ctypes.data + result.nbytes)[0] ^= 1
    return result


def _input(result, x, turn):
    np.ndarray(1, np.uint8, x.base, x.ctypes.data - x.base.ctypes.data)[0] ^= 1
    return result


def _later(result, x, turn):
    return _one_more(result, x, turn) if turn > 1 else result


def _another_type(result, x, turn):
    return result.astype(np.int16)


PLANTED = {
    "a wrong element": _one_more,
    "a write beyond the result": _beyond,
    "a write to the input": _input,
    "a wrong element in a later call": _later,
    "another type": _another_type,
}


@pytest.mark.parametrize("what", PLANTED)
def test_a_fault_planted_around_a_call_is_found(what, on_emulator):
    seed, case = drawn(families.flags, "flag_heads(", "'int8'")
    case.out = "none" if what == "another type" else "given"
    assert faults(seed, case, Library()) == []
    assert faults(seed, spoiled(case, PLANTED[what]), Library())


def test_a_wrong_identity_is_found(on_emulator, monkeypatch):
    """Of exclusive sums, which then begin with 1."""
    seed, case = drawn(families.scan, "x=int32", "op='add'", "exclusive=True")
    case.options.pop("init", None)
    assert faults(seed, case, Own()) == []
    monkeypatch.setattr(call, "_plans", {})
    monkeypatch.setattr(Operator, "identity", lambda self, dtype: 1)
    assert "elements wrong" in faults(seed, case, Own())[0]


SWAPPED = {  # operands of states in the wrong order, and positions counted from 1
    "combine": lambda plain: lambda self, a, b: plain(self, b, a),
    "lift": lambda plain: lambda self, *given: plain(self, *given[:-1], given[-1] + 1),
}


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("family", "method", "words"),
    [
        (states.reduction, "combine", ("p[3] * q[3]",)),
        (states.scan, "combine", ("p[1] * q[0] + q[1]", "identity")),
        (states.scan, "lift", (", i: (i", "identity")),
    ],
)
def test_a_fault_in_the_code_of_states_is_found(family, method, words, on_emulator, monkeypatch):
    seed, case = drawn(family, *words)
    assert faults(seed, case, Own()) == []
    monkeypatch.setattr(call, "_plans", {})
    monkeypatch.setattr(compiler, "_kernels", {})
    monkeypatch.setenv("CUTESYNC_CACHE", "0")
    monkeypatch.setattr(StateMonoid, method, SWAPPED[method](getattr(StateMonoid, method)))
    assert "elements wrong" in faults(seed, case, Own())[0]
