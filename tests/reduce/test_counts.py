"""``n=``: only the first elements along an axis count; a number and an array on the device mean the same."""

import numpy as np
import pytest

import cutesync as cs
from cutesync.errors import ArgumentTypeError, ArgumentValueError
from cutesync.runtime import compiler

from ..cases import bicyclic, brackets, data, fold, same


def counts(n: int) -> list:
    """The number, and arrays of it on the device."""
    return [n, cs.asarray(np.array(n, np.int64))]


# name: (x on the device, the same for NumPy, axis)
def layouts() -> dict:
    x, column, row = data((3, 300), "int32"), data((90, 5), "int32"), data(5000, "int32")
    whole = cs.asarray(x)
    return {
        "rows": (whole, x, 1),
        "sliced rows backwards": (whole[::-1, 3:200], x[::-1, 3:200], 1),
        "stepped": (whole[:, ::3], x[:, ::3], 1),
        "reversed": (whole[:, ::-1], x[:, ::-1], 1),
        "columns": (cs.asarray(column), column, 0),
        "one row": (cs.asarray(row), row, None),
    }


@pytest.mark.drawn(3)
@pytest.mark.parametrize("name", layouts())
def test_the_first_elements_count(name):
    array, x, axis = layouts()[name]
    rows = np.moveaxis(x, axis or 0, -1)
    extent = rows.shape[-1]
    for n in (extent, 0, 17, extent + 5, -3):
        wanted = np.asarray(rows[..., : max(n, 0)].max(-1, initial=-(1 << 31)))
        for count in counts(n):
            found = cs.reduce(array, "max", axis=axis, init=-(1 << 31), n=count)
            same(np.asarray(found), wanted, f"max, {name}, n={n}")


def test_named_reductions_divide_by_what_counts():
    x = np.random.default_rng(0).standard_normal((4, 300)).astype(np.float32)
    for count in counts(100):
        np.testing.assert_allclose(np.asarray(cs.mean(cs.asarray(x), axis=1, n=count)), x[:, :100].mean(1), rtol=2e-5)
        found = cs.var(cs.asarray(x), axis=1, ddof=1, n=count)
        np.testing.assert_allclose(np.asarray(found), x[:, :100].var(1, ddof=1), rtol=1e-4)
    for count in counts(0):
        assert np.isnan(np.asarray(cs.mean(cs.asarray(x), axis=1, n=count))).all()
        same(np.asarray(cs.count_nonzero(cs.asarray(x), axis=1, n=count)), np.zeros(4, np.int64))
    low, high = cs.minmax(cs.asarray(x), axis=1, n=9)
    same(np.asarray(low), x[:, :9].min(1))
    same(np.asarray(high), x[:, :9].max(1))


def test_places_and_order():
    x = data((6, 400), "int8")
    same(np.asarray(cs.argmax(cs.asarray(x), axis=1, n=150)), x[:, :150].argmax(1))
    same(np.asarray(cs.argmin(cs.asarray(x), axis=0, n=2)), x[:2].argmin(0))
    y = brackets((3, 900))
    for count in counts(333):
        found = cs.reduce(cs.asarray(y), bicyclic, axis=1, identity=0, n=count)
        same(np.asarray(found), fold(bicyclic, y[:, :333]))


def test_states_with_arguments_in_memory():
    x, y = data((2, 500), "int32"), data((2, 500), "int32")
    scale = cs.asarray(np.array(3, np.int32))
    options = {"axis": 1, "args": (scale,), "init": (0, 0), "dtype": ("int32", "int32")}
    for count in counts(77):
        found = cs.reduce(
            (cs.asarray(x), cs.asarray(y)),
            lambda p, q, s: (p[0] + q[0], p[1] + q[1]),
            transform=lambda a, b, s: (a * s, b),
            n=count,
            **options,
        )
        same(np.asarray(found[0]), (x[:, :77] * np.int32(3)).sum(1, dtype=np.int32))
        same(np.asarray(found[1]), y[:, :77].sum(1, dtype=np.int32))


def test_numbers_and_arrays_give_the_same_bits():
    x = np.random.default_rng(1).standard_normal((3, 4001)).astype(np.float32)
    for n in (4001, 3000, 5):
        number, memory = (np.asarray(cs.sum(cs.asarray(x), axis=1, n=count)) for count in counts(n))
        assert number.tobytes() == memory.tobytes()


def test_a_new_value_compiles_nothing(monkeypatch):
    x = cs.asarray(data((3, 300), "int32"))
    for count in counts(5):
        cs.sum(x, axis=1, n=count)
    monkeypatch.setattr(compiler, "_compile", lambda *given: pytest.fail("compiled"))
    for n in (6, 0, 300, 1 << 40):
        for count in counts(n):
            cs.sum(x, axis=1, n=count)


def test_numpy_arrays_take_numpy_numbers():
    x = data((3, 70), "int32")
    same(cs.sum(x, axis=1, n=np.array(8)), x[:, :8].sum(1, dtype=np.int64))
    same(cs.sum(x, axis=1, n=np.int32(8)), x[:, :8].sum(1, dtype=np.int64))


def test_what_is_refused():
    x = cs.asarray(data((3, 70), "int32"))
    for n in (True, 2.0, "2", [2], np.float32(2)):
        with pytest.raises(ArgumentTypeError, match="n.*int"):
            cs.sum(x, axis=1, n=n)
    for n in (cs.empty(1, "int64"), cs.empty((), "int32")):
        with pytest.raises(ArgumentTypeError, match="0-d array of int64"):
            cs.sum(x, axis=1, n=n)
    for axis in (None, (0, 1)):
        with pytest.raises(ArgumentValueError, match="one reduced axis"):
            cs.sum(x, axis=axis, n=2)
    for call in (cs.max, cs.argmax, cs.minmax):
        for count in counts(0):
            with pytest.raises(ArgumentValueError, match="no identity"):
                call(x, axis=1, n=count)
    with pytest.raises(ArgumentValueError, match="algorithm"):
        cs.reduce(x[0], algorithm="atomic", n=2)
