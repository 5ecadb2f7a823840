"""Results that have several short runs of memory, which threads read in vectors; rows of which a lane has several
vectors; and few columns, whose states lanes keep until all rows are read."""

import functools
from dataclasses import replace

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.reduce import plan, policy, strided_loads, strided_policy
from cutesync.kernels.reduce.problem import NarrowPolicy, Problem, ShortRowPolicy
from cutesync.runtime import device
from cutesync.sizes import ceil_div

from ..cases import bicyclic, brackets, data, fold, same
from ..compiled import dry, needed
from ..faults import RESULT, Bench, every, first, op
from .strided_cases import recorded


def force(patch) -> list:
    """The choices that calls make, for which no array is too small."""
    found = recorded(patch)
    for name in ("MIN_ROWS", "MIN_RUN_RESULTS", "MIN_RUN_ARRAY"):
        patch.setattr(strided_loads, name, 1)
    patch.setattr(strided_policy, "SMS", 4)
    for name in ("MIN_SIDE_BYTES", "MIN_WHOLE_ROWS_BYTES", "NARROW_BYTES", "MIN_TURNS"):
        patch.setattr(policy, name, 0)
    patch.setattr(plan, "choose", lambda problem: found.append(policy.choose(problem)) or found[-1])
    return found


@pytest.fixture
def chosen(monkeypatch) -> list:
    return force(monkeypatch)


def rows(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """The elements that belong to a result, along the last axis, in C order."""
    kept = [i for i in range(x.ndim) if i not in axes]
    return np.transpose(x, [*kept, *axes]).reshape([x.shape[i] for i in kept] + [-1])


CALLS = {
    "sum": (cs.sum, lambda r: r.sum(-1)),
    "max": (cs.max, lambda r: r.max(-1)),
    "any": (cs.any, lambda r: r.any(-1)),
    "argmax": (cs.argmax, lambda r: r.argmax(-1)),
    "var": (lambda x, axis: cs.var(x.astype("float64") if isinstance(x, np.ndarray) else x, axis=axis), None),
}
# what: (shape, axes, bytes of a vector, threads that share a result)
RUNS = {
    "a thread has all": ((3, 40, 16), (0, 2), 16, 1),
    "neighbours have other results": ((70, 40, 32), (0, 2), 16, 32),
    "threads share runs": ((3, 300, 128), (0, 2), 16, 8),
    "blocks share runs": ((900, 3, 128), (0, 2), 16, 256),
    "blocks share runs of parts of lines": ((90, 30, 96), (0, 2), 16, 32),
    "narrow vectors": ((5, 2, 40, 12), (0, 1, 3), 4, 4),
    "three groups of axes": ((3, 5, 4, 7, 8), (0, 2, 4), 8, 1),
}


@pytest.mark.drawn(4)
@pytest.mark.parametrize("dtype, name", [("int8", "argmax"), ("uint8", "sum"), ("bool", "argmax"), ("int8", "max")])
@pytest.mark.parametrize("what", RUNS)
def test_runs_of_bytes(what, dtype, name, on_emulator, chosen):
    shape, axes, size, groups = RUNS[what]
    call, expected = CALLS[name]
    x = data(shape, dtype)
    found = np.asarray(call(cs.asarray(x), axis=axes))
    same(found, expected(rows(x, axes)).astype(found.dtype))
    (choice,) = chosen
    assert (choice.policy.load, choice.policy.bytes) == ("row", size)
    assert choice.policy.groups == groups and (choice.splits > 1) == what.startswith("blocks")


@pytest.mark.drawn(2)
@pytest.mark.parametrize("dtype, name", [("uint8", "max"), ("int16", "sum"), ("float32", "any")])
def test_few_results_share_runs_with_gaps(dtype, name, on_emulator, monkeypatch):
    """In arrays that are not small; they would not have a thread each."""
    found = recorded(monkeypatch)
    for limit in ("MIN_FEW_RESULTS", "MIN_RUN_ARRAY"):
        monkeypatch.setattr(strided_loads, limit, 0)
    x = data((130, 8, 2, 32), dtype)[:, :5]
    got = np.asarray(getattr(cs, name)(cs.asarray(x.base)[:, :5], axis=(0, 3)))
    same(got, getattr(np, name)(x, axis=(0, 3)).astype(got.dtype))
    assert [(choice.policy.load, choice.policy.bytes) for choice in found] == [("row", 16)]


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    "dtype, name", [("int16", "argmax"), ("float32", "sum"), ("float16", "max"), ("uint64", "any")]
)
def test_runs_of_other_arrays(dtype, name, on_emulator, chosen):
    """With gaps, axes that run backwards and in another order; and others, which are read element by element."""
    call, expected = CALLS[name]
    x = data((6, 7, 5, 24), dtype)
    views = {
        "backwards": (x[::-1, :, ::2, :16], (0, 3)),
        "transposed": (x.transpose(2, 1, 0, 3), (2, 3)),
        "off by one": (x[..., 1:], (0, 3)),
    }
    for what, (view, axes) in views.items():
        own = cs.asarray(x)
        own = {
            "backwards": own[::-1, :, ::2, :16],
            "transposed": own.transpose(2, 1, 0, 3),
            "off by one": own[..., 1:],
        }[what]
        found = np.asarray(call(own, axis=axes))
        same(found, expected(rows(view, axes)).astype(found.dtype), what)
    if name != "argmax":  # its positions have another order there
        assert [choice.policy.load for choice in chosen] == ["row", "row", "element"]


def test_one_result_of_short_runs_is_that_of_neighbouring_threads(on_emulator, chosen):
    """Its runs have few vectors, but it has no neighbours."""
    x = data((16, 30, 4), "uint16")
    assert int(np.asarray(cs.argmax(cs.asarray(x)[:, ::-1]))) == x[:, ::-1].argmax()
    assert [(choice.policy.load, choice.policy.along_kept) for choice in chosen] == [("row", False)]


def test_runs_keep_the_order_of_operands(on_emulator, chosen):
    for shape, groups in (((2, 40, 8), 1), ((3, 5, 64), 8), ((40, 3, 48), 32)):
        x = brackets(shape)
        found = cs.reduce(cs.asarray(x)[:, ::-1], bicyclic, axis=(0, 2))
        same(np.asarray(found), fold(bicyclic, rows(x[:, ::-1], (0, 2))), f"{shape} {groups}")
    assert "row" in {choice.policy.load for choice in chosen if hasattr(choice.policy, "load")}


def test_runs_with_an_operand_that_comes_first_and_a_transform(on_emulator, chosen):
    x = data((30, 40, 16), "int32")
    found = cs.reduce(cs.asarray(x), axis=(0, 2), init=7, transform=lambda v: v * v)
    same(np.asarray(found), (x * x).sum((0, 2), dtype=np.int32) + 7)
    found = np.asarray(cs.var(cs.asarray(x % 100), axis=(0, 2)))
    np.testing.assert_allclose(found, (x % 100).var((0, 2)), rtol=1e-6)
    assert {choice.policy.load for choice in chosen} == {"row"}


def with_ties(shape, dtype: str) -> np.ndarray:
    """Few values, NaNs among those of floats, so that many elements are the largest."""
    x = np.random.default_rng(7).integers(0, 3, shape).astype(dtype)
    if x.dtype.kind == "f":
        x[::5] = np.where(np.random.default_rng(8).random(x[::5].shape) < 0.05, np.nan, x[::5])
    return x


@pytest.mark.drawn(3)
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "float16", "float32", "int64"])
def test_indexes_of_rows_of_which_a_lane_has_several_vectors(dtype, on_emulator, chosen):
    size = np.dtype(dtype).itemsize
    for row_bytes, each in ((512, 4), (96, 2), (320, 4), (176, 1)):
        x = with_ties((37, row_bytes // size), dtype)
        x[3] = 0
        for name in ("argmax", "argmin"):
            same(np.asarray(getattr(cs, name)(cs.asarray(x), axis=1)), getattr(np, name)(x, axis=1), f"{row_bytes}")
        assert isinstance(chosen[-1].policy, ShortRowPolicy) and chosen[-1].policy.each == each


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    "dtype, columns", [("float32", 6), ("int64", 4), ("float64", 3), ("int32", 12), ("float16", 6)]
)
def test_indexes_of_few_columns(dtype, columns, on_emulator, chosen):
    for shape in ((2, 1300, columns), (1, 2600, columns)):
        x = with_ties(shape, dtype)
        for name in ("argmax", "argmin"):
            same(np.asarray(getattr(cs, name)(cs.asarray(x), axis=1)), getattr(np, name)(x, axis=1), f"{name} {shape}")
    assert all(isinstance(choice.policy, NarrowPolicy) and choice.policy.in_turn for choice in chosen)


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    "dtype, columns, name",
    [("int32", 6, "sum"), ("float64", 4, "max"), ("uint8", 3, "sum"), ("int8", 8, "min"), ("bool", 16, "sum")],
)
def test_states_of_few_columns(dtype, columns, name, on_emulator, chosen, monkeypatch):
    monkeypatch.setattr(policy, "MAX_VECTORS_BYTES", (0, 0))
    for shape in ((2, 1360, columns), (1, 2603, columns)):
        x = data(shape, dtype)
        found = np.asarray(getattr(cs, name)(cs.asarray(x), axis=1))
        same(found, getattr(np, name)(x, axis=1).astype(found.dtype), f"{shape}")
    assert all(isinstance(choice.policy, NarrowPolicy) and choice.policy.in_turn for choice in chosen)


def test_lanes_keep_states_over_some_turns():
    problem = Problem(8, 16384, 4, 8, 4, True, True, in_turn=True)
    assert not policy.choose(problem).policy.in_turn
    assert policy.choose(replace(problem, length=8 * problem.length)).policy.in_turn


def test_which_runs_are_read_in_vectors():
    results, total = 6 * strided_policy.SMS, 1 << 18
    runs = {1: (8, 12, 508), 2: (4, 8, 252), 4: (2, 4, 126), 8: (2, 4, 62)}
    others = {1: (4, 6, 512), 2: (2, 6, 256), 4: (1, 3, 128), 8: (1, 3, 64)}
    for fits, each in ((True, runs), (False, others)):
        for size, lengths in each.items():
            for run in lengths:
                assert strided_loads.runs_are_vectors(run, results, total, size, 0) == fits, (run, size)
    assert not strided_loads.runs_are_vectors(8, results - 1, total, 1, 0)
    assert not strided_loads.runs_are_vectors(8, results, total - 1, 1, 0)
    assert not strided_loads.runs_are_vectors(8, results, total, 1, 2)


def test_threads_of_several_columns_have_all_positions_in_flight():
    out = dry((3, 4, 8448), "uint8", 0, 1 << 60)
    for length, groups in ((96, 8), (64, 8), (60, 4), (128, 16)):
        (spec,) = needed(cs.max, dry((3, 4, length, 8448), "uint8"), axis=2, out=out)
        assert spec.key[1].groups == groups, length


def test_blocks_that_share_tiles_fill_multiprocessors():
    for tiles in (1, 7, 33, 64, 100, 131, 132, 133, 500):
        for splits in (1, 2, 3, 5, 15, 29, 264):
            found = strided_policy._even(splits, tiles)
            most = ceil_div(splits * tiles, strided_policy.SMS) / (splits * tiles)
            assert max(1, splits * 9 // 10) <= found <= splits
            assert ceil_div(found * tiles, strided_policy.SMS) / (found * tiles) <= most
    assert strided_policy._even(5, 64) == 5 and strided_policy._even(15, 9) == 14


CASES = {  # name: (function, shape, axes, type)
    "rows": (cs.argmax, (9, 128), (1,), "float32"),
    "shared runs": (cs.sum, (30, 9, 96), (0, 2), "int32"),
    "neighbours": (cs.sum, (90, 9, 8), (0, 2), "int32"),
}


@functools.cache
def bench(name: str) -> Bench:
    call, shape, axes, dtype = CASES[name]
    x = data(shape, dtype, "max") if dtype == "float32" else np.arange(np.prod(shape), dtype=dtype).reshape(shape)
    wanted = rows(x, axes).argmax(-1) if call is cs.argmax else x.sum(axes)

    def right() -> bool:
        with pytest.MonkeyPatch.context() as patch, device.forced("emulator"), cs.emulate(schedules=5, seed=3):
            force(patch)
            return np.array_equal(np.asarray(call(cs.asarray(x), axis=axes)), wanted)

    return Bench(right)


FAULTS = {
    "lanes of a row that look the wrong way": ("rows", every(r"shfl\.sync\.bfly\.b32", "shfl.sync.up.b32"), {RESULT}),
    "lanes of runs that look the wrong way": (
        "shared runs",
        every(r"shfl\.sync\.bfly\.b32", "shfl.sync.up.b32"),
        {RESULT},
    ),
    "no barrier between groups of runs": (
        "neighbours",
        first(op(r"bar\.sync"), after=r"st\.shared"),
        {"race", "uninitialised"},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(fault):
    name, edit, kinds = FAULTS[fault]
    bench(name).check(edit, kinds)
