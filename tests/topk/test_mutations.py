"""Faults planted in the compiled top-k kernel are found; the kernel as it is runs clean."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from .. import faults
from ..cases import data
from ..faults import each, every, first
from .kernels import FAULTS, bench_of, force

pytestmark = pytest.mark.slow


@functools.cache
def bench() -> faults.Bench:
    """Three calls on one workspace, each under all policies; few blocks fit. Pools are cut back where keys differ and
    where all are equal; the last block gets too many of both kinds."""
    arrays = np.sort(data(2403, "int32") % 800), np.zeros(1203, np.int32), data(703, "int32")
    return bench_of(force, arrays, 100)


OWN = {
    "arrivals that acquire nothing": (each(r"(atom\.global)\.acq_rel(\.gpu\.inc)", r"\1.release\2"), {"race"}),
    "arrivals that release nothing": (each(r"(atom\.global)\.acq_rel(\.gpu\.inc)", r"\1.acquire\2"), {"race"}),
    "candidates not counted by an atomic": (
        every(r"(atom\.shared)\.cta\.add\.u32 (\t?%r\d+), \[(%r\d+)\], (%r\d+);", r"mov.b32 \2, 0;"),
        {"race", faults.RESULT, "uninitialised", "deadlock", "livelock", "barrier"},
    ),
    "bounds told by plain stores": (
        each(r"st\.relaxed\.gpu(\.global\.b64)", r"st\1"),
        {"race"},
    ),
    "bounds read by plain loads": (every(r"ld\.relaxed\.gpu\.global\.b64", "ld.global.b64"), {"race"}),
    "the flag read by plain loads": (every(r"ld\.relaxed\.cta\.shared::cta\.b32", "ld.shared.b32"), {"race"}),
    "the greatest of the shares heard": (
        every(r"redux\.sync\.min\.s32", "redux.sync.max.s32"),
        {faults.RESULT},
    ),
    "tickets and places in buckets passed over": (
        every(r"(atom\.shared\.cta\.add\.u32 [^;]*), 1;", r"\1, 2;"),
        {faults.RESULT},
    ),
    "a vote without a barrier": (
        each(r"bar\.red\.or\.pred \t?(%p\d+), 0, (%p\d+);", r"mov.pred \1, \2;"),
        {"race", faults.RESULT, "barrier", "uninitialised", "deadlock", "livelock"},
    ),
    "candidates never given back": (
        first(r"^[ \t]*st\.global\.b32 \t?\[%rd\d+\], 0;", "", after=r"atom\.global\.acq_rel"),
        {faults.RESULT, "out-of-bounds", "uninitialised", "mismatch"},
    ),
}


def test_no_mutant_survives():
    assert bench().survivors(FAULTS) == []


@pytest.mark.parametrize("fault", OWN)
def test_own_faults_are_found(fault):
    bench().check(*OWN[fault])
