"""``n=``: only the first positions along the axis count, as many as the host or the device says."""

from __future__ import annotations

import numpy as np
import pytest

import cutesync as cs

from ..cases import adjacent, data, same, scanned, segments
from .kernels import KERNELS, StridedTiles, force

FILL = -77


def check_counted(x: np.ndarray, op, axis: int, numbers: list[int], on=None, **options) -> None:
    """The positions that count are scanned as if there were no others; these are not written."""
    on = cs.asarray(x) if on is None else on
    count = cs.asarray(np.array(0))
    for number in numbers:
        out = cs.asarray(np.full_like(x, FILL))
        count = cs.asarray(np.array(number))
        assert cs.scan(on, op, axis=axis, n=count, out=out, **options) is out
        n = min(max(number, 0), x.shape[axis])
        part = [slice(None)] * x.ndim
        part[axis] = slice(n)
        wanted = np.full_like(x, FILL)
        if n:
            wanted[tuple(part)] = scanned(np.ascontiguousarray(x[tuple(part)]), op, axis=axis, **options)
        same(np.asarray(out), wanted, f"{number} of {x.shape} along {axis} {options}")


# Rows and slices whose vectors must be whole have no part in it: ``policy.choose`` takes others.
WHOLE = "short rows", "rows by", "a row by", "slices of a vector"
NAMES = [name for name in KERNELS if not name.startswith(WHOLE)]
QUICK = ("a wave of rows", "tiles of columns", "outer slices in pieces")


@pytest.mark.drawn(14)
@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in NAMES])
def test_every_kernel(name, on_emulator, monkeypatch):
    choice, shape, axis = KERNELS[name]
    force(monkeypatch, choice)
    length = shape[axis]
    numbers = [0, 1, length // 3, length - 1, length, length + 5]
    check_counted(data(shape, "int32"), "add", axis, numbers, reverse=True)
    if NAMES.index(name) % 2:
        check_counted(data(shape, "int32"), "add", axis, numbers[2:3])


def test_strided_arrays(on_emulator, monkeypatch):
    force(monkeypatch, StridedTiles(4, 2, 3, 2))
    x = segments((300, 5), 0)
    on = cs.asarray(np.repeat(x, 2, 1))[:, ::2]
    for reverse in (False, True):
        check_counted(x, adjacent, 0, [-3, 129, 299, 900], on=on, reverse=reverse)


def test_chosen_kernels(on_emulator):
    for shape, axis in (((7, 12), 1), ((1, 400), 1), ((5, 300), 1), ((5, 300), 0), ((4, 1, 3), 1), ((1,), 0)):
        check_counted(data(shape, "int16"), "add", axis, [0, 1, shape[axis] // 2, shape[axis]], init=3)


def test_numbers_of_the_host_are_those_of_the_device(on_emulator):
    """Another number needs no other kernel; NumPy has numbers of its own."""
    x = data((5, 300), "int32")
    on = cs.asarray(x)
    for n in (0, 17, np.int64(100), 300, 1 << 70, -1):
        first = min(max(int(n), 0), 300)
        found = np.asarray(cs.scan(on, axis=1, n=n))[:, :first]
        same(found, np.cumsum(x[:, :first], 1, dtype=np.int32), str(n))
    same(cs.scan(x, axis=1, n=np.array(17))[:, :17], np.cumsum(x[:, :17], 1, dtype=np.int32))
    same(cs.cumsum(x, 1, n=17, dtype="int32")[:, :17], np.cumsum(x[:, :17], 1, dtype=np.int32))


def test_states_and_named_scans(on_emulator):
    x = data((3, 90), "int32")
    on, n = cs.asarray(x), cs.asarray(np.array(31))
    whole = [np.asarray(part)[:, :31] for part in cs.cummax(cs.asarray(x[:, :31].copy()), axis=1)]
    for found, wanted in zip(cs.cummax(on, axis=1, n=n), whole):
        same(np.asarray(found)[:, :31], wanted)
    mean = cs.scan(
        on,
        lambda a, b, k: (a[0] + b[0], a[1]),
        n=n,
        axis=1,
        dtype=("int32", "int32"),
        transform=lambda a, index, k: (a * k, index),
        finish=lambda state, k: state[0] + state[1],
        args=(3,),
    )
    wanted = np.cumsum(x[:, :31] * np.int32(3), 1, dtype=np.int32)
    same(np.asarray(mean)[:, :31], wanted)
    b = cs.asarray(x)
    wanted = np.asarray(cs.linear_recurrence(cs.asarray(x[:, :31] % 3), cs.asarray(x[:, :31].copy()), axis=1))
    same(np.asarray(cs.linear_recurrence(cs.asarray(x % 3), b, axis=1, n=31))[:, :31], wanted)


def test_what_is_refused(on_emulator):
    x = cs.asarray(data((5, 30), "int32"))
    for n in (1.5, True, "3", [3]):
        with pytest.raises(TypeError, match="n: got"):
            cs.scan(x, n=n)
    for n in (np.zeros(1, np.int64), np.zeros((), np.int32)):
        with pytest.raises(TypeError, match="0-d array of int64"):
            cs.scan(x, n=cs.asarray(n))
    with pytest.raises(ValueError, match="tiered"):
        cs.scan(x, n=3, algorithm="tiered")
