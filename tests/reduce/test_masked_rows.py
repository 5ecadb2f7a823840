"""Short rows of small elements as vectors that may hold elements of other rows, rows of one element that begin
anywhere, and results of vectors of columns that are stored in another order."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.reduce import masked_policy, order_of_results, plan, policy, strided_loads
from cutesync.kernels.reduce.problem import ShortRowPolicy
from cutesync.kernels.reduce.strided_problem import MaskedPolicy
from cutesync.runtime import call as calls, device

from ..cases import data, same
from ..faults import RESULT, Bench, every
from .strided_cases import recorded

NAMES = ("sum", "max", "min", "any", "all", "argmax", "argmin")


@pytest.fixture
def chosen(monkeypatch) -> list:
    """The choices for contiguous arrays, for which no array is too small."""
    found = recorded(monkeypatch)
    for name in ("MIN_MASKED_BYTES", "MIN_MASKED_INDEXED", "SMALL_ROWS_BYTES", "MIN_COPY_BYTES"):
        monkeypatch.setattr(policy, name, 0)
    monkeypatch.setattr(strided_loads, "MIN_WORDS_BYTES", 0)
    monkeypatch.setattr(plan, "choose", lambda problem: found.append(policy.choose(problem)) or found[-1])
    return found


def extremes(shape, dtype: str) -> np.ndarray:
    """All values of an integer type, or truth values, of which those of every other row are false; or few floats, of
    which those of a row are infinite, and some are no numbers."""
    if dtype == "float16":
        x = np.random.default_rng(4).integers(-9, 9, shape).astype(dtype)
        x[0], x[1], x[2, 3:] = -np.inf, np.inf, np.nan
        return x
    if dtype == "bool":
        x = np.random.default_rng(4).integers(0, 2, shape)
        x[::2] = 0
        return x.astype(dtype)
    limits = np.iinfo(dtype)
    return np.random.default_rng(4).integers(limits.min, limits.max, shape, dtype, endpoint=True)


def check(name: str, x: np.ndarray, begin: int) -> None:
    """Reduce the rows of an array that begins ``begin`` elements behind a boundary and ends with its memory."""
    memory = cs.asarray(np.concatenate([x.ravel()[:1]] * begin + [x.ravel()]))
    found = np.asarray(getattr(cs, name)(memory[begin:].reshape(x.shape), axis=1))
    same(found, getattr(np, name)(x, axis=1).astype(found.dtype), f"{name} {x.dtype} {x.shape} {begin}")


@pytest.mark.drawn(3)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "bool", "float16"])
def test_rows_of_vectors_of_other_rows(name, dtype, on_emulator, chosen):
    for shape, begin in (((37, 41), 0), ((9, 167), 1), ((66, 64), 1), ((5, 251), 3)):
        check(name, extremes(shape, dtype), begin)
    assert all(isinstance(choice.policy, ShortRowPolicy) and choice.policy.masked for choice in chosen)


def of_any_size(patch) -> list:
    """The choices for strided arrays, of which none has rows too short, or is too small or too large."""
    for name in ("MIN_ROW", "MIN_BYTES", "MIN_BLOCKS", "MIN_MASKED_INDEXED", "MIN_MASKED_ROW"):
        patch.setattr(masked_policy, name, 0)
    for name in ("LONG_BYTES", "SHARED_LONG_BYTES"):
        patch.setattr(masked_policy, name, (0, 1 << 30))
    return recorded(patch)


def both(name: str, given, x: np.ndarray, axis) -> tuple:
    """A reduction and NumPy's."""
    if name == "squares":
        return cs.reduce(given, axis=axis, transform=lambda v: v * v), (x * x).sum(axis, dtype=x.dtype)
    return getattr(cs, name)(given, axis=axis), getattr(np, name)(x, axis=axis)


@pytest.mark.drawn(3)
@pytest.mark.parametrize("name", [*NAMES, "squares"])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float16"])
def test_rows_with_gaps_and_several_of_a_result(name, dtype, on_emulator, monkeypatch):
    """Of which some are in groups, longer than a lane has at once, or whose indexes are not in the order of memory."""
    found = of_any_size(monkeypatch)
    short, long = extremes((7, 6, 67), dtype), extremes((3, 2, 711), dtype)
    for memory, index, axis in (
        (short, np.s_[:, :5, 3:52], 2),
        (short, np.s_[:, 1:, 5:], None),
        (short, np.s_[2:, ::2, 1:60], (0, 2)),
        (long, np.s_[:, :, 3:], 2),
    ):
        if name == "squares" and memory is long:
            continue
        given, x = cs.asarray(memory)[index], memory[index]
        if name[:3] == "arg" and axis != 2:
            axis, given, x = None, given.transpose((2, 1, 0)), x.transpose(2, 1, 0)
        with np.errstate(invalid="ignore"):
            got, wanted = both(name, given, x, axis)
        same(np.asarray(got), np.asarray(wanted).astype(np.asarray(got).dtype), f"{name} {dtype} {index} {axis}")
    assert all(isinstance(choice.policy, MaskedPolicy) for choice in found)


@pytest.mark.parametrize("name", ["argmax", "sum"])
def test_blocks_that_share_a_result_under_schedules(name, monkeypatch):
    found = of_any_size(monkeypatch)
    x = extremes((40, 703), "int16")
    with cs.emulate(schedules=6, seed=3):
        got, wanted = both(name, cs.asarray(x)[:, 3:], x[:, 3:], None)
    same(np.asarray(got), np.asarray(wanted).astype(np.asarray(got).dtype), name)
    assert [(type(choice.policy), choice.splits > 1) for choice in found] == [(MaskedPolicy, True)]


def wrong_rows(patch) -> bool:
    patch.setattr(policy, "MIN_MASKED_BYTES", 0)
    patch.setattr(policy, "SMALL_ROWS_BYTES", 0)
    patch.setattr(calls, "_plans", {})
    x = extremes((9, 167), "int8")
    with device.forced("emulator"):
        return np.array_equal(np.asarray(cs.max(cs.asarray(x), axis=1)), x.max(1))


@pytest.mark.slow
@pytest.mark.parametrize(
    "edit",
    [(r"max\.s16x2", "min.s16x2"), (r"shfl\.sync\.bfly\.b32", "shfl.sync.up.b32"), (r"shl\.b64", "shr.u64")],
    ids=["compared the wrong way", "lanes that look the wrong way", "masked the wrong way"],
)
def test_planted_faults_are_found(edit):
    with pytest.MonkeyPatch.context() as patch:
        Bench(lambda: wrong_rows(patch)).check(every(*edit), {RESULT})


def wrong_gaps(patch) -> bool:
    of_any_size(patch)
    x = extremes((9, 167), "int8")
    with device.forced("emulator"):
        return np.array_equal(np.asarray(cs.max(cs.asarray(x)[:, 3:], axis=1)), x[:, 3:].max(1))


@pytest.mark.slow
def test_masks_the_wrong_way_are_found():
    with pytest.MonkeyPatch.context() as patch:
        Bench(lambda: wrong_gaps(patch)).check(every(r"shf\.r\.clamp", "shf.l.clamp"), {RESULT})


@pytest.mark.parametrize("dtype", ["uint8", "int16"])
def test_rows_of_one_element_that_begin_anywhere(dtype, on_emulator, chosen):
    for name, shape in (("any", (1003, 1)), ("max", (700, 1))):
        check(name, extremes(shape, dtype), 1)
    assert {choice.policy.load for choice in chosen} == {"words"}


@pytest.mark.parametrize("name, dtype", [("argmax", "float32"), ("max", "int16")])
def test_vectors_of_columns_whose_results_lie_in_another_order(name, dtype, on_emulator, monkeypatch):
    for limit, number in (("MIN_BLOCKED_BYTES", 0), ("BLOCK_BYTES", 64)):
        monkeypatch.setattr(order_of_results, limit, number)
    found = recorded(monkeypatch)
    x = data((6, 2, 9, 96), dtype)
    for axes, axis in (((3, 0, 2, 1), 1), ((3, 1, 0, 2), 3)):
        given, wanted = cs.asarray(x).transpose(axes), x.transpose(axes)
        same(np.asarray(getattr(cs, name)(given, axis=axis)), getattr(np, name)(wanted, axis=axis), f"{name} {axes}")
    assert any(choice.policy.load == "vector" and choice.kept[-1].extent < 24 for choice in found)
