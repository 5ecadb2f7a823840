"""Arrays whose elements are loaded as vectors although rows are short or elements lie a few apart, vectors of edges
alone, and large blocks: they agree with the reference, under schedules too; planted faults are found."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync import reference
from cutesync.kernels.flags import periods, plan, short_policy, strided_policy

from ..cases import same
from ..compiled import dry, needed
from ..faults import RESULT, Bench, each, every
from ..views import broadcast_to
from .cases import keys
from .test_flat import NAMES, as_all, vectors_of_large_arrays

INDEXED = lambda a, b, index: (a != b) & (index % 3 != 1)  # noqa: E731
SLOW = pytest.mark.slow


def as_large(patch) -> list:
    """Kernels as large arrays have them; the list gets the policies."""
    vectors_of_large_arrays(patch)
    patch.setattr(short_policy, "MIN_GROUPS", 0)
    patch.setattr(periods, "MIN_VECTORS", 0)
    patch.setattr(strided_policy, "MIN_FAR_BYTES", 1000)
    patch.setattr(strided_policy, "MIN_LARGE", 0)
    found, choose = [], plan.choose_strided
    patch.setattr(plan, "choose_strided", lambda *given: found.append(choose(*given)) or found[-1])
    return found


@pytest.fixture
def large(monkeypatch):
    return as_large(monkeypatch)


def check(host, view, axis: int, names=NAMES, **options) -> None:
    for name in names:
        given = {} if name == "adjacent_difference" else options
        if name == "flag_heads" and "successor" in given:
            given = {"predecessor": given["successor"]}
        found = getattr(cs, name)(view(cs.asarray(host)), axis=axis, **given)
        wanted = getattr(reference, name)(view(host), axis=axis, **given)
        for one, other in zip(as_all(found), as_all(wanted)):
            same(np.asarray(one), other, f"{name} {host.shape} {given}")


SHORT = [
    ((37, 4), "int8"),
    ((5, 13, 3), "uint8"),
    ((1, 130, 1), "bool"),
    ((31, 12), "bool"),
    ((23, 14), "int8"),
    ((9, 16), "uint8"),
    ((29, 5), "float16"),
    ((31, 2), "float32"),
    ((7, 2), "float64"),
]


@pytest.mark.parametrize(("shape", "dtype"), [pytest.param(*c, marks=[SLOW] * (i > 3)) for i, c in enumerate(SHORT)])
def test_bits_of_short_rows(shape, dtype, large, on_emulator):
    """A thread has several rows; the last one fewer."""
    host = keys(shape, dtype)
    for options in ({}, {"successor": 1}, {"op": INDEXED}):
        check(host, lambda x: x, len(shape) - 1, NAMES[1:3], dtype="bits", **options)
    assert all((choice.policy.length, choice.policy.rows) == (shape[-1], 4) for choice in large)


def test_bits_of_short_rows_anywhere(large, on_emulator):
    """Rows that begin anywhere, or lie apart, are no such runs, nor are those of which some items count; groups of rows
    along another axis are, and nothing beside the results is written."""
    host = keys((7 * 40 * 4 + 1,), "int8")
    same(
        np.asarray(cs.flag_heads(cs.asarray(host)[1:].reshape(280, 4), dtype="bits")),
        reference.flag_heads(host[1:].reshape(280, 4), dtype="bits"),
    )
    host = keys((6, 41, 8), "int16")
    check(host, lambda x: x[..., :4], 2, NAMES[:1], dtype="bits")
    check(host.view("int64"), lambda x: x.reshape(82, 6), 1, NAMES[:1], dtype="bits")
    check(host[..., 0, :], lambda x: x, 1, NAMES[:1], dtype="bits", n=7)
    assert not any(hasattr(choice.policy, "length") for choice in large)
    check(host, lambda x: x[::2, :40], 2, NAMES[:2], dtype="bits")
    out = cs.asarray(np.full(2 * 41 + 8, 77, np.uint32))
    cs.flag_heads(cs.asarray(host[:2]), dtype="bits", out=out[4:86].reshape(2, 41, 1))
    assert all(choice.policy.rows == 4 for choice in large[-3:-1]) and large[-1].policy.rows == 4
    found = np.asarray(out)
    same(found[4:86].reshape(2, 41, 1), reference.flag_heads(host[:2], dtype="bits"))
    assert (np.delete(found, np.s_[4:86]) == 77).all()
    host = keys((3 * 41 + 1,), "float32")
    check(host, lambda x: x[1:].reshape(41, 3), 1, NAMES[:2], dtype="bits")
    assert all((choice.policy.rows, choice.policy.piece) == (2, 1) for choice in large[-2:])


# name: shape, type, view, axis, what is chosen
KNOWN = {
    "pairs": ((7, 40, 2), "uint8", lambda x: x, 1, "close"),
    "three columns": ((44, 3), "bool", lambda x: x, 0, "close"),
    "words with gaps": ((20, 52), "int8", lambda x: x[:, 4:], 1, "by_words"),
    "rows of whole vectors": ((9, 3, 64), "int8", lambda x: x, 1, "uniform"),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[SLOW] * (i % 2)) for i, name in enumerate(KNOWN)])
def test_what_is_known_of_vectors(name, large, on_emulator):
    """Neighbours less than a word away are shifted words; vectors in one slice, words with gaps between these; of rows
    that are whole vectors, all places are at an end of the flagged axis, or none."""
    shape, dtype, view, axis, kind = KNOWN[name]
    host = keys(shape, dtype)
    check(host, view, axis, NAMES[: 3 if dtype == "bool" else 4])
    assert all(getattr(choice.policy, kind) for choice in large)
    check(host, view, axis, NAMES[2:3], successor=1)
    check(host, view, axis, NAMES[:1], op=INDEXED)


# name: shape, type, view, axis
APART = {
    "neighbours in other slices": ((3, 5, 2, 16), "int16", lambda x: x[..., ::2], 2),
    "one slice": ((1007,), "int16", lambda x: x[::2], 0),
    "four apart": ((1021,), "int8", lambda x: x[::4], 0),
    "rows backwards": ((9, 64), "uint8", lambda x: x[::-1, ::2], 1),
    "first axis": ((4, 160), "float16", lambda x: x[:, ::2], 0),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[SLOW] * (i > 2)) for i, name in enumerate(APART)])
def test_elements_a_few_apart(name, large, on_emulator):
    """Vectors of memory have what lies between; nothing behind the last element is read."""
    shape, dtype, view, axis = APART[name]
    host = keys(shape, dtype)
    check(host, view, axis)
    check(host, view, axis, NAMES[2:3], op=INDEXED)
    check(host, view, axis, NAMES[:1], tile=5)
    assert all(choice.policy.pace > 1 and choice.policy.piece > 1 for choice in large)


def test_neighbours_at_odd_distances_are_no_vectors(large, on_emulator):
    host = keys((4, 162), "int16")
    check(host, lambda x: x[:, ::2], 0, NAMES[2:3])
    assert all(choice.policy.pace == 1 for choice in large)


PERIODS = {
    "rows of three": ((5, 7, 16, 3), "int16", lambda x: x[:, ::-1], 3),
    "rows of three columns": ((4, 3, 16, 3, 5), "int8", lambda x: x[:, ::-1], 3),
    "pairs": ((3, 4, 64, 2), "float32", lambda x: x[:, ::-1], 3),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[SLOW] * (i > 1)) for i, name in enumerate(PERIODS)])
def test_short_rows_as_periods(name, large, on_emulator):
    """Where those of long ones are vectors."""
    shape, dtype, view, axis = PERIODS[name]
    host = keys(shape, dtype)
    check(host, view, axis)
    check(host, view, axis, NAMES[2:3], op=INDEXED, successor=1)
    assert all(choice.policy.periodic and choice.policy.piece > 1 for choice in large)


@pytest.mark.parametrize("dtype", ["int8", pytest.param("int16", marks=SLOW)])
def test_vectors_of_edges(dtype, large, on_emulator):
    """No element is needed to flag the last row, but by what the caller gives for its neighbour."""
    for shape, axis in (((2, 1613), 0), ((3, 2, 601), 1)):
        host = keys(shape, dtype)
        check(host, lambda x: x, axis)
        check(host, lambda x: x, axis, NAMES[:2], successor=1)
    assert any(choice.policy.long and not choice.policy.adjacent for choice in large)


# name: array, options, threads of a block
BLOCKS = {
    "rows": (lambda: dry((1 << 17, 64), "int64")[:, :54], {}, 256),
    "few bytes": (lambda: dry((4, (1 << 24) + 1), "uint16"), {"axis": 0, "dtype": "bits"}, 256),
    "equal elements": (lambda: repeated((1 << 14, 1 << 12), "int32"), {}, 512),
    "columns of equal elements": (lambda: repeated((1 << 20, 32), "float32"), {"dtype": "bits"}, 512),
    "words beside equal ones": (
        lambda: broadcast_to(dry((64, 1, 1 << 18), "uint32"), (64, 3, 1 << 18)),
        {"axis": 1, "dtype": "bits"},
        256,
    ),
    "few equal elements": (lambda: repeated((1 << 10, 1 << 12), "int32"), {}, 256),
    "single bytes": (lambda: dry((1 << 23, 1), "bool"), {"dtype": "bits"}, 512),
    "pairs of bytes": (lambda: dry((1 << 23, 2), "bool"), {"dtype": "bits"}, 256),
}


def repeated(shape, dtype: str):
    return broadcast_to(dry((shape[0], 1), dtype), shape)


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_that_load_next_to_nothing_have_more_threads(name):
    x, options, threads = BLOCKS[name]
    (spec,) = needed(cs.flag_tails, x(), **options)
    assert spec.key[1].threads == threads


def test_large_blocks(large, on_emulator):
    host = keys((2500, 1), "int8")
    check(host, lambda x: x, 1, NAMES[1:2], dtype="bits")
    check(host[:90], lambda x: broadcast_to(x, (90, 80)), 1, NAMES[1:2])
    check(host[:90], lambda x: broadcast_to(x, (90, 80)), 1, NAMES[1:2], dtype="bits")
    assert [choice.policy.threads for choice in large] == [512] * 3


# name: call, shape, type, view, axis, options
KERNELS = {
    "short rows": ("flag_heads", (37, 4), "int16", lambda x: x, 1, {"dtype": "bits"}),
    "short rows of bytes": ("flag_tails", (41, 8), "int8", lambda x: x, 1, {"dtype": "bits"}),
    "apart": ("flag_heads_and_tails", *APART["one slice"], {}),
    "periods": ("flag_heads_and_tails", *PERIODS["rows of three"], {}),
    "edges": ("flag_tails", (2, 1613), "int16", lambda x: x, 0, {}),
}


def is_right(name: str, schedules: int) -> bool:
    call, shape, dtype, view, axis, options = KERNELS[name]
    host = keys(shape, dtype)
    with pytest.MonkeyPatch.context() as patch, cs.emulate(schedules=schedules, seed=3) as ran:
        as_large(patch)
        found = getattr(cs, call)(view(cs.asarray(host)), axis=axis, **options)
    assert ran.launches == schedules
    for one, other in zip(as_all(found), as_all(getattr(reference, call)(view(host), axis=axis, **options))):
        same(np.asarray(one), other, name)
    return True


@pytest.mark.parametrize("name", KERNELS)
def test_agrees_under_schedules(name):
    assert is_right(name, 3)


FAULTS = {
    "as many rows as others have": (
        "short rows",
        each(r"setp\.ne\.b32 ([^,]*, [^,]*), 4;", r"setp.lt.s32 \1, 0;"),
        {"out-of-bounds"},
    ),
    "bits of bytes in the wrong order": ("short rows of bytes", every(r"270549120", "134480385"), {RESULT}),
    "the elements between": (
        "apart",
        every(r"mov\.b32 (\t?){(%rs\d+), _}, ", r"mov.b32 \1{_, \2}, "),
        {RESULT},
    ),
    "what lies behind the last element": (
        "apart",
        each(r"setp\.eq\.b64 ", "setp.ne.b64 "),
        {"out-of-bounds"},
    ),
    "periods without an end": ("periods", every(r"rem\.s32 ([^,]*), ([^,]*), [^;]*;", r"mov.b32 \1, \2;"), {RESULT}),
    "a row of edges without flags": ("edges", every("16843009", "16843008"), {RESULT}),
}


@functools.cache
def bench(name: str) -> Bench:
    return Bench(lambda: is_right(name, 2))


@pytest.mark.parametrize("fault", FAULTS)
def test_every_planted_fault_is_found(fault):
    name, edit, kinds = FAULTS[fault]
    bench(name).check(edit, kinds)
