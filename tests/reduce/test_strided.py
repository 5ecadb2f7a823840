"""Reductions of arrays of any strides agree with NumPy, write nothing beside ``out`` and read nothing outside the
view."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.reduce import plan, short_policy, slice_policy, strided_loads, strided_plan, strided_policy
from cutesync.kernels.reduce.normal import normal
from cutesync.runtime import call as calls
from cutesync.runtime.arrays import share_memory
from cutesync.runtime.layout import Axis

from ..cases import bicyclic, brackets, data, fold, same
from .strided_cases import slices

STAMP = 77  # in all memory around a strided ``out``


class Strided:
    """Strides at random, and memory that holds just the elements of such an array: what lies outside is no memory."""

    def __init__(self, rng, shape, repeat=True) -> None:
        steps, reach = [0] * len(shape), 1
        for i in rng.permutation(len(shape)):
            if repeat and rng.random() < 0.1:
                continue
            steps[i] = reach * int(rng.choice([1, 1, 1, 2, 3]))
            reach = steps[i] * (shape[i] - 1) + 1 + (int(rng.integers(0, 5)) if rng.random() < 0.5 else steps[i] - 1)
        negative = [rng.random() < 0.25 for _ in shape]
        self.shape, self.span = shape, sum((n - 1) * step for n, step in zip(shape, steps)) + 1
        self.offset = sum((n - 1) * step for n, step, turned in zip(shape, steps, negative) if turned)
        self.steps = tuple(-step if turned else step for step, turned in zip(steps, negative))

    def numpy(self, memory: np.ndarray) -> np.ndarray:
        strides = [step * memory.itemsize for step in self.steps]
        return np.lib.stride_tricks.as_strided(memory[self.offset :], self.shape, strides)

    def device(self, memory: cs.DeviceArray) -> cs.DeviceArray:
        return memory.as_strided(self.shape, self.steps, self.offset)


def rows(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """The elements that belong to a result, along the last axis, in C order."""
    kept = [i for i in range(x.ndim) if i not in axes]
    return np.transpose(x, [*kept, *axes]).reshape([x.shape[i] for i in kept] + [-1])


# what: (element type, call, what it must give for rows of elements)
CALLS = {
    "sum": ("int32", lambda x, **k: cs.reduce(x, **k), lambda r: r.sum(-1, dtype=np.int32)),
    "max": ("uint8", lambda x, **k: cs.max(x, **k), lambda r: r.max(-1)),
    "order": ("order", lambda x, **k: cs.reduce(x, bicyclic, **k), lambda r: fold(bicyclic, r)),
    "argmax": ("int8", lambda x, **k: cs.argmax(x, **k), lambda r: r.argmax(-1)),
    "mean": ("int16", lambda x, **k: cs.mean(x, **k), lambda r: r.mean(-1)),
}


def agrees(what: str, layout: Strided, axes: tuple[int, ...], result: Strided | None = None) -> None:
    kind, call, expected = CALLS[what]
    memory = brackets(layout.span) if kind == "order" else data(layout.span, kind)
    wanted = expected(rows(layout.numpy(memory), axes))
    message = f"{what} of {layout.shape} {layout.steps}, axes {axes}"
    x = layout.device(cs.asarray(memory))
    if result is None:
        same(np.asarray(call(x, axis=axes)), np.asarray(wanted), message)
        return
    around = np.full(result.span + 2, STAMP, wanted.dtype)
    target = cs.asarray(around)
    call(x, axis=axes, out=result.device(target[1:-1]))
    result.numpy(around[1:-1])[...] = wanted
    same(np.asarray(target), around, message)


def random_case(rng, what: str) -> None:
    while True:
        ndim = int(rng.integers(1, 5))
        shape = tuple(int(n) for n in np.exp(rng.uniform(0, 8 / ndim * 1.5, ndim)))
        if np.prod(shape) < 8000:
            layout = Strided(rng, shape)
            if layout.span < 30_000:
                break
    axes = tuple(int(i) for i in np.sort(rng.permutation(ndim)[: rng.integers(1, ndim + 1)]))
    result = Strided(rng, tuple(n for i, n in enumerate(shape) if i not in axes), repeat=False)
    plain = rng.random() < 0.5 or share_memory(result.shape, result.steps)
    agrees(what, layout, axes, None if plain else result)


@pytest.mark.parametrize("what", ["sum", "order", "argmax"])
def test_views_of_all_kinds(what):
    rng = np.random.default_rng(4)
    for _ in range(6):
        random_case(rng, what)


@pytest.mark.drawn(4)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "multiprocessors"), [*((what, 4) for what in CALLS), ("max", 132), ("order", 132), ("mean", 132)]
)
def test_many_views(what, multiprocessors, monkeypatch):
    """With few multiprocessors in mind, small arrays take the kernels of large ones; and with shorter pieces."""
    monkeypatch.setattr(strided_policy, "SMS", multiprocessors)
    if multiprocessors == 4:
        monkeypatch.setattr(strided_policy, "MIN_RUN_BYTES", 8)
        monkeypatch.setattr(strided_policy, "MIN_RUNS_BYTES", 16)
        monkeypatch.setattr(strided_policy, "MIN_INDEXED_BYTES", 0)
        monkeypatch.setattr(strided_policy, "PIECE_BYTES", (128, 1024))
        for name in ("SMS", "MIN_BYTES", "MIN_SLICES", "MIN_BLOCK_BYTES"):
            monkeypatch.setattr(slice_policy, name, 1)
    monkeypatch.setattr(calls, "_plans", {})
    rng = np.random.default_rng(multiprocessors)
    for _ in range(3):
        random_case(rng, what)


def test_slices_of_all_kinds():
    """Slices that begin anywhere, with gaps inside and between them, of rows and of columns."""
    rng = np.random.default_rng(6)
    with slices():
        for case in range(8):
            extents = [int(n) for n in rng.integers((2, 5, 3, 2), (4, 30, 40, 9))]
            steps, reach = [], 1
            for extent in reversed(extents):
                steps.insert(0, reach + int(rng.integers(0, 3)))
                reach = steps[0] * (extent - 1) + 1
            layout = Strided(rng, tuple(extents))
            layout.steps, layout.span, layout.offset = (
                tuple(steps),
                sum((n - 1) * step for n, step in zip(extents, steps)) + 1,
                0,
            )
            agrees("max" if case % 4 else "argmax", layout, (2 + case % 2,))


def test_rows_in_order_are_slices(monkeypatch):
    """Rows of elements of any size that keep their order, with gaps up to their length, but not on the same banks."""
    monkeypatch.setattr(calls, "_plans", {})
    for name in ("MIN_BYTES", "MIN_SLICES", "MIN_BLOCK_BYTES"):
        monkeypatch.setattr(slice_policy, name, 1)
    monkeypatch.setattr(slice_policy, "MAX_SIZE", 8)
    monkeypatch.setattr(slice_policy, "MIN_ORDERED_BYTES", 0)
    chosen = []
    monkeypatch.setattr(strided_plan, "choose", lambda p: chosen.append(strided_policy.choose(p)) or chosen[-1])
    for pitch, first, stop in ((41, 3, 33), (67, 1, 61), (75, 30, 71), (64, 1, 61)):
        x = brackets((50, pitch))
        found = cs.reduce(cs.asarray(x)[:, first:stop], bicyclic, axis=1)
        same(np.asarray(found), fold(bicyclic, x[:, first:stop]))
    y = data((90, 301), "uint8")
    found = cs.reduce(cs.asarray(y)[:, 7:], lambda a, b: a + b, axis=1)
    same(np.asarray(found), y[:, 7:].sum(1, dtype=np.uint8))
    z = data((80, 2304), "uint8")  # whole lines, each a slice of its own
    found = cs.reduce(cs.asarray(z)[:, :1024], lambda a, b: a + b, axis=1)
    same(np.asarray(found), z[:, :1024].sum(1, dtype=np.uint8))
    assert [isinstance(c.policy, slice_policy.SlicePolicy) for c in chosen] == [True, True, True, False, True, True]


@pytest.mark.parametrize("sign", [1, -1])
def test_results_in_vectors(sign):
    """Neighbouring results of a thread are stored at once, forwards or backwards, also where rows of results have
    gaps; others one by one."""
    x = data((6, 3, 64), "int16")
    view = cs.asarray(x)[:, :, ::sign]
    wanted = x[:, :, ::sign].sum(1, dtype=np.int16)
    for gap, start in ((64, 0), (80, 0), (80, 8), (80, 3), (67, 0)):
        around = np.full(6 * gap + 8, STAMP, np.int16)
        out = cs.asarray(around)
        cs.reduce(view, axis=1, out=out.as_strided((6, 64), (gap, 1), start))
        np.lib.stride_tricks.as_strided(around[start:], (6, 64), (2 * gap, 2))[...] = wanted
        same(np.asarray(out), around, f"{gap} {start}")


def test_short_rows_in_vectors(monkeypatch):
    """A thread loads the rows of its results as vectors, wherever the rows lie; in order, so for any operator."""
    monkeypatch.setattr(strided_loads, "MIN_ROWS", 1)
    monkeypatch.setattr(calls, "_plans", {})
    chosen = []
    monkeypatch.setattr(strided_plan, "choose", lambda p: chosen.append(strided_policy.choose(p)) or chosen[-1])
    for length in (4, 6, 24):
        x = data((9, 5, length), "int16")
        view, array = x[::-1, 1:], cs.asarray(x)[::-1, 1:]
        same(np.asarray(cs.reduce(array, axis=2)), view.sum(2, dtype=np.int16))
        same(np.asarray(cs.argmax(array, axis=2)), view.argmax(2))
    y = brackets((40, 2))
    array = cs.asarray(y)[::-2].as_strided((20, 2), (-4, 1))
    same(np.asarray(cs.reduce(array, bicyclic, axis=1)), fold(bicyclic, y[::-2]))
    assert [choice.policy.load for choice in chosen] == ["row"] * 7
    assert [choice.policy.bytes for choice in chosen[:6:2]] == [8, 4, 16]


def test_broadcast_axes_are_reduced_once():
    """The aggregate of so many equal operands, of any operator, in logarithmic time."""
    x = data(50, "int16")
    far = cs.asarray(x).as_strided((1 << 40, 50), (0, 1))
    assert int(np.asarray(cs.sum(far))) == (int(x.sum(dtype=np.int64)) << 40) - (
        (int(x.sum(dtype=np.int64)) << 40) + (1 << 63) >> 64 << 64
    )
    assert int(np.asarray(cs.argmax(far))) == x.argmax()
    near = np.broadcast_to(brackets(30), (7, 30))
    view = cs.asarray(brackets(30)).as_strided((7, 30), (0, 1))
    same(np.asarray(cs.reduce(view, bicyclic)), fold(bicyclic, near.reshape(-1)))
    same(np.asarray(cs.reduce(view.T, bicyclic)), fold(bicyclic, np.ascontiguousarray(near.T).reshape(-1)))


def test_blocks_have_more_threads_where_many_partials_are_combined(monkeypatch):
    """The blocks that share positions are half as many then, and have more bytes in flight."""
    monkeypatch.setattr(calls, "_plans", {})
    chosen = []
    monkeypatch.setattr(strided_plan, "choose", lambda p: chosen.append(strided_policy.choose(p)) or chosen[-1])
    monkeypatch.setattr(strided_policy, "MIN_COLLECTED", 2)
    x, y = data((9000, 40), "uint8"), data((9000, 24), "float32")
    same(np.asarray(cs.sum(cs.asarray(x), axis=0)), x.sum(0, dtype=np.uint64))
    same(np.asarray(cs.argmax(cs.asarray(y)[:, ::2], axis=0)), y[:, ::2].argmax(0))
    sizes = [(choice.policy.lanes, choice.policy.groups, choice.policy.unroll) for choice in chosen]
    assert sizes == [(8, 64, 16), (8, 64, 8)]
    assert [choice.splits for choice in chosen] == [9, 18]


def test_views_that_normalise_take_the_kernels_of_contiguous_arrays(monkeypatch):
    """A transposed or reversed array is reduced along another axis, and a callable keeps C order."""
    monkeypatch.setattr(calls, "_plans", {})
    monkeypatch.setattr(plan, "strided_is_faster", lambda problem: False)
    taken = []
    monkeypatch.setattr(strided_plan, "choose", lambda problem: taken.append(problem) or strided_policy.choose(problem))
    x = data((40, 60), "int32")
    array = cs.asarray(x)
    same(np.asarray(cs.reduce(array.T, axis=0)), x.sum(1, dtype=np.int32))
    same(np.asarray(cs.reduce(array.T)), x.sum(dtype=np.int32))
    same(np.asarray(cs.reduce(array[::-1], axis=0)), x.sum(0, dtype=np.int32))
    same(np.asarray(cs.max(array[:, None, ::-1], axis=(0, 1, 2))), x.max())
    assert taken == []
    y = brackets((40, 60))
    same(np.asarray(cs.reduce(cs.asarray(y).T, bicyclic)), fold(bicyclic, np.ascontiguousarray(y.T).reshape(-1)))
    assert len(taken) == 1


def test_the_lowest_index_wins_in_c_order():
    x = np.array([[3, 7, 1, 7], [7, 7, 0, 0]], np.int16)
    array = cs.asarray(x)
    for view, wanted in [
        (array.T, x.T),
        (array[::-1], x[::-1]),
        (array[:, ::-1], x[:, ::-1]),
        (array[:, ::2], x[:, ::2]),
    ]:
        assert int(np.asarray(cs.argmax(view))) == wanted.argmax()
        same(np.asarray(cs.argmin(view, axis=0)), wanted.argmin(0))
        same(np.asarray(cs.argmax(view, axis=1)), wanted.argmax(1))
    nans = np.array([1, np.nan, 5, np.nan], np.float32)
    assert int(np.asarray(cs.argmax(cs.asarray(nans)[::-1]))) == 0


def argmax_of(shape: tuple, steps: tuple, axis=None, dtype: str = "int8") -> None:
    memory = data(sum((n - 1) * step for n, step in zip(shape, steps)) + 1, dtype)
    view = np.lib.stride_tricks.as_strided(memory, shape, [step * memory.itemsize for step in steps])
    same(np.asarray(cs.argmax(cs.asarray(memory).as_strided(shape, steps), axis=axis)), view.argmax(axis), f"{shape}")


def test_indexes_of_elements_in_the_order_of_memory(monkeypatch):
    """Axes are taken as they lie in memory, broadcast ones once; indexes and ties are those of C order, beyond 32 bits,
    too."""
    monkeypatch.setattr(calls, "_plans", {})
    monkeypatch.setattr(strided_policy, "MIN_INDEXED_BYTES", 1000)
    chosen = []
    monkeypatch.setattr(strided_plan, "choose", lambda p: chosen.append(strided_policy.choose(p)) or chosen[-1])
    argmax_of((3, 400, 7), (400, 1, 0))
    argmax_of((5, 7, 9, 4), (7, 1, 140, 35))
    argmax_of((600, 3), (1, 600))
    argmax_of((6, 5, 30), (8, 0, 40), 1)
    x = data((40,), "int16")
    far = cs.asarray(x).as_strided((40, 1 << 40), (1, 0))
    assert int(np.asarray(cs.argmax(far))) == int(x.argmax()) << 40
    kinds = [(type(choice.policy), choice.policy.indexed) for choice in chosen]
    assert (strided_policy.RunPolicy, True) in kinds and (strided_policy.StridedPolicy, True) in kinds


@pytest.mark.parametrize("few", [1 << 17, 0])
def test_the_index_of_one_element_is_0(few, monkeypatch):
    monkeypatch.setattr(plan, "MAX_FEW_FILLED", few)
    monkeypatch.setattr(calls, "_plans", {})
    x = cs.asarray(data((6, 4), "int16"))
    for view, axis in ((x[:, None], 1), (x.as_strided((6, 5, 4), (4, 0, 1)), 1), (x[:1], 0), (x[:1, :1], None)):
        kept = [n for i, n in enumerate(view.shape) if axis is not None and i != axis]
        whole = np.full((*kept, 2), STAMP, np.int64)
        out = cs.asarray(whole)
        cs.argmin(view, axis=axis, out=out[..., 0])
        whole[..., 0] = 0
        same(np.asarray(out), whole)
        same(np.asarray(cs.argmax(view, axis=axis)), whole[..., 0])


PACKED = {"any": "uint8", "all": "int16", "max": "int8", "min": "uint16", "sum": "bool"}


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    "name", ["max", *(pytest.param(name, marks=pytest.mark.slow) for name in ("any", "all", "min", "sum"))]
)
def test_few_rows_of_small_elements(name, monkeypatch):
    """Columns of words, or of vectors of words, are combined whole, less than a thread has in flight, too, of any
    pitch."""
    monkeypatch.setattr(strided_loads, "MIN_WORDS_BYTES", 0)
    chosen = []
    monkeypatch.setattr(strided_plan, "choose", lambda p: chosen.append(strided_policy.choose(p)) or chosen[-1])
    for units in (1 << 20, 0):
        monkeypatch.setattr(strided_loads, "MIN_WIDE_UNITS", units)
        monkeypatch.setattr(calls, "_plans", {})
        for shape, axis in (((2, 128), 0), ((3, 301), 0), ((9, 303), 0), ((2, 34, 137), 1)):
            x = data(shape, PACKED[name])
            same(np.asarray(getattr(cs, name)(cs.asarray(x), axis=axis)), getattr(np, name)(x, axis=axis), f"{shape}")
    loads = {(choice.policy.load, choice.policy.bytes) for choice in chosen}
    assert {("words", 4), *([("words", 16)] if name != "sum" else [])} < loads


@pytest.mark.parametrize("name", ["argmax", pytest.param("sum", marks=pytest.mark.slow)])
def test_narrow_slices_read_along_their_rows(name, monkeypatch):
    """Neighbouring threads have neighbouring positions where a vector has all columns, and shuffles combine them."""
    monkeypatch.setattr(calls, "_plans", {})
    chosen = []
    monkeypatch.setattr(strided_plan, "choose", lambda p: chosen.append(strided_policy.choose(p)) or chosen[-1])
    for shape in ((64, 64, 4), (70, 301, 4), (3, 2000, 4)):
        x = data(shape, "int8")
        same(np.asarray(getattr(cs, name)(cs.asarray(x), axis=1)), getattr(np, name)(x, axis=1), f"{shape}")
    assert all(c.policy.load == "vector" and not c.policy.along_kept and c.policy.groups > 1 for c in chosen)


def test_a_transform_with_an_index_along_axes_that_are_not_neighbours():
    x = data((5, 7, 6), "int32")
    found = cs.reduce(cs.asarray(x), axis=(0, 2), transform=lambda v, i: v * i, dtype="int64")
    places = np.arange(30).reshape(5, 1, 6)
    same(np.asarray(found), (x.astype(np.int64) * places).sum((0, 2)))


def test_empty_axes_of_strided_arrays():
    whole = cs.asarray(np.full(40, STAMP, np.int32))
    out = whole[4:36:4]
    cs.reduce(cs.empty((3, 8), "int32")[:0].T, axis=1, out=out, init=5)
    wanted = np.full(40, STAMP, np.int32)
    wanted[4:36:4] = 5
    same(np.asarray(whole), wanted)


def test_the_comparison_algorithms_need_contiguous_arrays():
    with pytest.raises(ValueError, match="algorithm.*contiguous"):
        cs.reduce(cs.asarray(data(40, "int32"))[::2], algorithm="atomic")


def test_elements_of_out_share_no_memory():
    with pytest.raises(ValueError, match="out.*share memory"):
        cs.reduce(cs.asarray(data((4, 6), "int32")), axis=1, out=cs.empty(1, "int32").as_strided((4,), (0,)))


def test_normal_form():
    axes = [Axis(4, (-600, 6)), Axis(1, (5, 5)), Axis(6, (100, 1)), Axis(50, (2, 0)), Axis(2, (1, 0))]
    form = normal(axes, frozenset((3, 4)), 1, True, True)
    assert form.kept == (Axis(4, (600, -6)), Axis(6, (100, 1))) and form.reduced == (Axis(100, (1,)),)
    assert form.starts == (-1800, 18) and form.contiguous(1) is None
    plain = [Axis(4, (60, 6)), Axis(10, (6, 0)), Axis(6, (1, 1))]
    assert normal(plain, frozenset((1,)), 1, False, True).contiguous(1) == (4, 10, 6)


# what: (shape of the memory, index of the view, axis)
FEW = {
    "elements": ((94, 24, 5), np.s_[:, :20, ::2], 2),
    "rows": ((94, 24, 4), np.s_[:, :20, :4], 2),
    "vectors": ((94, 4, 24), np.s_[:, ::2, :16], 1),
    "single": ((700, 3), np.s_[:, 1:2], 1),
}


@pytest.mark.drawn(4)
@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("what", ["max", *(pytest.param(each, marks=pytest.mark.slow) for each in ("order", "argmax"))])
def test_several_results_of_a_thread(name, what, on_emulator, monkeypatch):
    """Axes of few positions: a thread has several results, the last ones fewer."""
    monkeypatch.setattr(short_policy, "LEFT_UNITS", 30)
    monkeypatch.setattr(strided_loads, "MIN_ROWS", 8)
    found, launch = [], strided_plan.launch
    monkeypatch.setattr(strided_plan, "launch", lambda choice, *more: found.append(choice) or launch(choice, *more))
    monkeypatch.setattr(calls, "_plans", {})
    shape, index, axis = FEW[name]
    kind, reduce, expected = CALLS[what]
    x = brackets(shape) if kind == "order" else data(shape, kind)
    same(
        np.asarray(reduce(cs.asarray(x)[index], axis=axis)),
        np.asarray(expected(rows(x[index], (axis,)))).reshape([n for i, n in enumerate(x[index].shape) if i != axis]),
        name,
    )
    assert what != "max" or [isinstance(choice.policy, short_policy.ShortPolicy) for choice in found] == [True]
