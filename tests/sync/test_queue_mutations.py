"""Faults planted in ``try_give`` and ``try_take`` of the concurrent queue, of one slot and of two, under contention: each is found.

A block's threads each give a number and take one, trying again until both have worked; a mutant that loses an item makes them try for ever,
which the emulator reports as a livelock.
"""

import re

import numpy as np
import pytest

from cutesync import emulator
from cutesync.emulator import EmulationError

from ..compiled import compiled
from . import kernels_queue as kernels

pytestmark = pytest.mark.slow

GIVE, TAKE = 0, 1  # which of the two, in the order of the kernel's text
POLICIES = [
    policy for policy in emulator.POLICIES if policy != "lagging_lane"
]  # runs a lagging lane when all others wait, here never
BLOCKS = 2
N = BLOCKS * kernels.THREADS

CAS = r"atom\.global\.cas\.b64 \t(%rd\d+), \[(%rd\d+)\], (%rd\d+), (%rd\d+);"  # [end]: if it is \3 then \4
WON = r"setp\.eq\.b64 (\t%p\d+), (%rd\d+), (%rd\d+);"
TURN = r"ld\.acquire\.gpu\.global\.b32 %r\d+, \[[^\n]*\n(?:[^\n]*\n)*?[^\n]*setp\.ne\.b32 (\t%p\d+), (%r\d+), (%r\d+|1);"  # twice in each: seen, and looked at again
PUBLISH = r"(add\.s32 \t%r\d+, %r\d+, )(\d);(?=\s+(?:\.loc[^\n]*\s+|//[^\n]*\s+)*st\.release)"  # the next turn


def change(pattern: str, new, which: int):
    """Replace the ``which``-th match."""

    def edit(ptx: str) -> str:
        found = list(re.finditer(pattern, ptx))[which]
        return ptx[: found.start()] + found.expand(new) + ptx[found.end() :]

    return edit


def unchecked(which: int):
    """The comparison that ends the match says "equal", whatever the turn is."""

    def edit(ptx: str) -> str:
        found = list(re.finditer(TURN, ptx))[which]
        return ptx[: found.start(3)] + found[2] + ptx[found.end(3) :]

    return edit


def published_early(which: int):
    """The store of the turn, before the access to the item."""

    def edit(ptx: str) -> str:
        store = list(
            re.finditer(
                r"\tadd\.s32 \t%r\d+, %r\d+, \d;\n(?:[^\n]*\.loc[^\n]*\n|[^\n]*//[^\n]*\n)*[^\n]*st\.release[^\n]*\n",
                ptx,
            )
        )[which]
        item = list(re.finditer(r"[^\n]*\b(?:st|ld)\.global\.b32[^\n]*\n", ptx[: store.start()]))[-1]
        return ptx[: item.start()] + store[0] + ptx[item.start() : store.start()] + ptx[store.end() :]

    return edit


def both(name: str, make) -> dict:
    return {f"{name}, {end}": make(which) for which, end in ((GIVE, "giving"), (TAKE, "taking"))}


FAULTS = {
    **both("the turn not looked at before a place is claimed", lambda end: unchecked(2 * end)),
    **both(
        "a plain store for the compare-and-swap",
        lambda end: change(CAS, r"st.global.b64 \t[\2], \4;\n\tmov.b64 \t\1, \3;", end),
    ),
    **both(
        "a relaxed store for the compare-and-swap",
        lambda end: change(CAS, r"st.relaxed.gpu.global.b64 \t[\2], \4;\n\tmov.b64 \t\1, \3;", end),
    ),
    **both(
        "an exchange for the compare-and-swap", lambda end: change(CAS, r"atom.global.exch.b64 \t\1, [\2], \4;", end)
    ),
    **both("an addition for the compare-and-swap", lambda end: change(CAS, r"atom.global.add.u64 \t\1, [\2], 1;", end)),
    **both(
        "a compare-and-swap for the block alone",
        lambda end: change(CAS, r"atom.relaxed.cta.global.cas.b64 \t\1, [\2], \3, \4;", end),
    ),
    **both(
        "a place claimed by who lost the compare-and-swap", lambda end: change(WON, r"setp.eq.b64 \1, \2, \2;", end)
    ),
    **both("the turn published before the item is moved", published_early),
    **both(
        "the turn published relaxed",
        lambda end: change(r"st\.release\.gpu\.global\.b32", "st.relaxed.gpu.global.b32", end),
    ),
    **both(
        "the turn published to the block alone",
        lambda end: change(r"st\.release\.gpu\.global\.b32", "st.release.cta.global.b32", end),
    ),
    **both("a turn published that is one too far", lambda end: change(PUBLISH, rf"\g<1>{end + 2};", end)),
    **both("a turn published that has not moved", lambda end: change(PUBLISH, rf"\g<1>{end};", end)),
    "a taken slot passed to the lap after the next": change(PUBLISH, r"\g<1>4;", TAKE),
    "no acquire when giving": lambda ptx: relaxed(ptx, (0, 1)),
    "no acquire when taking": lambda ptx: relaxed(ptx, (2, 3)),
}
LOOKED_AT_TWICE = "who claims a place has seen its turn, and only he may change it: the second look, and either acquire alone, say nothing new"
HARMLESS = {
    **both("the turn not looked at after a place is claimed", lambda end: unchecked(2 * end + 1)),
    **{f"look {look} at the turn relaxed": lambda ptx, look=look: relaxed(ptx, (look,)) for look in range(4)},
}


def relaxed(ptx: str, looks) -> str:
    """These of the four looks at a turn (two of each end) without acquire."""
    for found in reversed([m for i, m in enumerate(re.finditer(r"ld\.acquire\.gpu\.global\.b32", ptx)) if i in looks]):
        ptx = ptx[: found.start()] + "ld.relaxed.gpu.global.b32" + ptx[found.end() :]
    return ptx


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setenv("CUTESYNC_MAX_STEPS", "20000")


def right(edit, log: int) -> bool:
    """Every item taken once, both ends moved by as many places, and every slot's turn that of its next lap."""
    capacity = 1 << log
    arguments = [np.zeros(n, t) for n, t in ((capacity, np.int32), (capacity, np.int32), (2, np.int64), (N, np.int32))]
    kernel = compiled(kernels.at_once, *arguments, log, BLOCKS)
    assert edit(kernel.__ptx__) != kernel.__ptx__ or edit is same, (
        "the fault was not planted: the kernel's PTX has changed its form"
    )
    for policy in POLICIES:
        items, turns, state, out = fresh = [np.zeros_like(a) for a in arguments]
        with emulator.emulate(policy, seed=log):
            emulator.call(kernel, kernels.at_once, *fresh, log, BLOCKS, edit=edit)
        if not ((out == 1).all() and (state == N).all() and (turns == 2 * N // capacity).all()):
            return False
    return True


def same(ptx: str) -> str:
    return ptx


@pytest.mark.parametrize("log", [0, 1])
def test_the_queue_as_it_is(log):
    assert right(same, log)


@pytest.mark.parametrize("fault", FAULTS)
def test_every_planted_fault_is_found(fault):
    for log in (0, 1):
        try:
            agreed = right(FAULTS[fault], log)
        except EmulationError:
            continue
        assert not agreed, f"the mutant survived with {1 << log} slots"


@pytest.mark.parametrize("change", HARMLESS)
def test_what_changes_nothing(change):
    assert right(HARMLESS[change], 1), LOOKED_AT_TWICE
