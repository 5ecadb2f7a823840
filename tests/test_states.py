"""Reductions and scans with states of several values, of several arrays, with maps, indexes and run-time arguments."""

from __future__ import annotations

import concurrent.futures
import contextvars

import cutlass
import numpy as np
import pytest

import cutesync as cs
from cutesync.errors import ArgumentTypeError, ArgumentValueError, DeviceError, OperatorError
from cutesync.kernels.scan import narrow_policy, policy, problem, row_policy
from cutesync.runtime import call
from cutesync.runtime.kernel import collect

from .cases import everywhere
from .scan.kernels import column_tiles, columns, force, pipeline, runs, slabs, wave
from .states import CASES, Case, data, reduced, scanned

WAYS = [{}, {"exclusive": True}, {"reverse": True}, {"exclusive": True, "reverse": True}]
# kernel: (choice or None for the policy's own, shape, axis)
SCANS = {
    "short rows": (None, (70, 24), 1),
    "rows": (None, (5, 1100), 1),
    "ragged rows": (None, (5, 1101), 1),
    "wave": (wave(2, 1), (2600,), 0),
    "wave of rows": (wave(2, 1), (3, 901), 1),
    "pipeline": (pipeline(4, 2, 4, 1, 2, 2), (2, 2201), 1),
    "runs": (runs(3, 2, 2), (2, 4201), 1),
    "columns": (columns(1, 8, 4), (2, 37, 36), 1),
    "tiles of columns": (column_tiles(1, 4, 4, 2, 3, 3), (2, 101, 12), 1),
}


def apart(xs, starts) -> tuple:
    """One-dimensional copies on the device that begin ``starts`` elements past an aligned address."""
    found = []
    for x, start in zip(xs, starts):
        padded = np.zeros(x.size + start, x.dtype)
        padded[start:] = x
        found.append(cs.asarray(padded)[start:])
    return tuple(found)


def agree(got, wanted) -> None:
    for a, b in zip(got, wanted, strict=True):
        a = np.asarray(a)
        assert a.dtype == b.dtype and a.shape == b.shape
        assert np.array_equal(a, b), np.argwhere(a != b)[:4].tolist()


def few(name: str, kind: str) -> bool:
    """On the emulator, states of four values are for two kernels."""
    if (name, kind) in (
        ("short rows", "segments"),
        ("rows", "maps"),
        ("wave", "bool segments"),
        ("pipeline", "bool segments"),
        ("runs", "maps"),
        ("columns", "bool segments"),
    ):
        return False
    return kind != "matrices" or name in ("wave of rows", "columns")


@pytest.mark.drawn(5)
@everywhere("name, kind", [(name, kind) for i, name in enumerate(SCANS) for kind in list(CASES)[i % 2 :: 2]], few)
def test_scans_agree(name, kind, place, monkeypatch):
    choice, shape, axis = SCANS[name]
    if choice is not None:
        force(monkeypatch, choice)
    case = CASES[kind]
    xs = data(case, shape, len(name))
    for i, way in place.some(list(enumerate(WAYS))[len(kind) % 2 :: 2], first=len(name)):
        init = tuple(type(v)(i + 1) for v in case.identity) if i > 1 else None
        start = init if init is not None else case.identity if "exclusive" in way else None
        given = {} if init is None else {"init": init}
        got = cs.scan(tuple(map(cs.asarray, xs)), case.op, axis=axis, identity=case.identity, **way, **given)
        agree(got, scanned(case, xs, axis, init=start, **way))


@pytest.mark.drawn(2)
@everywhere("name, starts", [("rows", (0, 0)), ("rows", (1, 0)), ("wave", (3, 1)), ("pipeline", (5, 2))])
def test_scans_of_arrays_that_begin_anywhere(name, starts, place, monkeypatch):
    """Where the arrays begin on different parts of a vector, the kernels read them element by element."""
    length = {"rows": 500, "wave": 1500, "pipeline": 2500}[name]
    monkeypatch.setattr(row_policy, "MAX_WARPS_PER_ROW", 16 if name == "rows" else 0)
    monkeypatch.setattr(policy, "PIPELINE_BYTES", 0 if name == "pipeline" else 1 << 30)
    monkeypatch.setattr(problem, "MAX_CHUNK_WORDS", 24)
    case = CASES["segments"]
    xs = data(case, (length,), 3)
    for way in place.some(WAYS[::3], first=starts[0]):
        start = case.identity if "exclusive" in way else None
        got = cs.scan(apart(xs, starts), case.op, identity=case.identity, **way)
        agree(got, scanned(case, xs, 0, init=start, **way))


@everywhere("start", [1, 5])
def test_runs_of_arrays_and_results_that_begin_alike(start, place, monkeypatch):
    """The elements before and behind whole vectors are stored one by one; what lies beside the results stays."""
    monkeypatch.setattr(policy, "PIPELINE_BYTES", 0)
    monkeypatch.setattr(row_policy, "MAX_WARPS_PER_ROW", 0)
    monkeypatch.setattr(policy, "RUN_VECTORS", 3)
    chosen: list = []
    force(monkeypatch, lambda p: chosen.append(policy.choose(p)) or chosen[-1])
    case, length = CASES["segments"], 4001
    xs = data(case, (length,), 3)
    for way in WAYS[::2]:
        wide = [cs.asarray(np.full(length + start + 7, 9, x.dtype)) for x in xs]
        out = tuple(y[start : start + length] for y in wide)
        cs.scan(apart(xs, (start, start)), case.op, identity=case.identity, out=out, **way)
        assert isinstance(chosen[-1].policy, policy.RunPolicy)
        agree(out, scanned(case, xs, 0, **way))
        assert all((np.asarray(y)[:start] == 9).all() and (np.asarray(y)[start + length :] == 9).all() for y in wide)


@pytest.mark.drawn(4)
@everywhere(
    "shape, axis, kind",
    [
        ((30, 20), 1, "maps"),
        ((3, 3000), 1, "matrices"),
        ((2, 30001), 1, "segments"),
        ((90000,), 0, "maps"),
        ((700, 33), 0, "bool segments"),
        ((9, 40, 11), (0, 2), "matrices"),
        ((9, 40, 11), None, "segments"),
    ],
)
def test_reductions_agree(shape, axis, kind, place):
    case = CASES[kind]
    xs = data(case, shape, 5)
    axes = tuple(range(len(shape))) if axis is None else (axis,) if isinstance(axis, int) else axis
    for init in place.some((None, tuple(type(v)(1) for v in case.identity)), first=shape[0]):
        agree(cs.reduce(tuple(map(cs.asarray, xs)), case.op, axis=axis, init=init), reduced(case, xs, axes, init))


@everywhere("starts", [(0, 0), (1, 1), (4, 1), (0, 3)])
def test_reductions_of_arrays_that_begin_anywhere(starts, place):
    case = CASES["segments"]
    for length in (7, 5000):
        xs = data(case, (length,), 6)
        agree(cs.reduce(apart(xs, starts), case.op), reduced(case, xs, (0,)))


def merge(p, q):
    n, delta = p[0] + q[0], q[1] - p[1]
    return n, p[1] + delta * q[0] / n, p[2] + q[2] + delta * delta * p[0] * q[0] / n


def later(p, q):
    wins = q[0] > p[0]
    return cutlass.select_(wins, q[0], p[0]), cutlass.select_(wins, q[1], p[1])


def test_transform_and_finish(on_emulator):
    x = np.random.default_rng(1).random((6, 700)).astype(np.float16)
    how = {"transform": lambda v: (1.0, v, 0.0), "dtype": ("float32",) * 3, "out_dtype": ("float16", "float64")}
    mean, var = cs.reduce(x, merge, axis=1, finish=lambda s: (s[1], s[2] / s[0]), **how)
    wide = x.astype(np.float64)
    assert mean.dtype == np.float16 and var.dtype == np.float64
    assert np.allclose(mean, wide.mean(1), rtol=2e-3) and np.allclose(var, wide.var(1), rtol=1e-4)
    running = cs.scan(x[0], merge, finish=lambda s: s[1], **how | {"out_dtype": "float32"})
    assert np.allclose(running, wide[0].cumsum() / np.arange(1, 701), rtol=1e-4)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("shape, axis", [((40, 30), 1), ((2, 5000), 1), ((300, 11), 0), ((70001,), 0)])
def test_the_index_of_a_position(shape, axis, on_emulator):
    x = np.random.default_rng(2).random(shape).astype(np.float32)
    how = {"transform": lambda v, i: (v, i), "dtype": ("float32", "int64"), "axis": axis}
    value, place = cs.reduce(x, later, **how)
    assert np.array_equal(place, x.argmax(axis)) and np.array_equal(value, x.max(axis))
    if x.size < 10_000:
        reverse = axis == 0
        value, place = cs.scan(x, later, reverse=reverse, **how)
        turned = np.flip(x, axis) if reverse else x
        wanted = np.maximum.accumulate(turned, axis)
        assert np.array_equal(value, np.flip(wanted, axis) if reverse else wanted)
        assert np.array_equal(np.take_along_axis(x, place, axis), value)


@pytest.mark.parametrize("choice", [pipeline(4, 2, 4, 1, 2, 2), runs(1, 2, 2)])
def test_the_index_in_a_pipeline(choice, on_emulator, monkeypatch):
    force(monkeypatch, choice)
    x = np.random.default_rng(4).random((2, 1501)).astype(np.float32)
    how = {"finish": lambda s: s[1], "out_dtype": "int32"}
    place = cs.scan(x, later, transform=lambda v, i: (v, i), dtype=("float32", "int32"), **how)
    assert np.array_equal(np.take_along_axis(x, place.astype(np.int64), 1), np.maximum.accumulate(x, 1))


def test_narrow_arrays_of_mapped_numbers(on_emulator, monkeypatch):
    """A state of one number that a map makes, with and without its index."""
    x = np.arange(150 * 5, dtype=np.int32).reshape(150, 5)
    double = cs.scan(x, "add", axis=0, transform=lambda v: v * 2)
    assert np.array_equal(double, np.cumsum(2 * x, axis=0, dtype=np.int32))
    monkeypatch.setattr(narrow_policy, "MIN_BYTES", 0)
    monkeypatch.setattr(narrow_policy, "MIN_SLICE_BYTES", 0)
    weighted = cs.scan(x, "add", axis=0, transform=lambda v, i: v * i, dtype="int32")
    assert np.array_equal(weighted, np.cumsum(x * np.arange(150)[:, None], axis=0, dtype=np.int32))
    force(monkeypatch, slabs(4, 3, 2, 2, 3))
    tripled = cs.scan(x, "add", axis=0, transform=lambda v: v * 3)
    assert np.array_equal(tripled, np.cumsum(3 * x, axis=0, dtype=np.int32))


def test_a_name_applies_to_each_value(on_emulator):
    x, y = np.arange(200, dtype=np.int16), np.ones(200, bool)
    total, some = cs.reduce((x, y), "max")
    assert (total, some) == (199, True)
    assert cs.reduce((x, y), "all", dtype="bool") == (False, True)
    running, _ = cs.scan((x, y), "add")
    assert np.array_equal(running, np.cumsum(x, dtype=np.int16))


def test_run_time_arguments_compile_nothing(on_emulator):
    x = np.linspace(-1, 1, 500, dtype=np.float32)
    above = lambda v, t: cutlass.select_(v > t, v, 0.0)  # noqa: E731
    kernels = set()
    for value in (0.25, -0.5, np.float32(0.75), 0.0, -0.0):
        with collect() as found:
            cs.reduce(cs.empty(500, "float32"), "add", transform=above, args=(value,))
        kernels |= set(found)
        assert np.isclose(cs.reduce(x, "add", transform=above, args=(value,)), x[x > value].sum(), atol=1e-5)
    assert len(kernels) == 1
    here = cs.asarray(x)
    for value in (0.5, -0.5):  # read when the kernel runs
        threshold = cs.asarray(np.array(value, np.float32))
        total = cs.reduce(here, "add", transform=above, args=(threshold,))
        assert np.isclose(float(total), x[x > value].sum(), atol=1e-5)
        scanned_ = cs.scan(here, lambda a, b, k: a + b * k, args=(threshold,))  # a map that only looks associative
        assert np.asarray(scanned_)[0] == x[0]


def test_new_numbers_make_no_plans(on_emulator, monkeypatch):
    """A plan is that of the types of numbers; threads share it."""
    monkeypatch.setattr(call, "_plans", {})
    x, here = np.arange(64), cs.asarray(np.arange(64))
    scaled = lambda v, k: v * k  # noqa: E731
    groups = {
        "small": (1, -7, 2**31 - 1),
        "wide": (2**31, -(2**40), 2**63 - 1),
        "float": (0.5, -0.0, float("inf"), 1e300),
        "own": (np.int16(3), np.int16(-3)),
        "bool": (True, False),
    }
    for number, values in enumerate(groups.values(), 1):
        for value in values:
            with np.errstate(all="ignore"):
                wanted = (x * (np.float32(value) if isinstance(value, float) else value) > 10).sum()
            found = cs.reduce(here, "add", transform=lambda v, k: scaled(v, k) > 10, args=(value,))
            assert int(found) == wanted, value
        assert len(call._plans) == number
    total = lambda k: int(cs.reduce(here, "add", transform=scaled, args=(k,)))  # noqa: E731
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = [pool.submit(contextvars.copy_context().run, total, k) for k in range(40)]
        totals = [one.result() for one in found]
    assert totals == [int(x.sum()) * k for k in range(40)]
    with pytest.raises(ArgumentValueError, match="64 bits"):
        cs.reduce(here, "add", transform=scaled, args=(2**63,))


@pytest.mark.parametrize("name", ["rows", "wave", pytest.param("pipeline", marks=pytest.mark.slow)])
def test_a_first_state_in_memory(name, on_emulator, monkeypatch):
    """All of it, or one value of two; it is read when the kernel runs."""
    choice, shape, axis = SCANS[name]
    if choice is not None:
        force(monkeypatch, choice)
    case = CASES["maps"]
    xs = data(case, shape, 4)
    arrays, number = tuple(map(cs.asarray, xs)), cs.asarray(np.array([7], np.int16))
    for way, first in zip(WAYS[1:3], (3, cs.asarray(np.array(3)))):
        got = cs.scan(arrays, case.op, axis=axis, init=(first, number), **way)
        agree(got, scanned(case, xs, axis, init=(3, 7), **way))
    if name == "wave":
        scaled = lambda a, b, k: a + b  # noqa: E731
        total = cs.scan(arrays[1], scaled, axis=axis, args=(2,), init=number)
        assert np.array_equal(np.asarray(total), 7 + np.cumsum(xs[1], axis, dtype=np.int16))


def test_out_and_in_place(on_emulator):
    case = CASES["maps"]
    xs = data(case, (3, 400), 8)
    wanted = scanned(case, xs, 1)
    arrays = tuple(map(cs.asarray, xs))
    out = tuple(cs.empty(x.shape, x.dtype.name) for x in xs)
    assert cs.scan(arrays, case.op, out=out) is not None
    agree(out, wanted)
    cs.scan(arrays, case.op, out=arrays)
    agree(arrays, wanted)
    hosts = tuple(x.copy() for x in xs)
    cs.scan(hosts, case.op, out=hosts)
    agree(hosts, wanted)


def test_empty_arrays(on_emulator):
    none = np.empty((2, 0), np.float32), np.empty((2, 0), np.int32)
    op = lambda p, q: (p[0] + q[0], p[1] + q[1])  # noqa: E731
    a, b = cs.reduce(none, op, axis=1, identity=(1.5, 7))
    assert a.tolist() == [1.5] * 2 and b.tolist() == [7] * 2
    assert cs.reduce(none, op, axis=1, identity=(1.5, 7), finish=lambda s: s[0] * 2).tolist() == [3.0] * 2
    assert [x.shape for x in cs.scan(none, op)] == [(2, 0)] * 2
    with pytest.raises(ArgumentValueError, match="no identity"):
        cs.reduce(none, op, axis=1)


A, B = np.ones(8, np.float32), np.ones(8, np.int32)
ADD = lambda p, q: (p[0] + q[0], p[1] + q[1])  # noqa: E731


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: cs.scan((), ADD), ArgumentValueError, "empty tuple"),
        (lambda: cs.scan((A, B[:4]), ADD), ArgumentValueError, r"x\[1\].*\(4,\)"),
        (lambda: cs.scan((A, 3), ADD), DeviceError, r"x\[1\]"),
        (lambda: cs.scan((A, B), ADD, dtype=("float32",)), ArgumentValueError, "1 types for 2 inputs"),
        (lambda: cs.scan((A, B), ADD, init=1.0), ArgumentTypeError, "tuple of 2 numbers"),
        (lambda: cs.scan((A, B), ADD, init=(1.0, 2.5)), ArgumentTypeError, "init"),
        (lambda: cs.scan((A, B), ADD, exclusive=True), ArgumentValueError, "identity"),
        (lambda: cs.scan((A, B), ADD, init=[1.0, 2]), ArgumentTypeError, "tuple of 2 numbers"),
        (lambda: cs.reduce((A, B), "any"), ArgumentTypeError, "states of bool"),
        (lambda: cs.scan((A, B), ADD, init=(1.0, A)), ArgumentValueError, r"init\[1\].*\(8,\)"),
        (lambda: cs.scan((A, B), ADD, init=(1.0, A[:1])), ArgumentTypeError, r"init\[1\].*int32"),
        (lambda: cs.scan((A, B), ADD, init=(A[:1], B[:1], 1)), ArgumentTypeError, "tuple of 2 numbers"),
        (lambda: cs.scan((A, B), ADD, init=(1.0, "1")), DeviceError, r"init\[1\].*str"),
        (lambda: cs.scan((A, B), ADD, out=(A, B)[:1]), ArgumentTypeError, "pair of arrays"),
        (lambda: cs.scan((A, B), ADD, out=(B, A)), ArgumentTypeError, "dtype"),
        (lambda: cs.scan((A, B), lambda p, q: p[0]), OperatorError, "not a tuple of 2"),
        (lambda: cs.scan((A, B), lambda p, q: (p[0],)), OperatorError, "1 values, not 2"),
        (lambda: cs.reduce((A, B), ADD, finish=3), ArgumentTypeError, "finish"),
        (lambda: cs.reduce((A, B), ADD, out_dtype="int8"), ArgumentValueError, "out_dtype"),
        (lambda: cs.reduce((A, B), ADD, args=3), ArgumentTypeError, "args"),
        (lambda: cs.reduce((A, B), ADD, args=(object(),)), DeviceError, r"args\[0\]"),
        (lambda: cs.reduce((A, B), ADD, args=(np.ones(3),)), ArgumentValueError, r"args\[0\]"),
        (lambda: cs.reduce((A,) * 2, ADD, dtype=("float64",) * 9), ArgumentValueError, "9 types"),
        (
            lambda: cs.reduce(A, ADD, transform=lambda v: (v,) * 9, dtype=("float64",) * 9),
            ArgumentValueError,
            "18 w",
        ),
        (lambda: cs.reduce((A > 0, B), "xor", dtype=("float32", "int32")), ArgumentTypeError, "xor"),
    ],
)
def test_bad_input(call, error, words, on_emulator):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["wave of rows", "pipeline", "runs", "tiles of columns"])
def test_scans_under_hostile_schedules(name, monkeypatch):
    choice, shape, axis = SCANS[name]
    if choice is not None:
        force(monkeypatch, choice)
    case: Case = CASES["maps" if name == "pipeline" else "segments"]
    xs = data(case, shape, 9)
    with cs.emulate(schedules=9, seed=2) as ran:
        got = cs.scan(xs, case.op, axis=axis)
    assert ran.launches == 9
    agree(got, scanned(case, xs, axis))


@pytest.mark.drawn(2)
@pytest.mark.slow
@pytest.mark.parametrize("shape, axis", [((2, 9000), 1), ((60000,), 0), ((500, 9), 0)])
def test_reductions_under_hostile_schedules(shape, axis):
    case = CASES["matrices"]
    xs = data(case, shape, 10)
    with cs.emulate(schedules=8, seed=2):
        agree(cs.reduce(xs, case.op, axis=axis), reduced(case, xs, (axis,)))
