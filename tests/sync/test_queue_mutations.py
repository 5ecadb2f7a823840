"""Faults planted in ``try_give`` and ``try_take`` of the concurrent queue, of one slot and of two, are found.

Each thread gives a number and takes one, and tries again until both have worked. A mutant that loses an item makes them
try for ever: a livelock, or a deadlock where all find the same again and sleep.
"""

import pytest

from ..faults import RESULT, Edit, each, every, first, last, only
from .cases import queue

pytestmark = pytest.mark.slow

# Where giving and taking end: at the access to the item, before the turn is published.
GIVING, TAKING = r"\bst\.global\.b32", r"\bld\.global\.b32"
CAS = r"atom\.global\.cas\.b64 \t(%rd\d+), \[(%rd\d+)\], (%rd\d+), (%rd\d+);"  # [end]: if it is \3 then \4
WON = r"setp\.eq\.b64 (\t%p\d+), (%rd\d+), (%rd\d+);"
LOOK, PUBLISHED = r"ld\.acquire\.gpu", r"st\.release\.gpu\.global\.b32"
TURN = (  # the comparison after a look at a turn
    r"(ld\.acquire\.gpu\.global\.b32 %r\d+, \[[^\n]*\n(?:[^\n]*\n)*?[^\n]*setp\.ne\.b32 \t%p\d+, (%r\d+), )(%r\d+|1);"
)
LINE = r"(?:[^\n]*\.loc[^\n]*\n|[^\n]*//[^\n]*\n)*"
PUBLISH = rf"(add\.s32 \t%r\d+, %r\d+, )\d;(?=\n{LINE}[^\n]*st\.release)"  # the next turn


def both(name: str, make, *kinds: str) -> dict:
    return {f"{name}, {which}": (make(end), {*kinds}) for which, end in (("giving", GIVING), ("taking", TAKING))}


def claimed(end: str) -> str:
    """The compare-and-swap that claims a place: the one that no other follows until the end."""
    return rf"atom\.global\.cas(?=(?:(?!atom\.global\.cas)[\s\S])*?{end})"


def swapped(new: str):
    """Another instruction for the compare-and-swap."""
    return lambda end: last(CAS, new, before=end)


def next_turn(giving: str, taking: str):
    return lambda end: first(PUBLISH, rf"\g<1>{giving if end == GIVING else taking};", after=end)


FAULTS: dict[str, tuple[Edit, set[str]]] = {
    **both(
        "the turn not looked at before a place is claimed",
        lambda end: last(TURN, r"\1\2;", before=claimed(end)),
        "livelock",
    ),
    **both(
        "a plain store for the compare-and-swap", swapped(r"st.global.b64 \t[\2], \4;\n\tmov.b64 \t\1, \3;"), "race"
    ),
    **both(
        "a relaxed store for the compare-and-swap",
        swapped(r"st.relaxed.gpu.global.b64 \t[\2], \4;\n\tmov.b64 \t\1, \3;"),
        "race",
        "livelock",
    ),
    **both(
        "an exchange for the compare-and-swap", swapped(r"atom.global.exch.b64 \t\1, [\2], \4;"), RESULT, "livelock"
    ),
    **both("an addition for the compare-and-swap", swapped(r"atom.global.add.u64 \t\1, [\2], 1;"), "livelock"),
    **both(
        "a compare-and-swap for the block alone",
        swapped(r"atom.relaxed.cta.global.cas.b64 \t\1, [\2], \3, \4;"),
        "race",
    ),
    **both(
        "a place claimed by who lost the compare-and-swap",
        lambda end: last(WON, r"setp.eq.b64 \1, \2, \2;", before=end),
        "livelock",
    ),
    **both(
        "the turn published before the item is moved",
        lambda end: only(
            rf"(^[^\n]*{end}[^\n]*\n)({LINE})([^\n]*add\.s32[^\n]*\n{LINE}[^\n]*st\.release[^\n]*\n)", r"\2\3\1"
        ),
        "race",
    ),
    **both("the turn published relaxed", lambda end: first(PUBLISHED, "st.relaxed.gpu.global.b32", after=end), "race"),
    **both(
        "the turn published to the block alone",
        lambda end: first(PUBLISHED, "st.release.cta.global.b32", after=end),
        "race",
    ),
    **both("a turn published that is one too far", next_turn("2", "3"), "livelock"),
    **both("a turn published that has not moved", next_turn("0", "1"), "livelock"),
    "a taken slot passed to the lap after the next": (next_turn("4", "4")(TAKING), {"livelock"}),
    "no acquire when giving": (every(LOOK, "ld.relaxed.gpu", before=GIVING), {"race"}),
    "no acquire when taking": (every(LOOK, "ld.relaxed.gpu", after=GIVING), {"race"}),
}
# A thread that claims a place has seen its turn, which nobody else may change: the second look, and either acquire
# alone, add nothing.
HARMLESS = {
    **both(
        "the turn not looked at after a place is claimed",
        lambda end: first(TURN, r"\1\2;", after=claimed(end)),
        "",
    ),
    "one look at the turn relaxed": (each(LOOK, "ld.relaxed.gpu"), {""}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_planted_fault_is_found(fault):
    edit, kinds = FAULTS[fault]
    found = {kind for log in (0, 1) for kind in queue(log).finds(edit)}
    endless = {"deadlock"} if "livelock" in kinds else set()
    assert found - {""} and found <= {"", *kinds, *endless}, found


@pytest.mark.parametrize("change", HARMLESS)
def test_what_changes_nothing(change):
    queue(1).changes_nothing(HARMLESS[change][0])
