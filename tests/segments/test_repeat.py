"""Run lengths decoded, elements repeated, and searches in sorted arrays, as in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync.errors import ArgumentTypeError, ArgumentValueError, DeviceError
from cutesync.kernels.segments import decode_policy

from ..cases import STAND_FOR_ALL, numpy_dtype
from ..select.test_agreement import equal
from .kernels import force_decode, force_searches


@pytest.fixture
def emulated():
    with cs.emulate():
        yield


def test_lengths_of_every_kind(emulated):
    """Runs of one element, long ones, empty ones between, none at all."""
    rng = np.random.default_rng(4)
    empty = np.zeros(1100, int)
    empty[[0, 70, 71, 1099]] = 5, 40, 1, 2
    for lengths in (empty[:0], empty[1:9], rng.integers(0, 3, 400), rng.integers(0, 200, 20), [1500], empty, [1] * 99):
        lengths = np.asarray(lengths, np.int32)
        x = np.arange(len(lengths), dtype=np.int32)
        wanted = np.repeat(x, lengths)
        equal(cs.repeat(x, lengths), wanted)
        for size in (7, 1600):
            found = cs.run_length_decode(cs.asarray(x), cs.asarray(lengths), size=size, fill_value=-1)
            assert int(found.count) == len(wanted)
            equal(found.values, np.append(wanted, np.full(1600, -1, np.int32))[:size])


def lists_of_lengths() -> list:
    """Lengths that make tiles without a result, with a few, and with many: of one run, of several, in every place."""
    rng = np.random.default_rng(4)
    empty = np.zeros(2000, int)
    empty[[0, 900, 1999]] = 1000, 1024, 9000
    zipf = (rng.random(1200) ** (-1 / 1.1)).astype(int).clip(max=6000)
    return [[5000], np.zeros(600, int), np.full(3000, 3), empty, np.full(20, 1000), rng.integers(0, 40, 700), zipf]


DECODED = [("int32", "int64", "three blocks"), ("int8", "int32", "two blocks"), ("int8", "uint8", "three blocks")]
SLOWLY = [("int64", "uint16", "one block"), ("int16", "uint64", "three blocks"), ("float64", "uint32", "two blocks")]


@pytest.mark.parametrize("dtype, length, name", [*DECODED, *(pytest.param(*k, marks=pytest.mark.slow) for k in SLOWLY)])
def test_tiles_and_parts(emulated, monkeypatch, dtype, length, name):
    """Tiles that are stored at once, and parts of those that are not; more results than there is room for."""
    force_decode(monkeypatch, name)
    for lengths in lists_of_lengths():
        lengths = np.minimum(lengths, min(np.iinfo(length).max, 1 << 20))
        x = np.arange(len(lengths)).astype(dtype)
        wanted = np.repeat(x, lengths)
        for size in (len(wanted) + 99, len(wanted) // 2 + 3)[len(wanted) > 4000 :]:
            out = cs.asarray(np.full(size + 9, 99).astype(dtype))
            found = cs.run_length_decode(
                cs.asarray(x), cs.asarray(np.asarray(lengths, length)), out=out[1 : size + 1], fill_value=7
            )
            assert int(found.count) == len(wanted)
            filled = np.append(wanted, np.full(99, 7))[:size]
            equal(out, np.concatenate([[99], filled, np.full(8, 99)]).astype(dtype))


@pytest.mark.drawn(1)
@pytest.mark.parametrize("dtype, length", [("int8", "int32"), ("int32", "uint16"), ("int8", "int64")])
def test_short_runs_as_long_as_half_a_word_holds(emulated, monkeypatch, dtype, length):
    """Groups of 128 runs of which all have 256 results, of which one has 257, and of which one or all have 1."""
    force_decode(monkeypatch, "two blocks")
    lengths = np.repeat([256, 256, 1, 256, 256, 256], 128)
    lengths[[130, 600]] = 1, 257
    x = np.arange(len(lengths)).astype(dtype)
    wanted = np.repeat(x, lengths)
    found = cs.run_length_decode(cs.asarray(x), cs.asarray(lengths.astype(length)), size=len(wanted))
    assert int(found.count) == len(wanted)
    equal(found.values, wanted)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
def test_tiles_that_end_inside_vectors(emulated, monkeypatch, dtype):
    """Tiles of many results, and of so few that they begin and end in one vector, from every place of a vector on."""
    force_decode(monkeypatch)
    rng = np.random.default_rng(7)
    few = np.zeros(1800, int)
    few[rng.choice(1800, 20, replace=False)] = rng.integers(1, 3, 20)
    for lengths in (rng.integers(0, 3, 900), rng.integers(1, 3, 1100), few):
        x = np.arange(len(lengths)).astype(dtype)
        wanted = np.repeat(x, lengths)
        for skip, step in ((0, 1), (1, 1), (2, 1), (3, 1), (1, 2)):
            out = np.full(skip + step * len(wanted) + 9, 99).astype(dtype)
            ours = cs.asarray(out)
            places = slice(skip, skip + step * len(wanted), step)
            cs.run_length_decode(cs.asarray(x), cs.asarray(lengths), out=ours[places])
            out[places] = wanted
            equal(ours, out)


@pytest.mark.parametrize(
    "dtype", ["int32", "int8", *(pytest.param(t, marks=pytest.mark.slow) for t in ("int64", "int16"))]
)
def test_warps_that_make_several_tiles(emulated, monkeypatch, dtype):
    """A group of runs goes on in the next tile, ends with a tile, or has no result at all."""
    force_searches(monkeypatch)
    rng = np.random.default_rng(4)
    empty = np.zeros(2000, int)
    empty[[0, 900, 1999]] = 1000, 1024, 25000
    for lengths in (np.full(256, 112), np.full(3000, 8), empty, rng.integers(0, 40, 1400)):
        x = np.arange(len(lengths)).astype(dtype)
        wanted = np.append(np.repeat(x, lengths), np.full(27000, -1))[:27000].astype(dtype)
        found = cs.run_length_decode(cs.asarray(x), cs.asarray(lengths), size=27000, fill_value=-1)
        assert int(found.count) == lengths.sum()
        equal(found.values, wanted)


@pytest.mark.parametrize(
    ("size", "length", "mean", "block"),
    [
        (1, 4, 1, (32, 8, 12, 2)),
        (2, 4, 1, (28, 7, 14, 2)),
        (2, 4, 1.9, (28, 7, 14, 2)),
        (2, 4, 2, (24, 6, 16, 2)),
        (2, 8, 1, (16, 8, 12, 2)),
        (4, 4, 1, (24, 12, 16, 1)),
        (4, 4, 2, (32, 8, 16, 1)),
        (8, 4, 1, (16, 8, 16, 1)),
        (8, 8, 2, (16, 8, 16, 1)),
    ],
)
def test_blocks_for_short_runs(size, length, mean, block):
    """They depend on how many bytes elements and lengths have, and on the results of a run."""
    runs = 1 << 26
    policy = decode_policy.choose(runs, int(runs * mean), size, length).policy
    assert (policy.groups, policy.place_warps, policy.store_warps, policy.squads) == block
    assert policy.stages >= 2 * policy.squads and policy.windows == 1
    assert policy.bytes(size, length) <= decode_policy.SHARED_BYTES


def test_negative_lengths_are_harmless(emulated, monkeypatch):
    """They count as 0: nothing is written outside of the result."""
    force_decode(monkeypatch)
    for size in (2900, 3300):
        lengths, out = np.array([-5, 3000, -(1 << 40), 7]), cs.asarray(np.full(4000, 99))
        cs.run_length_decode(cs.asarray(np.arange(4)), cs.asarray(lengths), out=out[500 : 500 + size])
        wanted = np.append(np.repeat(np.arange(4), lengths.clip(0)), np.zeros(3300, int))[:size]
        equal(out, np.concatenate([np.full(500, 99), wanted, np.full(3500 - size, 99)]))


def test_lengths_of_more_than_32_bits(emulated):
    lengths = np.array([3, 0, 1 << 33, 5, (1 << 62) + 7])
    found = cs.run_length_decode(cs.asarray(np.arange(5, dtype=np.int16)), cs.asarray(lengths), size=1500)
    assert int(found.count) == lengths.sum()
    equal(found.values, np.append(np.zeros(3), np.full(1497, 2)).astype(np.int16))


VIEWS = (
    lambda x: x,
    lambda x: x.T,
    lambda x: x[::-2, ::3],
    lambda x: x[3],
    lambda x: x[2, 3, ...],
    lambda x: x[:0],
)
EACH_VIEW = [view if i == 2 else pytest.param(view, marks=pytest.mark.slow) for i, view in enumerate(VIEWS)]


def count_of(n: int):
    return cs.asarray(np.array(n))


@pytest.mark.drawn(2)
@pytest.mark.parametrize("view", EACH_VIEW)
def test_strided_values_and_counts(emulated, view):
    """Values, lengths and results of any strides, of which ``n`` runs count; an int as the length of all runs."""
    rng = np.random.default_rng(1)
    x, lengths = rng.integers(-5, 9, (8, 50)).astype(np.int16), rng.integers(0, 4, (8, 50)).astype(np.int8)
    device, of_device = cs.asarray(x), cs.asarray(lengths)
    host, many = view(x).reshape(-1), view(lengths).reshape(-1)
    equal(cs.repeat(view(x), view(lengths)), np.repeat(host, many))
    for n in (0, 7, host.size + 5):
        wanted = np.repeat(host[:n], many[:n])
        filled = np.append(wanted, np.full(300, -1, np.int16))[:300]
        equal(cs.repeat(view(x), view(lengths), n=np.array(n)), wanted)
        out = cs.asarray(np.full((300, 2), 99, np.int16))
        found = cs.repeat(view(device), view(of_device), n=count_of(n), out=out[:, 1], fill_value=-1)
        assert int(found.count) == len(wanted)
        equal(out, np.stack([np.full(300, 99, np.int16), filled], 1))
        equal(cs.run_length_decode(view(device), view(of_device), n=n, size=300, fill_value=-1).values, filled)
        for times in (0, 3):
            wanted = np.repeat(host[:n], times)
            equal(cs.repeat(view(x), times, n=n), wanted)
            found = cs.repeat(view(device), times, n=count_of(n), fill_value=9)
            equal(found.exact(), wanted)
            equal(found.values, np.append(wanted, np.full(host.size * times, 9, np.int16))[: host.size * times])


@pytest.mark.parametrize("view", EACH_VIEW)
def test_strided_searches_and_counts(emulated, view):
    rng = np.random.default_rng(1)
    pairs = np.sort(rng.integers(0, 40, (60, 2)), axis=0).astype(np.float32)
    v = rng.integers(-1, 42, (9, 31)).astype(np.float32)
    device, of_device = cs.asarray(pairs), cs.asarray(v)
    for n in (None, 0, 5, 100):
        wanted = np.searchsorted(pairs[:n, 1], view(v))
        equal(cs.searchsorted(pairs[:, 1], view(v), n=n), wanted)
        equal(cs.searchsorted(device[:, 1], view(of_device), n=None if n is None else count_of(n)), wanted)
    mixed = pairs[rng.permutation(60), 1]
    sorter = np.argsort(mixed, kind="stable")
    out = np.zeros((9, 62), np.int64)
    cs.searchsorted(mixed, v, "right", np.stack([sorter, sorter], 1)[:, 0], n=20, out=out[:, ::2])
    equal(out[:, ::2], np.searchsorted(mixed[sorter[:20]], v, "right"))
    assert not out[:, 1::2].any()


@pytest.mark.slow
def test_groups_without_a_wait(emulated):
    """What run lengths give, the decoding and the reduction by lengths take, counts on the device included."""
    rng = np.random.default_rng(2)
    keys, values = rng.integers(0, 3, 500), rng.integers(0, 99, 500)
    groups = cs.run_length_encode(cs.asarray(keys))
    sums = cs.segmented_reduce(cs.asarray(values), lengths=groups.lengths, n=groups.count)
    wanted = cs.reduce_by_key(keys, values)
    equal(np.asarray(sums)[: len(groups)], wanted[1])
    equal(cs.run_length_decode(groups.values, groups.lengths, n=groups.count, size=500).values, keys)
    share = cs.run_length_decode(sums, groups.lengths, n=groups.count, size=500).values
    equal(share, np.repeat(wanted[1], np.asarray(groups.lengths)[: len(groups)]))


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.parametrize("dtype", (*STAND_FOR_ALL, "int32"))
def test_every_type(emulated, dtype):
    x = (np.arange(50) % 7).astype(numpy_dtype(dtype))
    lengths = np.arange(50) % 5
    equal(
        cs.run_length_decode(*map(cs.asarray, (x, lengths.astype(np.uint8))), size=99).values[:99],
        np.repeat(x, lengths)[:99],
    )
    a = np.sort(x)
    for side in ("left", "right"):
        equal(cs.searchsorted(a, x.reshape(5, 10), side), np.searchsorted(a, x.reshape(5, 10), side))


def test_searches(emulated):
    rng = np.random.default_rng(3)
    a = np.append(np.sort(rng.integers(0, 30, 40)), [np.nan, np.nan]).astype(np.float32)
    v = np.append(rng.integers(-2, 33, 300), [np.nan, np.inf, -np.inf]).astype(np.float32)
    for side in ("left", "right"):
        for length in (0, 1, 40, 42):
            equal(cs.searchsorted(a[:length], v, side), np.searchsorted(a[:length], v, side))
    order = rng.permutation(42)
    sorter = np.argsort(a[order], kind="stable")
    equal(cs.searchsorted(a[order], v, "right", sorter), np.searchsorted(a, v, "right"))


def test_refused(emulated):
    x = np.arange(3)
    for call in (
        lambda: cs.repeat(x, x * 1.0),
        lambda: cs.repeat(x, True),
        lambda: cs.repeat(x, 2.0),
        lambda: cs.repeat(x, x, n=1.5),
        lambda: cs.repeat(x, x, out=np.zeros(3, np.int8)),
        lambda: cs.searchsorted(x, x * 1.0),
        lambda: cs.searchsorted(x, x, "left", x[1:]),
    ):
        with pytest.raises(ArgumentTypeError):
            call()
    for call in (
        lambda: cs.repeat(x, x[1:]),
        lambda: cs.repeat(x, -1),
        lambda: cs.repeat(x, x, size=3, out=np.zeros(4, x.dtype)),
        lambda: cs.repeat(x, x, out=np.zeros((3, 1), x.dtype)),
        lambda: cs.repeat(cs.asarray(x), cs.asarray(x)),
        lambda: cs.searchsorted(x.reshape(3, 1), x),
        lambda: cs.searchsorted(x, x, "middle"),
    ):
        with pytest.raises(ArgumentValueError):
            call()


@pytest.mark.parametrize("count", [2, pytest.param(0, marks=pytest.mark.slow)])
def test_one_length_for_all(emulated, count):
    """Arrays of one element, of any shape, are as NumPy has them: the length of every run."""
    x = np.arange(6, dtype=np.int32).reshape(2, 3)
    for one in (np.array([count]), np.array(count), np.array([[count]], np.uint8)):
        equal(cs.repeat(x, one), np.repeat(x, one.ravel()))
        equal(cs.run_length_decode(x, one, n=2), np.repeat([0, 1], count).astype(np.int32))
        found = cs.repeat(cs.asarray(x), cs.asarray(one), size=20, n=cs.asarray(np.int64(5)))
        equal(found.exact(), np.repeat(np.arange(5, dtype=np.int32), count))
    equal(cs.repeat(x[:0], np.array([3])), x[:0].ravel())
    for function in (cs.repeat, cs.run_length_decode):
        with pytest.raises(ArgumentValueError, match="got -1; needs 0"):
            function(x, np.array([-1]))
        with pytest.raises(DeviceError, match="NumPy array beside"):
            function(cs.asarray(x), np.array([2]), size=9)


def test_elements_of_numpy_arrays_that_are_refused(emulated):
    """Those behind ``n`` are not looked at."""
    x, wrong = np.arange(3), np.array([2, 0, -1])
    for call, name in ((cs.repeat, "repeats"), (cs.run_length_decode, "lengths")):
        with pytest.raises(ArgumentValueError, match=f"^{name}: got the element -1"):
            call(x, wrong)
        equal(call(x, wrong, n=2), [0, 0])
    for element in (-1, 3):
        sorter = np.array([0, 1, element])
        with pytest.raises(ArgumentValueError, match=f"^sorter: got the element {element}"):
            cs.searchsorted(x, x, sorter=sorter)
        equal(cs.searchsorted(x, x, sorter=sorter, n=np.array(2)), [0, 1, 2])


def test_messages_name_the_arguments(emulated):
    x = cs.asarray(np.arange(9))
    for call, message in (
        (lambda: cs.repeat(x, x[1:], size=9), "^repeats: got 8 elements; needs 9, as x has"),
        (lambda: cs.repeat([1], 3), "^x: "),
        (lambda: cs.reduce_by_key(x[1:], x), "^keys: got 8 elements; needs 9, as values has"),
        (lambda: cs.scan_by_key(x, (x, x[1:])), r"^values\[1\]: "),
        (lambda: cs.scan_by_key(x, x, out=x[::-1]), "overlaps values"),
        (lambda: cs.segmented_scan(x, keys=x[1:]), "^keys: got 8 elements; needs 9, as x has"),
    ):
        with pytest.raises((ArgumentTypeError, ArgumentValueError), match=message):
            call()
