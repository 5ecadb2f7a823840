"""Scans of arrays whose rows lie apart, and of rows that run backwards, by the kernels of contiguous arrays."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync.kernels.scan import layout, plan, slice_policy
from cutesync.kernels.scan.layout import Form, layout_of
from cutesync.runtime.device_array import DeviceArray

from ..cases import adjacent, same, scanned, segments
from .kernels import KERNELS, force

# Strides of an input and an output of shape (4, 5, 6), the axis, and the form
FORMS = [
    ((30, 6, 1), (30, 6, 1), 1, Form((4, 5, 6))),
    ((70, 7, 1), (30, 6, 1), 1, Form((4, 5, 6), "pitched", (70, 7, 30, 6))),
    ((70, -7, 1), (30, 6, 1), 1, Form((4, 5, 6), "pitched", (70, -7, 30, 6))),
    ((0, 6, 1), (30, 6, 1), 0, Form((1, 4, 30), "pitched", (0, 0, 0, 30))),
    ((50, 10, 1), (60, 12, 1), 2, Form((20, 6, 1), "pitched", (10, 1, 12, 1))),
    ((50, 10, -1), (30, 6, 1), 2, Form((20, 6, 1), "mirrored", (10, -1, 6, 1))),
    ((30, 6, -1), (30, 6, -1), 2, None),
    ((50, 12, 1), (30, 6, 1), 2, Form((20, 6, 1), "pitched", (50, 1, 30, 1), 5, (12, 6))),
    ((6, 24, -1), (30, 6, 1), 2, Form((20, 6, 1), "mirrored", (6, -1, 30, 1), 5, (24, 6))),
    ((150, 30, 5), (30, 6, 1), 2, None),
    ((1, 4, 20), (30, 6, 1), 0, None),
    ((30, 6, 1), (60, 12, 1), None, None),
]


@pytest.mark.parametrize(("x", "out", "axis", "wanted"), FORMS)
def test_which_arrays_the_kernels_of_contiguous_ones_scan(x, out, axis, wanted):
    assert layout_of((4, 5, 6), axis, [x, out]).form(1) == wanted
    assert layout_of((4, 5, 6), axis, [x, x, out]).form(2) == wanted


def test_rows_with_gaps_have_a_form_for_one_input():
    x, out = (60, 12, 2), (30, 6, 1)
    assert layout_of((4, 5, 6), 2, [x, out]).form(1) == Form((20, 6, 1), "pitched", (12, 2, 6, 1))
    assert layout_of((4, 5, 6), 2, [x, x, out]).form(2) is None
    assert layout_of((2, 5, 6), 2, [(1, 12, 2), out]).form(1) is None  # other rows lie between


FAR = [
    ((600, -200, 40, 1), (2000, 600, 120, 1), None),  # the results lie in groups, too
    ((600, -200, 40, 1), (600, 200, 40, 1), Form((30, 40, 1), "pitched", (-200, 1, 200, 1), 5, (40, 40), 3, 1200)),
    ((600, -200, 40, -1), (600, 200, 40, 1), Form((30, 40, 1), "mirrored", (-200, -1, 200, 1), 5, (40, 40), 3, 1200)),
    ((600, -200, 40, 2), (600, 200, 40, 1), None),
]


@pytest.mark.parametrize(("x", "out", "wanted"), FAR)
def test_which_groups_of_rows_lie_in_groups(x, out, wanted):
    assert layout_of((2, 3, 5, 40), 3, [x, out]).form(1) == wanted
    short = layout_of((2, 3, 5, 8), 3, [x, [step // 5 or step for step in out]])
    columns = layout_of((2, 3, 5, 40, 2), 3, [[2 * step for step in steps] + [1] for steps in (x, out)])
    assert short.form(1) is None and columns.form(1) is None


GAPS = [
    ((40, 30, 2), (240, 4, 1), 0, "gaps"),
    ((40, 30, 3), (240, 8, 1), 0, "gaps"),
    ((40, 30, 40), (3000, 50, 1), 0, ""),  # the runs are long
    ((40, 32, 4), (128, 4, -1), 0, "beside"),
    ((40, 6, 28), (6, 1, 0), 0, ""),
    ((4, 64, 4), (4, 16, 1), 1, "beside"),
    ((4, 64, 4), (1024, 4, 1), 1, ""),  # nothing between them
]


@pytest.mark.parametrize(("shape", "x", "axis", "wanted"), GAPS)
def test_which_arrays_have_others_between_runs_of_columns(shape, x, axis, wanted):
    out = shape[1] * shape[2], shape[2], 1
    layout = layout_of(shape, axis, [x, out])
    assert layout.interleaved(2) == bool(wanted)
    assert layout.interleaved(2, gaps=True) == (wanted == "gaps")


def spaced(
    rng: np.random.Generator, x: np.ndarray, mirrored: bool, unit: int
) -> tuple[DeviceArray, DeviceArray, np.ndarray]:
    """An array of the values of ``x`` with gaps of multiples of ``unit`` elements between its rows, and between their
    positions where there are columns: ``(view, buffer, inside)``."""
    steps, step = [1], 1
    for extent in x.shape[:0:-1]:
        step = -(-step * extent // unit) * unit + unit * int(rng.integers(1, 4))
        steps.insert(0, step)
    first = 64 + unit * int(rng.integers(0, 3))
    buffer = rng.integers(1, 99, step * x.shape[0] + first + 64).astype(x.dtype)
    if mirrored:
        steps[-1], first = -1, first + x.shape[-1] - 1
    inside = np.zeros(buffer.size, bool)
    for base, values in ((buffer, x), (inside, True)):
        np.lib.stride_tricks.as_strided(base[first:], x.shape, [s * base.itemsize for s in steps])[...] = values
    whole = cs.asarray(buffer)
    return whole.as_strided(x.shape, tuple(steps), first), whole, inside


def check(rng: np.random.Generator, x: np.ndarray, op, axis: int, mirrored: bool, unit: int, **options) -> None:
    view, whole, _ = spaced(rng, x, mirrored, unit)
    before = np.asarray(whole)
    out, around, inside = spaced(rng, np.zeros_like(x), False, unit)
    untouched = np.asarray(around)[~inside]
    cs.scan(view, op, axis=axis, out=out, **options)
    what = f"{x.shape} along {axis}, {view.steps} into {out.steps}, {options}"
    same(np.asarray(out), scanned(x, op, axis=axis, **options), what)
    same(np.asarray(around)[~inside], untouched, "around the result")
    same(np.asarray(whole), before, "the input stays")


ROWS = ["short rows of vectors", "rows by two warps", "ragged rows", "a wave of rows", "pipeline of rows"]
COLUMNS = ["columns", "tiles of columns"]
QUICK = {("tiles of columns", False)}


@pytest.mark.drawn(6)
@pytest.mark.parametrize(
    ("name", "mirrored"),
    [
        (name, mirrored) if (name, mirrored) in QUICK else pytest.param(name, mirrored, marks=pytest.mark.slow)
        for name in ROWS + COLUMNS
        for mirrored in (False, True)
        if not (mirrored and name in COLUMNS)
    ],
)
def test_agrees_and_writes_nothing_else(name, mirrored, on_emulator, monkeypatch):
    """Operands must stay in order. Rows begin anywhere, or on boundaries of vectors where the kernel requires it."""
    choice, shape, axis = KERNELS[name]
    force(monkeypatch, choice)
    rng = np.random.default_rng(len(name))
    anywhere = "ragged" in name or "wave" in name or "pipeline" in name
    for outer in (shape[:-1], (1,) * (len(shape) - 1)) if axis == len(shape) - 1 else [shape[:-1]]:
        length = -(-shape[-1] // 2) - (int(rng.integers(3)) if anywhere else 0)
        x = segments((*outer, length), axis)
        check(rng, x, adjacent, axis, mirrored, 1 if anywhere else 4, reverse=bool(rng.integers(2)))


@pytest.mark.drawn(2)
@pytest.mark.parametrize("name", [*ROWS, "a wave", "rows by one warp"])
def test_groups_of_rows_in_groups(name, on_emulator, monkeypatch):
    """Part of the outer axes of the input run backwards; its rows begin anywhere where the kernel allows that."""
    choice, shape, _ = KERNELS[name]
    force(monkeypatch, choice)
    rng = np.random.default_rng(len(name))
    anywhere = "ragged" in name or "wave" in name or "pipeline" in name
    length = max(24, shape[-1] // 8 * 4) + (int(rng.integers(1, 4)) if anywhere else 0)
    for signs in ((1, -1, 1, 1), (-1, 1, -1, 1)):
        x, first = segments((2, 2, 3, length), 3), 64 + anywhere
        whole = cs.asarray(np.concatenate([np.zeros(first, x.dtype), x.ravel()]))
        steps = [sign * step // x.itemsize for sign, step in zip(signs, x.strides)]
        first += sum(-step * (n - 1) for step, n in zip(steps, x.shape) if step < 0)
        moved = x[tuple(slice(None, None, sign) for sign in signs)]
        for reverse in (False, True):
            found = cs.scan(whole.as_strided(x.shape, tuple(steps), first), adjacent, axis=3, reverse=reverse)
            same(np.asarray(found), scanned(moved, adjacent, axis=3, reverse=reverse), f"{signs} {reverse}")


APART = [
    ("int16", (2, 2, 3, 64), 0, 1, "ShortRowPolicy"),  # vectors joined from two, of groups that begin anywhere
    ("uint8", (2, 3, 4, 48), 1, 5, "ShortRowPolicy"),
    ("float32", (3, 2, 5, 100), 0, 1, "RowPolicy"),
    ("uint8", (2, 2, 8, 701), 0, 3, "RowPolicy"),  # ragged rows: as far past a boundary but for the outermost stride
    ("int16", (2, 2, 7, 100), 0, 1, "SlicePolicy"),
    ("int16", (3, 2, 3, 512), 0, 1, "RowPolicy"),  # as the first, by whole warps
]


@pytest.mark.parametrize(("dtype", "shape", "first", "gap", "kernel"), APART)
def test_groups_that_lie_apart_by_the_chosen_kernels(dtype, shape, first, gap, kernel, on_emulator, monkeypatch):
    """Alone the outermost stride moves vectors off their boundaries; nothing lies behind the last element."""
    chosen, launch = [], plan.launch
    monkeypatch.setattr(plan, "launch", lambda choice, *more: chosen.append(choice) or launch(choice, *more))
    monkeypatch.setattr(slice_policy, "MIN_STRIDED_BYTES", 0 if kernel == "SlicePolicy" else 1 << 20)
    monkeypatch.setattr(slice_policy, "MIN_SLICES", 1)
    groups, rows, length = shape[1], shape[2], shape[3]
    outer = rows * groups * length + gap
    for signs in ((1, -1, 1), (-1, 1, -1)):
        steps = [sign * step for sign, step in zip(signs, (outer, rows * length, length))]
        begin = first + sum(-step * (n - 1) for step, n in zip(steps, shape) if step < 0)
        x = np.random.default_rng(length).integers(0, 3, first + shape[0] * outer - gap).astype(dtype)
        places = begin + sum(step * n for step, n in zip((*steps, 1), np.indices(shape)))
        for reverse in (False, True):
            found = cs.scan(cs.asarray(x).as_strided(shape, (*steps, 1), begin), axis=3, reverse=reverse)
            wanted = scanned(x[places], "add", axis=3, reverse=reverse)
            same(np.asarray(found), wanted, f"{signs} {reverse}")
            assert chosen[-1].layout.keys() >= {*layout.FAR} and type(chosen[-1].policy).__name__ == kernel


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int8", "float64"])
def test_the_chosen_kernels(dtype, on_emulator):
    """Sums of random gaps and directions."""
    rng = np.random.default_rng(5)
    for shape, axis, mirrored in (
        ((7, 700), 1, True),
        ((3, 40), 1, False),
        ((2, 60, 5), 1, False),
        ((1, 5000), 1, True),
    ):
        x = rng.integers(-3, 4, shape).astype(dtype)
        check(rng, x, "add", axis, mirrored, int(rng.choice([1, 16])), reverse=bool(rng.integers(2)))


@pytest.mark.parametrize("mirrored", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_rows_in_groups(mirrored, on_emulator):
    """Rows, and columns, of an array whose outer axes are permuted; each row has its own first operand."""
    x = segments((3, 4, 5, 40), 2 if not mirrored else 3) % 1000
    view = cs.asarray(x).as_strided((4, 3, 5, 40), (200, 800, 40, 1))
    if mirrored:
        view = view[..., ::-1]
    moved = np.ascontiguousarray(np.asarray(view))
    for axis in (3,) if mirrored else (2, 3):
        init = np.arange(x.size // x.shape[axis], dtype=x.dtype).reshape(np.delete(moved.shape, axis))
        found = cs.scan(view, axis=axis, init=cs.asarray(init), reverse=mirrored)
        wanted = scanned(moved, axis=axis, reverse=mirrored) + np.expand_dims(init, axis)
        same(np.asarray(found), wanted, f"along {axis}")
