"""Faults planted in the block collectives: the emulator finds each of them, and nothing in the collectives as they are."""

from __future__ import annotations

import functools
import re

import cutlass
import numpy as np
import pytest

from cutesync import emulator
from cutesync.emulator import POLICIES, EmulationError
from cutesync.emulator.check import call

from ..compiled import compiled
from .kernels import FORMS, ROWS, AllForms, Rearranged

pytestmark = pytest.mark.slow

SCHEDULES = len(POLICIES)
X = np.sort(np.random.default_rng(3).integers(0, 60, 384)).astype(np.int32)


def run(make, edit=None) -> np.ndarray:
    """The last array after the kernel of ``make`` ran with its PTX changed by ``edit``."""
    host, arrays = make()

    def edited(ptx: str) -> str:
        changed = edit(ptx)
        assert changed != ptx, "the fault was not planted: the kernel's PTX has changed its form"
        return changed

    with emulator.emulate(schedules=SCHEDULES, seed=5):
        call(compiled(host.__call__, *arrays), host.__call__, *arrays, edit=edited if edit else None)
    return arrays[-1]


def flags(**options):
    return AllForms(cutlass.Int32, (96,), 2, **options), [
        X[:192],
        np.array([0, 9], np.int32),
        np.zeros((ROWS + 1, 192), np.int32),
    ]


def rearranged():
    return Rearranged(cutlass.Int32, (96,), 4, 384), [X, np.zeros((3, 384), np.int32)]


def drop(pattern: str, which: int):
    def edit(ptx: str) -> str:
        found = list(re.finditer(rf"^[^\n]*(?:{pattern})[^\n]*\n", ptx, re.M))
        return ptx[: found[which].start()] + ptx[found[which].end() :]

    return edit


def swap(pattern: str, new: str, count: int = 0):
    return lambda ptx: re.sub(pattern, new, ptx, count=count)


@functools.lru_cache
def as_it_is(make) -> np.ndarray:
    """The collectives without a fault: clean, and what a mutant must not give."""
    return run(make)


FAULTS = {
    **{
        f"the barrier of form {number} is missing": (flags, drop(r"bar\.sync|barrier\.sync", 2 * number))
        for number in range(8)
    },
    # not the one between forms 1 and 2: heads and tails keep their edges apart
    **{
        f"the owed barrier {number} is missing": (flags, drop(r"bar\.sync|barrier\.sync", 2 * number + 1))
        for number in (0, 2, 3, 4, 5, 6)
    },
    "no barrier in the exchange": (rearranged, drop(r"bar\.sync|barrier\.sync", 0)),
    "no barrier in the exchange back": (
        rearranged,
        drop(r"bar\.sync|barrier\.sync", 2),
    ),  # the one between: each thread puts where it got
    "heads look the wrong way": (flags, swap(r"shfl\.sync\.up", "shfl.sync.down")),
    "tails look the wrong way": (flags, swap(r"shfl\.sync\.down", "shfl.sync.up")),
    "a neighbour too far": (flags, swap(r"(shfl\.sync\.up\.b32[^;]*, )1,", r"\g<1>2,")),
    "warps' edges one warp off": (flags, swap(r"(ld\.shared\.b32[^;]*\+)-?\d+\]", r"\g<1>0]", 1)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_planted_fault_is_found(fault):
    make, edit = FAULTS[fault]
    wanted = as_it_is(make)
    try:
        got = run(make, edit)
    except EmulationError:
        return
    assert not np.array_equal(got, wanted), "the mutant survived"


@pytest.mark.parametrize("forms", [(a, b) for a in FORMS[::3] for b in FORMS[1::3]], ids=" then ".join)
def test_storage_reused_without_the_owed_barrier(forms):
    """What the documentation asks for is needed, for every pair of forms that use the same edges."""
    shared = {"heads": {"heads"}, "tails": {"tails"}, "both": {"heads", "tails"}}
    one, other = (shared[form.split()[0]] for form in forms)
    make = functools.partial(flags, owed=False, forms=forms)
    if one & other:
        with pytest.raises(EmulationError, match="race"):
            run(make)
    else:
        run(make)
