"""Faults planted in the kernels that exchange values are found; the kernels as they are run clean."""

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync.dist import Group, Sharded
from cutesync.runtime import device

from ..faults import RESULT, Bench, each, every, first, op

pytestmark = pytest.mark.slow

KERNELS = {
    "reading": 80,
    "one block": 40,
    "several blocks": 600,
    "reduction": 50,
    "reduction of several blocks": 20_000,
    "counted": 50,
    "counted seam": 50,
    "segments": 50,
}  # elements
# Of fewer than 1000 elements: the kernels as they are, and the faults. Some need a device that is a call ahead of one
# that still reads, which few orders bring about.
SCHEDULES = {"right": 18, "faults": 90}


@functools.cache
def bench(name: str) -> Bench:
    """Four calls in flight on two devices."""
    x = np.arange(KERNELS[name], dtype=np.int32)

    def right() -> bool:
        schedules = SCHEDULES["right"] if x.size < 1000 else 4
        with device.forced("emulator"), cs.emulate(schedules=schedules, seed=5, devices=2):
            group = Group.local()
            parts = [[group.put(x + rank + 5 * turn, rank) for rank in range(2)] for turn in range(4)]
            wanted = [2 * x + 1 + 10 * turn for turn in range(4)]
            sharded = [Sharded(group, given, 0) for given in parts]
            with group.together():
                if name == "reading":  # what a launch before has written, and one behind overwrites
                    wanted = [np.concatenate(list(map(np.asarray, given))).cumsum() for given in parts]
                    found = []
                    for given in sharded:
                        found.append(cs.cumsum(given, dtype="int32", out=given).reshard(None))
                        cs.cumsum(given, dtype="int32", out=given)
                elif name == "counted":
                    n = group.shard(np.array(x.size + 7), None)
                    found, wanted = [cs.sum(given, axis=0, n=n, dtype="int32") for given in sharded], []
                    wanted = [np.r_[np.asarray(a), np.asarray(b)[:7]].sum() for a, b in parts]
                elif name == "counted seam":
                    n = group.shard(np.array(x.size + 7), None)
                    outs = [Sharded(group, [group.put(0 * x, rank) for rank in range(2)]) for _ in parts]
                    found = [cs.adjacent_difference(a, "add", n=n, out=b).reshard(None) for a, b in zip(sharded, outs)]
                    whole = [np.r_[np.asarray(a), np.asarray(b)] for a, b in parts]
                    wanted = [(y + np.r_[0, y[:-1]]) * (np.arange(y.size) < x.size + 7) for y in whole]
                elif name == "segments":
                    at = group.shard(np.array([0, 3, x.size + 5, 2 * x.size]), None)
                    found = [cs.segmented_reduce(given, offsets=at, dtype="int32") for given in sharded]
                    whole = [np.r_[np.asarray(a), np.asarray(b)] for a, b in parts]
                    wanted = [np.array([y[:3].sum(), y[3 : x.size + 5].sum(), y[x.size + 5 :].sum()]) for y in whole]
                elif name.startswith("reduction"):
                    found, wanted = [cs.sum(given, dtype="int32") for given in sharded], [y.sum() for y in wanted]
                else:
                    found = [group.all_reduce(given) for given in parts]
            return all(np.array_equal(np.asarray(part), y) for got, y in zip(found, wanted) for part in got.parts)

    return Bench(right)


SENT, LOOK = r"st\.relaxed\.sys\.global\.b64", r"ld\.relaxed\.sys\.global\.b64"
RAISED = op(r"st\.relaxed\.gpu\.global\.b64"), op(r"atom\.global\.add\.u64 \t%rd\d+, \[%rd\d+\], %rd")
ANY = {"deadlock", "livelock", "mismatch", RESULT, "race"}


def exchanges(edit):
    """The edit of the kernels that exchange states, not of others beside them."""
    return lambda text: edit(text) if "cutesync_exchange" in text else []


# fault: (kernel, edit, kinds)
FAULTS = {
    "sent at gpu scope": ("one block", each(SENT, "st.relaxed.gpu.global.b64"), {"race"}),
    "sent by plain stores": ("one block", each(SENT, "st.global.b64"), {"race"}),
    "awaited at gpu scope": ("one block", every(LOOK, "ld.relaxed.gpu.global.b64"), {"race"}),
    "awaited by plain loads": ("one block", every(LOOK, "ld.global.b64"), {"race"}),
    "a word that is not sent": ("one block", each(op(SENT)), {"deadlock"}),
    "no wait for launches before": ("one block", every(op(r"griddepcontrol\.wait")), {"race"}),
    "the epoch never raised": ("one block", every(RAISED[0]), ANY),
    "no barrier before the epoch is raised": ("one block", every(op(r"bar\.sync")), ANY),
    "one half of the slots": ("one block", every(r"and\.b32 (\s*%r\d+, %r\d+), 16;", r"and.b32 \1, 0;"), ANY),
    "blocks: sent at gpu scope": ("several blocks", each(SENT, "st.relaxed.gpu.global.b64"), {"race"}),
    "blocks: the epoch never raised": ("several blocks", every(RAISED[1]), ANY),
    "blocks: no barrier after the ticket": (
        "several blocks",
        first(op(r"bar\.sync"), after="atom"),
        {"race", "uninitialised"},
    ),
    "reduction: sent at gpu scope": ("reduction", each(SENT, "st.relaxed.gpu.global.b64"), {"race"}),
    "reduction: awaited at gpu scope": ("reduction", every(LOOK, "ld.relaxed.gpu.global.b64"), {"race"}),
    "reduction: a word that is not sent": ("reduction", each(op(SENT)), {"deadlock"}),
    "reduction: no wait for launches before": ("reduction", every(op(r"griddepcontrol\.wait")), {"race"}),
    "reduction: the epoch never raised": ("reduction", every(RAISED[0]), ANY),
    "reduction: one half of the slots": (
        "reduction",
        every(r"and\.b32 (\s*%r\d+, %r\d+), 16;", r"and.b32 \1, 0;"),
        ANY,
    ),
    "a header that releases nothing": (
        "reading",
        each(r"st\.release\.sys", "st.relaxed.sys"),
        {"race"},
    ),
    "a header at gpu scope": (
        "reading",
        each(r"st\.release\.sys", "st.release.gpu"),
        {"race"},
    ),
    "a header that is not sent": ("reading", each(op(r"st\.release\.sys")), {"deadlock"}),
    "the header not acquired": (
        "reading",
        each(r"ld\.acquire\.sys", "ld.relaxed.sys"),
        {"race"},
    ),
    "read without waiting": ("reading", first(op(r"bar\.sync"), after=r"ld\.acquire\.sys"), {"race"}),
    **{
        f"{name}: {fault}": (name, exchanges(edit), kinds)
        for name in ("counted", "counted seam", "segments")
        for fault, edit, kinds in (
            ("sent at gpu scope", each(SENT, "st.relaxed.gpu.global.b64"), {"race"}),
            ("awaited at gpu scope", every(LOOK, "ld.relaxed.gpu.global.b64"), {"race"}),
            ("words that are not sent", every(op(SENT)), {"deadlock"}),
            ("the epoch never raised", every(RAISED[0]), ANY | {"trap"}),
            ("one half of the slots", every(r"and\.b32 (\s*%r\d+, %r\d+), 16;", r"and.b32 \1, 0;"), ANY),
        )
        if name == "counted" or "sent" in fault  # the slots and epochs are those of one kernel
    },
    "blocks of a reduction: sent at gpu scope": (
        "reduction of several blocks",
        each(SENT, "st.relaxed.gpu.global.b64"),
        {"race"},
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_planted_fault_is_found(fault, monkeypatch):
    name, edit, kinds = FAULTS[fault]
    made = bench(name)
    monkeypatch.setitem(SCHEDULES, "right", SCHEDULES["faults"])
    made.check(edit, kinds)
