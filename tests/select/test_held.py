"""Few bytes that are kept of a chunk: their tile leaves its stage before there is room for them."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cutesync as cs

from .. import faults
from ..cases import SCHEDULES
from .kernels import force
from .test_agreement import equal, positive
from .test_runs import heads_of, of_runs


def runs(dtype: str) -> np.ndarray:
    """Runs of which words have no head, one, up to four, or more."""
    share = np.repeat([0.01, 0.05, 0.0, 0.9, 0.04], 3003)
    return (np.cumsum(np.random.default_rng(8).random(len(share)) < share) % 100).astype(dtype)


@pytest.mark.parametrize("dtype", ["int8", pytest.param("uint8", marks=pytest.mark.slow)])
def test_few_bytes_agree_under_hostile_schedules(monkeypatch, dtype):
    force(monkeypatch, "runs of bytes")
    x = runs(dtype)
    values, _, _, lengths = of_runs(x, heads_of(x))
    some = np.where(np.random.default_rng(3).random(len(x)) < 0.04, x, 0)
    with cs.emulate(schedules=SCHEDULES, seed=3):
        found = cs.run_length_encode(cs.asarray(x)).exact()
        equal(cs.unique_consecutive(cs.asarray(x)).exact(), values)
        equal(cs.select(cs.asarray(some), positive).exact(), some[some > 0])
    equal(found[0], values)
    equal(found[1], lengths)


@functools.cache
def bench() -> faults.Bench:
    x = runs("int8")
    values, _, _, lengths = of_runs(x, heads_of(x))

    def right() -> bool:
        found = [cs.run_length_encode(cs.asarray(x), size=len(values)) for _ in range(2)]
        return all(np.array_equal(s.values, values) and np.array_equal(s.lengths, lengths) for s in found)

    return faults.of_tiles(functools.partial(force, name="runs of bytes"), right)


HELD = r"prmt\.b32 %r\d+, %r\d+, %r\d+, 64;"
FAULTS = {
    "bytes that are held change places": (
        faults.every(r"(prmt\.b32 %r\d+, %r\d+, %r\d+, )64;", r"\g<1>4;"),
        {faults.RESULT},
    ),
    "a stage that is left before the copy into it may begin": (
        faults.first(faults.op(r"fence\.proxy\.async[^;]*"), after=HELD),
        {"race", "proxy"},
    ),
    "a stage that is left before all lanes have read": (
        faults.first(faults.op(r"bar\.warp\.sync"), after=HELD),
        {"race", "proxy"},
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(fault):
    bench().check(*FAULTS[fault])
