"""Faults planted in the block collectives are found; the collectives as they are run clean."""

import contextlib
import functools

import cutlass
import numpy as np
import pytest

from cutesync.emulator import POLICIES, EmulationError

from .. import faults
from ..compiled import check
from ..faults import RESULT, each, every, first, last, op
from .kernels import FORMS, ROWS, AllForms, Rearranged

pytestmark = pytest.mark.slow

X = np.sort(np.random.default_rng(3).integers(0, 60, 384)).astype(np.int32)


def flags(forms=FORMS, owed: bool = True):
    """A host function and its arguments, of which the last gets the results."""
    kernel = AllForms(cutlass.Int32, (96,), 2, forms=forms)
    kernel.owed = owed
    return kernel.__call__, [X[:192], np.array([0, 9], np.int32), np.zeros((ROWS + 1, 192), np.int32)]


def rearranged():
    return Rearranged(cutlass.Int32, (96,), 4, 384).__call__, [X, np.zeros((3, 384), np.int32)]


@functools.cache
def bench(make) -> faults.Bench:
    host, arrays = make()
    return faults.of_function(host, arrays, {len(arrays) - 1: None}, len(POLICIES))


BARRIER = op(r"bar(rier)?\.sync")


def row(number: int) -> str:
    """The store of a row of results."""
    return rf"st\.global\.v2\.b32 \t\[%rd\d+{f'.{768 * number}' if number else ''}\]"


FIRST_ROW = (0, 1, 2, 3, 4, 6, 8, 10)  # of each form
LAST_ROW = (0, 1, 2, 3, 5, 7, 9)
FAULTS = {
    **{
        f"no barrier in {form!r}": (flags, last(BARRIER, before=row(number)), {"race", "uninitialised"})
        for form, number in zip(FORMS, FIRST_ROW, strict=True)
    },
    # not after the second form: heads and tails keep their edges apart
    **{
        f"no barrier after {form!r}": (flags, first(BARRIER, after=row(number)), {"race"})
        for form, number in zip(FORMS[:-1], LAST_ROW, strict=True)
        if form != "heads predecessor"
    },
    "no barrier in the exchange": (
        rearranged,
        last(BARRIER, before=r"st\.global\.v4\.b32 \t\[%rd\d+\]"),
        {"uninitialised"},
    ),
    "no barrier in the exchange back": (
        rearranged,
        last(BARRIER, before=r"st\.global\.v4\.b32 \t\[%rd\d+\+1536\]"),
        {"race"},
    ),
    "heads look the wrong way": (flags, every(r"shfl\.sync\.up", "shfl.sync.down"), {RESULT}),
    "tails look the wrong way": (flags, every(r"shfl\.sync\.down", "shfl.sync.up"), {RESULT}),
    "a neighbour too far": (flags, every(r"(shfl\.sync\.up\.b32[^;]*, )1,", r"\g<1>2,"), {RESULT}),
    "warps' edges one warp off": (flags, each(r"(ld\.shared\.b32[^;]*\+)-?\d+\]", r"\g<1>0]"), {RESULT}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_planted_fault_is_found(fault):
    make, edit, kinds = FAULTS[fault]
    bench(make).check(edit, kinds)


@pytest.mark.parametrize("forms", [(a, b) for a in FORMS[::3] for b in FORMS[1::3]], ids=" then ".join)
def test_storage_reused_without_the_owed_barrier(forms):
    """What the documentation asks for is needed, for every pair of forms that use the same edges."""
    shared = {"heads": {"heads"}, "tails": {"tails"}, "both": {"heads", "tails"}}
    one, other = (shared[form.split()[0]] for form in forms)
    host, arrays = flags(owed=False, forms=forms)
    with pytest.raises(EmulationError, match="race") if one & other else contextlib.nullcontext():
        check(host, *arrays, schedules=len(POLICIES))
