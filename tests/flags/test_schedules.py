"""Every flag kernel agrees with NumPy under 20 hostile schedules over all policies, the sanitizer watching; planted faults are found."""

from __future__ import annotations

import re

import numpy as np
import pytest

import cutesync as cs
from cutesync.emulator import EmulationError
from cutesync.kernels.flags import plan, policy
from cutesync.runtime import call as calls
from cutesync.runtime import compiler

from ..cases import same
from .test_agreement import keys

SCHEDULES = 20
INDEXED = lambda a, b, index: (a != b) & (index % 5 != 2)  # noqa: E731

# name: call, dtype, shape, options, (unroll, warps)
KERNELS = {
    "heads": ("flag_heads", "int32", 1200, {}, (2, 2)),
    "tails": ("flag_tails", "int32", 1024, {}, (4, 1)),
    "both": ("flag_heads_and_tails", "int32", 3001, {}, (2, 2)),
    "ends": ("flag_heads_and_tails", "int16", 2100, {"predecessor": 1, "successor": 2}, (1, 2)),
    "vectors of sixteen": ("flag_heads_and_tails", "int8", 2500, {}, (2, 2)),
    "vectors of two": ("flag_heads", "int64", 400, {}, (4, 2)),
    "wide flags": ("flag_heads_and_tails", "int8", 1000, {"dtype": "int64"}, (4, 2)),
    "bits of four": ("flag_heads_and_tails", "int32", 2100, {"dtype": "bits"}, (4, 2)),
    "bits of sixteen": ("flag_heads", "uint8", 2600, {"dtype": "bits"}, (4, 1)),
    "bits of two": ("flag_tails", "float64", 700, {"dtype": "bits"}, (8, 1)),
    "tiles": ("flag_heads_and_tails", "int32", 1500, {"tile": 7}, (2, 2)),
    "rows as one": ("flag_heads", "int32", (40, 37), {}, (2, 2)),
    "rows": ("flag_heads_and_tails", "int32", (3, 1024), {}, (2, 2)),
    "rows of tiles, bits": ("flag_heads_and_tails", "int32", (3, 300), {"tile": 13, "dtype": "bits"}, (2, 2)),
    "differences": ("adjacent_difference", "int32", 1300, {}, (2, 2)),
    "differences to the right": ("adjacent_difference", "int8", 1300, {"reverse": True}, (2, 1)),
    "the index": ("flag_heads_and_tails", "int32", 1300, {"op": INDEXED}, (2, 2)),
    "the index in tiles": ("flag_heads_and_tails", "int32", 1300, {"op": INDEXED, "tile": 100}, (2, 2)),
}


def run(name: str, monkeypatch, schedules: int = SCHEDULES):
    """``(results, what they should be)`` of a case in the given configuration, run afresh."""
    call, dtype, shape, options, (unroll, warps) = KERNELS[name]
    choose = policy.choose
    monkeypatch.setattr(plan, "choose", lambda problem: choose(problem, unroll, warps))
    monkeypatch.setattr(calls, "_plans", {})
    x = keys(shape, dtype)
    with cs.emulate(schedules=schedules, seed=11) as ran:
        found = getattr(cs, call)(cs.asarray(x), **options)
    assert ran.launches == schedules
    wanted = getattr(cs.reference, call)(x, **options)
    return [
        [np.asarray(array) for array in (group if isinstance(group, tuple) else (group,))] for group in (found, wanted)
    ]


@pytest.mark.parametrize("name", KERNELS)
def test_agrees_under_twenty_schedules(name, monkeypatch):
    for found, wanted in zip(*run(name, monkeypatch)):
        same(found, wanted, name)


def swap(pattern: str, new: str, count: int = 0):
    return lambda ptx: re.sub(pattern, new, ptx, count=count)


FAULTS = {
    "the element before a vector, one too far": ("heads", swap(r"(ld\.global\.b32 [^;]*)\+-4\]", r"\g<1>+-8]")),
    "the element behind a vector, one too near": ("tails", swap(r"(ld\.global\.b32 [^;]*)\+16\]", r"\g<1>+12]")),
    "an element before the first": (
        "ends",
        swap(r"@%p\d+ bra[^;]*;(\s*(?:\.loc[^\n]*\s*)*ld\.global\.b16 [^;]*\+-2\])", r"\1"),
    ),
    "an element behind the last": (
        "tails",
        swap(r"@%p\d+ bra[^;]*;(\s*(?:\.loc[^\n]*\s*)*ld\.global\.b32 [^;]*\+1552\])", r"\1"),
    ),
    "no tail": ("heads", swap(r"setp\.lt\.u32 \t(%p\d+, %r\d+), 32;", r"setp.lt.u32 \t\1, 64;")),
    "bits joined with the wrong lane": (
        "bits of four",
        swap(r"shfl\.sync\.bfly\.b32 \t([^;]*), 1, 31", r"shfl.sync.bfly.b32 \t\1, 8, 31"),
    ),
    "bytes shifted by too few bits": ("vectors of sixteen", swap(r"(shf\.l\.wrap\.b32 [^;]*, )8;", r"\g<1>7;", 1)),
    "bits of bytes in the wrong order": ("bits of sixteen", swap(r"270549120", "134480385")),
    "tiles one item late": ("tiles", swap(r"rem\.u32|rem\.s32", "div.s32")),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_planted_fault_is_found(fault, monkeypatch):
    name, edit = FAULTS[fault]
    get = compiler.get

    def edited(*arguments, **options):
        kernel = get(*arguments, **options)
        changed = edit(kernel.ptx)
        assert changed != kernel.ptx, "the fault was not planted: the kernel's PTX has changed its form"
        kernel.ptx = changed
        return kernel

    monkeypatch.setattr(compiler, "_kernels", {})
    monkeypatch.setattr(compiler, "get", edited)
    try:
        found, wanted = run(name, monkeypatch, 9)
    except EmulationError:
        return
    assert any(not np.array_equal(a, b) for a, b in zip(found, wanted)), "the mutant survived"
