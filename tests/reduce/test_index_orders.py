"""argmin and argmax of elements whose indexes are not in the order of memory: permuted, reversed and repeated axes,
some of them kept. Of equal elements, and of NaNs, that of the lowest index in C order wins."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs
from cutesync.emulator.machine import Machine
from cutesync.kernels.reduce import launches, policy, strided_loads, strided_policy
from cutesync.runtime import call as calls, device
from cutesync.runtime.kernel import collect

from ..cases import same
from ..compiled import dry, needed, verify
from .strided_cases import recorded

TYPES = ("int8", "float16", "float32", "uint64", "float64", "bool", "uint16")


@pytest.fixture
def chosen(monkeypatch):
    """Policies as for large arrays; the choices that are made."""
    monkeypatch.setattr(strided_policy, "MIN_INDEXED_BYTES", 0)
    monkeypatch.setattr(strided_policy, "MIN_INDEXED_RUN", 512)
    monkeypatch.setattr(strided_policy, "PIECE_BYTES", (512, 2048))
    for name in ("MIN_INDEXED", "MIN_RUN_ARRAY", "MIN_FEW_RESULTS"):
        monkeypatch.setattr(strided_loads, name, 0)
    read_forwards(monkeypatch)
    found = recorded(monkeypatch)
    return found


def read_forwards(monkeypatch):
    """Small arrays as large ones."""
    for name in ("MIN_FORWARDS", "MIN_FORWARDS_APART"):
        monkeypatch.setattr(launches, name, 0)


def kind(choice) -> str:
    policy = choice.policy
    name = "run" if isinstance(policy, strided_policy.RunPolicy) else policy.load
    return f"{name} {'apart' * policy.indexed}".strip()


def drawn(rng: np.random.Generator, dtype: str, last: int):
    """An array of random strides in a memory of few values, the neighbours in which are a run of ``last`` elements; the
    memory, its shape and steps, and the first element."""
    count = int(rng.integers(1, 4))
    extents = [int(n) for n in rng.integers(1, 8, count - 1)] + [last]
    steps, pace = [0] * count, 1
    for i in reversed(range(count)):
        steps[i], pace = pace, pace * (extents[i] + int(i < count - 1 and rng.integers(0, 2)) * 16)
    offset = int(rng.choice([0, 0, 0, 1, 5]))
    memory = rng.integers(0, 3, pace + offset).astype(np.float64)
    if rng.integers(0, 3) == 0 and "float" in dtype:
        memory[rng.integers(0, pace, 2)] = np.nan
    first = offset
    for i in range(count):
        if rng.integers(0, 3) == 0:
            first += (extents[i] - 1) * steps[i]
            steps[i] = -steps[i]
    if rng.integers(0, 4) == 0:
        extents.append(int(rng.integers(2, 4)))
        steps.append(0)
    order = rng.permutation(len(extents))
    memory = memory.astype(dtype)
    return memory, [extents[i] for i in order], [steps[i] for i in order], first


def agrees(memory, shape, steps, first: int, axis, name: str) -> None:
    view = np.lib.stride_tricks.as_strided(memory[first:], shape, [step * memory.itemsize for step in steps])
    x = cs.asarray(memory).as_strided(tuple(shape), tuple(steps), first)
    if type(axis) is tuple:
        kept = [i for i in range(len(shape)) if i not in axis]
        wanted = view.transpose(*kept, *sorted(axis)).reshape([*(shape[i] for i in kept), -1])
        wanted = getattr(wanted, name)(-1)
    else:
        wanted = getattr(view, name)(axis)
    same(np.asarray(getattr(cs, name)(x, axis=axis)), wanted, f"{shape} {steps} from {first} along {axis}")


@pytest.mark.drawn(3)
@pytest.mark.parametrize("seed", range(12))
def test_random_orders(chosen, seed):
    rng = np.random.default_rng([5, seed])
    for _ in range(4):
        dtype, last = TYPES[rng.integers(len(TYPES))], int(rng.choice([16, 32, 64, 33, 300, 1040, 1800]))
        memory, shape, steps, first = drawn(rng, dtype, last)
        name = str(rng.choice(["argmax", "argmin"]))
        agrees(memory, shape, steps, first, None, name)
        if len(shape) > 1:
            agrees(memory, shape, steps, first, tuple(sorted(map(int, rng.permutation(len(shape))[:2]))), name)
            agrees(memory, shape, steps, first, int(rng.integers(len(shape))), name)


# shape and steps of a view, its first element, the axes of a call, and how its elements are read
VIEWS = {
    "transposed": ((1100, 9), (1, 1100), 0, None, "run apart"),
    "transposed, off by one": ((1100, 9), (1, 1107), 1, None, "run apart"),
    "transposed, of short rows": ((64, 30), (1, 64), 0, None, "row apart"),
    "transposed, of rows of no whole vectors": ((33, 30), (1, 33), 0, None, "element apart"),
    "reversed": ((3, 1900), (1900, -1), 1899, None, "run"),
    "reversed, along its rows": ((5, 1043), (1060, -1), 1047, 1, "run"),
    "reversed, of short rows": ((30, 64), (64, -1), 63, None, "row"),
    "reversed and transposed": ((1100, 9), (-1, 1100), 1099, None, "run apart"),
    "several kept and reduced": ((4, 48, 3, 5), (144, 1, 48, 576), 0, (1, 2), "row apart"),
    "reversed and kept": ((40, 6, 530), (530, 40 * 530, -1), 529, (1, 2), "run"),
}


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("name", VIEWS)
def test_how_elements_are_read(name, dtype, chosen):
    shape, steps, first, axis, how = VIEWS[name]
    size = 1 + first + sum((n - 1) * max(step, 0) for n, step in zip(shape, steps))
    for seed in range(2):
        memory = np.random.default_rng(seed).integers(0, 2 + 200 * seed, size).astype(dtype)
        agrees(memory, shape, steps, first, axis, "argmax" if seed else "argmin")
    assert {kind(choice) for choice in chosen} == {how}


# rows backwards, whose elements are read forwards, and the kernel
BACKWARDS = {
    "a row": ((1, 9001), "SegmentPolicy"),
    "long rows": ((3, 20_001), "SegmentPolicy"),
    "short rows of vectors": ((40, 64), "ShortRowPolicy"),
    "odd rows": ((40, 45), "ShortRowPolicy"),
    "few elements a row": ((5000, 4), "WholeRowPolicy"),
}


@pytest.mark.drawn(3)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", BACKWARDS)
def test_rows_backwards_are_read_as_rows(name, dtype, monkeypatch):
    """By the kernels of contiguous arrays, and the last of equal elements in memory wins; so does the last NaN."""
    monkeypatch.setattr(calls, "_plans", {})
    monkeypatch.setattr(policy, "SMALL_ROWS_BYTES", 0)
    read_forwards(monkeypatch)
    (rows, length), kernel = BACKWARDS[name]
    memory = np.random.default_rng(length).integers(0, 2, rows * length).astype(dtype)
    if "float" in dtype:
        memory[::1000] = np.nan
    with collect() as found:
        cs.argmax(cs.asarray(memory).as_strided((rows, length), (length, -1), length - 1), axis=1)
    assert kernel in [type(key[1]).__name__ for key in found]
    for call in ("argmax", "argmin"):
        agrees(memory, (rows, length), (length, -1), length - 1, 1, call)


def test_each_element_is_read_once(chosen, monkeypatch):
    """Runs whose indexes lie apart take about as many steps as the same runs with indexes in the order of memory."""
    monkeypatch.setattr(strided_policy, "PIECE_BYTES", (4096, 4096))
    steps: list = []
    run = Machine.run
    monkeypatch.setattr(
        Machine, "run", lambda machine, *a, **k: (run(machine, *a, **k), steps.append(machine.steps))[0]
    )
    memory = cs.asarray(np.arange(160_128, dtype=np.int32))
    for shape, along in (((8, 20_000), (20_016, 1)), ((20_000, 8), (1, 20_016))):
        cs.argmax(memory.as_strided(shape, along))
    assert [kind(choice) for choice in chosen] == ["run", "run apart"] and steps[1] < 1.25 * steps[0]


# as in VIEWS, and whether blocks share a result
SHARED = {
    "vectors": ((64, 1920), (1, 64), 0, None, "row apart", True),
    "runs": ((48, 1900), (1900, -1), 1899, None, "run", True),
    "vectors of several results": ((4, 48, 3, 5), (144, 1, 48, 576), 0, (1, 2), "row apart", False),
}


@pytest.mark.parametrize("name", SHARED)
def test_agrees_under_schedules(name, chosen, monkeypatch):
    monkeypatch.setattr(strided_policy, "SMS", 4)
    shape, steps, first, axis, how, shared = SHARED[name]
    size = 1 + first + sum((n - 1) * max(step, 0) for n, step in zip(shape, steps))
    memory = np.random.default_rng(3).integers(0, 3, size).astype("uint8")
    with cs.emulate(schedules=6, seed=5):
        agrees(memory, shape, steps, first, axis, "argmax")
    assert {kind(choice) for choice in chosen} == {how} and all((choice.splits > 1) == shared for choice in chosen)


# shape and steps of a large view, its axes, and its type; each selects another way to read indexes apart
LARGE = {
    "runs": ((65536, 512), (1, 65536), None, "bool"),
    "runs backward": ((512, 65536), (65536, -1), None, "int8"),
    "runs of floats backward": ((512, 65536), (65536, -1), None, "float64"),
    "rows of halves backward": ((4096, 8192), (8192, -1), 1, "uint16"),
    "vectors": ((64, 65536), (1, 64), None, "uint8"),
    "vectors of wide elements": ((16, 65536), (1, 16), None, "int64"),
    "words": ((12, 65536), (1, 12), None, "bool"),
}


@pytest.mark.drawn(3)
@pytest.mark.parametrize("name", LARGE)
def test_compiles_without_spills(name, allocated):
    shape, steps, axis, dtype = LARGE[name]
    view = dry(shape, dtype, base=1 << 41).as_strided(shape, steps, max(shape) - 1 if min(steps) < 0 else 0)
    for spec in needed(cs.argmax, view, axis=axis):
        verify(spec, allocated)


# shapes and steps of views, the first element, the axis, the type, and how it is read with the limits of large arrays
LIMITS = {
    "long runs are read as such": ((4096, 600), (1, 4096), 0, None, "float32", "run apart"),
    "shorter ones as vectors": ((512, 6000), (1, 512), 0, None, "float32", "row apart"),
    "those of few elements one by one": ((32, 8000), (1, 32), 0, None, "float64", "element apart"),
    "backward": ((64, 65536), (65536, -1), 65535, None, "float64", "run"),
    "of small arrays one by one": ((8, 16384), (16384, -1), 16383, None, "uint8", "element"),
}


@pytest.mark.parametrize("name", LIMITS)
def test_limits(name, monkeypatch):
    shape, steps, first, axis, dtype, how = LIMITS[name]
    found = recorded(monkeypatch)
    with device.forced("dry"):
        cs.argmax(cs.empty((shape[0] * shape[1],), dtype).as_strided(shape, steps, first), axis=axis)
    assert [kind(choice) for choice in found] == [how]
