"""Elements of one and two bytes that are combined without being unpacked: argmin and argmax as keys, few columns and
bools by dot products."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.reduce import along_policy, lone_policy, plan, policy, strided_loads, strided_plan, strided_policy
from cutesync.runtime import call as calls, device

from ..cases import data, same
from ..faults import RESULT, Bench, every
from .strided_cases import recorded

TYPES = ("int8", "uint8", "int16", "uint16", "bool")


def types(quick: str) -> list:
    """All types, of which one is not slow."""
    return [dtype if dtype == quick else pytest.param(dtype, marks=pytest.mark.slow) for dtype in TYPES]


def elements(shape, dtype: str, kind: str) -> np.ndarray:
    """All values of a type; few, so that most are equal; or its least and its greatest."""
    if dtype == "bool" or kind == "all":
        return data(shape, dtype)
    limits = np.iinfo(dtype)
    values = [limits.min, limits.max] if kind == "ends" else [limits.max - 1, limits.max]
    return np.random.default_rng(3).choice(np.array(values, dtype), shape)


def check(x: np.ndarray, axis, what: str) -> None:
    for name in ("argmax", "argmin") if x.ndim < 3 else ("argmin",):
        same(np.asarray(getattr(cs, name)(cs.asarray(x), axis=axis)), getattr(np, name)(x, axis=axis), f"{name} {what}")


@pytest.mark.parametrize("dtype", types("int8"))
def test_arrays_without_axes(dtype, on_emulator):
    """A single element, wherever it lies."""
    for at in (0, 3):
        whole = elements((4,), dtype, "all")
        x, there = whole[at], cs.asarray(whole)[at : at + 1].reshape(())
        found = {"argmin": 0, "sum": x.sum(), "any": x.any()}
        assert {name: int(np.asarray(getattr(cs, name)(there))) for name in found} == found
        same(np.asarray(cs.reduce(there, "or", transform=lambda v: v | v)), x, f"{dtype} at {at}")


@pytest.mark.parametrize("dtype", types("int8"))
def test_the_first_of_the_best(dtype, on_emulator):
    """Of rows, of columns in vectors, and along a whole array, misaligned ones too."""
    for kind in ("few", "ends"):
        check(elements((2003,), dtype, kind)[3:], 0, kind)
        for shape, axis in (((3, 1100), 1), ((37, 64), 0), ((3, 101, 8), 1)):
            check(elements(shape, dtype, kind), axis, f"{kind} {shape}")


@pytest.mark.parametrize("dtype", types("uint16"))
def test_the_first_of_the_best_of_odd_columns(dtype, on_emulator, monkeypatch):
    """Columns that begin anywhere, in words and in vectors, of fewer rows than a thread has in flight and of more."""
    monkeypatch.setattr(strided_loads, "MIN_WORDS_BYTES", 0)
    chosen = []
    monkeypatch.setattr(strided_plan, "choose", lambda p: chosen.append(strided_policy.choose(p)) or chosen[-1])
    for units in (1 << 20, 0):
        monkeypatch.setattr(strided_loads, "MIN_WIDE_UNITS", units)
        monkeypatch.setattr(calls, "_plans", {})
        for shape, kind in (((3, 301), "few"), ((9, 303), "ends"), ((70, 261), "few")):
            check(elements(shape, dtype, kind), 0, f"{kind} {shape}")
    assert {"words"} == {choice.policy.load for choice in chosen}


@pytest.mark.slow
def test_elements_that_are_compared_the_wrong_way_are_found():
    x = elements((3, 1100), "int8", "few")

    def right() -> bool:
        with device.forced("emulator"):
            return np.array_equal(np.asarray(cs.argmax(cs.asarray(x), axis=1)), x.argmax(1))

    Bench(right).check(every(r"max\.s16x2", "min.s16x2"), {RESULT})


@pytest.mark.drawn(3)
@pytest.mark.parametrize("columns", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 4, 8, 12, 16))])
def test_few_columns(columns, on_emulator, monkeypatch):
    monkeypatch.setattr(policy, "NARROW_BYTES", 0)
    monkeypatch.setattr(calls, "_plans", {})
    for name, dtype in (("sum", "bool"), ("sum", "int8"), ("max", "uint16"), ("any", "uint8"), ("argmax", "int8")):
        x = data((2100, columns), dtype)
        same(np.asarray(getattr(cs, name)(cs.asarray(x), axis=0)), getattr(np, name)(x, axis=0), f"{name} {dtype}")


def test_bools_of_any_byte(on_emulator):
    """What is not 0 counts as 1 in a sum, whatever its byte is."""
    x = np.random.default_rng(1).integers(0, 3, 9001).astype(np.uint8) * 100
    assert int(np.asarray(cs.sum(cs.asarray(x.view(bool))))) == np.count_nonzero(x)


def squares_are_right(shape: tuple, chosen: list) -> bool:
    x = data(shape, "uint8")
    with pytest.MonkeyPatch.context() as patch, device.forced("emulator"):
        patch.setattr(strided_loads, "MIN_WORDS_BYTES", 0)
        patch.setattr(strided_loads, "MIN_PAIRS_BYTES", 0)
        patch.setattr(strided_plan, "choose", lambda p: chosen.append(strided_policy.choose(p)) or chosen[-1])
        patch.setattr(calls, "_plans", {})
        found = np.asarray(cs.reduce(cs.asarray(x), axis=-2, transform=lambda v: v * v))
    return np.array_equal(found, (x * x).sum(-2, dtype=np.uint8))


def test_bytes_that_a_callable_maps_are_read_in_pairs_of_words():
    chosen: list = []
    for shape in ((70, 101), (9, 258), (3, 41, 37)):
        assert squares_are_right(shape, chosen), f"{shape}"
    assert {("words", 8)} == {(choice.policy.load, choice.policy.bytes) for choice in chosen}
    shift = every(r"shf\.r\.wrap", "shf.l.wrap")
    Bench(lambda: squares_are_right((70, 101), [])).check(shift, {RESULT})


def test_columns_of_bytes_in_wider_loads_or_more_of_them_in_flight(on_emulator, monkeypatch):
    """Pairs of words of others than sums, and of sums vectors of sixteen columns, or sixteen positions in flight."""
    monkeypatch.setattr(strided_loads, "MIN_FEW_PAIRS_BYTES", 0)
    monkeypatch.setattr(strided_loads, "MIN_WORDS_BYTES", 0)
    monkeypatch.setattr(strided_loads, "SUMS_RESULTS", (64, 64))
    for name, value in (("MIN_AT_ONCE", 0), ("SUMS_BYTES", (0, 1 << 30)), ("MIN_SUMS_LENGTH", 300)):
        monkeypatch.setattr(strided_policy, name, value)
    monkeypatch.setattr(strided_policy, "_is_small", lambda problem, load_bytes: False)
    chosen = recorded(monkeypatch)
    for name, shape, dtype in (("any", (41, 301), "bool"), ("sum", (70, 64), "int8"), ("sum", (500, 80), "uint8")):
        x = data(shape, dtype)
        same(np.asarray(getattr(cs, name)(cs.asarray(x), axis=0)), getattr(np, name)(x, axis=0), f"{name} {shape}")
    assert [(c.policy.load, c.policy.bytes) for c in chosen] == [("words", 8), ("vector", 16), ("vector", 8)]
    assert chosen[-1].policy.unroll == 16


def test_vectors_of_few_results_of_small_arrays_are_shared_by_more_threads(on_emulator, monkeypatch):
    chosen = recorded(monkeypatch)
    x = data((47, 142, 8), "bool")
    same(np.asarray(cs.sum(cs.asarray(x), axis=1)), x.sum(1), "sum")
    assert [(choice.policy.groups, choice.splits) for choice in chosen] == [(32, 1)]


@pytest.mark.parametrize(
    ("shape", "dtype", "groups"), [((540, 33, 4), "bool", 4), ((300, 41, 4), "uint16", 4), ((270, 37, 8), "int16", 4)]
)
def test_small_vectors_of_few_positions_are_shared_by_fewer_threads(shape, dtype, groups, on_emulator, monkeypatch):
    for name in ("MAX_SHORT_BYTES", "MIN_FEWER_BYTES"):
        monkeypatch.setattr(along_policy, name, 0)
    chosen = recorded(monkeypatch)
    x = data(shape, dtype)
    same(np.asarray(cs.sum(cs.asarray(x), axis=1)), x.sum(1), "sum")
    assert [(choice.policy.groups, choice.policy.bytes) for choice in chosen] == [
        (groups, min(16, x.itemsize * shape[2]))
    ]


@pytest.mark.parametrize(
    ("shape", "dtype", "groups"), [((2, 72, 44), "uint8", 4), ((2, 70, 20), "int16", 4), ((9, 70, 40), "int16", 8)]
)
def test_short_runs_of_results_are_shared_by_fewer_threads(shape, dtype, groups, on_emulator, monkeypatch):
    """Whose results have several runs each; those of 16 bytes a thread by as many as others."""
    for name in ("MAX_SHORT_BYTES", "MIN_FEWER_BYTES"):
        monkeypatch.setattr(along_policy, name, 0)
    for module in (along_policy, strided_policy):
        monkeypatch.setattr(module, "FULL_UNITS", 0)  # so that there are not few results
    for name in ("MIN_RUN_RESULTS", "MIN_ROWS", "MIN_RUN_ARRAY"):
        monkeypatch.setattr(strided_loads, name, 0)
    chosen = recorded(monkeypatch)
    x = data(shape, dtype)
    same(np.asarray(cs.max(cs.asarray(x), axis=(0, 2))), x.max((0, 2)), "max")
    assert [(choice.policy.load, choice.policy.groups) for choice in chosen] == [("row", groups)]


@pytest.mark.parametrize(
    ("shape", "op", "dtype", "narrow"),
    [
        ((1, 8000, 8), "sum", "int16", False),
        ((1, 260000, 8), "sum", "int16", False),
        ((1, 270000, 8), "sum", "int16", True),
        ((2, 40000, 8), "sum", "int16", True),
        ((40, 8000, 8), "sum", "int16", True),
        ((5, 8000, 8), "sum", "int16", False),
        ((5, 8000, 8), "sum", "float32", True),
        ((2, 8000, 8), "argmax", "float32", False),
        ((5, 8000, 8), "argmax", "int16", True),
        ((1, 2000000, 8), "argmax", "int16", False),
        ((1, 2100000, 8), "argmax", "int16", True),
        ((1, 1000000, 3), "argmax", "bool", False),
        ((1, 1100000, 3), "argmax", "bool", True),
        ((9, 24041, 3), "sum", "int8", False),
        ((90, 24041, 3), "sum", "int8", True),
        ((3, 180001, 3), "sum", "int8", True),
        ((20, 24041, 3), "argmax", "int8", True),
    ],
)
def test_small_slices_of_few_columns_are_read_by_the_kernels_of_strided_arrays(shape, op, dtype, narrow, monkeypatch):
    chosen: list = []
    monkeypatch.setattr(plan, "choose", lambda problem: chosen.append(policy.choose(problem)) or chosen[-1])
    monkeypatch.setattr(calls, "_plans", {})
    with device.forced("dry"):
        getattr(cs, op)(cs.empty(shape, dtype), axis=1)
    assert [isinstance(choice.policy, policy.NarrowPolicy) for choice in chosen] == [True] * narrow


@pytest.mark.parametrize(
    ("shape", "op", "dtype", "resident"),
    [
        ((95, 79009), "argmax", "uint16", 5),
        ((95, 60001), "argmax", "uint16", 4),
        ((95, 90001), "argmax", "uint16", 4),
        ((95, 49001), "argmax", "uint16", 1),
    ],
)
def test_blocks_of_words_that_run_at_once(shape, op, dtype, resident, monkeypatch):
    chosen = recorded(monkeypatch)
    with device.forced("dry"):
        getattr(cs, op)(cs.empty(shape, dtype), axis=0)
    assert [choice.policy.resident for choice in chosen] == [resident]


@pytest.mark.parametrize(
    ("shape", "shared"), [((1024, 1024, 8), False), ((2000, 1500, 8), True), ((4, 1024, 2048), True)]
)
def test_slices_of_one_vector_have_a_block_each(shape, shared, monkeypatch):
    chosen = recorded(monkeypatch)
    monkeypatch.setattr(lone_policy, "MAX_WIDE_BYTES", 0)
    with device.forced("dry"):
        cs.sum(cs.empty(shape, "int8"), axis=1)
    assert [choice.splits > 1 for choice in chosen] == [shared]


# shape, type, and how many blocks share a tile: one, or several; and threads of a block
SMALL = {
    "few positions": ((256, 8192), "int8", False, 256),
    "more positions": ((877, 2096), "uint16", True, 256),
    "few positions of a larger array": ((700, 6008), "int8", True, 256),
    "indexes of words": ((10364, 76), "int32", True, 256),
    "indexes of words in a larger array": ((20364, 76), "int32", True, 512),
}


@pytest.mark.parametrize("name", SMALL)
def test_blocks_that_share_columns_of_small_arrays(name, monkeypatch):
    shape, dtype, shared, threads = SMALL[name]
    chosen = recorded(monkeypatch)
    monkeypatch.setattr(lone_policy, "MAX_WIDE_BYTES", 0)
    with device.forced("dry"):
        cs.argmax(cs.empty(shape, dtype), axis=0)
    assert [(choice.splits > 1, choice.policy.lanes * choice.policy.groups) for choice in chosen] == [(shared, threads)]
