"""Faults planted in the compiled kernel of segments are found; the kernel as it is runs clean."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync import emulator
from cutesync.runtime import device

from .. import faults
from ..faults import each, every, only
from .kernels import force
from .reference import heads_of, keys_of, reduced

pytestmark = pytest.mark.slow


@functools.cache
def bench() -> faults.Bench:
    """Two filled reductions on one workspace, each under all policies; few blocks fit. Every stage is used again."""
    keys, x = keys_of(2003, 9), np.arange(2003, dtype=np.int32)
    heads = heads_of(keys)
    (sums,) = reduced(heads, [x])
    wanted = np.append(sums, np.full(700 - len(sums), 7, np.int32))

    def right() -> bool:
        with pytest.MonkeyPatch.context() as patch, device.forced("emulator"):
            force(patch)
            with cs.emulate(), emulator.emulate(schedules=9, seed=3, resident=2):
                arrays = cs.asarray(keys), cs.asarray(x)
                found = [cs.reduce_by_key(*arrays, size=700, fill_value=7) for _ in range(2)]
                return all(np.array_equal(s.values, wanted) and int(s.count) == len(sums) for s in found)

    return faults.Bench(right)


TABLE = {
    name: fault for name, fault in faults.TABLE.items() if name not in ("gpu to cta scope", "named barrier number")
}
# the stages that say that there are no more tiles bring no bytes
TABLE["expect_tx -16"] = (TABLE["expect_tx -16"][0], {*TABLE["expect_tx -16"][1], "transaction"})
ONE_FENCE = [f"no init fence #{i}" for i in range(4)]  # the fence of one barrier serves the others, too
READ = r"ld\.relaxed\.gpu\.global\.b64"
OWN = {
    "a state published by a plain store": (each(r"st\.relaxed\.gpu(\.global\.b64)", r"st\1"), {"race"}),
    "states read by plain loads": (every(READ, "ld.global.b64"), {"race"}),
    "the epoch never raised": (only(r"^[ \t]*atom\.global\.add\.u64 [^;]*, %rd\d+;"), {"out-of-bounds", faults.RESULT}),
}


def test_no_mutant_survives():
    assert bench().survivors(TABLE) == ONE_FENCE


@pytest.mark.parametrize("fault", OWN)
def test_own_faults_are_found(fault):
    bench().check(*OWN[fault])
