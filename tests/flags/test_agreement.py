"""Flags and differences of whole arrays agree with the reference: sizes, types, operators, ends, tiles, rows, views."""

from __future__ import annotations

from itertools import product

import cutlass.cute as cute
import numpy as np
import pytest
from cutlass import Int64

import cutesync as cs
from cutesync import reference
from cutesync.kernels.flags import policy

from ..cases import DTYPES, FLOATS, STAND_FOR_ALL, everywhere, numpy_dtype, places, same
from .cases import keys

BYTES = (1, 15, 16, 17, 31, 33, 127, 128, 129, 511, 512, 513, 1023, 1024, 1025, 2047, 2048, 2049, 65536, 2**20)


def check(x: np.ndarray, call: str = "flag_heads", op=None, *, on=None, **options) -> None:
    """The call on ``x`` (or on ``on``, a device array of the same values) agrees with the reference."""
    arguments = () if op is None else (op,)
    found, wanted = (
        getattr(cs, call)(cs.asarray(x) if on is None else on, *arguments, **options),
        getattr(reference, call)(x, *arguments, **options),
    )
    pairs = zip(("heads", "tails"), found, wanted) if isinstance(found, tuple) else [("", found, wanted)]
    for name, actual, expected in pairs:
        same(np.asarray(actual), expected, f"{call} {name} {op or ''} of {x.dtype}{list(x.shape)} {options}")


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_every_edge_size(place, dtype):
    size = numpy_dtype(dtype).itemsize
    for n in place.sizes(sorted({b // size + d for b in BYTES for d in (-1, 0, 1)} - {-1, 0})):
        check(keys(n, dtype), "flag_heads_and_tails")


@pytest.mark.drawn(2)
@everywhere("dtype", DTYPES, emulator=lambda dtype: dtype in STAND_FOR_ALL)
def test_every_type(place, dtype):
    for n in place.sizes([1, 37, 1024, 70001]):
        x = keys(n, dtype)
        check(x, "flag_heads_and_tails")
        check(x, "flag_heads_and_tails", "lt", dtype="bits", predecessor=x[0], successor=x[0])


FLAGS = ("bool", "bits", "int8", "uint16", "int32", "uint64")


KEYS = ("int8", "int32", "float64")


@everywhere(
    "dtype, flag",
    product(KEYS, FLAGS),
    emulator=lambda dtype, flag: flag == "bits" or FLAGS.index(flag) % 3 == KEYS.index(dtype),
)
def test_every_flag_type(place, dtype, flag):
    """Every ratio of the sizes of keys and flags."""
    for n in place.sizes([1, 31, 32, 33, 600, 1024, 70001]):
        check(keys(n, dtype), "flag_tails", dtype=flag)


@everywhere(
    "dtype, op",
    product(["int16", "uint8", "float32"], ["eq", "lt", "le", "gt", "ge"]),
    emulator=lambda dtype, op: dtype == "uint8",
)
def test_operators_by_name(place, dtype, op):
    check(keys(1000, dtype), "flag_heads_and_tails", op, predecessor=1, successor=2)


@everywhere(
    "dtype, flag",
    product(["int8", "uint8"], ["uint8", "bits"]),
    emulator=lambda dtype, flag: (dtype == "int8") == (flag == "bits"),
)
def test_every_pair_of_bytes(place, dtype, flag):
    """Bytes are compared four at a time: equal and unequal ones in every place of a word, beside every other."""
    pairs = np.stack(np.meshgrid(np.arange(256), np.arange(256)), -1).astype(np.uint8).view(dtype).ravel()
    for x in (pairs, keys(5000, dtype), np.random.default_rng(0).integers(0, 2, 5000).astype(dtype)):
        for op, n in product(("ne", "eq"), (len(x), len(x) - 9)):
            check(x[:n], "flag_heads_and_tails", op, dtype=flag)
    for op, end in product(("ne", "eq"), (0, 1, 127) + ((-1, -128) if dtype == "int8" else (128, 255))):
        check(x[:64], "flag_heads_and_tails", op, dtype=flag, predecessor=end, successor=end)
        check(np.full(64, end, dtype), "flag_heads_and_tails", op, dtype=flag, predecessor=end, successor=end)


def far(a, b):
    return b - a > 1


def every_third(a, b, index):
    return (a != b) & (index % 3 == 1)


@pytest.mark.parametrize(
    "op", [far, every_third, lambda a, b, i: i % 2 == 0], ids=["asymmetric", "index", "index alone"]
)
def test_callables(place, op):
    for n in place.sizes([1, 2, 130, 1000, 70001]):
        x = keys(n, "int32")
        check(x, "flag_heads_and_tails", op)
        check(x, "flag_heads_and_tails", op, predecessor=5, successor=5)
    check(keys((7, 130), "int32"), "flag_heads_and_tails", op, tile=13)


def test_a_callable_sees_halves_as_float32_and_bool_as_bool(place):
    check(keys(300, "float16"), "flag_heads", lambda a, b: a * 300.0 < b * 300.0)
    check(keys(300, "bool"), "flag_heads", lambda a, b: a & b)


@pytest.mark.parametrize("end", [0.1, -0.0, float("inf"), float("nan"), 1e30])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_ends_are_rounded_to_the_type_of_the_keys(place, dtype, end):
    with np.errstate(over="ignore"):
        for first in (0.1, 0.0, np.inf, np.nan):
            check(np.full(5, first, dtype), "flag_heads_and_tails", predecessor=end, successor=end)


TILES = (1, 2, 3, 5, 8, 100, 128, 250, 1000, 4096)


@pytest.mark.parametrize("flag", ["uint8", "bits"])
def test_tiles_start_fresh(place, flag):
    for tile, shape in product(TILES, place.sizes([(1000,), (4, 250), (70001,), (33, 4096)])):
        check(keys(shape, "int32"), "flag_heads_and_tails", tile=tile, dtype=flag)
    check(keys((4, 250), "int32"), "flag_heads_and_tails", tile=7, dtype=flag, predecessor=1, successor=2)


SHAPES = [(3, 5), (1, 7), (7, 1), (100, 3), (2, 3, 41), (3, 256), (5, 130), (2, 512), (4, 96)]
LONG = [(65536, 40), (4099, 513), (300, 5000), (16, 65536), (1 << 20, 3)]


@everywhere(
    "dtype, flag",
    product(["int8", "int32"], ["uint8", "bits"]),
    emulator=lambda dtype, flag: (dtype, flag) != ("int8", "bits"),
)
def test_rows_start_fresh(place, dtype, flag):
    for shape in place.sizes(SHAPES + LONG):
        check(keys(shape, dtype), "flag_heads_and_tails", dtype=flag)


VIEWS = [("int8", "uint8"), ("int32", "uint8"), ("int16", "int32"), ("int32", "bits"), ("int8", "bits")]


@pytest.mark.drawn(3)
@places(
    "dtype, flag, count, offsets",
    gpu=[(*types, 150001, range(17)) for types in VIEWS],
    emulator=[(*types, 1000, (1, 2, 4, 8)) for types in VIEWS],
)
def test_views_that_begin_anywhere(place, dtype, flag, count, offsets):
    """Every alignment of the keys, and of the flags."""
    x = keys(count + 16, dtype)
    whole = cs.asarray(x)
    for offset in offsets:
        check(x[offset : offset + count], "flag_heads", on=whole[offset : offset + count], dtype=flag)
    if flag != "bits":
        memory = cs.empty(count + 17, flag)
        for offset in offsets:
            out = memory[offset : offset + count]
            assert cs.flag_heads(whole[:count], dtype=flag, out=out) is out
            same(np.asarray(out), reference.flag_heads(x[:count], dtype=flag))


def test_nothing_beside_out_is_written(place):
    x = keys(1001, "int32")
    for skew, (flag, words) in product((0, 1, 5), (("uint8", 1001), ("bits", 32), ("int32", 1001))):
        element = "uint32" if flag == "bits" else flag
        memory = cs.asarray(np.full(words + 64, 77, element))
        cs.flag_heads(cs.asarray(x), dtype=flag, out=memory[32 + skew : 32 + skew + words])
        found = np.asarray(memory)
        same(found[32 + skew : 32 + skew + words], reference.flag_heads(x, dtype=flag))
        assert (found[: 32 + skew] == 77).all() and (found[32 + skew + words :] == 77).all()


@pytest.mark.parametrize("n", [61, 65, 1025, 4098])
def test_nothing_beside_misaligned_keys_is_read(place, n):
    """Flags are written right before the keys: to load any of them would race. Behind the keys no memory is left."""
    memory = cs.asarray(np.append(np.zeros(n, np.uint8), keys(n, "uint8")))
    cs.flag_heads(memory[n:], out=memory[:n])
    same(np.asarray(memory)[:n], reference.flag_heads(np.asarray(memory)[n:]))
    x = keys(n, "int8")
    for skew in (1, 2, 3):
        check(x[skew:], on=cs.asarray(x)[skew:])


def test_outs_of_both(place):
    x = keys(333, "int32")
    heads, tails = cs.empty(333, "int8"), cs.empty(333, "int8")
    found = cs.flag_heads_and_tails(cs.asarray(x), dtype="int8", out=(heads, tails))
    assert found == (heads, tails)
    for actual, wanted in zip(found, reference.flag_heads_and_tails(x, dtype="int8")):
        same(np.asarray(actual), wanted)


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_differs_from_itself_and_zero_from_no_zero(place, dtype):
    x = np.array([np.nan, np.nan, 0.0, -0.0] * 64, numpy_dtype(dtype))
    assert np.asarray(cs.flag_heads(cs.asarray(x))).reshape(-1, 4).tolist() == [[1, 1, 1, 0]] * 64
    assert np.asarray(cs.flag_tails(cs.asarray(x), successor=0.0)).reshape(-1, 4).tolist() == [[1, 1, 0, 1]] * 63 + [
        [1, 1, 0, 0]
    ]


@pytest.mark.parametrize("form", ["flag_heads", "flag_tails"])
@pytest.mark.parametrize("ends", [{}, {"predecessor": 3, "successor": 4}], ids=["forced", "given"])
def test_the_operator_is_called_for_every_pair_and_no_more(place, form, ends):
    """It counts its calls, and adds up the squares of the indexes it sees."""
    ends = {
        name: value for name, value in ends.items() if name == ("predecessor" if form == "flag_heads" else "successor")
    }
    calls = cs.asarray(np.zeros(2, np.int64))
    address = calls.ptr

    def op(a, b, index):
        counters = cute.make_ptr(Int64, address, cute.AddressSpace.gmem, assumed_align=8)
        cute.arch.atomic_add(counters, Int64(1), sem="relaxed", scope="gpu")
        cute.arch.atomic_add(counters + 1, index * index, sem="relaxed", scope="gpu")
        return a != b

    pairs, squares = 0, 0
    for n in place.sizes([1, 2, 128, 1000, 70001]):
        getattr(cs, form)(cs.asarray(np.zeros(n, np.int32)), op, **ends)
        indexes = np.arange(0 if ends and form == "flag_heads" else 1, n + (1 if ends and form == "flag_tails" else 0))
        pairs, squares = pairs + len(indexes), squares + int((indexes**2).sum())
        assert np.asarray(calls).tolist() == [pairs, squares], n


@everywhere(
    "dtype, reverse",
    [(name, bool(i % 2)) for i, name in enumerate(DTYPES) if name != "bool"] + [("int8", False)],
    emulator=lambda dtype, reverse: dtype == "int8" or (dtype, reverse) in (("float16", True), ("float64", False)),
)
def test_adjacent_difference(place, dtype, reverse):
    rng = np.random.default_rng(4)
    for shape in place.sizes([(130,), (1024,), (7, 37), (70001,), (300, 513)]):
        x = (
            keys(shape, dtype)
            if dtype.startswith(("int", "uint"))
            else rng.integers(-60, 60, shape).astype(numpy_dtype(dtype)) / numpy_dtype(dtype).type(8)
        )
        check(x, "adjacent_difference", reverse=reverse)


@pytest.mark.parametrize(
    "op",
    ["add", "mul", "min", "max", "xor", lambda a, b: a - 2 * b],
    ids=lambda op: op if isinstance(op, str) else "lambda",
)
def test_other_differences(place, op):
    check(np.random.default_rng(1).integers(-9, 9, 300).astype(np.int32), "adjacent_difference", op)


def test_a_running_sum_of_differences_is_the_input(place):
    x = np.random.default_rng(0).integers(-1000, 1000, 1000).astype(np.int32)
    same(np.cumsum(np.asarray(cs.adjacent_difference(cs.asarray(x))), dtype=np.int32), x)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)], ids=str)
def test_empty_arrays(place, shape):
    x = np.zeros(shape, np.int32)
    for flag in ("uint8", "bits"):
        check(x, "flag_heads_and_tails", dtype=flag)
    check(x, "adjacent_difference")


def test_numpy_in_numpy_out(place):
    x = keys(100, "int32")
    heads, tails = np.zeros(100, np.uint8), np.zeros(100, np.uint8)
    assert type(cs.flag_heads(x)) is np.ndarray
    found = cs.flag_heads_and_tails(x, out=(heads, tails))
    assert found[0] is heads and found[1] is tails
    same(tails, reference.flag_tails(x))
    assert cs.flag_tails(x, out=heads) is heads
    same(heads, tails)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("length", [32, 96])
def test_rows_of_whole_vectors_of_bytes(length, first, on_emulator, monkeypatch):
    """They are compared in words as one long row: a row begins or ends with a vector."""
    monkeypatch.setattr(policy, "MIN_ODD_ELEMENTS", 0)
    x = keys(9 * length, "int8").reshape(9, length)
    on = cs.asarray(np.concatenate([np.ones(first, "int8"), x.ravel()]))[first:].reshape(x.shape)
    ends = {"predecessor": x[0, 0], "successor": x[-1, -1]}
    for options in ({}, ends):
        check(x, "flag_heads_and_tails", on=on, axis=1, **options)
        check(x, "flag_heads_and_tails", on=on, axis=1, dtype="bits", **options)
