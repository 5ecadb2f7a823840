"""Operations on segments that offsets, lengths or heads give agree with NumPy, empty segments included."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cutesync as cs
from cutesync.errors import ArgumentTypeError, ArgumentValueError

from .. import states
from ..cases import SCHEDULES, numpy_dtype
from ..select.test_agreement import equal
from .kernels import KERNELS, force
from .reference import SUM, reduced, scanned

slow = functools.partial(pytest.param, marks=pytest.mark.slow)
# elements and segments
SHAPES = [(0, 5), (1, 1), (200, 3), (191, 700), (1291, 1500), (1291, 1)]


@pytest.fixture
def small(monkeypatch):
    force(monkeypatch)
    with cs.emulate():
        yield


def offsets_of(length: int, segments: int, dtype: str = "int64") -> np.ndarray:
    """Offsets of which many are equal; some elements belong to no segment."""
    rng = np.random.default_rng([length, segments])
    found = np.sort(rng.integers(length // 9, length + 1, segments + 1))
    found[segments // 3 : segments // 2] = found[segments // 3]
    return found.astype(dtype)


def heads_of(length: int, offsets: np.ndarray) -> np.ndarray:
    heads = np.zeros(length + 1, bool)
    heads[0] = True
    heads[offsets] = True
    return heads[:length]


def reduce_all(xs, offsets, case=SUM, nothing=(0,), init=None) -> list[np.ndarray]:
    """The reduction of each segment, ``nothing`` where it is empty."""
    out = [np.full(len(offsets) - 1, value, x.dtype) for x, value in zip(xs, nothing)]
    for k, (first, stop) in enumerate(zip(offsets, offsets[1:])):
        if stop > first:
            whole = np.arange(stop - first) == 0
            for result, value in zip(out, reduced(whole, [x[first:stop] for x in xs], case, init)):
                result[k] = value[0]
    return out


@pytest.mark.parametrize("shapes", [SHAPES[3:4], slow(SHAPES[:3] + SHAPES[4:])])
def test_offsets(small, shapes):
    for length, segments in shapes:
        x, offsets = np.arange(length, dtype=np.int32) * 7, offsets_of(length, segments)
        equal(cs.segmented_reduce(x, offsets=offsets), *reduce_all([x], offsets))
        heads = heads_of(length, offsets)
        equal(cs.segmented_scan(x, offsets=offsets), *scanned(heads, [x]))


@pytest.mark.slow
def test_directions_types_and_alignment(small):
    types = (
        ("int8", "int32", (1,)),
        ("float64", "uint32", (7,)),
        ("bool", "int64", (1,)),
    )
    for dtype, kind, places in types:
        x = (np.arange(1300) % 5).astype(numpy_dtype(dtype))
        for first in places:
            part, offsets = cs.asarray(x)[first:], offsets_of(1300 - first, 160, kind)
            heads = heads_of(1300 - first, offsets)
            options = {"dtype": "int32"} if dtype == "bool" else {}
            values = x[first:].astype(np.int32) if dtype == "bool" else x[first:]
            equal(cs.segmented_reduce(part, offsets=cs.asarray(offsets), **options), *reduce_all([values], offsets))
            ways = {"reverse": True}, {"reverse": True, "exclusive": True}, {"exclusive": True, "init": 3}
            for how in ways if first == places[-1] else ways[:1]:
                found = cs.segmented_scan(part, offsets=cs.asarray(offsets), **how, **options)
                init = (how.get("init", 0),) if "exclusive" in how else None
                equal(found, *scanned(heads, [values], **{**how, "init": init}))


@pytest.mark.drawn(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["maps"])
def test_states_that_do_not_commute(small, name):
    case = states.CASES[name]
    xs, offsets = states.data(case, (700,), 3), offsets_of(700, 90)
    heads, device = heads_of(700, offsets), tuple(map(cs.asarray, xs))
    found = cs.segmented_reduce(device, case.op, offsets=cs.asarray(offsets), identity=case.identity)
    for one, other in zip(found, reduce_all(xs, offsets, case, case.identity), strict=True):
        equal(one, other)
    for reverse in (False, True):
        found = cs.segmented_scan(device, case.op, offsets=cs.asarray(offsets), reverse=reverse)
        for one, other in zip(found, scanned(heads, xs, case, reverse=reverse), strict=True):
            equal(one, other)


def test_lengths_init_and_finish(small):
    """The result of an empty segment is that of the state before it."""
    lengths = np.random.default_rng(2).integers(0, 5, 300)
    x = np.arange(lengths.sum() + 3).astype(np.float32)
    offsets = np.append(0, np.cumsum(lengths))
    most = [max([-1.0, *x[a:b]]) for a, b in zip(offsets, offsets[1:])]
    halves = {"finish": lambda v: v / 2, "out_dtype": "float64"}
    equal(cs.segmented_reduce(x, "max", lengths=lengths, init=-1, **halves), np.float64(most) / 2)
    out = cs.empty((300,), "float64")
    found = cs.segmented_reduce(
        cs.asarray(x), "max", lengths=cs.asarray(lengths.astype(np.uint8)), init=-1, out=out, **halves
    )
    assert found is out
    equal(out, np.float64(most) / 2)


@pytest.mark.slow
def test_heads_and_keys(small):
    x, heads = np.arange(900, dtype=np.int64), np.random.default_rng(1).random(900) < 0.1
    begins = heads | (np.arange(900) == 0)
    equal(cs.segmented_reduce(x, heads=heads), *reduced(begins, [x]))
    equal(cs.segmented_scan(x, heads=heads.astype(np.int8), reverse=True), *scanned(begins, [x], reverse=True))
    keys = np.cumsum(heads)
    found = cs.segmented_reduce(cs.asarray(x), keys=cs.asarray(keys), n=700)
    equal(found, *reduced(begins[:700], [x[:700]]))
    equal(cs.segmented_scan(x, keys=keys), *scanned(begins, [x]))


@pytest.mark.drawn(1)
@pytest.mark.slow
@pytest.mark.parametrize("room", [900, 50])
def test_results_of_heads_and_keys_in_arrays_of_the_caller(small, room):
    """Of any stride, alone or with the count; nothing is written behind their end, and no keys."""
    x, keys = cs.asarray(np.arange(900, dtype=np.int32)), np.cumsum(np.random.default_rng(3).random(900) < 0.2)
    heads = np.append(True, keys[1:] != keys[:-1])
    (wanted,) = reduced(heads, [np.arange(900, dtype=np.int32)])
    n, key = min(room, len(wanted)), cs.asarray(keys)
    for where in ({"heads": cs.asarray(heads)}, {"keys": key}, {"keys": (key, key)}):
        out, count = cs.asarray(np.full(2 * room, -1, np.int32)), cs.asarray(np.int64(0))
        cs.segmented_reduce(x, out=(out[::2], count), **where)
        assert int(count) == len(wanted)
        assert np.array_equal(np.asarray(out)[::2][:n], wanted[:n]) and (np.asarray(out)[1::2] == -1).all()
        alone = cs.asarray(np.zeros(room, np.int32))
        found = cs.segmented_reduce(x, out=alone, **where)
        assert found.values is alone and int(found.count) == len(wanted)
        assert np.array_equal(np.asarray(alone)[:n], wanted[:n])


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_agrees_under_hostile_schedules(name, monkeypatch):
    force(monkeypatch, name)
    x, offsets = np.arange(1291, dtype=np.int16), offsets_of(1291, 400)
    with cs.emulate(schedules=SCHEDULES, seed=8):
        found = cs.segmented_reduce(cs.asarray(x), offsets=cs.asarray(offsets))
        scan = cs.segmented_scan(cs.asarray(x), offsets=cs.asarray(offsets), reverse=True)
    equal(found, *reduce_all([x], offsets))
    equal(scan, *scanned(heads_of(1291, offsets), [x], reverse=True))


@pytest.mark.slow
def test_offsets_that_are_wrong_write_nothing_beyond_the_result_and_harm_no_later_call(small):
    x = np.arange(500, dtype=np.int32)
    for offsets in ([900, -5, 3, 1 << 40], [10, 5, 400, 2], [-9, -8, 1000, 2000]):
        given = {"offsets": cs.asarray(np.int64(offsets))}
        assert cs.segmented_reduce(cs.asarray(x), **given).shape == (3,)
        assert cs.segmented_scan(cs.asarray(x), **given).shape == (500,)
    offsets = np.array([0, 7, 7, 450])  # no mark of theirs is left
    found = cs.segmented_scan(cs.asarray(x), offsets=cs.asarray(offsets))
    assert np.array_equal(found, scanned(heads_of(500, offsets), [x])[0])


def test_refused():
    x, offsets = np.arange(9.0), np.array([0, 4, 9])
    with cs.emulate():
        for options in ({}, {"offsets": offsets, "heads": x > 1}, {"offsets": x}, {"heads": x}, {"lengths": x}):
            with pytest.raises(ArgumentTypeError):
                cs.segmented_reduce(x, **options)
        for options in ({"heads": x > 1, "out": (x, x, x)}, {"keys": x, "out": ()}):
            with pytest.raises(ArgumentTypeError, match="^out: got a tuple"):
                cs.segmented_reduce(x, **options)
        for options in ({"offsets": offsets[:0]}, {"heads": x[1:] > 0}):
            with pytest.raises(ArgumentValueError):
                cs.segmented_reduce(x, **options)
        with pytest.raises(ArgumentValueError):
            cs.segmented_reduce(x, "max", offsets=offsets)
        for n in (None, 2):
            with pytest.raises(ArgumentValueError, match="^lengths: got the element -1"):
                cs.segmented_reduce(x, lengths=np.array([3, -1]), n=n)
            with pytest.raises(ArgumentValueError, match="^offsets: got the element 3"):
                cs.segmented_scan(x, offsets=np.array([0, 4, 3]), n=n)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("form", [slow("lengths"), slow("offsets")])
def test_segments_that_only_the_device_counts(small, form):
    """``n`` segments: an int, or a count on the device. What lies behind the last one is one more in a scan."""
    rng = np.random.default_rng(1)
    lengths = rng.integers(0, 9, 60)
    offsets = np.append(0, np.cumsum(lengths))
    x = rng.integers(-5, 9, offsets[-1] + 7).astype(np.int32)
    where = {form: cs.asarray({"lengths": lengths, "offsets": offsets}[form])}
    wanted = np.array([x[first:stop].sum() for first, stop in zip(offsets, offsets[1:])], np.int32)
    for n in (0, 13, 99):
        m = min(n, 60)
        parts = np.split(x, offsets[1 : m + 1])
        for given in (n, cs.asarray(np.array(n))):
            out = cs.asarray(np.full(60, 777, np.int32))
            cs.segmented_reduce(cs.asarray(x), n=given, out=out, **where)
            equal(out, np.append(wanted[:m], np.full(60 - m, 777, np.int32)))
            equal(
                cs.segmented_scan(cs.asarray(x), n=given, **where),
                np.concatenate([p.cumsum(dtype=np.int32) for p in parts]),
            )
            found = cs.segmented_scan(cs.asarray(x), n=given, reverse=True, **where)
            equal(found, np.concatenate([p[::-1].cumsum(dtype=np.int32)[::-1] for p in parts]))
